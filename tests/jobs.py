"""Jobs as their verbs print them, through the door of the house: the answer of each as plain values."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flows.config.home import Home
from flows.jobs.nightly import run_night
from flows.jobs.plan import forecast_quality, plan_recipe
from flows.jobs.run import run_recipe
from pipeline.ledger.ledger import Ledger
from reticent import Store


def home_at(root: Path, shelf: Path | None = None) -> Home:
    return Store(root, shelf=shelf).home


def ingest_job(card: Any, home: Home) -> dict[str, Any]:
    return Store(home.root, shelf=home.shelf).ingest(card)


def register_job(card: Any, home: Home, **more: Any) -> dict[str, Any]:
    return Store(home.root, shelf=home.shelf).register(card, **more)


def ledger_of(home: Home) -> Ledger:
    """Of the synthetic datasets of a home."""
    return Store(home.root).ledger().kept


def entries_of(home: Home, card: Any = None) -> list[dict[str, Any]]:
    """Every entry of a ledger, as an auditor is given them."""
    with TemporaryDirectory() as folder:
        Store(home.root, shelf=home.shelf).ledger(card).export(file := Path(folder) / "ledger.json")
        return json.loads(file.read_text(encoding="utf-8"))["entries"]


def run_job(*args: Any, **more: Any) -> dict[str, Any]:
    return run_recipe(*args, **more).model_dump()


def nightly_job(*args: Any, **more: Any) -> dict[str, Any]:
    return run_night(*args, **more).model_dump()


def plan_job(*args: Any, **more: Any) -> dict[str, Any]:
    return plan_recipe(*args, **more).model_dump()


def foresee_job(*args: Any, **more: Any) -> dict[str, Any]:
    return forecast_quality(*args, **more).model_dump()
