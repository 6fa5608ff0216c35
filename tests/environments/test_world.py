"""Worlds by name, and how a card's labels cover a world's raw states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.card import Card, CardError, load_card
from pipeline.environments.registry import WORLDS, load_world
from pipeline.environments.riverswim import riverswim
from pipeline.environments.world import declared_actions, declared_states

SHELF = Path(__file__).resolve().parents[2] / "datasets"


def domain(states: dict[str, object], actions: object = 2) -> dict[str, object]:
    return {
        "horizon": 3,
        "states": {"column": "state", **states},
        "actions": {"column": "action", "labels": actions},
    }


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_loads_from_the_shelf_and_its_card_covers_it(name: str):
    card = load_card(SHELF / name / "card.toml")
    world = load_world(name, card.folder)
    assert sorted(set(declared_actions(card, world))) == list(range(len(card.domain.action_labels)))
    assert declared_states(card, world).max() == len(card.domain.state_labels) - 1
    for behaviour in world.policies:
        assert world.behaviours(behaviour, card.domain.horizon).shape == (card.domain.horizon, *world.shape)


def test_a_worlds_file_is_found_beside_another_card():
    assert load_world("icu_sepsis", SHELF / "riverswim").shape == (716, 25)


def test_bins_are_closed_on_the_left():
    card = load_card(SHELF / "icu_sepsis" / "card.toml")
    world = load_world("icu_sepsis", card.folder)
    index, sofa = declared_states(card, world), world.bin_values["sofa"]
    for bin_, (low, high) in enumerate([(-np.inf, 4), (4, 7), (7, 10), (10, np.inf)]):
        np.testing.assert_array_equal(index[:713] == bin_, (sofa[:713] >= low) & (sofa[:713] < high))
    np.testing.assert_array_equal(index[713:], [4, 5, 6])


def test_a_state_without_a_label_is_other_or_an_error(make_card: Callable[..., Card]):
    labels = {"low": [0, 1], "high": [2, 3, 4]}
    with pytest.raises(CardError, match=r"no label for the states \['5'\] of world riverswim"):
        declared_states(make_card(domain=domain({"labels": labels})), riverswim())
    other = make_card(domain=domain({"labels": labels, "other": True}))
    np.testing.assert_array_equal(declared_states(other, riverswim()), [0, 0, 1, 1, 1, 2])


def test_a_column_the_world_lacks_cannot_be_binned_by(make_card: Callable[..., Card]):
    card = make_card(domain=domain({"bins": {"by": "sofa", "edges": [1]}}))
    with pytest.raises(CardError, match="no column 'sofa' to bin by; it has: none"):
        declared_states(card, riverswim())


def test_an_action_without_a_label_is_an_error(make_card: Callable[..., Card]):
    card = make_card(domain=domain({"labels": 6}, actions={"left": [0]}))
    with pytest.raises(CardError, match=r"no label for the actions \['1'\]"):
        declared_actions(card, riverswim())


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("atlantis", {}, "no world 'atlantis'; there are: icu_sepsis, riverswim"),
        ("riverswim", {"depth": 3}, "depth"),
        ("riverswim", {"states": 1}, "states must be at least 2"),
    ],
)
def test_a_wrong_world_is_a_card_error_that_names_it(tmp_path: Path, name: str, params: dict[str, int], message: str):
    with pytest.raises(CardError, match=message):
        load_world(name, tmp_path, **params)


def test_an_unknown_behaviour_is_a_card_error_that_names_the_known_ones():
    with pytest.raises(CardError, match=r"no behaviour 'clinician'; there are: uniform, right-0\.8"):
        riverswim().behaviours("clinician", 3)
