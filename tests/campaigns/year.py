"""A year of nights of each counter, through the whole program: ingest, charge, draw, plan, publish.

``python -P -m tests.campaigns.year`` rewrites its rows: what was charged, what was refused, every broken promise.
Most nights bring new people.  Some of them have been there before, some rows come late, a file is delivered again with
corrections, a night brings what the last one brought or no row at all, a night is skipped, and now and then somebody
asks for more than the cap allows.
A naive count in this file (whoever is new tonight, counted once) is what the program's leaves are held against.
"""

import hashlib
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl

import flows.jobs.run
import pipeline.ledger.ledger as book
from flows.config.home import Home
from flows.config.recipe import nightly_counter, setting
from flows.jobs.proof import verify_run_job
from pipeline.declaration.toml import exit_code
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.steps import committed_steps
from pipeline.logs.aggregate import count_rows
from pipeline.privacy.release_file import read_release
from pipeline.transaction.continual_step import KeptSteps
from pipeline.worlds.catalog import riverswim
from pipeline.worlds.simulated_logs import sample_log
from tests.campaigns.rows import Row, write
from tests.conftest import card_dict, domain_dict, toml
from tests.jobs import nightly_job, run_job

FIRST = date(2026, 1, 1)
UNCHANGED, SKIPPED, CORRECTED, EMPTY, GREEDY = 17, 23, 31, 41, 60


