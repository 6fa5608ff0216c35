"""A shop whose card tolerates nothing, by hand and night by night, and a log that breaks it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

from pipeline.ledger.ledger import Ledger
from tests.flows.nights import stop_clock
from tests.flows.shop import lay_out, write_log
from tests.jobs import home_at, ingest_job, ledger_in, nightly_job, register_job, run_job

STRICT = "[tolerance]\nunknown_label = 0.0\n"


def typo(log, people=400):
    """The log as somebody writes it who calls the cold lukewarm."""
    return [(u, v, t, "lukewarm" if m == "cold" and int(u[1:]) < people else m, *more) for u, v, t, m, *more in log]


class Shop:
    def __init__(self, folder: Path, *, kind="real", cap=3.0, log=None, tolerance=STRICT):
        ledger = "ledger.db" if kind == "real" else "home"
        self.folder = lay_out(folder / "shop", kind=kind, ledger=ledger, cap=cap, log=log)
        card = self.folder / "card.toml"
        card.write_text(card.read_text() + tolerance)
        self.home = home_at(folder / "home")
        if kind == "real":
            register_job(str(self.folder), self.home)
        self.ingest()

    def ingest(self, log=None):
        if log is not None:
            write_log(self.folder, log)
        return ingest_job(str(self.folder), self.home)

    def run(self, name="private", **more):
        return run_job(str(self.folder / f"{name}.toml"), self.home, **more)

    @property
    def ledger(self) -> Ledger:
        where = self.folder / "ledger.db"
        return ledger_in(self.folder if where.exists() else self.home.root)

    @property
    def spent(self) -> Fraction:
        return self.ledger.account("shop").spent

    def kinds(self):
        return [e.kind for e in self.ledger.entries() if e.kind not in ("KEY", "DRAW")]


class Nights(Shop):
    """The same shop with a scheduled recipe: a calendar of months, or a counter."""

    def __init__(self, folder, monkeypatch, nightly=True, **more):
        super().__init__(folder, **more)
        self._patch = monkeypatch
        recipe = self.folder / "private.toml"
        text = recipe.read_text().replace('[schedule]\nrelease = "nightly"\n', "")
        table = '[nightly]\nnights = 8\nfirst = "2026-01-01"\n' if nightly else '[schedule]\nrelease = "monthly"\n'
        recipe.write_text(text + table)

    def on(self, night):
        at = datetime(2026, 1, 1, 3, tzinfo=UTC) + timedelta(days=night - 1)
        stop_clock(self._patch, at)

    def night(self, night, log=None):
        self.on(night)
        if log is not None:
            write_log(self.folder, log)
        return nightly_job(str(self.folder / "private.toml"), self.home)
