"""Runs of regressions on logs, made once a session: a linear agent's, and dp-lqr's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline.learners.linear_request
import pipeline.learners.lq
from flows.config.home import Home
from flows.jobs import plan as foresight
from flows.jobs import run
from flows.jobs.intake import ingest_job
from pipeline.ledger.ledger import Ledger
from pipeline.logs.regression_sums import LqSummation
from pipeline.privacy.noise import OsNoise
from reports.run import run_page
from tests.jobs import ledger_of, plan_job, run_job
from tests.learners import linear_shop, lq_shop


@pytest.fixture
def no_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecasts of a recipe alone."""
    monkeypatch.setattr(foresight, "_rivals", lambda s: ())


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rivals, of one run each."""
    monkeypatch.setattr(foresight, "_RIVAL_DRAWS", 1)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few draws, where the words of a band are asked and not its width."""
    monkeypatch.setattr(foresight, "_DRAWS", 2)
    monkeypatch.setattr(foresight, "_FEWEST", 2)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of 0, without what its listed scales ask for: a shift, and how much evidence an action needs."""
    monkeypatch.setattr(OsNoise, "gaussian", lambda self, size, variance, data: np.zeros(size, dtype=np.int64))
    monkeypatch.setattr("pipeline.agents.linear_backup.shift_of", lambda *a: 0.0)
    monkeypatch.setattr("pipeline.learners.linear_request.floor", lambda *a: 10.0)


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the program runs beside another numpy, and draws its pages otherwise."""
    now, drawn = run.maker(), run_page.render_html
    monkeypatch.setattr(run, "maker", lambda: {**now, "numpy": "99.0"})
    monkeypatch.setattr(run_page, "render_html", lambda *a: drawn(*a) + "<!-- newer -->")


@dataclass(frozen=True)
class Family:
    """Agents of one kind: their shop, its recipes by what they are good for, and the code that reads and draws.

    ``free`` replays the first of ``runs`` that asks once; ``costly`` is a release of its own.
    """

    lay_out: Callable[..., Path]
    lineage: str
    planned: tuple[str, ...]
    runs: tuple[str, ...]
    exact: tuple[str, ...]
    second: str
    free: str
    costly: str
    reads: tuple[Any, str]
    draws: tuple[Any, str]


LINEAR = Family(
    linear_shop.lay_out_linear,
    "shop",
    ("linear", "halves", "printed", "once"),
    tuple(n for n in linear_shop.RECIPES if n not in ("other", "once_more")),
    ("exact_linear", "exact_pevi", "exact_once"),
    "once",
    "once_more",
    "other",
    (pipeline.learners.linear_request, "tally"),
    (pipeline.learners.linear_request, "draw_linear"),
)
LQ = Family(
    lq_shop.lay_out_plant,
    "plant",
    ("private", "asked"),
    ("private", "asked", "exact"),
    ("exact",),
    "wider",
    "ridged",
    "wider",
    (LqSummation, "add"),
    (pipeline.learners.lq, "draw_lq"),
)
FAMILIES = {"linear": LINEAR, "plant": LQ}


@dataclass(frozen=True)
class Ran:
    """What was planned and run in one home."""

    family: Family
    shop: Path
    home: Home
    plans: dict[str, Any]
    runs: dict[str, Any]

    @property
    def ledger(self) -> Ledger:
        return ledger_of(self.home)

    def folder(self, name: str) -> Path:
        return Path(self.runs[name]["folder"])


def made(family: Family, root: Path) -> Ran:
    shop, home = family.lay_out(root / "shop"), Home(root / "home")
    ingest_job(str(shop), home)
    plans = {n: plan_job(str(shop / f"{n}.toml"), home) for n in family.planned}
    return Ran(family, shop, home, plans, {n: run_job(str(shop / f"{n}.toml"), home) for n in family.runs})


@pytest.fixture(scope="session")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return made(LINEAR, tmp_path_factory.mktemp("linear"))


@pytest.fixture(scope="session")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return made(LQ, tmp_path_factory.mktemp("plant"))


@pytest.fixture(params=list(FAMILIES))
def ran(request: pytest.FixtureRequest) -> Ran:
    """Both in turn."""
    return request.getfixturevalue(request.param)
