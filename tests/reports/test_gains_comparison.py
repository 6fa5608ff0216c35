"""What changed between two linear controllers, on gains that are known."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.facts.answers import Comparison
from pipeline.facts.learnt import Gains
from pipeline.facts.report import Report
from pipeline.mdp.policy import Policy
from reports.run.comparison import GainsSide, TableSide, compare_runs, sentences
from tests.reports.sample import sample_report
from tests.reports.test_lq_report import report as controller

PLAINLY = {
    "run": "old-1",
    "value": {"lower": -9.0, "upper": 0.0, "estimate": -2.0, "lower_flag": "trivial", "status": "estimate"},
}


def side(gains, **changes):
    told = controller(["place", "pace"], actions=["push"], horizon=2).model_dump()
    for part, change in {**PLAINLY, **changes}.items():
        told[part] = {**told[part], **change} if isinstance(change, dict) else change
    view = Gains(["place", "pace"], ["push"], np.array(gains, dtype=float).reshape(2, 1, 2))
    return GainsSide(Report.model_validate(told), view)


def compare(a, b):
    return compare_runs(a, b).model_dump()


def test_gains_that_differ_are_named_the_largest_difference_first():
    found = compare(
        side([3, 0, 0, 4]),
        side([3, 1, 0, 1], run="new-2", value={"lower": -9.0, "upper": 0.0, "estimate": -1.5, "lower_flag": "trivial"}),
    )
    gains = found["gains"]
    assert (gains["total"], gains["differ"], gains["norms"][0]) == (4, 2, 5.0)
    assert gains["distance"] == pytest.approx(10**0.5) and gains["change"] == pytest.approx(10**0.5 / 5)
    assert [(r["step"], r["action"], r["observation"], r["a"], r["b"]) for r in gains["rows"]] == [
        (1, "push", "pace", 4.0, 1.0),
        (0, "push", "pace", 0.0, 1.0),
    ]
    assert "cells" not in found and found["value"]["lower_gain"] is None
    told = sentences(Comparison.model_validate(found))
    assert told[0].startswith("policy      2 of 4 gains differ; norms 5 → 3.317, 3.162 apart (63.2 % of the first)")
    assert told[1].startswith("value       −2 → −1.5: estimates") and "push by pace" in told[-1]
    cut = sentences(Comparison.model_validate(found), most=1)
    assert cut[-1] == "  … and 1 more: --json lists all" and len([x for x in cut if "push by" in x]) == 1


def test_two_equal_controllers_differ_in_nothing_and_from_zero_there_is_no_share():
    found = compare(side([0, 0, 0, 0]), side([0, 0, 0, 0], run="new-2"))
    assert found["gains"] == {"total": 4, "differ": 0, "norms": [0, 0], "distance": 0, "change": None, "rows": []}
    assert "of the first" not in sentences(Comparison.model_validate(found))[0]


def test_gains_of_another_plant_or_a_table_of_decisions_are_not_laid_beside():
    other = {"observation": {"names": ["place", "pace"], "scale": [1.0, 2.0], "radius": 1.0}}
    with pytest.raises(ValueError, match="differ in observation: nothing to compare"):
        compare_runs(side([1, 1, 1, 1]), side([1, 1, 1, 1], run="new-2", dataset=other))
    report, none = sample_report(), np.zeros((1, 2), dtype=bool)
    table = TableSide(report, report.dataset, Policy(np.eye(2)[None], none), none)
    for pair in ((side([1, 1, 1, 1]), table), (table, side([1, 1, 1, 1]))):
        with pytest.raises(ValueError, match="one is a linear controller, the other a table of decisions"):
            compare_runs(*pair)
