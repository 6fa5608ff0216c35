"""The walls of the house hold, and each of them would be seen to fall (tests/house/walls.py)."""

import shutil
from functools import cache
from pathlib import Path

import pytest

from tests.house import draw, walls
from tests.house.floors import FLOORS
from tests.house.imports import ROOT, TOPS, files, room_of
from tests.house.walls import agents_beyond_releases, libraries_out_of_place, pseudo_random

# where a wall breaks, what is written there, and the rule that must say so
TWINS = {
    "an agent that reads rows by a string": (
        "pipeline/agents/apvi.py",
        'from pipeline.declaration.code import plugin\nrows = "pipeline.logs.store"',
        agents_beyond_releases,
    ),
    "an agent that loads what it likes": (
        "pipeline/agents/apvi.py",
        "from importlib import import_module",
        walls.hidden_imports,
    ),
    "numpy's generator in a privatizer": (
        "pipeline/statistics/gram.py",
        "import numpy as np\nnoise = np.random.normal(size=3)",
        pseudo_random,
    ),
    "numpy's generator as a name of its own": (
        "pipeline/statistics/count_layout.py",
        "from numpy import random\nx = random.normal(size=3)",
        pseudo_random,
    ),
    "a generator where a learner draws": ("pipeline/learners/linear_request.py", "import random", pseudo_random),
    "an agent that makes a privatizer": (
        "pipeline/agents/apvi.py",
        "from pipeline.statistics.calibration import count_sum",
        agents_beyond_releases,
    ),
    "a generator by another name": (
        "pipeline/statistics/count_layout.py",
        "from numpy.random import default_rng\nrng = default_rng(0)",
        pseudo_random,
    ),
    "a column that is divided": (
        "pipeline/logs/decode.py",
        "def halved(dtypes: Dtypes) -> pl.Expr:\n    r = _number('reward', dtypes)\n    return (r.clip(0, 1) - 1) / 2",
        walls.divided_columns,
    ),
    "a name that has moved, taken inside a function": (
        "flows/cli.py",
        "def late():\n    from pipeline.mdp.model import NoSuchModel",
        walls.names_that_are_gone,
    ),
    "a report that runs a job": ("reports/page.py", "import flows.jobs.run", walls.upward),
    "a learner that plays online agents": (
        "pipeline/learners/tabular.py",
        "from pipeline.online.registry import find",
        walls.online_out_of_place,
    ),
    "prefect in the mathematics": ("pipeline/mdp/model.py", "import prefect", libraries_out_of_place),
    "cvxpy for everybody who imports": ("pipeline/statistics/consistency.py", "import cvxpy", libraries_out_of_place),
}


@cache
def broken_today(rule) -> list[str]:
    return rule(ROOT)


@pytest.mark.parametrize("rule", walls.RULES, ids=lambda r: r.__name__)
def test_the_walls_hold(rule):
    assert not broken_today(rule)


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The house, where a test may break a wall and must mend it."""
    root = tmp_path_factory.mktemp("copy")
    for top in TOPS:
        shutil.copytree(ROOT / top, root / top, ignore=shutil.ignore_patterns("__pycache__"))
    return root


@pytest.mark.parametrize("twin", TWINS)
def test_a_wall_that_is_broken_is_seen(twin, copy):
    file, text, rule = TWINS[twin]
    whole = (copy / file).read_text(encoding="utf-8")
    (copy / file).write_text(f"{whole}\n{text}\n", encoding="utf-8")
    seen = rule(copy)
    (copy / file).write_text(whole, encoding="utf-8")
    assert len(seen) > len(broken_today(rule))


def test_no_room_stands_empty():
    assert {room_of(module, FLOORS) for module, _ in files()} >= set(FLOORS)
    assert not list((ROOT / "datasets").rglob("*.py"))


def test_the_picture_in_docs_is_that_of_today():
    assert draw.PICTURE.read_text(encoding="utf-8") == draw.picture(), "make house draws it anew"
