from __future__ import annotations

from xml.etree import ElementTree

import pytest

from pipeline.facts.report import Report
from reports.run.answer import Mark, Panel, answer_figure, ends, range_figure, verdict_of
from reports.run.policy_sections import policy_figure
from tests.reports.sample import sample_report, sample_view
from tests.reports.verdicts import judged

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_each_cell_says_its_action_in_text_or_a_code_and_a_silent_one_is_a_hatched_dash() -> None:
    view, drawn = sample_view(), policy_figure(sample_view()).svg
    said = words(drawn)
    assert said.count("–") == view.abstains.sum() and "6=" in said and set(view.state_labels) <= set(said)
    assert said.count("12") == (view.action[:, 2] == 12).sum() + 1  # one more on the axis
    assert 'fill="url(#hatch)"' in drawn and 'id="hatch"' in drawn
    for actions in (["give fluids", "wait"], ["x", "x"]):
        assert {"a0", "a1"} <= set(words(policy_figure(sample_view(actions=actions, scattered=True)).svg))
    hostile = "<script>\"'&#010203"
    assert hostile in words(policy_figure(sample_view(states=[hostile, "b"], actions=["<b>", "</g>"])).svg)


def test_a_picture_has_a_title_and_says_in_words_what_it_shows() -> None:
    report = sample_report()
    for figure in (policy_figure(sample_view()), answer_figure(report, verdict_of(report))):
        assert figure is not None
        root = ElementTree.fromstring(figure.svg)
        assert root.get("role") == "img"
        assert root.findtext(f"{SVG}title")
        assert root.findtext(f"{SVG}desc") == figure.text


def test_a_large_policy_shows_the_most_evidenced_states_and_says_so() -> None:
    view = sample_view(60, [f"s{i}" for i in range(45)])
    view.evidence[:, :5] = 0
    view.evidence[:, 5] = 1e6
    figure = policy_figure(view)
    said = words(figure.svg)
    assert "s4" not in said
    assert "s5" in said
    assert "24 states" in figure.note
    assert "of 45" in figure.note
    assert "first 50 steps" in figure.note


def test_the_largest_drawn_policy_is_a_small_file() -> None:
    view = sample_view(50, [f"a long name of state {i}" for i in range(40)], scattered=True)
    assert len(policy_figure(view).svg.encode()) < 180_000


def figure(report: Report) -> str:
    found = answer_figure(report, verdict_of(report))
    return "" if found is None else found.svg


def test_true_values_are_marked_where_the_world_is_known_and_of_real_people_no_model_is_drawn_first() -> None:
    assert 'class="known"' in figure(sample_report())
    for facts in (sample_report(truth=None), judged("better", "real")):
        assert figure(facts) and 'class="known"' not in figure(facts)
    assert not figure(sample_report(dataset={"kind": "real"})) and not figure(judged("withheld", "real"))


def test_a_picture_says_practice_new_policy_and_difference() -> None:
    said = words(figure(judged("better", "synthetic")))
    assert said.index("current practice") < said.index("new policy") < said.index("difference")
    # what a constant policy is worth only a model says
    assert not [word for word in said if "always" in word]
    assert "score: sum of the rewards of an episode" in said
    assert {"0.748 (0.733 to 0.763)", "difference", "+0.060 (0.051 to 0.070)", "0: as now"} <= set(said)


@pytest.mark.parametrize(
    ("lower", "upper"), [(-0.04, 0.04), (0.001, 0.034), (-0.001, 0.034), (-0.4, 0.1), (-0.2, -0.1)]
)
def test_0_has_one_label_on_an_axis_of_differences(lower: float, upper: float) -> None:
    panel = Panel([Mark("difference", "w", (lower + upper) / 2, lower, upper)], zero="0: as now")
    said = words(range_figure([panel], "verdict", "t").svg)
    assert said.count("0: as now") == 1 and "0" not in said


def test_marks_stand_at_their_shares_of_the_axis() -> None:
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
