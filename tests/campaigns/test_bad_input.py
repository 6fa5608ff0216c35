"""A sample of the campaign of damaged logs, and that its checks can fail."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.logs import sources, spills
from pipeline.logs.readers.batch import Batch
from reticent import LogError
from tests.campaigns import bad_input
from tests.campaigns.damages import DAMAGES, SECRET, Case, damages_of, drawn, layouts

SAMPLE = drawn(15, start=1)


@pytest.mark.slow
def test_no_damage_of_the_sample_breaks_a_promise(tmp_path: Path) -> None:
    found = []
    for i, case in enumerate(SAMPLE):
        (tmp_path / str(i) / "log").mkdir(parents=True)
        found.append(bad_input.judge(case, tmp_path / str(i) / "log"))
    assert not [(o.case, o.code, o.violations, o.said) for o in found if o.violations]
    assert {o.code for o in found} >= {0, 3}


@pytest.mark.parametrize(
    "layout", [pytest.param(name, marks=pytest.mark.slow if i % 2 else ()) for i, name in enumerate(sorted(layouts()))]
)
def test_an_undamaged_log_of_each_layout_is_wholly_there(layout: str, tmp_path: Path) -> None:
    DAMAGES["nothing"] = lambda path, case: frozenset()
    try:
        outcome = bad_input.judge(Case(layout, "nothing", 0.0, 0), tmp_path)
    finally:
        del DAMAGES["nothing"]
    assert (outcome.code, outcome.violations) == (0, ())


def test_the_same_seed_draws_the_same_cases_and_all_damages() -> None:
    assert drawn(15, start=1) == SAMPLE != drawn(15, start=2)
    assert {damage for layout in layouts() for damage in damages_of(layout)} == set(DAMAGES)


CUT = Case("csv", "truncated", 0.9, 0)


def crashing(batch: Batch) -> Batch:
    raise KeyError("a")


def telling(batch: Batch) -> Batch:
    raise LogError(f"line 2: {SECRET}0 is odd; mend it")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda batch: replace(batch, frame=batch.frame[1:], lines=batch.lines[1:]), "a good episode is lost"),
        (lambda batch: replace(batch, frame=batch.frame.with_columns(a=pl.lit("1"))), "a good episode is lost"),
        (crashing, "exit 1"),
        (telling, "quotes a cell"),
    ],
)
def test_a_reader_that_is_wrong_is_found(
    change: Any, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bad_input.judge(CUT, tmp_path).violations == ()
    (tmp_path / "again").mkdir()
    good = sources.TABLES[".csv"]
    wrong = replace(good, read=lambda *asked: (change(batch) for batch in good.read(*asked)))
    monkeypatch.setitem(sources.TABLES, ".csv", wrong)
    assert what in bad_input.judge(CUT, tmp_path / "again").violations


def test_a_quarantine_that_forgets_a_row_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = spills.quarantine_rows
    monkeypatch.setattr("pipeline.logs.spills.quarantine_rows", lambda *given: good(*given)[1:])
    outcome = bad_input.judge(Case("csv", "cells", 0.5, 7 * 2 + 3), tmp_path)
    assert outcome.code == 0 and "rows read" in outcome.violations[0]


@pytest.mark.slow
def test_a_process_that_hangs_or_dies_is_told_and_the_next_case_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = bad_input.Worker()
    # one that works too long, and one that waits too long
    for cap in ("SECONDS", "WAIT"):
        with monkeypatch.context() as patch:
            patch.setattr(bad_input, cap, 0)
            assert worker.judge(CUT).violations == ("the process hung",)
    assert worker.judge(replace(CUT, damage="no such")).violations == ("the process died",)
    assert worker.judge(CUT).violations == ()
    worker.close()
