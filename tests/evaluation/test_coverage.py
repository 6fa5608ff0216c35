"""A run is calibrated only within the box that was measured, with the very code that was measured."""

from __future__ import annotations

import pytest

import pipeline.evaluation.coverage as coverage
from pipeline.evaluation.coverage import covered

TABULAR, CODE = "tabular-dr", "f" * 16
HEAD = "estimator,code,states,horizon,people,rho,runs,value_held,gain_held\n"


@pytest.fixture
def table(tmp_path, monkeypatch):
    def write(*rows, code=None):
        path = tmp_path / "coverage.csv"
        path.write_text(HEAD + "".join(f"{TABULAR},{code or CODE},{r}\n" for r in rows))
        monkeypatch.setattr(coverage, "COVERAGE", path)
        coverage._rows.cache_clear()

    yield write
    coverage._rows.cache_clear()


GOOD = ("2,2,20000,0.3,100,0.98,0.97", "20,10,100000,3,100,0.96,1.0")


@pytest.mark.parametrize(
    ("at", "inside"),
    [
        ((2, 2, 20_000, 0.3), True),
        ((8, 5, 50_000, 1.0), True),
        ((21, 5, 50_000, 1.0), False),
        ((8, 11, 50_000, 1.0), False),
        ((8, 5, 10_000, 1.0), False),
        ((8, 5, 50_000, 0.1), False),
        ((8, 5, 50_000, float("inf")), False),
    ],
)
def test_the_box_is_what_was_measured(table, at, inside):
    table(*GOOD)
    assert covered(TABULAR, CODE, *at) is inside


@pytest.mark.parametrize(
    "rows",
    [
        ("2,2,20000,0.3,100,0.98,0.97",),
        ("2,2,20000,0.3,100,0.94,1.0", "20,10,100000,3,100,0.95,1.0"),
        ("2,2,20000,0.3,900,1.0,1.0", "20,10,100000,3,100,1.0,0.88"),
        (),
    ],
    ids=["too few runs", "too few inside", "one cell that fails", "nothing measured"],
)
def test_what_was_not_shown_to_hold_is_not_calibrated(table, rows):
    table(*rows)
    assert not covered(TABULAR, CODE, 2, 2, 20_000, 0.3)


def test_other_code_is_another_estimator(table):
    table(*GOOD, code="0" * 16)
    assert not covered(TABULAR, CODE, 8, 5, 50_000, 1.0)
