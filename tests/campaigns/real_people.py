"""Real people at several budgets and caps: ``python -P -m tests.campaigns.real_people``.

The log of 93 people goes through ``register``, ``ingest`` and ``run`` at rho 0.3, 1 and 3 with 10, 40 and 80 rounds a
person.  The cap m is changed by ``register --amend`` on the one lineage, every run is charged to it, and its lifetime
cap is amended to hold them.  Everything printed is a released fact; card and ledger are copies in a temporary folder.
Then
the two smaller logs once, at rho = 1.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import tempfile
from pathlib import Path

from flows.config.home import Home
from flows.jobs.intake import ingest_job
from flows.jobs.registration import register_job
from pipeline.ledger.ledger import open_ledger
from tests.jobs import run_job

ROOT = Path(__file__).resolve().parents[2]
BUDGETS, CAPS = (0.3, 1.0, 3.0), (10, 40, 80)
HEAD = (
    f"{'log':>16} {'people':>6} {'m':>4} {'rho':>5} {'ε':>6} {'value of policy':>16} {'of uniform':>14} "
    f"{'moves':>6} {'noise':>7} {'abstains':>8}"
)


def copied(name: str, folder: Path) -> Path:
    """Card, log and recipe of a shelf dataset, to be changed without touching the shelf's ledger."""
    source = ROOT / "datasets" / name
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("ledger"))
    return folder


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


def row(name: str, r: dict) -> str:
    """One run in a line: what was released, and what one person can move."""
    facts = json.loads((Path(r["folder"]) / "report.json").read_text())
    value, dataset = facts["value"], facts["dataset"]
    table = next(m for m in facts["mechanisms"] if m["table"] == "n_sas")
    moved = math.isqrt(table["l2_squared"] // (2 * dataset["horizon"]))
    uniform = facts["model_baselines"]["uniform"]
    return (
        f"{name:>16} {dataset['users_public']:>6} {moved:>4} {facts['guarantee']['asked']['rho']:>5g} "
        f"{facts['guarantee']['epsilon']:>6.2f} {value['lower']:>7.2f} … {value['upper']:<6.2f} "
        f"{uniform['lower']:>6.2f} … {uniform['upper']:<5.2f} {moved:>6} {table['scale']:>7.1f} "
        f"{facts['policy']['abstain_share']:>8.2f}"
    )


def main() -> None:
    """Print a row a run, and the ledger's sum."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        folder, home = copied("two_step_game", root / "game"), Home(root / "home")
        register_job(str(folder), home)
        print(HEAD)
        for i, m in enumerate(CAPS):
            amended(folder, m, 13.0)
            register_job(str(folder), home, amend=True)
            ingest_job(str(folder), home)
            for rho in BUDGETS:
                print(row("two_step_game", run_job(recipe(folder, "two_step_game", rho), home)), flush=True)
            account = open_ledger(folder / "ledger" / "ledger.db", create=False).account("two_step_game")
            print(f"    ledger after {i + 1} caps: spent ρ = {float(account.spent):.4f} of {float(account.cap):g}")
        for name in ("two_step_adults", "two_step_chance"):
            folder = copied(name, root / name)
            register_job(str(folder), home)
            ingest_job(str(folder), home)
            print(row(name, run_job(recipe(folder, name, 1.0), home)), flush=True)


if __name__ == "__main__":
    main()
