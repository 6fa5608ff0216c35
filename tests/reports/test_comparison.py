"""What changed between two runs, on small policies whose every cell is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipeline.facts.answers import Comparison
from pipeline.facts.report import Report
from pipeline.mdp.policy import Policy
from reports.run.comparison import TableSide, compare_runs, sentences
from tests.reports.sample import sample_facts


def facts() -> dict[str, Any]:
    data = {"name": "d", "horizon": 2, "live_states": ["x", "y"], "actions": ["l", "r"]}
    told = sample_facts(
        dataset=data,
        guarantee={"rho": 1.0, "epsilon": 7.8, "sentence": "one"},
        ledger={"spent_rho": 1.0, "remaining_rho": 3.0, "cap_rho": 4.0},
        value={"lower": 0.25, "upper": 0.75},
    )
    # no dictionary shared with the constants of the bounds
    told["constants"]["policy"] = {"preset": "practical", "values": {"C1": 5.0}, "source": {}}
    return told | {"run": "old-1"}


def compare(a: TableSide, b: TableSide) -> dict[str, Any]:
    return compare_runs(a, b).model_dump()


def side(actions, abstains=((0, 0), (0, 0)), tied=((0, 0), (0, 0)), **changes) -> TableSide:
    told = facts()
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        inner = told
        for key in path:
            inner = inner[key]
        inner[last] = {**inner[last], **value} if last == "value" else value
    probabilities = np.eye(2)[np.array(actions)] if np.ndim(actions) == 2 else np.array(actions)
    report = Report.model_validate(told)
    policy = Policy(probabilities, np.array(abstains, dtype=bool))
    return TableSide(report, report.dataset, policy, np.array(tied, dtype=bool))


def test_two_equal_runs_differ_in_nothing():
    found = compare(side([[0, 1], [1, 0]]), side([[0, 1], [1, 0]], run="new-2", dataset__snapshot=2))
    assert found["cells"] == {"total": 4, "differ": 0, "share": 0.0, "of_ties": 0, "rows": []}
    assert found["settings"] == {} and found["snapshots"] == [1, 2] and found["value"]["lower_gain"] == 0


def test_cells_differ_by_action_by_abstaining_and_by_probability_and_ties_are_told():
    a = side([[0, 1], [1, 0]], abstains=[[0, 0], [1, 1]], tied=[[1, 0], [0, 0]])
    mixed = np.eye(2)[np.array([[1, 1], [0, 0]])]
    mixed[0, 1] = [0.25, 0.75]
    b = side(mixed, abstains=[[0, 0], [1, 0]], run="new-2")
    found = compare(a, b)["cells"]
    assert (found["differ"], found["share"], found["of_ties"]) == (3, 0.75, 1)
    assert [(r["step"], r["state"], r["distance"], r["tie"]) for r in found["rows"]] == [
        (0, "x", 1.0, True),
        (0, "y", 0.25, False),
        (1, "y", 1.0, False),
    ]
    assert found["rows"][1]["b"] == {"action": "r", "probability": 0.75}
    # both abstain at (1, x): the stand-ins they carry are no decisions
    assert found["rows"][2]["a"] == {"action": None, "probability": None}


@pytest.mark.parametrize(("upper", "lower", "overlap"), [(0.9, 0.75, True), (0.9, 0.76, False), (None, 0.9, None)])
def test_intervals_overlap_or_not_or_cannot_tell(upper, lower, overlap):
    value = {"lower": lower, "upper": upper, "status": "bound"}
    found = compare(side([[0, 0], [0, 0]]), side([[0, 0], [0, 0]], value=value))
    assert found["value"]["overlap"] is overlap and found["value"]["lower_gain"] == lower - 0.25
    assert any("overlap" in line or "cannot tell" in line for line in sentences(Comparison.model_validate(found)))


def test_settings_budget_and_constants_that_changed_are_named():
    b = side(
        [[0, 0], [0, 0]], constants__policy__values__C1=8.0, guarantee__rho=2.0, guarantee__sentence="two",
        ledger=None, agent="apvi",
    )  # fmt: skip
    found = compare(side([[0, 0], [0, 0]]), b)
    assert found["settings"] == {
        "agent": ["dp-apvi", "apvi"],
        "constants.policy.values.C1": [5.0, 8.0],
        "guarantee.rho": [1.0, 2.0],
    }
    assert [x["spent_rho"] for x in found["budget"]] == [1.0, None]
    assert "setting     constants.policy.values.C1: 5.0 → 8.0" in sentences(Comparison.model_validate(found))


def test_runs_over_other_states_are_not_compared():
    with pytest.raises(ValueError, match="live_states"):
        compare_runs(side([[0, 0], [0, 0]]), side([[0, 0], [0, 0]], dataset__live_states=["x", "z"]))


def test_a_long_list_of_cells_is_cut_and_says_so():
    shape = (30, 2)
    told = facts()
    told["dataset"]["horizon"] = 30
    report, none = Report.model_validate(told), np.zeros(shape, dtype=bool)
    a, b = (TableSide(report, report.dataset, Policy(np.eye(2)[np.full(shape, k)], none), none) for k in (0, 1))
    lines = sentences(compare_runs(a, b))
    assert lines[-1] == "  … and 40 more: --json lists all" and len(lines) == 4 + 20 + 1
