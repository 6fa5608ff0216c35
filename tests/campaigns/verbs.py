"""The verbs that the campaigns of crashes, faults and power cuts call, and what must then hold."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import flows.jobs.run
import pipeline.learners.tabular_learning
from flows.jobs.intake import ingest_job, purge_job
from flows.jobs.promotion import Alias
from flows.jobs.registration import register_job
from pipeline.declaration.toml import exit_code
from pipeline.ledger.chain import BudgetError
from pipeline.logs.store import latest
from pipeline.privacy.release_file import sha256_file
from tests.campaigns.crash_world import World, child, witness_draws
from tests.flows.shop import lay_out, rows
from tests.jobs import run_job
from tests.ledger.postgres import Server


def violations(world: World) -> list[str]:
    """Every promise of the ledger that does not hold now, in words."""
    ledger = world.ledger()
    if problem := ledger.problem():
        return [problem]
    entries, found = ledger.entries("shop"), []
    spent = ledger.account("shop").spent
    if spent != sum((Fraction(e.body["rho"]) for e in entries if e.kind == "INTENT"), Fraction(0)):
        found.append("total is not the sum of the INTENTs")
    if spent < world.drawn():
        found.append("more was drawn than charged")
    commits = [e for e in entries if e.kind == "COMMIT"]
    keys = [e.body["run_key"] for e in commits]
    if len(keys) != len(set(keys)):
        found.append("a key has two COMMITs")
    digests = {e.body["release_sha256"] for e in commits}
    runs = [p for p in world.home.runs.glob("*") if p.is_dir() and not p.name.startswith(".")]
    if any(sha256_file(p / "release.parquet") not in digests for p in runs):
        found.append("an uncommitted release is published")
    return found


class Shop:
    """States to start from, verbs, and what must hold of a dataset of people.

    ``folder``, ``server``: where its files are, and its ledger; None: in a file too.
    ``anew``: whether a run that is there is published again by each call.
    """

    def __init__(self, folder: Path, server: Server | None = None, *, anew: bool = True) -> None:
        self.world, self.anew = World(folder, server), anew
        self.world.restore("registered")
        for name, begun, work in (
            ("used", "registered", self._use),
            ("two runs", "used", self._run_again),
            ("unregistered", "registered", self._unregister),
            ("new log", "registered", self._deliver),
        ):
            self.world.restore(begun)
            assert child(work) == 0
            self.world.keep(name)
        # verb -> digest of the rows that an ingest must end with, whatever stopped it on the way
        self.rows: dict[str, str] = {}
        for verb in ("ingest", "ingest, new log"):
            begun, work = self.verbs()[verb]
            self.world.restore(begun)
            assert self.call(work) == 0
            self.rows[verb] = self._newest()

    @property
    def card(self) -> str:
        return str(self.world.now / "people")

    def _use(self) -> None:
        """Two editions, a run in use, and a log that was refused once."""
        self.canned()
        run = run_job(self.card + "/private.toml", self.world.home)["run"]
        Alias(self.world.home.runs).promote(run)
        ingest_job(self.card, self.world.home)
        refused = self.world.home.store / "shop" / "refused"
        refused.mkdir(mode=0o700)
        (refused / "quarantine-0000.parquet").write_bytes(b"rows")

    def _newest(self) -> str:
        found = latest(self.world.home.store, "shop")
        return "" if found is None else found.data_digest

    def _deliver(self) -> None:
        """Another log in place of the one that was ingested."""
        where = "ledger.db" if self.world.server is None else self.world.server.url("now")
        lay_out(self.world.now / "people", kind="real", ledger=where, cap=100.0, log=rows(seed=1))

    def _run_again(self) -> None:
        """A run of the second edition, not in use yet."""
        self.canned()
        run_job(self.card + "/private.toml", self.world.home)

    def _unregister(self) -> None:
        shutil.rmtree(self.world.now / "home")
        (self.world.now / "people" / "ledger.db").unlink(missing_ok=True)
        if self.world.server is not None:
            self.world.server.psql("drop database now with (force)")
            self.world.server.psql("create database now")

    def canned(self) -> None:
        """Planning and pages keep no state; and whoever draws says so first."""
        pipeline.learners.tabular_learning.learn = lambda *_: self.world.learnt
        # pages that differ are published anew
        flows.jobs.run.drawn_pages = lambda *_: (str(os.getpid()) if self.anew else "", "")
        witness_draws(self.world.witness, str(self.world.price), str(self.world.pure_price))

    def verbs(self) -> dict[str, tuple[str, Callable[[], object]]]:
        """Verb -> state it begins from, and the call."""
        run = self.card + "/private.toml"
        return {
            "register": ("unregistered", lambda: register_job(self.card, self.world.home)),
            "ingest": ("registered", lambda: ingest_job(self.card, self.world.home)),
            "ingest, new log": ("new log", lambda: ingest_job(self.card, self.world.home)),
            "run": ("registered", lambda: run_job(run, self.world.home)),
            "run, edition 2": ("used", lambda: run_job(run, self.world.home)),
            "promote": ("two runs", self._promote),
            "purge": ("used", lambda: purge_job(self.card, self.world.home, keep=1, yes=True)),
            "purge the quarantine": (
                "used",
                lambda: purge_job(self.card, self.world.home, quarantine_only=True, yes=True),
            ),
        }

    def _promote(self) -> None:
        """The run of the second edition; the first one's is in use."""
        runs = self.world.home.runs
        told = {p.parent.name: json.loads(p.read_text()) for p in runs.glob("private-*/report.json")}
        Alias(runs).promote(next(name for name, facts in told.items() if facts["dataset"]["snapshot"] == 2))

    def call(self, work: Callable[[], object], before: Callable[[], object] = lambda: None) -> int:
        """A call in a process of its own, after ``before``: its exit code, or minus the signal that killed it."""

        def inside() -> None:
            self.canned()
            before()
            work()

        return child(inside, told)

    def broken(self, verb: str, settled: bool) -> list[str]:
        """Every promise that does not hold, in words."""
        found: list[str] = []
        try:
            found += violations(self.world) if self.world.ledger().lineages() else []
        except BudgetError as e:
            # a registration that died has none yet
            found += [] if verb == "register" and not settled else [str(e)]
        alias = Alias(self.world.home.runs)
        now = alias.now()
        if verb in ("run, edition 2", "promote", "purge", "purge the quarantine") and (
            now is None or not (self.world.home.runs / now / "report.json").is_file()
        ):
            found.append("the run in use is gone")
        if settled and self._newest() != self.rows.get(verb, self._newest()):
            found.append("the snapshot lacks rows of the log")
        lineage = self.world.home.store / "shop"
        if settled and list(lineage.glob(".purging-*")):
            found.append("what a purge had begun to remove is left")
        if settled and verb.startswith("run") and list((lineage / "releases").glob("*.attempt-*")):
            found.append("an unfinished draw is left")
        return found


def told(e: BaseException) -> int:
    """How a process ends that was told of a fault."""
    return exit_code(e) if isinstance(e, Exception) else 99
