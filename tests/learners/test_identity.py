"""What makes two runs the same recipe, and what does not: nothing that differs here can carry an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.learners.terms import Evaluate, OneStep, Planner, Privacy, Terms, recipe_identity
from tests.conftest import card_dict

TERMS = Terms("a.toml", "dp-apvi", Privacy(rho=1.0), evaluate=Evaluate(people=0.3))


@pytest.fixture
def card(make_card):
    return make_card()


@pytest.mark.parametrize(
    "other",
    [
        replace(TERMS, where="b.toml"),
        replace(TERMS, privacy=Privacy(rho=2.0)),
        replace(TERMS, privacy=Privacy(epsilon=1.0, delta=1e-6)),
        replace(TERMS, planner=Planner(seed=7)),
        replace(TERMS, evaluate=None),
        replace(TERMS, evaluate=Evaluate(people=0.4, since=2, users_since=40)),
    ],
    ids=["name", "rho", "epsilon", "seed", "nobody judges", "share and edition"],
)
def test_what_may_differ(card, other):
    assert recipe_identity(card, other) == recipe_identity(card, TERMS)


@pytest.mark.parametrize(
    "other",
    [
        replace(TERMS, agent="dp-ucbvi"),
        replace(TERMS, planner=Planner(failure=0.2)),
        replace(TERMS, planner=Planner(constants="paper")),
        replace(TERMS, privacy=Privacy(rho=1.0, release="two_tables")),
        replace(TERMS, evaluate=Evaluate(people=0.3, probabilities="logged")),
    ],
    ids=["agent", "failure", "constants", "tables", "logged"],
)
def test_what_makes_another_recipe(card, other):
    assert recipe_identity(card, other) != recipe_identity(card, TERMS)


def test_a_card_of_other_states_vetoes_features_or_columns_makes_another_recipe_and_another_file_does_not(make_card):
    base = card_dict()
    states = {**base["domain"], "states": {"column": "state", "labels": ["y", "x"], "ends": ["end"]}}
    columns = {**base["source"], "columns": {**base["source"]["columns"], "reward": "other"}}
    changed = [
        {"domain": states},
        {"domain": {**base["domain"], "vetoes": [["x", "a"]]}},
        {"features": {"kind": "one_hot"}},
        {"source": columns},
    ]
    alike = [{"name": "other"}, {"source": {**base["source"], "files": ["b.csv"]}}, {"budget": {"rho": 3.0}}]
    of = recipe_identity(make_card(), TERMS)
    assert of not in [recipe_identity(make_card(**c), TERMS) for c in changed]
    assert {recipe_identity(make_card(**c), TERMS) for c in alike} == {of}


def test_an_option_typed_as_it_stands_anyway_makes_another_recipe_where_left_out_it_means_something_else(make_card):
    """Groups of states are asked of stationary tables alone, and a budget that may differ decides whether."""
    domain = {**card_dict()["domain"], "dynamics": "stationary"}
    left_out, typed = (replace(TERMS, agent="dp-one-step", one_step=o) for o in (None, OneStep(pessimism=0.5)))
    for card, same in ((make_card(), True), (make_card(domain=domain), False)):
        assert (recipe_identity(card, left_out) == recipe_identity(card, typed)) is same
        assert recipe_identity(card, left_out) == recipe_identity(card, replace(left_out, one_step=OneStep(rows=None)))


def test_a_reader_of_ones_own_may_make_anything_of_rows_so_its_text_is_part(make_card, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    card, found = make_card(source={**card_dict()["source"], "format": "one_reader:read"}), set()
    for text in ("read = 1\n", "read = 2\n"):
        (tmp_path / "one_reader.py").write_text(text)
        found.add(recipe_identity(card, TERMS))
    assert len(found) == 2


def test_code_of_ones_own_may_read_anything_so_only_dates_may_differ(card, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (("one_way", "agent = 1\n"), ("copy_way", "agent = 1\n"), ("other_way", "agent = 2\n")):
        (tmp_path / f"{name}.py").write_text(text)
    mine = replace(TERMS, agent="one_way:agent")
    of = recipe_identity(card, mine)
    assert of == recipe_identity(card, replace(mine, agent="copy_way:agent")), "its text, not its name"
    others = [{"agent": "other_way:agent"}, {"privacy": Privacy(rho=2.0)}, {"planner": Planner(seed=7)}]
    others += [{"evaluate": Evaluate(people=0.4)}, {"agent": "one_way:another"}]
    assert of not in [recipe_identity(card, replace(mine, **other)) for other in others]
