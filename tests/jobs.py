"""Jobs as their verbs print them, through the door of the house: the answer of each as plain values."""

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import reticent
from flows.config.home import Home, Work
from flows.jobs.nightly import run_night
from flows.jobs.plan import forecast_quality, plan_recipe
from flows.jobs.proof import Proof
from flows.jobs.run import run_recipe
from pipeline.facts.answers import NightAnswer
from pipeline.facts.report import Report
from pipeline.ledger.ledger import Ledger
from reports.run.comparison import ServedPage, night_page
from reticent import LogOptions, Store


def home_at(root: Path, shelf: Path | None = None) -> Home:
    return Store(root, shelf=shelf).home


def ingest_job(card: Any, home: Home) -> dict[str, Any]:
    return Store(home.root, shelf=home.shelf).ingest(card)


def register_job(card: Any, home: Home, **more: Any) -> dict[str, Any]:
    return Store(home.root, shelf=home.shelf).register(card, **more)


def inspect_job(card: Any, home: Home) -> dict[str, Any]:
    return Store(home.root, shelf=home.shelf).inspect(card)


def purge_job(card: Any, home: Home, **more: Any) -> dict[str, Any]:
    return Store(home.root, shelf=home.shelf).purge(card, **more)


def simulate_logs(world: str, asked: LogOptions, home: Home) -> dict[str, Any]:
    return reticent.simulate_logs(world, asked, store=Store(home.root, shelf=home.shelf))


def ledger_in(folder: Path) -> Ledger:
    """The ledger that lies in a folder."""
    return Store(folder).ledger().chain


def ledger_of(home: Home) -> Ledger:
    """Of the synthetic datasets of a home."""
    return ledger_in(home.root)


def entries_of(home: Home, card: Any = None) -> list[dict[str, Any]]:
    """Every entry of a ledger, as an auditor is given them."""
    with TemporaryDirectory() as folder:
        Store(home.root, shelf=home.shelf).ledger(card).export(file := Path(folder) / "ledger.json")
        return json.loads(file.read_text(encoding="utf-8"))["entries"]


def proof_of(folder: Path, card: Any = None) -> Proof:
    """What ``ledger verify`` says of a run in its home."""
    return Store(folder.parents[1]).open(folder.name, card).verify()


def wrong_of(folder: Path, root: Path, ledger: Path | None = None) -> list[Any]:
    """Checks that fail in a home, but for the ledger's word on every byte of the folder; no card is at hand.

    ``ledger``: an exported one; None: that of the home, which may have none.
    """
    checks = Store(root).open(folder).verify(ledger=ledger).checks
    return [c for c in checks if c.ok is False and "vouches for every file" not in c.what]


def policy_of(folder: Path, card: Any = None) -> Any:
    """A run's policy as it is stored; refused where a file is not the one that was published."""
    return Store(folder.parents[1]).open(folder.name, card).policy.stored


def facts_of(folder: Path) -> Report:
    """All that a run's report says."""
    return Store(folder.parents[1]).open(folder.name).facts


def run_job(*args: Any, say: Callable[[str], None] | None = None, **more: Any) -> dict[str, Any]:
    """``say``: is told what the job says on the way."""
    return run_recipe(*args, **_saying(say), **more).model_dump()


def nightly_job(*args: Any, say: Callable[[str], None] | None = None, **more: Any) -> dict[str, Any]:
    """As :func:`run_job`."""
    return run_night(*args, **_saying(say), **more).model_dump()


def _saying(say: Callable[[str], None] | None) -> dict[str, Any]:
    return {} if say is None else {"work": Work(say=say)}


def page_of(night: dict[str, Any]) -> ServedPage:
    """What a server shows of a night."""
    return night_page(NightAnswer.model_validate(night))


def check_night(recipe: Any, home: Home, hours: float = 30) -> dict[str, Any]:
    """What ``nightly --check`` says."""
    return reticent.night_problem(recipe, hours=hours, store=Store(home.root, shelf=home.shelf))


def plan_job(*args: Any, **more: Any) -> dict[str, Any]:
    return plan_recipe(*args, **more).model_dump()


def foresee_job(*args: Any, **more: Any) -> dict[str, Any]:
    return forecast_quality(*args, **more).model_dump()
