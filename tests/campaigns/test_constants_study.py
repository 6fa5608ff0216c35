"""The constants study runs, and its committed tables are what the code measures."""

from __future__ import annotations

import pytest

from tests.campaigns import constants_study
from tests.campaigns.constants_methods import PRESETS, Method
from tests.campaigns.constants_study import (
    CHECKED,
    ESTIMATED,
    SEED,
    SETTINGS,
    Grid,
    losses,
    measure,
    methods_of,
    smallest,
    study,
)
from tests.campaigns.constants_worlds import setting
from tests.campaigns.rows import read


def name_of(x: Method | dict[str, str | int]) -> str:
    return x.name if isinstance(x, Method) else str(x["method"])


METHODS = {m.name: m for m in PRESETS}


def test_the_smallest_size_is_the_one_from_which_it_stays():
    assert smallest([True, False, True, True], [1, 2, 3, 4]) == 3
    assert smallest([True, True], [1, 2]) == 1
    assert smallest([True, True, False], [1, 2, 3]) is None


def test_the_study_prints_every_method(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(constants_study.CHECKED, "riverswim", (100,))
    for rewards in ("table", "estimate"):
        expected = set(map(name_of, methods_of(rewards)))
        sizes, held = study("riverswim", rewards, Grid((100, 1000), 1, 2))
        assert set(map(name_of, sizes)) == set(map(name_of, held)) == expected
        printed = capsys.readouterr().out
        assert all(name in printed for name in expected)


def test_the_committed_tables_have_every_method():
    for world, rewards in SETTINGS + ESTIMATED:
        here = [r for r in read("constants_study") if (r["world"], r["rewards"]) == (world, rewards)]
        assert [r["method"] for r in here] == list(map(name_of, methods_of(rewards)))
    assert all(int(r["draws"]) >= 100 for r in read("constants_containment"))


@pytest.mark.parametrize(
    ("world", "method"),
    [
        ("riverswim", "tail, one table"),
        ("riverswim", "practical 1,1, one table"),
        ("icu-like", "practical 1,1, one table"),
    ],
)
def test_committed_sizes_are_measured_again(world: str, method: str):
    row = next(
        r for r in read("constants_study") if (r["world"], r["rewards"], r["method"]) == (world, "table", method)
    )
    enough, runs = int(row["learns"]), 4
    grid = Grid((enough // 10, enough * 3), runs, 0)
    settings = [setting(world, SEED + run) for run in range(runs)]
    before, after = losses(measure(world, "table", [METHODS[method]], grid)[method], settings).mean(1)
    assert before > 0.1 >= after


@pytest.mark.parametrize("method", ["practical 1,1, one table", "no pessimism, one table"])
def test_committed_containment_is_measured_again(method: str):
    world, n = "icu-like", CHECKED["icu-like"][1]
    row = next(
        r
        for r in read("constants_containment")
        if (r["world"], r["rewards"], r["method"], int(r["episodes"])) == (world, "table", method, n)
    )
    (again,) = constants_study.containment(world, "table", [METHODS[method]], [n], 5)
    # an interval with widths held in every committed draw, one without in none
    assert (int(row["inside"]), again["inside"]) == ((100, 5) if method.startswith("practical") else (0, 0))
