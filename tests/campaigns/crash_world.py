"""The world of the crash campaign: a dataset of people, its store and its ledger, put back before every kill."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from flows.config.home import Home
from flows.config.recipe import setting
from flows.jobs.intake import ingest_job
from flows.jobs.registration import register_job
from pipeline.declaration.code import syntax_digest
from pipeline.learners.tabular_facts import _PLANNER as PLANNER
from pipeline.learners.tabular_learning import learn
from pipeline.ledger.chain import BudgetError, Entry
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.publication import maker
from pipeline.privacy.noise import OsNoise
from pipeline.privacy.release import total_rho
from pipeline.privacy.release_file import read_release
from tests.flows.shop import lay_out
from tests.jobs import run_job
from tests.ledger.postgres import Server


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


class World:
    """A dataset of people, its store and its ledger, copied anew from a template for every kill."""

    def __init__(self, folder: Path, server: Server | None) -> None:
        self.folder, self.server = folder, server
        self.engine = "sqlite" if server is None else "postgresql"
        self.template = folder / "template"
        self.now = folder / "now"
        where = "ledger.db" if server is None else server.url("now")
        lay_out(self.template / "people", kind="real", ledger=where, cap=100.0)
        if server is not None:
            server.psql("create database now")
        shutil.copytree(self.template, self.now)
        assert child(self._prepare) == 0
        foresee((folder / "modules").read_text().split())
        found = setting(str(self.folder / "spare" / "people" / "private.toml"), Home(self.folder / "spare" / "home"))
        releases = [read_release(p) for p in (found.home.store / "shop" / "releases").iterdir()]
        pure, release = sorted(releases, key=lambda r: r.mechanisms[0].variance is not None)
        self.price, self.pure_price = (total_rho(r.mechanisms) for r in (release, pure))
        self.learnt = learn(found.card, found.recipe.planner, release)
        # looked up once, and found again by every process that is forked from here
        maker()
        syntax_digest(PLANNER)
        self.keep("registered")

    def _prepare(self) -> None:
        register_job(str(self.now / "people"), self.home)
        ingest_job(str(self.now / "people"), self.home)
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

    def keep(self, name: str) -> None:
        """Keep the present state under a name."""
        shutil.copytree(self.now, self.folder / f"kept-{name}", symlinks=True)
        if self.server is not None:
            self.server.psql(f'create database "kept_{name}" template now')

    def restore(self, name: str) -> None:
        """Back to a kept state."""
        shutil.rmtree(self.now)
        shutil.copytree(self.folder / f"kept-{name}", self.now, symlinks=True)
        if self.server is not None:
            self.server.psql("drop database now with (force)")
            self.server.psql(f'create database now template "kept_{name}"')

    def steps(self) -> list[str]:
        """Labels of the steps of the last run, in order."""
        return [line.split(" ", 1)[1] for line in (self.now / "steps").read_text().splitlines()]

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
        return (
            sum(map(Fraction, self.witness.read_text().split()), Fraction(0)) if self.witness.exists() else Fraction(0)
        )
