"""What makes two runs the same recipe, and what does not: nothing that differs here can carry an answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.learners.terms import Evaluate, Planner, Privacy, Terms, recipe_identity
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
