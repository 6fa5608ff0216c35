"""Fixtures: small cards built from dictionaries, so that a test shows what it declares."""

import gc
import json
import math
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
# last bits of products of matrices differ between processors: expected values are those of one kernel
if platform.machine() in ("x86_64", "AMD64"):
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")
# frames and matrices of tests are small: two threads take longer over them than one; .ci/run gives some parts four
os.environ.setdefault("POLARS_MAX_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# in memory, where there is enough: half of the time of what writes ledgers and stores is waiting for a disk
if Path("/dev/shm").is_dir() and shutil.disk_usage("/dev/shm").free > 4 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# what every worker and every process of a test imports is compiled once
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None) is not None:
    sys.dont_write_bytecode = False

import numpy as np
import pytest
import typer.main
import typer.testing
import vl_convert

from pipeline.arrays import Integers
from pipeline.declaration import code
from pipeline.declaration.card import Card
from pipeline.ledger.ledger import Ledger
from pipeline.privacy import budget
from pipeline.privacy.noise import OsNoise
from tests.skipping import guard

_LONG = ("flows", "goldens", "logs", "transaction")
SHELF = Path(__file__).resolve().parents[1] / "datasets"


def pytest_configure(config: pytest.Config) -> None:
    guard(config)
    # a suite holds on to nearly all that it imports and collects
    gc.disable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Slow tests alone are asked for: no worker imports files without one, which are half of the work of collecting."""
    if config.option.markexpr != "slow" or not collection_path.name.startswith("test_"):
        return None
    return True if "slow" not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Rooms whose files take long are handed out first, so that no worker is left alone with one of them."""
    items.sort(key=lambda item: item.path.parent.name not in _LONG)


def slow(*values: Any) -> Any:
    """Values of a case that only ``-m slow`` runs."""
    return pytest.param(*values, marks=pytest.mark.slow)


def domain_dict(horizon: int, states: Any, actions: Any, ends: Any = (), **more: Any) -> dict[str, Any]:
    """A domain of so many states and actions, or of those labels."""
    return {
        "horizon": horizon,
        "states": {"column": "state", "labels": states, **({"ends": list(ends)} if ends else {})},
        "actions": {"column": "action", "labels": actions},
        **more,
    }


def card_dict(**changes: Any) -> dict[str, Any]:
    """A small synthetic card as plain values; ``changes`` replace whole tables."""
    base: dict[str, Any] = {
        "schema_version": 1,
        "name": "tiny",
        "kind": "synthetic",
        "unit": {"user": "user_id", "episodes_per_user": 1, "users_public": 100},
        "domain": {
            "horizon": 2,
            "states": {"column": "state", "labels": ["x", "y"], "ends": ["end"]},
            "actions": {"column": "action", "labels": ["a", "b"]},
        },
        "reward": {"range": [0.0, 1.0], "steps": 1},
        "source": {
            "files": ["log.csv"],
            "columns": {"user_id": "user_id", "episode_id": "episode_id", "step": "step", "reward": "reward"},
        },
        "budget": {"rho": 10.0},
    }
    return base | changes


def toml(values: dict[str, Any]) -> str:
    """A card or a recipe as the text of its file."""
    plain = [f"{k} = {_value(v)}\n" for k, v in values.items() if not isinstance(v, dict)]
    tables = {name: table for name, table in values.items() if isinstance(table, dict)}
    inside = ("".join(f"{json.dumps(k)} = {_value(v)}\n" for k, v in table.items()) for table in tables.values())
    return "".join([*plain, *(f"\n[{name}]\n{lines}" for name, lines in zip(tables, inside, strict=True))])


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_value(v)}" for k, v in value.items()) + " }"
    return "[" + ", ".join(map(_value, value)) + "]" if isinstance(value, list) else json.dumps(value)


