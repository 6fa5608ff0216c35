"""The interval of preset `tail` where most actions never showed their rare reward."""

import numpy as np

from pipeline.agents.apvi import apvi, model, policy_bounds
from pipeline.agents.pessimism import constants
from pipeline.mdp.model import TabularMDP
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.planning_counts import private_counts
from pipeline.statistics.private_sum import PrivateSum
from tests.statistics.planning_worlds import declared

A, CHANCE, PEOPLE, DRAWS = 200, 6 / 500, 100_000, 25


def misses() -> int:
    """Of intervals of the emitted policy: 200 actions, each with the same small chance of a jackpot."""
    P, R = np.zeros((2, 3, A, 3)), np.zeros((2, 3, A))
    P[0, 0, :, 1], P[0, 0, :, 2], R[1, 1] = CHANCE, 1 - CHANCE, 1.0
    P[0, 1:, :, 2] = P[1, :, :, 2] = 1.0
    made = declared("jackpot", TabularMDP(P, R, np.array([1.0, 0, 0])), np.full((2, 3, A), 1 / A))
    wrong = 0
    for seed in range(DRAWS):
        log = made.counts(PEOPLE, np.random.default_rng([3, seed]))
        release = PrivateSum(CountLayout(made.card), made.mechanisms(Ask(rho=4.0))).draw(log, SeededNoise(seed))
        counts = private_counts(release, made.card)
        plan = apvi(counts, made.task, constants("practical", 6 * A), np.random.default_rng(seed))
        lower, upper, _ = policy_bounds(model(counts, made.task, constants("tail", 6 * A)), plan.policy)
        wrong += not lower[0, 0] <= CHANCE <= upper[0, 0]
    return wrong


def test_the_interval_holds_where_a_reward_is_rare():
    assert misses() == 0


def test_without_the_term_of_lower_order_it_does_not(constants):
    constants(lower_order=0.0)
    assert misses() >= DRAWS // 10
