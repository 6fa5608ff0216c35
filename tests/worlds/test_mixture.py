"""Mixture worlds: theta and psi give back the kernel, phi regresses to P V, and v* is that of the mixed kernel."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from pipeline.mdp.features import dense, dense_one_hot, one_hot
from pipeline.mdp.planning import optimum, policy_value
from pipeline.worlds.catalog import (
    load_world,
    random_mixture,
    riverswim,
    riverswim_homogeneous,
    riverswim_inhomogeneous,
)
from tests.worlds.mixtures import tabular_mixture

WORLDS = [
    random_mixture(),
    random_mixture(5, 2, 4, 3, seed=7, stationary=True),
    tabular_mixture(riverswim_homogeneous(3)),
    tabular_mixture(riverswim_inhomogeneous(3)),
    tabular_mixture(riverswim(4), horizon=5),
]


@pytest.mark.parametrize("world", WORLDS, ids=lambda w: w.name)
def test_phi_times_theta_is_the_expected_next_value(world):
    f, mdp = world.features, world.mdp
    V = np.random.default_rng(0).random(f.states)
    theta = world.theta.reshape(mdp.horizon, f.blocks, f.dimension)
    for h in range(mdp.horizon):
        seen = np.einsum("bnd,bd->bn", f.phi(V), theta[h]).reshape(f.states, f.actions)
        np.testing.assert_allclose(seen, mdp.transitions[h] @ V, atol=1e-12)
    assert world.theta.shape == (mdp.horizon, f.unknowns)


def test_the_low_dimensional_world_is_one_and_its_kernels_stay_kernels():
    world = random_mixture(8, 3, 3, 6)
    assert world.features.unknowns == 3 < 8 * 8 * 3
    np.testing.assert_allclose(world.features.psi.sum(2), 1)
    assert (world.theta >= 0).all()
    np.testing.assert_allclose(world.theta.sum(1), 1)
    assert np.ptp(world.theta, axis=0).max() > 0
    stay = random_mixture(stationary=True).theta
    assert np.array_equal(stay, np.broadcast_to(stay[0], stay.shape))


def test_v_star_is_the_best_deterministic_policy_by_enumeration():
    world = random_mixture(2, 2, 2, 2, seed=3, successors=2)
    policies = itertools.product(range(2), repeat=4)
    best = max(policy_value(world.mdp, np.eye(2)[np.array(p).reshape(2, 2)]) for p in policies)
    assert optimum(world.mdp) == pytest.approx(best, abs=1e-15)
    assert optimum(tabular_mixture(riverswim_homogeneous(3)).mdp) == pytest.approx(0.2281, abs=5e-5)
    assert optimum(tabular_mixture(riverswim_inhomogeneous(3)).mdp) == pytest.approx(0.5911, abs=5e-5)


@pytest.mark.parametrize(
    "features", [one_hot(3, 2), dense_one_hot(3, 2), WORLDS[0].features], ids=["blocks", "dense", "d"]
)
def test_the_stretch_bounds_every_phi_and_is_attained(features):
    rng = np.random.default_rng(1)
    values = [np.ones(features.states), *rng.random((200, features.states)), *np.eye(features.states)]
    ratio = [np.linalg.norm(features.phi(V), axis=-1).max() / V.max() for V in values]
    assert max(ratio) == pytest.approx(features.stretch)
    assert max(ratio) > 1


def test_place_finds_the_row_of_each_cell_in_both_forms():
    V, state, action = np.array([0.3, 0.1, 0.2]), np.array([0, 2, 1]), np.array([1, 0, 1])
    for features in (one_hot(3, 2), dense_one_hot(3, 2)):
        block, row = features.place(2 * state + action)
        phi = features.phi(V)[block, row]
        np.testing.assert_allclose(phi @ phi.T, (V @ V) * (np.eye(3) if features.psi is not None else np.ones((3, 3))))


def test_wrong_sizes_and_negative_features_are_refused():
    with pytest.raises(ValueError, match="successors"):
        random_mixture(3, 2, 2, 4, successors=4)
    with pytest.raises(ValueError, match=r"\(S, A, S, d\)"):
        dense(np.ones((2, 2, 3, 1)))
    with pytest.raises(ValueError, match="negative"):
        dense(-np.ones((2, 2, 2, 1)))


def test_a_mixture_by_name_is_the_world_of_that_name():
    params = {"states": 5, "actions": 2, "dimension": 4, "horizon": 3, "seed": 7}
    world, mixture = load_world("random_mixture", Path("none"), **params), random_mixture(**params)
    for mine, theirs in zip(
        (mixture.mdp.transitions, mixture.mdp.rewards), (world.mdp(3).transitions, world.mdp(3).rewards), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)
    assert mixture.features.unknowns == 4
