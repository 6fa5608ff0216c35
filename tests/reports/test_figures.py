"""Pictures of a page, and spending against time: drawn and as data."""

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from flows.jobs.book import Spent, chart, spending
from reports.run.answer import Mark, Panel, ends, range_figure
from tests.reports.sample import drawn, first_screen, in_words, sample_report, sample_view
from tests.reports.verdicts import judged

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def pictures(html: str) -> list[str]:
    return re.findall("<svg.*?</svg>", html, re.DOTALL)


def policy_picture(view: Any) -> str:
    [found] = [svg for svg in pictures(drawn(sample_report(), view)[0]) if 'id="policy-title"' in svg]
    return found


def answer_picture(report: Any) -> str:
    return "".join(pictures(first_screen(report)))


def test_each_cell_says_its_action_in_text_or_a_code_and_a_silent_one_is_a_hatched_dash():
    view, drawn = sample_view(), policy_picture(sample_view())
    said = words(drawn)
    assert said.count("–") == view.abstains.sum() and "6=" in said and set(view.state_labels) <= set(said)
    assert said.count("12") == (view.action[:, 2] == 12).sum() + 1  # one more on the axis
    assert 'fill="url(#hatch)"' in drawn and 'id="hatch"' in drawn
    for actions in (["give fluids", "wait"], ["x", "x"]):
        assert {"a0", "a1"} <= set(words(policy_picture(sample_view(actions=actions, scattered=True))))
    hostile = "<script>\"'&#010203"
    assert hostile in words(policy_picture(sample_view(states=[hostile, "b"], actions=["<b>", "</g>"])))


def test_a_picture_has_a_title_and_says_in_words_what_it_shows():
    html, text = drawn(sample_report())
    assert len(pictures(html)) == 3
    for svg in pictures(html):
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert root.findtext(f"{SVG}title")
        assert root.findtext(f"{SVG}desc", "-") in text.replace("\\", "")


def test_a_large_policy_shows_the_most_evidenced_states_and_says_so():
    view = sample_view(60, [f"s{i}" for i in range(45)])
    view.evidence[:, :5] = 0
    view.evidence[:, 5] = 1e6
    said = words(policy_picture(view))
    assert "s4" not in said and "s5" in said
    note = next(line for line in in_words(sample_report(), view).splitlines() if line.startswith("Shown: "))
    assert "24 states" in note and "of 45" in note and "first 50 steps" in note


def test_true_values_are_marked_where_the_world_is_known_and_of_real_people_no_model_is_drawn_first():
    assert 'class="known"' in answer_picture(sample_report())
    for facts in (sample_report(truth=None), judged("better", "real")):
        assert answer_picture(facts) and 'class="known"' not in answer_picture(facts)
    for facts in (sample_report(dataset={"kind": "real"}), judged("withheld", "real")):
        assert not answer_picture(facts)


def test_a_picture_says_practice_new_policy_and_difference():
    said = words(answer_picture(judged("better", "synthetic")))
    assert said.index("current practice") < said.index("new policy") < said.index("difference")
    # what a constant policy is worth only a model says
    assert not [word for word in said if "always" in word]
    assert "score: sum of the rewards of an episode" in said
    assert {"0.748 (0.733 to 0.763)", "difference", "+0.060 (0.051 to 0.070)", "0: as now"} <= set(said)


@pytest.mark.parametrize(
    ("lower", "upper"), [(-0.04, 0.04), (0.001, 0.034), (-0.001, 0.034), (-0.4, 0.1), (-0.2, -0.1)]
)
def test_0_has_one_label_on_an_axis_of_differences(lower, upper):
    panel = Panel([Mark("difference", "w", (lower + upper) / 2, lower, upper)], zero="0: as now")
    said = words(range_figure([panel], "verdict", "t").svg)
    assert said.count("0: as now") == 1 and "0" not in said


def test_marks_stand_at_their_shares_of_the_axis():
    panel = Panel([Mark("m", "w", 2.0, 1.0, 3.0)])
    # 0 stands on the axis, and all that is possible where the marks can still be told apart on it
    assert ends(panel) == (0.0, 3.0)
    assert ends(Panel([Mark("m", "w", 2.0, 1.0, 3.0)], possible=(0.0, 10.0))) == (0.0, 10.0)
    assert ends(Panel([Mark("m", "w", 2.0, 1.0, 3.0)], possible=(0.0, 1e6))) == (0.0, 3.0)
    assert ends(Panel([Mark("m", "w", -2.0, -3.0, -1.0)])) == (-3.0, 0.0)
    root = ElementTree.fromstring(range_figure([Panel([Mark("m", "w", 1.5, 1.0, 3.0)])], "k", "t").svg)
    [dot] = root.iter(f"{SVG}circle")
    assert dot.get("cx") == "50.00%"
    # one value alone still has an axis, and an open end reaches the edge
    low, high = ends(Panel([Mark("m", "w", 0.5)]))
    assert low <= 0 < 0.5 <= high
    assert 'x2="100%"' in range_figure([Panel([Mark("m", "w", None, 0.5)])], "k", "t").svg


CHARGES = [
    ("2026-01-01T00:00:00+00:00", 0.5),
    ("2026-02-01T00:00:00+00:00", 0.0),
    ("2026-07-02T12:00:00+00:00", 1.5),
]


def test_only_what_cost_something_is_a_point_and_sums_grow():
    assert spending(CHARGES) == [Spent(at=CHARGES[0][0], spent_rho=0.5), Spent(at=CHARGES[2][0], spent_rho=2.0)]
    assert spending([]) == []


@pytest.mark.parametrize(("cap", "low", "high"), [(4.0, "▂", "▅"), (2.0, "▃", "█"), (2.5, "▂", "▇")])
def test_the_line_rises_where_it_was_charged_and_is_full_at_the_cap(cap, low, high):
    line, times = chart(spending(CHARGES), cap, CHARGES[0][0], "2026-12-31T00:00:00+00:00")
    assert line[2:62] == low * 30 + high * 30 or line[2:62] == low * 29 + high * 31
    assert line.endswith(f"ρ = 2 of {cap:g}") and times.split() == ["2026-01-01", "2026-12-31"]
    assert len(times) == 62


def test_before_the_first_charge_there_is_nothing_and_without_one_no_line():
    line, _ = chart(spending(CHARGES[2:]), 4.0, "2026-01-01T00:00:00+00:00", "2026-12-31T00:00:00+00:00")
    assert line[2:31] == " " * 29 and line[40] == "▄"
    assert chart([], 4.0, CHARGES[0][0], CHARGES[2][0]) == []
