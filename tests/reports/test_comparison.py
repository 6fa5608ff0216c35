"""What changed between two runs, on small policies whose every cell or gain is known; pages that a server shows."""

from typing import Any

import numpy as np
import pytest

from pipeline.facts.learnt import Gains
from pipeline.facts.report import Report
from pipeline.mdp.policy import Policy
from reports.run.comparison import (
    GainsSide,
    TableSide,
    compare_runs,
    log_page,
    sentences,
    simulation_page,
    slug,
    study_page,
)
from reticent import CardError, LogOptions, Store, simulate
from tests.flows.made_runs import as_version_0_1, table_of
from tests.flows.shop import lay_out
from tests.flows.test_playing import RECIPE
from tests.flows.verb import reticent
from tests.jobs import home_at, nightly_job, page_of, simulate_logs
from tests.reports.sample import sample_facts, sample_report
from tests.reports.test_policy_report import plant


def facts():
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


PLAINLY = {
    "run": "old-1",
    "value": {"lower": -9.0, "upper": 0.0, "estimate": -2.0, "lower_flag": "trivial", "status": "estimate"},
}


def gains_side(gains, **changes):
    told = plant(["place", "pace"], actions=["push"], horizon=2).model_dump()
    for part, change in {**PLAINLY, **changes}.items():
        told[part] = {**told[part], **change} if isinstance(change, dict) else change
    view = Gains(["place", "pace"], ["push"], np.array(gains, dtype=float).reshape(2, 1, 2))
    return GainsSide(Report.model_validate(told), view)


def test_gains_that_differ_are_named_the_largest_difference_first():
    worth = {"lower": -9.0, "upper": 0.0, "estimate": -1.5, "lower_flag": "trivial"}
    answer = compare_runs(gains_side([3, 0, 0, 4]), gains_side([3, 1, 0, 1], run="new-2", value=worth))
    found, gains = answer.model_dump(), answer.model_dump()["gains"]
    assert (gains["total"], gains["differ"], gains["norms"][0]) == (4, 2, 5.0)
    assert gains["distance"] == pytest.approx(10**0.5) and gains["change"] == pytest.approx(10**0.5 / 5)
    assert [(r["step"], r["action"], r["observation"], r["a"], r["b"]) for r in gains["rows"]] == [
        (1, "push", "pace", 4.0, 1.0),
        (0, "push", "pace", 0.0, 1.0),
    ]
    assert "cells" not in found and found["value"]["lower_gain"] is None
    told = sentences(answer)
    assert told[0].startswith("policy      2 of 4 gains differ; norms 5 → 3.317, 3.162 apart (63.2 % of the first)")
    assert told[1].startswith("value       −2 → −1.5: estimates") and "push by pace" in told[-1]
    cut = sentences(answer, most=1)
    assert cut[-1] == "  … and 1 more: --json lists all" and len([x for x in cut if "push by" in x]) == 1


def test_two_equal_controllers_differ_in_nothing_and_from_zero_there_is_no_share():
    found = compare_runs(gains_side([0, 0, 0, 0]), gains_side([0, 0, 0, 0], run="new-2"))
    told = {"total": 4, "differ": 0, "norms": [0, 0], "distance": 0, "change": None, "rows": []}
    assert found.model_dump()["gains"] == told and "of the first" not in sentences(found)[0]


def test_gains_of_another_plant_or_a_table_of_decisions_are_not_laid_beside():
    other = {"observation": {"names": ["place", "pace"], "scale": [1.0, 2.0], "radius": 1.0}}
    with pytest.raises(ValueError, match="differ in observation: nothing to compare"):
        compare_runs(gains_side([1, 1, 1, 1]), gains_side([1, 1, 1, 1], run="new-2", dataset=other))
    report, none = sample_report(), np.zeros((1, 2), dtype=bool)
    table = TableSide(report, report.dataset, Policy(np.eye(2)[None], none), none)
    for pair in ((gains_side([1, 1, 1, 1]), table), (table, gains_side([1, 1, 1, 1]))):
        with pytest.raises(ValueError, match="one is a linear controller, the other a table of decisions"):
            compare_runs(*pair)


def test_a_night_is_told_with_loss_value_budget_and_what_is_in_use(tmp_path):
    shop, home = lay_out(tmp_path / "shop"), home_at(tmp_path / "home")
    result = nightly_job(str(shop / "private.toml"), home)
    page = page_of(result)
    assert page.key == "night-private" and page.file.name == "report.html"
    for told in ("ε = 7.767", "charged ρ = 1", "snapshot 1"):
        assert told in page.markdown
    assert "nothing is in use yet" in page.markdown and page.rows == result["night"]["charges"]
    held = {**result["promotion"], "held": ["it [abstains](http://x) more"], "promoted": False}
    assert "**not promoted**: it \\[abstains\\]" in page_of({**result, "promotion": held}).markdown
    again = page_of(nightly_job(str(shop / "private.toml"), home)).markdown
    assert f"due on {result['night']['due']}; nothing was charged; that release stands" in again


def test_simulations_logs_and_studies_have_pages_of_their_own(tmp_path):
    home = home_at(tmp_path / "home")
    (tmp_path / "controls.toml").write_text(RECIPE)
    played = simulation_page(simulate(tmp_path / "controls.toml", store=Store(home.root)))
    assert "regret" in played.markdown and "not private" in played.markdown and played.file.name == "report.html"
    log = log_page(simulate_logs("riverswim", LogOptions(episodes=50, name="tiny"), home))
    assert log.key == "log-tiny" and "50 simulated episodes" in log.markdown and log.file.name == "card.toml"
    study = {"name": "003-figure-1a", "claims": [{"claim": "a < b", "holds": False}], "files": ["/x/page.html"]}
    assert "**no**: a &lt; b" in study_page(study).markdown and study_page(study).key == "study-003-figure-1a"


def test_a_key_is_what_prefect_wants():
    assert slug("night-Two_step/GAME ü") == "night-two-step-game"
