"""A release of a shop's recipe through the one state machine, without policy and pages."""

from pathlib import Path
from typing import Any

from flows.config.home import Home
from flows.config.recipe import setting
from flows.jobs.registration import ledger_for, newest_snapshot
from pipeline.ledger.ledger import Ledger
from pipeline.privacy.noise import OsNoise
from pipeline.transaction.release_once import Curated, release_once


def release(
    people: tuple[Path, Home],
    name: str = "private",
    home: Home | None = None,
    edition: int | None = None,
    **changed: Any,
) -> Curated:
    """As ``run`` asks for it.

    ``edition``: None: the newest, of which it was made sure that it fits.
    ``changed``: tables of the card that differ from the registered one.
    """
    folder, own = people
    s = setting(str(folder / f"{name}.toml"), home or own)
    edition = edition or newest_snapshot(s.card, s.home).number
    card = s.card.model_copy(update=changed)
    return release_once(card, edition, s.plan, ledger_for(s.card, s.home), s.home.store, OsNoise())


def ledger_of(people: tuple[Path, Home]) -> Ledger:
    folder, home = people
    return ledger_for(setting(str(folder / "private.toml"), home).card, home)


def newest(people: tuple[Path, Home]) -> Any:
    folder, home = people
    return newest_snapshot(setting(str(folder / "private.toml"), home).card, home)
