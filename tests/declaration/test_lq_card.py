"""Cards of vectors: what is declared, what is refused and how it is said, and that tabular cards hash as before."""

from pathlib import Path

import numpy as np
import pytest

from pipeline.worlds.plants import check_world, load_lq_world
from reticent import Card, CardError, LqCard, Store, load_card, plan
from tests.declaration.test_card import RECIPE
from tests.learners.lq_shop import CARD

SHELF = Path(__file__).resolve().parents[2] / "datasets"
GOOD = CARD.format(kind="synthetic", ledger="home", cap=9.0, m=1, people=300)


def load(folder: Path, text: str = GOOD) -> LqCard:
    (folder / "card.toml").write_text(text)
    card = load_card(folder / "card.toml")
    assert isinstance(card, LqCard)
    return card


def test_a_card_of_vectors_says_sizes_names_and_scales(tmp_path):
    card = load(tmp_path)
    seen, control = card.domain.observation, card.domain.action
    assert (seen.size, seen.labels, seen.scales) == (2, ["place", "pace"], [1.0, 2.0])
    assert (control.size, control.labels, control.scales, control.radius) == (1, ["f"], [1.0], 1.0)
    np.testing.assert_array_equal(card.domain.first_moment(), [[1, 0], [0, 0]])
    np.testing.assert_array_equal(card.quadratic.R, [[0.1]])
    listed = GOOD.replace('columns = ["p", "v"]', 'column = "x", dimension = 2')
    listed = listed.replace(', names = ["place", "pace"]', "")
    assert load(tmp_path, listed).domain.observation.labels == ["x[0]", "x[1]"]
    whole = GOOD.replace("Q = [1.0, 1.0]", "Q = [[1.0, 0.5], [0.5, 1.0]]")
    assert load(tmp_path, whole).quadratic.Q[0, 1] == 0.5


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("radius = 2.0", "radius = 0.0", ["domain.observation.radius", "greater than 0"]),
        ('columns = ["p", "v"]', 'columns = ["p", "p"]', ["domain.observation", "different columns"]),
        ('columns = ["p", "v"]', 'column = "p"', ["domain.observation", "'dimension' is missing"]),
        ('columns = ["p", "v"]', 'column = "p", columns = ["p", "v"]', ["exactly one of 'column'"]),
        ('columns = ["p", "v"]', 'dimension = 3, columns = ["p", "v"]', ["dimension = 3", "leave one"]),
        ("scale = [1.0, 2.0]", "scale = [1.0]", ["'scale' has 1 entries"]),
        ("scale = [1.0, 2.0]", "scale = [1.0, 0.0]", ["domain.observation.scale", "greater than 0"]),
        ("scale = [1.0, 2.0]", "center = [1.0, 0.0]", ["domain", "a linear plant rests at 0"]),
        ("mean = [1.0, 0.0]", "mean = [1.0]", ["start.mean must have 2 numbers"]),
        ("[0.01, 0.01]", "[-0.01, 0.01]", ["noise_covariance must be symmetric and positive"]),
        ("Q = [1.0, 1.0]", "Q = [1.0]", ["cost.Q must be 2 numbers"]),
        ("R = [0.1]", "R = [0.0]", ["[cost]", "positive definite"]),
        ("[cost]\nQ = [1.0, 1.0]\nR = [0.1]\n", "", ["cost", "required"]),
        ("[source]", "[reward]\nrange = [0, 1]\n[source]", ["reward", "unknown key"]),
        ('step = "t"', 'next_observation = "n", step = "t"', ["source.columns.next_observation", "2 columns"]),
        ('step = "t", ', "", ["needs 'step' and 'episode_id'"]),
    ],
)
def test_a_wrong_card_says_which_key_and_what_is_allowed(tmp_path, old, new, says):
    assert old in GOOD
    with pytest.raises(CardError) as e:
        load(tmp_path, GOOD.replace(old, new))
    for part in says:
        assert part in str(e.value), str(e.value)


def test_each_kind_of_agent_asks_for_its_kind_of_card(tmp_path):
    load(tmp_path)
    for card, agent, says in (
        ("card.toml", "dp-apvi", "states are vectors; use agent dp-lqr"),
        ("riverswim", "dp-lqr", r"need a card with dynamics = 'linear_quadratic' and a \[cost\]"),
    ):
        text = RECIPE.replace("icu_sepsis", card).replace("dp-apvi", agent) + "rho = 1.0\n"
        (tmp_path / "recipe.toml").write_text(text)
        with pytest.raises(CardError, match=says):
            plan(tmp_path / "recipe.toml", store=Store(tmp_path / "home"))


HASHES = {
    "riverswim": "f1295867ef142d0713228c7cb974a33c6fa47d509bc77f9253b4aa3562d8e23b",
    "icu_sepsis_uniform": "48ba51f3f2b076ebaa83fd85af2c940c7b2c4f6a6f2b8bd3999e885224500707",
    "two_step_game": "5a2430980e09ce84e94d8dedcd82c1a0b379d32660914a71ee966b5caee49e82",
}


@pytest.mark.parametrize("name", HASHES)
def test_a_tabular_card_hashes_as_before_there_were_others(name):
    card = load_card(SHELF / name / "card.toml")
    assert isinstance(card, Card) and card.domain_hash() == HASHES[name]


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("Q = [1.0, 1.0]", "Q = [1.0, 2.0]", True),
        ("radius = 2.0", "radius = 2.5", False),
        ("scale = [1.0, 2.0]", "scale = [1.0, 3.0]", False),
        ("[0.01, 0.01]", "[0.01, 0.02]", False),
        ("horizon = 4", "horizon = 5", False),
        ("users_public = 300", "users_public = 301", False),
        ("R = [0.1]", "R = [0.2]", True),
        ("rho = 9.0", "rho = 8.0", True),
        ('files = ["log.csv"]', 'files = ["other.csv"]', True),
    ],
)
def test_the_hash_covers_unit_and_domain_and_not_the_cost(tmp_path, old, new, same):
    assert old in GOOD
    assert (load(tmp_path).domain_hash() == load(tmp_path, GOOD.replace(old, new)).domain_hash()) == same


def test_the_shipped_card_is_the_world_it_is_said_to_come_from():
    card = load_card(SHELF / "double_integrator" / "card.toml")
    assert isinstance(card, LqCard)
    check_world(load_lq_world("double-integrator"), card)
    with pytest.raises(CardError, match="is not that of the world lq-1"):
        check_world(load_lq_world("lq-1"), card)
    system = load_lq_world("double-integrator")
    assert np.linalg.norm(np.hstack([system.A, system.B])) <= (card.domain.parameter_norm or 0)
