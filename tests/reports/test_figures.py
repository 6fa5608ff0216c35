from __future__ import annotations

from xml.etree import ElementTree

from reports.figures.policy_figure import policy_figure
from reports.figures.value_figure import value_figure
from tests.reports.sample import sample_report, sample_view

SVG = "{http://www.w3.org/2000/svg}"


def words(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_each_cell_says_its_action_and_the_silent_ones_a_dash() -> None:
    view = sample_view()
    said = words(policy_figure(view).svg)
    assert said.count("–") == view.abstains.sum()
    assert "6=" in said
    assert said.count("12") == (view.action[:, 2] == 12).sum() + 1  # one more on the axis
    assert set(view.state_labels) <= set(said)


def test_a_picture_has_a_title_and_says_in_words_what_it_shows() -> None:
    for figure in (policy_figure(sample_view()), value_figure(sample_report())):
        root = ElementTree.fromstring(figure.svg)
        assert root.get("role") == "img"
        assert root.findtext(f"{SVG}title")
        assert root.findtext(f"{SVG}desc") == figure.text


def test_abstention_is_hatched_not_coloured() -> None:
    assert 'fill="url(#hatch)"' in policy_figure(sample_view()).svg
    assert 'id="hatch"' in policy_figure(sample_view()).svg


def test_long_or_equal_action_labels_become_codes() -> None:
    for actions in (["give fluids", "wait"], ["x", "x"]):
        assert {"a0", "a1"} <= set(words(policy_figure(sample_view(actions=actions, scattered=True)).svg))


def test_a_large_policy_shows_the_most_evidenced_states_and_says_so() -> None:
    view = sample_view(60, [f"s{i}" for i in range(45)])
    view.evidence[:, :5] = 0
    figure = policy_figure(view)
    said = words(figure.svg)
    assert "s4" not in said
    assert "s5" in said
    assert "40 states" in figure.note
    assert "of 45" in figure.note
    assert "first 50 steps" in figure.note


def test_the_largest_drawn_policy_is_a_small_file() -> None:
    view = sample_view(50, [f"a long name of state {i}" for i in range(40)], scattered=True)
    assert len(policy_figure(view).svg.encode()) < 180_000


def test_labels_in_pictures_are_text() -> None:
    hostile = "<script>\"'&#010203"
    said = words(policy_figure(sample_view(states=[hostile, "b"], actions=["<b>", "</g>"])).svg)
    assert hostile in said


def test_true_values_are_marked_only_where_the_world_is_known() -> None:
    assert any("truth" in text for text in words(value_figure(sample_report()).svg))
    for facts in (sample_report(truth=None), sample_report(dataset={"kind": "real"})):
        assert not any("truth" in text for text in words(value_figure(facts).svg))


def test_an_open_interval_is_drawn_to_the_trivial_bound() -> None:
    figure = value_figure(sample_report(value={"upper": None, "gap": None}))
    assert "0.6612 or more" in words(figure.svg)
