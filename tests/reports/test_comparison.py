"""What changed between two runs, on small policies whose every cell is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reticent import CardError, Store
from tests.flows.made_runs import as_version_0_1, table_of
from tests.flows.verb import reticent
from tests.reports.sample import sample_facts


def facts() -> dict[str, Any]:
    data = {"name": "d", "horizon": 2, "live_states": ["x", "y"], "actions": ["l", "r"]}
    told = sample_facts(
        dataset=data,
        guarantee={"rho": 1.0, "epsilon": 7.8, "sentence": "one"},
        ledger={"spent_rho": 1.0, "remaining_rho": 3.0, "cap_rho": 4.0},
        value={"lower": 0.25, "upper": 0.75},
        policy={"tied": []},
    )
    # no dictionary shared with the constants of the bounds
    told["constants"]["policy"] = {"preset": "practical", "values": {"C1": 5.0}, "source": {}}
    return told | {"run": "old-1"}


@pytest.fixture
def compare(tmp_path):
    """Two runs, as what ``compare-runs`` says of them: values and lines."""

    def compared(a: dict[str, Any], b: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        runs = tmp_path / ".reticent" / "runs"
        for name, told in (("old-1", a), ("new-2", b)):
            folder = table_of(runs / name, told["report"], told["p"])
            for cell in told.get("stand_ins", ()):
                as_version_0_1(folder, *cell)
        store = Store(tmp_path / ".reticent")
        found = store.open("old-1").compare(store.open("new-2"))
        return found.model_dump(), reticent("compare-runs", "old-1", "new-2", cwd=tmp_path).stdout.splitlines()

    return compared


def side(actions=((0, 0), (0, 0)), **changes: Any) -> dict[str, Any]:
    """A run that takes these actions (None: what practice does), or with these probabilities."""
    told = facts()
    for dotted, value in changes.items():
        *path, last = dotted.split("__")
        inner = told
        for key in path:
            inner = inner[key]
        inner[last] = {**inner[last], **value} if last == "value" else value
    p = [[np.zeros(2) if a is None else np.eye(2)[a] if isinstance(a, int) else a for a in row] for row in actions]
    return {"report": told, "p": np.array(p)}


def test_two_equal_runs_differ_in_nothing(compare):
    found, _ = compare(side([[0, 1], [1, 0]]), side([[0, 1], [1, 0]], run="new-2", dataset__snapshot=2))
    assert found["cells"] == {"total": 4, "differ": 0, "share": 0.0, "of_ties": 0, "rows": []}
    assert found["settings"] == {} and found["snapshots"] == [1, 2] and found["value"]["lower_gain"] == 0


def test_cells_differ_by_action_by_abstaining_and_by_probability_and_ties_are_told(compare):
    a = side([[0, 1], [None, None]], policy__tied=[[0, 0]])
    found = compare(a, side([[1, [0.25, 0.75]], [None, 0]], run="new-2"))[0]["cells"]
    assert (found["differ"], found["share"], found["of_ties"]) == (3, 0.75, 1)
    assert [(r["step"], r["state"], r["distance"], r["tie"]) for r in found["rows"]] == [
        (0, "x", 1.0, True),
        (0, "y", 0.25, False),
        (1, "y", 1.0, False),
    ]
    assert found["rows"][1]["b"] == {"action": "r", "probability": 0.75}
    assert found["rows"][2]["a"] == {"action": None, "probability": None}


def test_the_stand_in_of_an_older_folder_is_no_decision(compare):
    a, b = (side([[0, 1], [None, 0]]) for _ in range(2))
    found = compare(a | {"stand_ins": [(1, 0, [0])]}, b | {"stand_ins": [(1, 0, [1])]})[0]["cells"]
    assert found["differ"] == 0
    assert compare(a, side([[0, 1], [1, 0]]))[0]["cells"]["rows"][0]["a"] == {"action": None, "probability": None}


@pytest.mark.parametrize(("upper", "lower", "overlap"), [(0.9, 0.75, True), (0.9, 0.76, False), (None, 0.9, None)])
def test_intervals_overlap_or_not_or_cannot_tell(compare, upper, lower, overlap):
    found, lines = compare(side(), side(value={"lower": lower, "upper": upper, "status": "bound"}))
    assert found["value"]["overlap"] is overlap and found["value"]["lower_gain"] == lower - 0.25
    assert any("overlap" in line or "cannot tell" in line for line in lines)


def test_settings_budget_and_constants_that_changed_are_named(compare):
    b = side(
        constants__policy__values__C1=8.0, guarantee__rho=2.0, guarantee__sentence="two", ledger=None, agent="apvi"
    )
    found, lines = compare(side(), b)
    assert found["settings"] == {
        "agent": ["dp-apvi", "apvi"],
        "constants.policy.values.C1": [5.0, 8.0],
        "guarantee.rho": [1.0, 2.0],
    }
    assert [x["spent_rho"] for x in found["budget"]] == [1.0, None]
    assert "setting     constants.policy.values.C1: 5.0 → 8.0" in lines


def test_runs_over_other_states_are_not_compared(compare):
    with pytest.raises(CardError, match="live_states"):
        compare(side(), side(dataset__live_states=["x", "z"]))


def test_a_long_list_of_cells_is_cut_and_says_so(compare):
    _, lines = compare(*(side([[k, k]] * 30, dataset__horizon=30) for k in (0, 1)))
    assert lines[-1] == "  … and 40 more: --json lists all" and len(lines) == 5 + 20 + 1
