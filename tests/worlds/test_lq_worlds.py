"""LQ worlds by name: exact values of explorers agree with simulation, and foreign cards are refused."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.worlds.plants import LQ_WORLDS, explorer, explorer_value, load_lq_world, simulate, wrong_models
from reticent import CardError


@pytest.mark.parametrize("name", ["double-integrator", pytest.param("lq-4", marks=pytest.mark.slow)])
@pytest.mark.parametrize("behaviour", ["sphere", pytest.param("zero", marks=pytest.mark.slow)])
def test_the_value_of_an_explorer_is_that_of_its_simulation(name, behaviour):
    world = load_lq_world(name)
    x, u = simulate(world, explorer(world, behaviour), 40_000, np.random.default_rng(0))
    Q, R = world.cost.Q, world.cost.R
    cost = np.einsum("ehi,ij,ehj->e", x[:, :-1], Q, x[:, :-1]) + np.einsum("ehi,ij,ehj->e", u, R, u)
    assert abs(-cost.mean() - explorer_value(world, behaviour)) < 5 * cost.std() / np.sqrt(len(cost))


def test_doing_nothing_is_the_zero_controller_and_no_explorer_beats_the_optimum():
    for name in LQ_WORLDS:
        world = load_lq_world(name)
        assert explorer_value(world, "zero") == pytest.approx(-world.expected_cost(world.zero_gains()))
        best = -world.expected_cost(world.optimal_gains())
        wrong = [-world.expected_cost(K) for K in wrong_models(world, 5)]
        assert max(explorer_value(world, "sphere"), explorer_value(world, "zero"), *wrong) < best


def test_unknown_worlds_and_behaviours_are_named():
    with pytest.raises(CardError, match="there are: double-integrator, lq-1"):
        load_lq_world("riverswim")
    with pytest.raises(CardError, match="there are: sphere, zero"):
        explorer(load_lq_world("lq-1"), "right-0.8")
