"""A shop whose customers come in night by night: a clock that a test moves, and one call a night."""

from __future__ import annotations

import shutil
from copy import copy
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import pipeline.ledger.ledger as book
from flows.config.recipe import night_of, nightly_counter, setting
from pipeline.ledger.ledger import Ledger
from pipeline.logs.store import latest
from pipeline.privacy.noise import OsNoise
from pipeline.transaction.continual_step import ContinualRelease, append_step
from pipeline.transaction.transaction import Curated
from tests.flows.shop import lay_out, rows, same_key, write_log, write_recipe
from tests.jobs import home_at, ingest_job, ledger_in, nightly_job, register_job, run_job

FIRST = date(2026, 1, 1)


def stop_clock(patch: pytest.MonkeyPatch, at: datetime) -> None:
    """The ledger's clock stands still."""
    patch.setattr(book, "now", lambda: at)


class Shop:
    """A registered card, a recipe with [nightly], and the nights so far."""

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        *,
        kind: str = "real",
        counter: str = "tree",
        nights: int = 8,
        cap: float = 3.0,
        unit: str = "",
        budget: str = "",
        reserve: float = 0,
        nightly: str = "",
    ) -> None:
        self.folder = lay_out(folder / "shop", kind=kind, cap=cap)
        self.home, self._patch = home_at(folder / "home"), monkeypatch
        card = self.folder / "card.toml"
        text = card.read_text().replace("episodes_per_user = 1", unit) if unit else card.read_text()
        card.write_text(text.replace("reserve = 0\n", f"reserve = {reserve:g}\n") + budget)
        self.recipe = self.write("night", f'nights = {nights}\nfirst = "{FIRST}"\ncounter = "{counter}"\n{nightly}')
        self.on(1)
        same_key(self.home.store)
        if kind == "real":
            register_job(str(self.folder), self.home)

    def copied(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
        """The same shop and home in another folder, on its next night."""
        shutil.copytree(self.folder.parent, folder, dirs_exist_ok=True, symlinks=True)
        again = copy(self)
        again.folder, again.home, again._patch = folder / "shop", home_at(folder / "home"), monkeypatch
        again.recipe = str(again.folder / "night.toml")
        return again

    def write(self, name: str, nightly: str, rho: float = 1.0) -> str:
        return str(write_recipe(self.folder, name, privacy=f"[privacy]\nrho = {rho}\n[nightly]\n{nightly}"))

    def on(self, night: int) -> None:
        """It is this night now."""
        at = datetime(FIRST.year, FIRST.month, FIRST.day, 3, tzinfo=UTC) + timedelta(days=night - 1)
        stop_clock(self._patch, at)

    def lay(self, log: list[tuple]) -> None:
        """Put a log in place of the last; of no rows, it is a header."""
        write_log(self.folder, log)

    def deliver(self, log: list[tuple]) -> None:
        """Ingest a log in place of the last."""
        self.lay(log)
        ingest_job(str(self.folder), self.home)

    def job(self, night: int, log: list[tuple] | None = None, **more: Any) -> dict[str, Any]:
        """The nightly job of a night; what is delivered may be anything, so it is laid out before, or here."""
        self.on(night)
        if log is not None:
            self.lay(log)
        return nightly_job(self.recipe, self.home, **more)

    def night(self, night: int, log: list[tuple] | None = None, **more: Any) -> dict[str, Any]:
        """One night: deliver, and run."""
        self.on(night)
        if log is not None:
            self.deliver(log)
        return run_job(self.recipe, self.home, **more)

    def append(self, night: int, log: list[tuple] | None = None, recipe: str | None = None) -> Curated:
        """The release of a night alone, without plan and report."""
        self.on(night)
        if log is not None:
            self.deliver(log)
        return append_step(self.counter(recipe), self.ledger, self.home.store, OsNoise(), night_of(None))[0]

    def counter(self, recipe: str | None = None) -> ContinualRelease:
        """The counter of a recipe; None: of the one."""
        return nightly_counter(setting(recipe or self.recipe, self.home))

    @property
    def newest(self) -> Any:
        """The newest edition; None before the first."""
        return latest(self.home.store, "shop")

    @property
    def kept(self) -> Path:
        """What the one counter keeps."""
        return next((self.home.store / "shop" / "counters").iterdir())

    @property
    def ledger(self) -> Ledger:
        return ledger_in(self.folder if (self.folder / "ledger.db").exists() else self.home.root)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(tmp_path, monkeypatch)


def customers(first: int, count: int, seed: int = 0) -> list[tuple]:
    """Rows of customers ``first, first + 1, ...``."""
    return [(f"c{int(user[1:]) + first}", *rest) for user, *rest in rows(count, seed)]
