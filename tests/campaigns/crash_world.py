"""What the campaigns of crashes, faults and power cuts share: a shop of people, its verbs, and what must then hold.

The shop's dataset, store and ledger are put back before every call; a call is a process of its own, which may be killed
just before or just after its n-th step that leaves a trace somewhere.
"""

import gc
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy.engine.default import DefaultDialect

import flows.jobs.run
import pipeline.files
import pipeline.learners.tabular
import pipeline.learners.tabular_learning
import pipeline.ledger.attempts
import pipeline.ledger.database
from flows.config.home import Home
from flows.config.recipe import setting
from flows.jobs.intake import ingest_job, purge_job
from flows.jobs.promotion import Alias
from flows.jobs.registration import register_job
from pipeline.declaration.code import syntax_digest
from pipeline.declaration.toml import exit_code
from pipeline.files import Disk
from pipeline.learners.tabular_facts import _PLANNER as PLANNER
from pipeline.learners.tabular_learning import learn
from pipeline.ledger.chain import BudgetError, Entry
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.publication import maker
from pipeline.logs.store import latest
from pipeline.privacy.noise import OsNoise
from pipeline.privacy.release import total_rho
from pipeline.privacy.release_file import read_release, sha256_file
from pipeline.statistics.private_sum import PrivateSum
from tests.flows.shop import lay_out, rows
from tests.jobs import run_job
from tests.ledger.postgres import Server

STEPS: tuple[tuple[Any, str], ...] = (
    *((Disk, name) for name in sorted(vars(Disk)) if not name.startswith("_")),
    (DefaultDialect, "do_commit"),
    *((Ledger, name) for name in ("intent", "draw", "commit", "publish")),
    (pipeline.ledger.database, "insert"),
    (pipeline.ledger.attempts, "grant_lease"),
    (pipeline.ledger.attempts, "end_leases"),
    (pipeline.learners.tabular, "aggregate"),
    (PrivateSum, "draw"),
    (flows.jobs.run, "publish_run"),
    (pipeline.files, "put_in_place"),
)