@dataclass
class Year:
    """The nights of one counter, played one by one; every broken promise is noted.

    ``outcomes``: nights by what became of them.
    ``broken``: promises that did not hold, in words.
    """

    folder: Path
    counter: str = "tree"
    nights: int = 365
    people: int = 300
    horizon: int = 20
    seed: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    policies: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.home = Home(self.folder / "home")
        columns = {name: name for name in ("user_id", "episode_id", "step", "reward", "next_state")}
        card = card_dict(
            name="year",
            unit={"user": "user_id", "users_public": 200_000},
            domain=domain_dict(self.horizon, 6, {"left": [0], "right": [1]}),
            reward={"range": [0.0, 1.0], "steps": 200},
            source={"files": ["tonight.parquet"], "columns": columns},
            budget={"rho": 1.2, "schedule": {"rho_month": 1.1}},
        )
        (self.folder / "card.toml").write_text(toml(card))
        nightly = {"first": str(FIRST), "nights": self.nights, "counter": self.counter}
        self.recipe = self._recipe("night", 1.0, nightly=nightly)
        self.greedy = self._recipe("greedy", 0.5)
        self._counted: set[int] = set()
        self._exact: dict[str, np.ndarray] = {}
        self._kept: dict[str, str] = {}

    def _recipe(self, name: str, rho: float, **more: Any) -> str:
        path = self.folder / f"{name}.toml"
        recipe = {"name": name, "card": "card.toml", "agent": "dp-apvi"}
        evaluate = {"world": "riverswim", "behaviour": "right-0.8"}
        path.write_text(toml({"recipe": recipe, "privacy": {"rho": rho}, "evaluate": evaluate, **more}))
        return str(path)

    def play(self, look_every: int = 30) -> dict[str, Any]:
        """Play all nights and return what is to be kept of them.

        ``look_every``: nights between two checks of everything that was ever kept; the last night is always checked.
        """
        begun = time.monotonic()
        with patch.object(flows.jobs.run, "drawn_pages", lambda *_: ("", "")):
            for night, rows in self._deliveries():
                at = datetime(FIRST.year, FIRST.month, FIRST.day, 2, tzinfo=UTC) + timedelta(days=night - 1)
                with patch.object(book, "now", lambda at=at: at):
                    self._night(night, rows)
                    if night % look_every == 0 or night == self.nights:
                        self._look(night)
        ledger = self._ledger()
        charges = [Fraction(e.body["rho"]) for e in ledger.entries("year") if e.kind == "INTENT"]
        return {
            "outcomes": self.outcomes,
            "intents": len(charges),
            "charged_once": str(charges[0]),
            "ledger_total": str(ledger.account("year").spent),
            "policies": self.policies,
            "broken": self.broken,
            "seconds": round(time.monotonic() - begun, 1),
        }

    def _ledger(self) -> Ledger:
        return open_ledger(self.home.root / "ledger.db", create=False)

    def _deliveries(self) -> Iterator[tuple[int, pl.DataFrame | None]]:
        """Night and its log; the same one again where nothing came, one without rows, None where no run is made."""
        rng, next_user = np.random.default_rng(self.seed), 0
        last: pl.DataFrame | None = None
        for night in range(1, self.nights + 1):
            if night % SKIPPED == 0:
                yield night, None
                continue
            if last is not None and (night % UNCHANGED == 0 or night % EMPTY == 0):
                yield night, last if night % UNCHANGED == 0 else last.clear()
                continue
            ids = np.arange(next_user, next_user + self.people)
            next_user += self.people
            back = rng.random(self.people) < 0.05
            if night > 1:
                ids[back] = rng.choice(ids[0], back.sum(), replace=False) if ids[0] >= back.sum() else ids[back]
            log = self._swim(ids, rng, np.where(np.isin(ids, list(self._counted)), night, 0))
            if last is not None:
                late = last.filter(pl.col("user_id") % 50 == night % 50).with_columns(
                    episode_id=pl.lit(900 + night, dtype=pl.Int64)
                )
                log = pl.concat([log, late])
            if night % CORRECTED == 0 and last is not None:
                log = pl.concat([log, last.with_columns(reward=1 - pl.col("reward"))]).unique(
                    ["user_id", "episode_id", "step"], maintain_order=True
                )
            last = log
            yield night, log

    def _swim(self, ids: np.ndarray, rng: np.random.Generator, episode: np.ndarray) -> pl.DataFrame:
        rows = sample_log(riverswim(), "right-0.8", self.horizon, len(ids), rng)
        columns = ("step", "state", "action", "reward", "next_state")
        return pl.DataFrame(
            {"user_id": ids[rows.user], "episode_id": episode[rows.user]} | {c: getattr(rows, c) for c in columns}
        )

    def _night(self, night: int, rows: pl.DataFrame | None) -> None:
        if rows is None:
            self._outcome("skipped")
            return
        rows.write_parquet(self.folder / "tonight.parquet")
        found = nightly_job(self.recipe, self.home)
        if night % GREEDY == 0:
            self._refused()
        nobody = rows.filter(~pl.col("user_id").is_in(list(self._counted))).is_empty()
        self._outcome("drawn with nobody new" if nobody else "drawn")
        if found["replayed"] or (found["night"]["charged_rho"] > 0) != (night == 1):
            self.broken.append(f"night {night} is a replay, or charged what is paid")
        self.policies += 1
        if found["counter"]["night"] != night:
            self.broken.append(f"night {night} is leaf {found['counter']['night']}")
        self._count(rows)
        self._published(night, found["run"])

    def _refused(self) -> None:
        before = self._ledger().entries()
        try:
            run_job(self.greedy, self.home)
            self.broken.append("more than the cap was released")
        except Exception as e:
            self._outcome(f"refused with exit {exit_code(e)}")
        if self._ledger().entries() != before:
            self.broken.append("a refusal left an entry")

    def _outcome(self, what: str) -> None:
        self.outcomes[what] = self.outcomes.get(what, 0) + 1

    def _count(self, rows: pl.DataFrame) -> None:
        """Whoever is new tonight, with all of tonight's rows of the one episode that ingest keeps."""
        new = rows.filter(~pl.col("user_id").is_in(list(self._counted)))
        self._counted |= set(new["user_id"].to_list())
        card = setting(self.recipe, self.home).card
        sorted_rows = new.sort("user_id", "episode_id", "step").with_columns(terminated=pl.lit(value=False))
        for name, table in count_rows(sorted_rows, card).items():
            self._exact[name] = self._exact.get(name, 0) + table

    def _published(self, night: int, run: str) -> None:
        """The sums of tonight's folder are those of everybody so far, give or take their stated noise."""
        release = read_release(self.home.runs / run)
        for m in release.mechanisms:
            off = np.abs(release.tables[m.table] - self._exact[m.table]).max() / m.standard_deviation
            if off > 7:
                self.broken.append(f"night {night}: {m.table} is {off:.1f} standard deviations off")

    def _look(self, night: int) -> None:
        """Everything that was kept is what it was, and sums of exact leaves are the naive count."""
        nightly = nightly_counter(setting(self.recipe, self.home))
        folder = self.home.store / "year" / "counters" / nightly.key[:24]
        now = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}
        self.broken += [f"night {night}: {n} changed" for n, d in self._kept.items() if now.get(n) != d]
        self._kept = now
        ledger = self._ledger()
        nights = committed_steps(ledger.entries(), "year", nightly.key)
        mechanisms = nightly.sums.mechanisms
        kept = KeptSteps(folder, nightly.counter, nights, nightly.size)
        leaves = [x for t in range(1, night + 1) if (x := kept.exact(t)) is not None]
        exact = np.concatenate([self._exact[m.table].reshape(-1) for m in mechanisms])
        if not np.array_equal(np.sum(leaves, axis=0), exact):
            self.broken.append(f"night {night}: the leaves are not the people who were new")
        if sum(bool(Fraction(e.body["rho"])) for e in ledger.entries("year") if e.kind == "INTENT") != 1:
            self.broken.append(f"night {night}: charged more than once")
        newest = max(self.home.runs.glob("night-*"), key=lambda p: p.stat().st_mtime)
        if not verify_run_job(newest, ledger.entries).ok:
            self.broken.append(f"night {night}: its certificate does not verify")


def nights(kind: str) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        year = Year(Path(folder), counter=kind).play()
    return {
        "counter": kind,
        "outcomes": ", ".join(f"{n} {what}" for what, n in year["outcomes"].items()),
        "INTENTs": year["intents"],
        "ledger total": f"{float(Fraction(year['ledger_total'])):.9f}",
        "charged once": year["ledger_total"] == year["charged_once"],
        "policies": year["policies"],
        "broken": len(year["broken"]),
        "seconds": year["seconds"],
    }


def main() -> int:
    """Play both years and keep what came of them; 1 where a promise was broken."""
    rows = [nights(kind) for kind in ("tree", "toeplitz")]
    write("year", rows)
    return int(any(row["broken"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
