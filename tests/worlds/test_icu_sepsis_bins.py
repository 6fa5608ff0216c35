"""The bins of ICU-Sepsis as a world of their own: the process that tables of a uniform log estimate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipeline.declaration.card import load_card
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.worlds.catalog import SOFA_EDGES, icu_sepsis_bins, load_icu_sepsis, load_world
from pipeline.worlds.world import binned_process
from reticent import CardError

SHELF = Path(__file__).resolve().parents[2] / "datasets"
FILE = SHELF / "icu_sepsis" / "world.npz"


@pytest.mark.slow
def test_it_is_the_process_that_the_shelf_cards_tables_estimate():
    card = load_card(SHELF / "icu_sepsis_uniform" / "card.toml")
    other = binned_process(card, load_icu_sepsis(FILE), "uniform")
    mdp = icu_sepsis_bins(FILE).mdp(20)
    assert mdp.shape == (20, 7, 25)
    assert np.abs(mdp.transitions[:, :4] - other.transitions[:, :4]).max() < 1e-12
    assert np.abs(mdp.rewards[:, :4] - other.rewards[:, :4]).max() < 1e-12
    assert mdp.start == pytest.approx(other.start)
    best = [float(m.start @ optimal_values(m)[1][0]) for m in (mdp, other)]
    assert best[0] == pytest.approx(best[1], abs=1e-12) == pytest.approx(0.735788, abs=5e-7)


def test_nobody_survives_twice():
    world = icu_sepsis_bins(FILE)
    mdp = world.mdp(20)
    survived = next(s for s, label in world.ends.items() if label == "survived")
    assert world.entry_reward[survived] == 1 and mdp.rewards[:, survived].max() == 0
    assert 0 < policy_value(mdp, world.behaviours("uniform", 20)) < 1


def test_bins_and_horizon_can_be_chosen():
    bins = "8"
    world = load_world("icu_sepsis_bins", SHELF / "icu_sepsis", bins=bins, horizon=10)
    assert world.shape == (len(SOFA_EDGES[bins]) + 1 + 3, 25) and world.horizon == 10
    assert len(set(world.raw_labels)) == len(world.raw_labels)


def test_what_does_not_fit_is_said():
    with pytest.raises(CardError, match="bins must be one of 4, 8, 32"):
        load_world("icu_sepsis_bins", SHELF / "icu_sepsis", bins=5)
    with pytest.raises(CardError, match="not the ICU-Sepsis world"):
        load_world("icu_sepsis_bins", SHELF / "nowhere" / "else")
