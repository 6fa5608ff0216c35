"""Processor seconds of whole commands, imports included: ``python -P -m tests.benchmarks.start_up [ROUNDS]``.

Every line is a fresh process, the anchor (an interpreter that imports numpy and polars) among them; medians of
all rounds.  A log of one's own has 3,000 people, ten steps, twelve states and four actions; its card is what
``draft`` proposes.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tests.campaigns.rows import markdown, markdown_row

_CLI = ("-m", "flows.cli", "--home", "{home}")
COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("anchor: import numpy, polars", ("-c", "import numpy, polars")),
    ("--help", (*_CLI, "--help")),
    ("demo, first", (*_CLI, "demo")),
    ("demo, replayed", (*_CLI, "demo")),
    ("plan demo", (*_CLI, "plan", "demo")),
    ("ledger show", (*_CLI, "ledger", "show")),
    ("plan own log, dp-apvi", (*_CLI, "plan", "{home}/../dp-apvi.toml")),
    ("plan own log, dp-one-step", (*_CLI, "plan", "{home}/../dp-one-step.toml")),
)
_PEOPLE, _STEPS, _STATES, _ACTIONS = 3000, 10, 12, 4


def lay_out(folder: Path) -> None:
    """A log, the card that is drafted for it and registered, and a recipe for each of two agents."""
    rng, rows = np.random.default_rng(0), _PEOPLE * _STEPS
    who, step = np.divmod(np.arange(rows), _STEPS)
    pl.DataFrame(
        {
            "patient": pl.Series(who).cast(pl.String),
            "step": step,
            "state": pl.Series(rng.integers(_STATES, size=rows)).cast(pl.String),
            "treatment": pl.Series(rng.integers(_ACTIONS, size=rows)).cast(pl.String),
            "reward": rng.integers(2, size=rows),
        }
    ).write_csv(folder / "log.csv")
    draft = ("draft", str(folder / "log.csv"), "--name", "own", "--to", str(folder))
    for verb in (draft, ("register", str(folder / "card.toml"))):
        processor_seconds([*(part.format(home=folder / "home") for part in _CLI), *verb])
    for agent in ("dp-apvi", "dp-one-step"):
        recipe = f'[recipe]\nname = "own"\ncard = "card.toml"\nagent = "{agent}"\n[privacy]\nrho = 0.5\n'
        (folder / f"{agent}.toml").write_text(recipe, encoding="utf-8")


def processor_seconds(arguments: Sequence[str]) -> float:
    """What a child process and its children took, user and system, with compiled modules as an installation has."""
    compiled = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    quiet = subprocess.DEVNULL
    child = subprocess.Popen([sys.executable, "-P", *arguments], stdout=quiet, stderr=quiet, env=compiled)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit {child.returncode}")
    return used.ru_utime + used.ru_stime


def main(rounds: int = 5) -> None:
    found: dict[str, list[float]] = {name: [] for name, _ in COMMANDS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            lay_out(folder := Path(place))
            for name, command in COMMANDS:
                found[name].append(processor_seconds([part.format(home=folder / "home") for part in command]))
    print(markdown(["verb", "CPU s", "x anchor"]))
    anchor = statistics.median(found[COMMANDS[0][0]])
    for name, times in found.items():
        middle = statistics.median(times)
        print(markdown_row([name, f"{middle:.2f}", f"{middle / anchor:.1f}"]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