def arm(at: int | None, place: Path) -> None:
    """Wrap every step of this process: write its beginnings and ends down, and die at number ``at``; never where None.

    ``place``: the file in which they are written down, a line each.
    """
    count, file = 0, place.open("w")

    def reached(label: str) -> None:
        nonlocal count
        count += 1
        print(label, file=file, flush=True)
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def armed(work: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(work)
        def step(*args: Any, **kwargs: Any) -> Any:
            reached(f"before {name}")
            result = work(*args, **kwargs)
            reached(f"after {name}")
            return result

        return step

    for owner, name in STEPS:
        setattr(owner, name, armed(getattr(owner, name), name))


def child(work: Callable[[], object], code: Callable[[BaseException], int] = lambda _: 1) -> int:
    """Run ``work`` in a process of its own; minus the signal that killed it, else its exit code."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as e:
            print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
            os._exit(code(e))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def foresee(modules: Iterable[str]) -> None:
    """Have here what every process that is forked would have to make: modules that are imported late, and models."""
    for name in modules:
        with suppress(ImportError):
            import_module(name)
    models = BaseModel.__subclasses__()
    for model in models:
        models += model.__subclasses__()
        model.model_rebuild(raise_errors=False)
    gc.freeze()


def witness_draws(witness: Path, line: str, laplace: str = "") -> None:
    """Have this process write a line down just before the operating system gives its first noise.

    ``witness``, ``line``: the file, and what is written of Gaussian noise.
    ``laplace``: what is written of Laplace noise, where that is something else.
    """
    said = list[str]()

    def witnessed(noise: Callable[..., Any], word: str) -> Callable[..., Any]:
        def drawn(*args: Any) -> Any:
            if not said:
                said.append(word)
                with witness.open("a") as file:
                    file.write(f"{word}\n")
            return noise(*args)

        return drawn

    for law, word in (("gaussian", line), ("laplace", laplace or line)):
        setattr(OsNoise, law, witnessed(getattr(OsNoise, law), word))


def told(e: BaseException) -> int:
    """How a process ends that was told of a fault."""
    return exit_code(e) if isinstance(e, Exception) else 99


class Shop:
    """A dataset of people: states to start from, kept and put back for every call; verbs; and what must hold.

    ``folder``, ``server``: where its files are, and its ledger; None: in a file too.
    ``anew``: whether a run that is there is published again by each call.
    """

    def __init__(self, folder: Path, server: Server | None = None, *, anew: bool = True) -> None:
        self.folder, self.server, self.anew = folder, server, anew
        self.engine = "sqlite" if server is None else "postgresql"
        self.now, template = folder / "now", folder / "template"
        self._lay_out(template)
        if server is not None:
            server.psql("create database now")
        shutil.copytree(template, self.now)
        assert child(self._prepare) == 0
        foresee((folder / "modules").read_text().split())
        found = setting(str(folder / "spare" / "people" / "private.toml"), Home(folder / "spare" / "home"))
        releases = [read_release(p) for p in (found.home.store / "shop" / "releases").iterdir()]
        pure, release = sorted(releases, key=lambda r: r.mechanisms[0].variance is not None)
        self.price, self.pure_price = (total_rho(r.mechanisms) for r in (release, pure))
        self.learnt = learn(found.card, found.recipe.planner, release)
        # looked up once, and found again by every process that is forked from here
        maker()
        syntax_digest(PLANNER)
        self.keep("registered")
        deliver = partial(self._lay_out, self.now, log=rows(seed=1))
        for name, begun, work in (
            ("used", "registered", self._use),
            ("two runs", "used", self._run_again),
            ("unregistered", "registered", self._unregister),
            ("new log", "registered", deliver),
        ):
            self.restore(begun)
            assert child(work) == 0
            self.keep(name)
        # verb -> digest of the rows that an ingest must end with, whatever stopped it on the way
        self.rows: dict[str, str] = {}
        for verb in ("ingest", "ingest, new log"):
            begun, work = self.verbs()[verb]
            self.restore(begun)
            assert self.call(work) == 0
            self.rows[verb] = self._newest()

    def _lay_out(self, folder: Path, **more: Any) -> None:
        where = "ledger.db" if self.server is None else self.server.url("now")
        lay_out(folder / "people", kind="real", ledger=where, cap=100.0, **more)

    def _prepare(self) -> None:
        register_job(self.card, self.home)
        ingest_job(self.card, self.home)
        # the plan of a throw-away run elsewhere stands in for that of every run; another says what pure ε costs
        spare = self.folder / "spare"
        lay_out(spare / "people", ledger="home", cap=100.0)
        ingest_job(str(spare / "people"), Home(spare / "home"))
        for recipe in ("private.toml", "pure.toml"):
            run_job(str(spare / "people" / recipe), Home(spare / "home"))
        (self.folder / "modules").write_text("\n".join(sys.modules))

    @property
    def home(self) -> Home:
        return Home(self.now / "home")

    @property
    def witness(self) -> Path:
        return self.now / "witness"

    @property
    def steps(self) -> Path:
        return self.now / "steps"

    def keep(self, name: str) -> None:
        shutil.copytree(self.now, self.folder / f"kept-{name}", symlinks=True)
        if self.server is not None:
            self.server.psql(f'create database "kept_{name}" template now')

    def restore(self, name: str) -> None:
        shutil.rmtree(self.now)
        shutil.copytree(self.folder / f"kept-{name}", self.now, symlinks=True)
        if self.server is not None:
            self.server.psql("drop database now with (force)")
            self.server.psql(f'create database now template "kept_{name}"')

    def ledger(self) -> Ledger:
        where = self.now / "people" / "ledger.db" if self.server is None else self.server.url("now")
        return open_ledger(where, create=False)

    def entries(self) -> list[Entry]:
        """All that the ledger holds; nothing where there is none yet."""
        try:
            return self.ledger().entries("shop")
        except BudgetError:
            return []

    def drawn(self) -> Fraction:
        """What was truly spent: written down by the sampler itself before it drew."""
        said = self.witness.read_text().split() if self.witness.exists() else []
        return sum(map(Fraction, said), Fraction(0))

    @property
    def card(self) -> str:
        return str(self.now / "people")

    def _use(self) -> None:
        """Two editions, a run in use, and a log that was refused once."""
        self.canned()
        run = self._run()["run"]
        Alias(self.home.runs).promote(run)
        ingest_job(self.card, self.home)
        refused = self.home.store / "shop" / "refused"
        refused.mkdir(mode=0o700)
        (refused / "quarantine-0000.parquet").write_bytes(b"rows")

    def _newest(self) -> str:
        found = latest(self.home.store, "shop")
        return "" if found is None else found.data_digest

    def _run(self, recipe: str = "private") -> dict[str, Any]:
        return run_job(f"{self.card}/{recipe}.toml", self.home)

    def _run_again(self) -> None:
        """A run of the second edition, not in use yet."""
        self.canned()
        self._run()

    def _unregister(self) -> None:
        shutil.rmtree(self.now / "home")
        (self.now / "people" / "ledger.db").unlink(missing_ok=True)
        if self.server is not None:
            self.server.psql("drop database now with (force)")
            self.server.psql("create database now")

    def canned(self) -> None:
        """Planning and pages keep no state; and whoever draws says so first."""
        pipeline.learners.tabular_learning.learn = lambda *_: self.learnt
        # pages that differ are published anew
        flows.jobs.run.drawn_pages = lambda *_: (str(os.getpid()) if self.anew else "", "")
        witness_draws(self.witness, str(self.price), str(self.pure_price))

    def verbs(self) -> dict[str, tuple[str, Callable[[], object]]]:
        """Verb -> state it begins from, and the call."""
        return {
            "register": ("unregistered", lambda: register_job(self.card, self.home)),
            "ingest": ("registered", lambda: ingest_job(self.card, self.home)),
            "ingest, new log": ("new log", lambda: ingest_job(self.card, self.home)),
            "run": ("registered", self._run),
            "run, edition 2": ("used", self._run),
            "promote": ("two runs", self._promote),
            "purge": ("used", lambda: purge_job(self.card, self.home, keep=1, yes=True)),
            "purge the quarantine": ("used", lambda: purge_job(self.card, self.home, quarantine_only=True, yes=True)),
        }

    def _promote(self) -> None:
        """The run of the second edition; the first one's is in use."""
        runs = self.home.runs
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
            found += violations(self) if self.ledger().lineages() else []
        except BudgetError as e:
            # a registration that died has none yet
            found += [] if verb == "register" and not settled else [str(e)]
        alias = Alias(self.home.runs)
        now = alias.now()
        if verb in ("run, edition 2", "promote", "purge", "purge the quarantine") and (
            now is None or not (self.home.runs / now / "report.json").is_file()
        ):
            found.append("the run in use is gone")
        if settled and self._newest() != self.rows.get(verb, self._newest()):
            found.append("the snapshot lacks rows of the log")
        lineage = self.home.store / "shop"
        if settled and list(lineage.glob(".purging-*")):
            found.append("what a purge had begun to remove is left")
        if settled and verb.startswith("run") and list((lineage / "releases").glob("*.attempt-*")):
            found.append("an unfinished draw is left")
        return found


def charged(entries: Iterable[Entry]) -> Fraction:
    """What the ledger was charged in all."""
    return sum((Fraction(e.body["rho"]) for e in entries if e.kind == "INTENT"), Fraction(0))


def commits_once(entries: Iterable[Entry]) -> bool:
    """Whether no key has two COMMITs."""
    keys = [e.body["run_key"] for e in entries if e.kind == "COMMIT"]
    return len(keys) == len(set(keys))


def violations(world: Shop) -> list[str]:
    """Every promise of the ledger that does not hold now, in words."""
    ledger = world.ledger()
    if problem := ledger.problem():
        return [problem]
    entries, found = ledger.entries("shop"), []
    spent = ledger.account("shop").spent
    if spent != charged(entries):
        found.append("total is not the sum of the INTENTs")
    if spent < world.drawn():
        found.append("more was drawn than charged")
    if not commits_once(entries):
        found.append("a key has two COMMITs")
    digests = {e.body["release_sha256"] for e in entries if e.kind == "COMMIT"}
    runs = [p for p in world.home.runs.glob("*") if p.is_dir() and not p.name.startswith(".")]
    if any(sha256_file(p / "release.parquet") not in digests for p in runs):
        found.append("an uncommitted release is published")
    return found