def pytest_collection_finish() -> None:
    """What collection made stays: looking for garbage among it, once too, takes half a second a time."""
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def made_once() -> Iterator[None]:
    """What is the same every time and takes long: verbs from their functions' signatures, a chart from its text, the
    conversion of a budget, and versions of libraries.

    Studies see one core: runs this short take less than a process takes to start.
    """
    verbs, draw = cache(typer.main.get_command), vl_convert.vegalite_to_svg
    drawn = cache(lambda chart: draw(json.loads(chart)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", verbs)
        patch.setattr(typer.testing, "_get_command", verbs)
        patch.setattr(code, "version", cache(code.version))
        patch.setattr(budget, "_log_delta", lru_cache(None, typed=True)(budget._log_delta))
        patch.setattr(vl_convert, "vegalite_to_svg", lambda chart: drawn(json.dumps(chart)))
        patch.setattr("os.sched_getaffinity", lambda pid: {0})
        yield


@pytest.fixture(scope="session")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A shop whose log is ingested, and its home, wherever a test wants them."""
    from tests.flows.shop import Opened

    return Opened(tmp_path_factory.mktemp("opened"))


def settle(patch: pytest.MonkeyPatch, seed: int = 0) -> None:
    """Settle the chance of runs as long as ``patch`` lasts: noise by a seed, one secret by which people are split.

    Of a difference that is planted and well above the noise a verdict still misses once in hundreds of runs, which is
    no fault.  For tests of what is said of it; that noise is fresh, and of the listed law, is tested elsewhere.
    """
    rng = np.random.default_rng(seed)

    def gaussian(self: OsNoise, size: int, variance: int, data: Any) -> Integers:
        return np.rint(rng.normal(0, math.sqrt(variance), size)).astype(np.int64)

    def laplace(self: OsNoise, size: int, scale: Fraction, data: Any) -> Integers:
        return np.rint(rng.laplace(0, float(scale), size)).astype(np.int64)

    patch.setattr(OsNoise, "gaussian", gaussian)
    patch.setattr(OsNoise, "laplace", laplace)
    patch.setattr(Ledger, "people_key", lambda ledger, store: bytes(32))


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance is the same in every run: see :func:`settle`."""
    settle(monkeypatch)


# what a test asks for -> where the constant stands, of which it wants another value
_CONSTANTS = {
    # how much is read, kept or written at a time
    "block": ("pipeline.logs.readers.lines.BLOCK_BYTES",),
    "batch": tuple(f"pipeline.logs.readers.{module}.BATCH_ROWS" for module in ("batch", "episodes", "hdf5")),
    "fast": ("pipeline.logs.readers.batch._SMALL",),
    "episode": ("pipeline.logs.readers.episodes.EPISODE_BYTES",),
    "rows": ("pipeline.logs.spills.MOST_ROWS",),
    "partition": ("pipeline.logs.spills.ROWS_PER_PARTITION",),
    "scan": ("pipeline.logs.aggregate._SCAN_ROWS",),
    "parts": ("pipeline.logs.aggregate.PARTS_TOGETHER", "pipeline.logs.regression_sums.TallySums.together"),
    "piece": ("pipeline.logs.contribution_bounding._PIECE_ROWS",),
    "cells": ("pipeline.learners.linear_request._MOST_COUNTED",),
    "chunk": ("pipeline.worlds.simulated_logs._CHUNK",),
    "file": ("pipeline.worlds.simulated_logs._ROWS_PER_FILE",),
    # files that may be open
    "open": ("pipeline.logs.spills.most_partitions",),
    # how long is waited
    "patience": ("pipeline.logs.elsewhere._PATIENCE",),
    "server": ("flows.server.serving._PATIENCE",),
    # the operating system's bytes, the ledger's time, forecasts that travel with the program
    "urandom": ("pipeline.privacy.csprng.urandom",),
    "clock": ("pipeline.ledger.ledger.datetime",),
    "shipped": ("flows.jobs.plan.SHIPPED",),
    # terms of formulas
    "ridge": ("pipeline.agents.one_step_value._RIDGE",),
    "deviations": ("pipeline.agents.suboptimality.Z",),
    "lower_order": ("pipeline.agents.pessimism.LOWER_ORDER",),
    "gram_share": ("pipeline.statistics.linear_sums.GRAM_SHARE",),
    "reach": ("pipeline.logs.doubly_robust_rows.REACH",),
}


@pytest.fixture
def constants(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give constants other values for a test, by the names of :data:`_CONSTANTS`."""

    def put(**asked: Any) -> None:
        for name, value in asked.items():
            for place in _CONSTANTS[name]:
                monkeypatch.setattr(place, value)

    return put


@pytest.fixture
def dies_at(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[None]]:
    """Within ``dies_at(places)`` the process is killed where it calls one of them, and nobody catches it."""

    class KilledError(BaseException):
        pass

    def die(*_: Any, **__: Any) -> None:
        raise KilledError

    @contextmanager
    def at(*places: str) -> Iterator[None]:
        with monkeypatch.context() as dead, pytest.raises(KilledError):
            for place in places:
                dead.setattr(place, die)
            yield

    return at


@pytest.fixture(scope="module")
def unread() -> Iterator[None]:
    """Pages of runs are a quarter of the time of a run, and nobody reads them here: they stay empty."""
    # all are imported before one is patched: each takes the name from the first
    from flows.jobs import playing, proof, run

    with pytest.MonkeyPatch.context() as patch:
        for module in (run, proof, playing):
            patch.setattr(module, "drawn_pages", lambda *_: ("", ""))
        yield


@pytest.fixture
def make_card(tmp_path: Path) -> Callable[..., Card]:
    """Build a checked card from ``card_dict`` changes; its folder is the test's."""

    def make(**changes: Any) -> Card:
        return Card.model_validate(card_dict(**changes)).placed(tmp_path)

    return make
