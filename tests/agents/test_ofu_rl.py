"""OFU-RL: the page in loops agrees, no noise is the baseline to the bit, models are optimistic, and it learns."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from pipeline.agents.ofu_rl import LqControl, OfuConstants, batch_ends, ofu_rl, planned, radius
from pipeline.mdp.riccati import clip_norm, riccati
from pipeline.mdp.rollout import LqBatch
from pipeline.online.plants import PlantWorld
from pipeline.online.rollouts import Played
from pipeline.online.rollouts import play as played_in
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq import LqMessage, lq_regularizer
from pipeline.statistics.regression import RidgeSums
from pipeline.worlds.plants import LqSystem, double_integrator, lq_instance
from reticent import CardError

PLANT = {"name": "lq", "instance": 1}
WORLD, ONE = SimulatedWorld("tests"), OfuConstants()


def control(world: LqSystem) -> LqControl:
    return LqControl(world.cost, world.gamma, world.noise.bound, world.start, world.covariance)


def message(world: LqSystem) -> LqMessage:
    return LqMessage(*world.shape, world.horizon, (1.0, world.gamma, 1.0))


def play(world: LqSystem, regularizer, ends, c: OfuConstants = ONE, seed: int = 0) -> Played:
    agent = ofu_rl(control(world), regularizer, c, ends, np.random.default_rng(seed))
    return played_in(agent, PlantWorld(world, np.random.default_rng(seed + 1)))


def baseline(world: LqSystem, ends):
    return lq_regularizer(message(world), ends, None, 1.0, WORLD, SeededNoise(0))


@pytest.mark.parametrize("calibration", [pytest.param("tight", marks=pytest.mark.slow), "paper"])
def test_a_private_agent_without_noise_is_its_baseline_to_the_last_bit(calibration):
    world, ends = lq_instance(1), batch_ends(40, 2.0)
    plain = play(world, baseline(world, ends), ends)
    makes = [lq_regularizer] if calibration == "paper" else [lq_regularizer, partial(lq_regularizer, counter="epochs")]
    for make in makes:
        silent = make(
            message(world), ends, Ask(epsilon=math.inf, delta=1e-5, calibration=calibration), 1.0, WORLD, SeededNoise(5)
        )
        assert silent.guarantee.rho is None
        played = play(world, silent, ends)
        assert played.losses == plain.losses
        np.testing.assert_array_equal([p.gains for p in played.result], [p.gains for p in plain.result])
    noisy = lq_regularizer(
        message(world), ends, Ask(epsilon=1e9, delta=1e-5, calibration=calibration), 1.0, WORLD, SeededNoise(5)
    )
    assert play(world, noisy, ends).losses != plain.losses


@pytest.mark.parametrize("number", [1, 3, 4])
def test_sums_estimate_and_radius_agree_with_the_page_in_loops(number):
    world = lq_instance(number)
    n, d = world.shape
    D, H, lam, alpha, ends = n + d, world.horizon, 1.0, 0.05, (3, 7, 8)
    regularizer, rng = baseline(world, ends), np.random.default_rng(number)
    V, U = lam * np.eye(D), np.zeros((D, n))
    for size in (3, 4, 1):
        x = np.trunc(rng.uniform(-0.4, 0.4, (size, H + 1, n)) * 4096) / 4096
        u = np.trunc(rng.uniform(-0.2, 0.2, (size, H, d)) * 4096) / 4096
        regularizer.observe(LqBatch(x, u, size))
        for k in range(size):
            for h in range(H):
                z = [*x[k, h], *u[k, h]]
                for i in range(D):
                    for j in range(D):
                        V[i, j] += z[i] * z[j]
                    for j in range(n):
                        U[i, j] += z[i] * x[k, h + 1, j]
    ridge = regularizer.ridge()
    np.testing.assert_allclose(ridge.V, V, atol=1e-10)
    np.testing.assert_allclose(ridge.U, U, atol=1e-10)
    volume = D * math.log(1 + H * 8 * (1 + world.gamma**2) / (D * lam))
    beta = world.noise.bound * math.sqrt(2 * math.log(2 / alpha) + n * volume) + math.sqrt(lam)
    task = control(world)
    assert radius(task, ridge, 9, OfuConstants(alpha=alpha)) == pytest.approx(beta, rel=1e-12)
    # width 0 leaves the estimate itself, cut to the ball, and its Riccati gains
    plan = planned(task, ridge, OfuConstants(width=0.0), 9, np.zeros((D, n)), rng)
    theta = np.linalg.inv(V) @ U
    assert np.linalg.norm(theta) < 1
    np.testing.assert_allclose(plan.theta, theta, atol=1e-10)
    best = riccati(theta[:n].T, theta[n:].T, world.cost)[0]
    np.testing.assert_allclose(plan.gains, clip_norm(best, world.gamma), atol=1e-10)


def test_the_radius_of_a_noisy_moment_is_the_page_s():
    world = lq_instance(4)
    ridge = RidgeSums(np.eye(4), np.zeros((4, 2)), 50.0, 150.0, 7.0, 0)
    volume = 4 * math.log(1 + 10 * 99 * 1.25 / (4 * 50.0))
    expected = 0.4 * math.sqrt(2 * math.log(40) + 2 * volume) + math.sqrt(150.0) + 7.0
    assert radius(control(world), ridge, 100, ONE) == pytest.approx(expected)
    # ln det(V / λ_min) is 0 here or less: nothing was seen
    bare = 0.4 * math.sqrt(2 * math.log(40)) + math.sqrt(150.0) + 7.0
    assert radius(control(world), ridge, 100, OfuConstants(volume="released")) == pytest.approx(bare)


@pytest.mark.parametrize("number", [1, 2, 3, 4, pytest.param(5, marks=pytest.mark.slow)])
def test_models_are_optimistic_gains_bounded_and_nothing_is_played_before_a_zero_can_be_excluded(number):
    world, ends = lq_instance(number), batch_ends(60, 2.0)
    played = play(world, baseline(world, ends), ends)
    best = world.expected_cost(world.optimal_gains())
    for plan in played.result:
        assert plan.cost <= best * (1 + 1e-9)
        assert np.linalg.norm(plan.theta) <= 1 + 1e-9
        assert np.linalg.norm(plan.gains, 2, axis=(1, 2)).max() <= world.gamma * (1 + 1e-9)
    assert not played.result[0].gains.any()
    assert all(loss > -1e-12 for loss in played.losses)


@pytest.mark.slow
def test_it_learns(simulate):
    said = simulate("ofu-rl", PLANT, episodes=20_000, growth=1.5, beside=["zero"])
    # 20 seeds: .02 is the median, .047 the largest (after 2000 episodes 10 of 60 were above .15)
    assert said["suboptimality"] < 0.15 * said["agents"]["zero"]["suboptimality"]["mean"]


def test_with_noise_as_printed_it_stays_at_zero_and_without_optimism_it_wanders():
    world, ends = double_integrator(), batch_ends(400, 1.5)
    for calibration in ("paper", "tight"):
        r = lq_regularizer(
            message(world), ends, Ask(epsilon=4.0, delta=1e-5, calibration=calibration), 1.0, WORLD, SeededNoise(0)
        )
        assert not np.any([p.gains for p in play(world, r, ends).result])
    r = lq_regularizer(message(world), ends, Ask(epsilon=4.0, delta=1e-5), 1.0, WORLD, SeededNoise(0))
    assert np.any(play(world, r, ends, OfuConstants(width=0.0)).result[-1].gains)


def test_sets_that_do_not_meet_are_said_so_and_the_nearest_model_is_played():
    world = lq_instance(1)
    V, U = 1e6 * np.eye(3), 3e6 * np.ones((3, 2))
    plan = planned(
        control(world), RidgeSums(V, U, 1.0, 1.0, 0.0, 2), ONE, 5, np.zeros((3, 2)), np.random.default_rng(0)
    )
    assert plan.empty
    assert plan.raised == 2
    np.testing.assert_allclose(plan.theta, np.ones((3, 2)) / math.sqrt(6), atol=1e-9)


@pytest.mark.slow
def test_two_starts_leave_the_saddle_at_b_zero_and_fewer_are_refused(simulate):
    """Sparse plans: without a random start every one of them stays at zero."""
    asked = {"episodes": 3000, "growth": 3.0}
    assert simulate("ofu-rl", PLANT, **asked, starts=2)["facts"]["left_zero_at"] is not None
    with pytest.raises((CardError, ValueError), match="at least 2 starts"):
        simulate("ofu-rl", PLANT, **asked, starts=1)


def test_the_schedule_covers_every_episode_once():
    assert batch_ends(5, 1.0) == (1, 2, 3, 4, 5)
    assert batch_ends(1, 2.0) == (1,)
    assert batch_ends(10**8, 1.2)[-1] == 10**8
    with pytest.raises(ValueError, match="at least 1"):
        batch_ends(5, 0.9)
