"""Worlds by name, and how a card's labels cover a world's raw states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import reticent
from pipeline.declaration.card import load_card
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.worlds.catalog import load_world, riverswim
from pipeline.worlds.world import declared_actions, declared_states
from reticent import Card, CardError, LogOptions

SHELF = Path(__file__).resolve().parents[2] / "datasets"


def domain(states: dict[str, object], actions: object = 2) -> dict[str, object]:
    return {
        "horizon": 3,
        "states": {"column": "state", **states},
        "actions": {"column": "action", "labels": actions},
    }


@pytest.mark.parametrize(
    ("name", "dataset"),
    [("icu_sepsis", "icu_sepsis"), ("icu_sepsis", "icu_sepsis_uniform"), ("riverswim", "riverswim")],
)
def test_every_world_loads_from_the_shelf_and_its_card_covers_it(name: str, dataset: str):
    card = load_card(SHELF / dataset / "card.toml")
    world = load_world(name, card.folder)
    assert sorted(set(declared_actions(card, world))) == list(range(len(card.domain.action_labels)))
    assert declared_states(card, world).max() == len(card.domain.state_labels) - 1
    for behaviour in world.policies:
        assert world.behaviours(behaviour, card.domain.horizon).shape == (card.domain.horizon, *world.shape)


def test_bins_are_closed_on_the_left():
    card = load_card(SHELF / "icu_sepsis_uniform" / "card.toml")
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


def test_a_column_or_an_action_that_no_label_covers_is_an_error(make_card: Callable[..., Card]):
    card = make_card(domain=domain({"bins": {"by": "sofa", "edges": [1]}}))
    with pytest.raises(CardError, match="no column 'sofa' to bin by; it has: none"):
        declared_states(card, riverswim())
    card = make_card(domain=domain({"labels": 6}, actions={"left": [0]}))
    with pytest.raises(CardError, match=r"no label for the actions \['1'\]"):
        declared_actions(card, riverswim())


def test_near_optimal_is_optimal_but_for_its_share_of_chance():
    mdp = riverswim().mdp(20)
    best = optimal_values(mdp)[1][0, 0]
    values = [policy_value(mdp, riverswim().behaviours(f"near-optimal-{e}", 20)) for e in ("0", "0.3", "1.0")]
    assert values[0] == pytest.approx(best) and values[0] > values[1] > values[2]
    np.testing.assert_allclose(riverswim().behaviours("near-optimal-1", 20), 0.5)
    np.testing.assert_allclose(riverswim().behaviours("near-optimal-0.3", 20).min(), 0.15)


@pytest.mark.parametrize("name", ["near-optimal-1.5", "near-optimal-", "near-optimal--1", "optimal", "clinician"])
def test_an_unknown_behaviour_is_a_card_error_that_names_the_known_ones(tmp_path: Path, name: str):
    known = r"no behaviour 'clinician'; there are: uniform, right-0\.8"
    says = known if name == "clinician" else "near-optimal-E with E from 0 to 1"
    with pytest.raises(CardError, match=says):
        reticent.simulate_logs("riverswim", LogOptions(behaviour=name, horizon=3, to=tmp_path))


def test_step_dependent_arrays_need_their_horizon():
    with pytest.raises(ValueError, match="need horizon = 6"):
        replace(load_world("riverswim_inhomogeneous", Path()), horizon=None)


def test_a_world_file_beside_a_card_gives_the_parameters_and_arrays_are_found_beside_another(tmp_path: Path):
    (tmp_path / "world.toml").write_text('name = "riverswim"\n[params]\nstates = 4\n')
    assert load_world("icu_sepsis", SHELF / "riverswim").shape == (716, 25)
    assert load_world("riverswim", tmp_path).shape == (4, 2)
    assert load_world("riverswim", tmp_path, states=5).shape == (5, 2)
    assert load_world("riverswim_homogeneous", tmp_path).shape == (3, 2)
