"""Real people at several budgets and caps: ``python -P -m tests.campaigns.real_people``.

The log of 93 people goes through ``register``, ``ingest`` and ``run`` at rho 0.3, 1 and 3 with 10, 40 and 80 rounds a
person.  The cap m is changed by ``register --amend`` on the one lineage, every run is charged to it, and its lifetime
cap is amended to hold them.  Then the two smaller logs once, at rho = 1.  Everything printed is a released fact; card
and ledger are copies in a temporary folder.
"""

import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from flows.config.home import Home
from flows.jobs.intake import ingest_job
from flows.jobs.registration import register_job
from tests.campaigns.rows import ROOT, markdown
from tests.jobs import run_job

BUDGETS, CAPS = (0.3, 1.0, 3.0), (10, 40, 80)
HEAD = ("log", "people", "m", "ρ", "ε at 1e-6", "value of the policy", "of uniform", "noise", "abstains", "spent ρ")


def copied(name: str, folder: Path) -> Path:
    """Card, log and recipe of a shelf dataset, to be changed without touching the shelf's ledger."""
    return shutil.copytree(ROOT / "datasets" / name, folder, ignore=shutil.ignore_patterns("ledger"))


def recipe(folder: Path, name: str, rho: float) -> str:
    """The shipped recipe at another budget."""
    text = (ROOT / "flows" / "recipes" / f"{name}.toml").read_text()
    text = text.replace(f'card = "{name}"', 'card = "card.toml"').replace("rho = 1.0", f"rho = {rho}")
    path = folder / f"rho-{rho}.toml"
    path.write_text(text)
    return str(path)


def amended(folder: Path, m: int, cap: float) -> None:
    """Declare another cap of rounds a person and another lifetime budget."""
    card = folder / "card.toml"
    text = re.sub(r"episodes_per_user = \d+", f"episodes_per_user = {m}", card.read_text())
    card.write_text(re.sub(r"(?m)^rho = [\d.]+", f"rho = {cap}", text))


def row(name: str, r: dict) -> tuple[str, ...]:
    """One run in a line: what was released, how noisy one count is, and what the ledger has spent."""
    facts = json.loads((Path(r["folder"]) / "report.json").read_text())
    value, dataset, uniform = facts["value"], facts["dataset"], facts["model_baselines"]["uniform"]
    table = next(m for m in facts["mechanisms"] if m["table"] == "n_sas")
    return (
        name,
        f"{dataset['users_public']}",
        f"{math.isqrt(table['l2_squared'] // (2 * dataset['horizon']))}",
        f"{facts['guarantee']['asked']['rho']:g}",
        f"{facts['guarantee']['epsilon']:.2f}",
        *(f"{of['lower']:.2f} to {of['upper']:.2f}" for of in (value, uniform)),
        f"{table['scale']:.1f}",
        f"{facts['policy']['abstain_share']:.2f}",
        f"{facts['ledger']['spent_rho']:.2f}",
    )


def rows(root: Path) -> Iterator[tuple[str, ...]]:
    folder, home = copied("two_step_game", root / "game"), Home(root / "home")
    register_job(str(folder), home)
    for m in CAPS:
        amended(folder, m, 13.0)
        register_job(str(folder), home, amend=True)
        ingest_job(str(folder), home)
        for rho in BUDGETS:
            yield row("two_step_game", run_job(recipe(folder, "two_step_game", rho), home))
    for name in ("two_step_adults", "two_step_chance"):
        folder = copied(name, root / name)
        register_job(str(folder), home)
        ingest_job(str(folder), home)
        yield row(name, run_job(recipe(folder, name, 1.0), home))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        print(markdown(HEAD, rows(Path(scratch))))
