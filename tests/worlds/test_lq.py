"""LQ systems: Assumption 1, the exact covariance of truncated noise, values of the instances, simulation."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.mdp.riccati import QuadraticCost, expected_cost, riccati
from pipeline.mdp.rollout import LinearRollout
from pipeline.worlds.plants import (
    LQ_WORLDS,
    BoundedNoise,
    LqSystem,
    double_integrator,
    explorer,
    explorer_value,
    load_lq_world,
    lq_instance,
    norm,
    on_sphere,
    simulate,
    written_plant,
    wrong_models,
)
from reticent import CardError
from tests.conftest import slow

# optimal cost, and what doing nothing costs more, as an independent implementation printed them
VALUES = {1: (1.5232, 0.1200), 2: (1.4095, 0.0260), 3: (1.8400, 0.0335), 4: (2.4456, 0.1817), 5: (1.2774, 0.2911)}
# cost of gains computed from P_h instead of P_{h+1}, from the same source
OFF_BY_ONE = {1: 1.52389, 3: 1.84061, 5: 1.27758}
NOISES = [BoundedNoise(0.2), BoundedNoise(0.3, "gaussian", 0.1), BoundedNoise(0.3, "gaussian", 5.0)]


def worlds() -> list[LqSystem]:
    return [*map(lq_instance, VALUES), double_integrator()]


def paid(world, rollout) -> np.ndarray:
    x, u = simulate(world, rollout, np.random.default_rng(0))
    cost = np.einsum("ehi,ij,ehj->e", x[:, :-1], world.cost.Q, x[:, :-1])
    return cost + np.einsum("ehi,ij,ehj->e", u, world.cost.R, u)


@pytest.mark.parametrize("number", VALUES)
def test_values_are_those_of_an_independent_implementation(simulate, number):
    said = simulate("zero", {"name": "lq", "instance": number}, episodes=1)
    optimum = said["run"].facts.simulation.optimum
    assert (-optimum, said["suboptimality"]) == pytest.approx(VALUES[number], abs=5.1e-5)


@pytest.mark.parametrize("number", OFF_BY_ONE)
def test_gains_of_the_printed_formula_cost_what_they_cost_elsewhere(number):
    world = lq_instance(number)
    _, P = riccati(world.A, world.B, world.cost)
    BP = world.B.T @ P[:-1]
    printed = -np.linalg.solve(world.cost.R + BP @ world.B, BP @ world.A)
    assert world.expected_cost(printed) == pytest.approx(OFF_BY_ONE[number], abs=5.1e-6)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_noise_is_bounded_and_has_its_stated_covariance(noise, n):
    w = noise.draw((100_000, n), np.random.default_rng(n))
    assert np.linalg.norm(w, axis=1).max() <= noise.bound * (1 + 1e-12)
    size = noise.variance(n)
    # a mean of 100 000 bounded squares is within 2 %; the variance before truncation is 4 % off at least
    np.testing.assert_allclose(w.T @ w / len(w), np.eye(n) * size, atol=0.02 * size)
    np.testing.assert_allclose(w.mean(0), 0, atol=5 * np.sqrt(size / len(w)))


def test_truncation_matters_in_the_stated_covariance():
    noise = BoundedNoise(0.3, "gaussian", 0.15)
    assert noise.variance(4) < 0.9 * noise.deviation**2
    # a normal vector cut far inside its deviation is uniform on the ball: r²/(n+2)
    assert BoundedNoise(0.3, "gaussian", 300.0).variance(4) == pytest.approx(0.09 / 6, rel=1e-5)


@pytest.mark.parametrize("world", worlds(), ids=lambda w: w.name)
def test_simulated_cost_is_the_exact_one(world):
    gains = world.optimal_gains()
    assert np.linalg.norm(gains, 2, axis=(1, 2)).max() <= world.gamma
    cost = paid(world, LinearRollout(gains, 8_000))
    error = cost.std() / np.sqrt(len(cost))
    assert abs(cost.mean() - world.expected_cost(gains)) < 4 * error
    assert error < 0.02 * world.expected_cost(gains)


@pytest.mark.parametrize("world", worlds(), ids=lambda w: w.name)
def test_states_and_controls_stay_in_their_balls_whatever_the_controller(world):
    wild = LinearRollout(np.full(world.zero_gains().shape, 3.0), 2000, explore=0.5)
    x, u = simulate(world, wild, np.random.default_rng(1))
    assert np.linalg.norm(x, axis=-1).max() <= 1 + 1e-9
    length = np.linalg.norm(u, axis=-1)
    assert length.max() <= world.gamma * (1 + 1e-12) and (length > 0.99 * world.gamma).any()


def test_exploration_fills_the_sphere():
    assert (on_sphere((3, 2), 0.0, np.random.default_rng(0)) == 0).all()
    world = lq_instance(4)
    _, u = simulate(world, LinearRollout(world.zero_gains(), 4000, world.gamma), np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(u, axis=-1), world.gamma)
    flat = u.reshape(-1, 2)
    np.testing.assert_allclose(flat.T @ flat / len(flat), np.eye(2) * world.gamma**2 / 2, atol=0.01 * world.gamma**2)


def test_a_state_cannot_leave_the_unit_ball_within_the_horizon():
    world = lq_instance(1)
    replace(world, A=world.A * 1.01)
    far = {"A": world.A * 9}, {"noise": BoundedNoise(0.9)}, {"start": world.start * 1.01}
    for change in (*far, {"gamma": 9.0}, {"gamma": 0.0}):
        with pytest.raises(ValueError, match="unit ball"):
            replace(world, **change)
    with pytest.raises(ValueError, match="must fit"):
        replace(world, start=np.zeros(3))
    with pytest.raises(ValueError, match="no LQ instance 6"):
        lq_instance(6)
    with pytest.raises(ValueError, match="deviation"):
        BoundedNoise(0.1, "gaussian")


def test_a_written_plant_that_grows_is_the_same_plant_in_units_of_its_reach():
    A, B = [[1.1, 0.2], [0.0, 0.9]], [[0.0], [0.3]]
    one = written_plant(A, B, horizon=8, R=[0.1], noise=0.05)
    unit = 1 / np.linalg.norm(one.start)
    assert unit > 2 and (np.array(A) == one.A).all()
    states, _ = simulate(one, LinearRollout(one.zero_gains(), 2000, one.gamma), np.random.default_rng(0))
    assert 0.1 < np.linalg.norm(states, axis=-1).max() <= 1
    cost = QuadraticCost(np.eye(2), 0.1 * np.eye(1), 8)
    start, noise = np.diag([1.0, 0.0]), np.eye(2) * 0.05**2 / 2
    idle = expected_cost(np.array(A), np.array(B), cost, one.zero_gains(), start, noise)
    assert one.expected_cost(one.zero_gains()) == pytest.approx(idle)
    assert np.linalg.norm(simulate(one, LinearRollout(one.zero_gains(), 9), np.random.default_rng(0))[0][0, 1]) < 1
    with pytest.raises(ValueError, match="shorten the horizon"):
        written_plant([[3.0]], [[1.0]], horizon=200)


def test_the_double_integrator_fills_assumption_1_and_is_worth_controlling():
    world = double_integrator()
    assert norm(world.A) + world.gamma * norm(world.B) + world.noise.bound == pytest.approx(1)
    assert world.A[0, 0] == world.A[1, 1] and world.A[0, 1] == pytest.approx(0.5 * world.A[0, 0])
    assert world.expected_cost(world.optimal_gains()) < world.expected_cost(world.zero_gains()) - 0.01


@pytest.mark.parametrize("name", ["double-integrator", slow("lq-4")])
@pytest.mark.parametrize("behaviour", ["sphere", slow("zero")])
def test_the_value_of_an_explorer_is_that_of_its_simulation(name, behaviour):
    world = load_lq_world(name)
    cost = paid(world, explorer(world, behaviour, 40_000))
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
