"""Processor seconds of whole commands, imports included: ``python -P -m tests.benchmarks.start_up [ROUNDS]``.

Every line is a fresh process, the anchor (an interpreter that imports numpy and polars) among them; medians, and the
spread of all rounds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_CLI = ("-m", "flows.cli", "--home", "{home}")
COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("anchor: import numpy, polars", ("-c", "import numpy, polars")),
    ("--help", (*_CLI, "--help")),
    ("demo, first", (*_CLI, "demo")),
    ("demo, replayed", (*_CLI, "demo")),
    ("plan demo", (*_CLI, "plan", "demo")),
    ("ledger show", (*_CLI, "ledger", "show")),
)


def processor_seconds(arguments: Sequence[str]) -> float:
    """What a child process and its children took, user and system."""
    child = subprocess.Popen([sys.executable, "-P", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: exit {child.returncode}")
    return used.ru_utime + used.ru_stime


def main(rounds: int = 5) -> None:
    """Print a line a command."""
    found: dict[str, list[float]] = {name: [] for name, _ in COMMANDS}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as home:
            for name, command in COMMANDS:
                found[name].append(processor_seconds([part.format(home=Path(home) / "home") for part in command]))
    print(f"{'command':<32}{'CPU s':>7}{'least':>7}{'most':>7}{'x anchor':>10}   median of {rounds}")
    anchor = statistics.median(found[COMMANDS[0][0]])
    for name, times in found.items():
        middle = statistics.median(times)
        print(f"{name:<32}{middle:7.2f}{min(times):7.2f}{max(times):7.2f}{middle / anchor:10.1f}")
    print("load at the end", os.getloadavg()[0])


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
