"""Users who return in the shuffle model: every way to lay out two or three episodes, the price of all, and a twin."""

from __future__ import annotations

import itertools
import math
from functools import reduce

import numpy as np
import pytest

from pipeline.privacy.shuffle import (
    NoiseBits,
    delivered_epsilon,
    of_one_episode,
    shuffle_delta,
    shuffle_epsilon,
    tight_bits,
)

DELTA = 1e-3


def divergence(trials: int, shifts: tuple[int, ...], epsilon: float) -> float:
    """Smallest delta at ``epsilon`` between fair coins and coins that are shifted so far, counter by counter; exact."""
    mass = np.array([math.comb(trials, k) for k in range(trials + 1)]) / 2.0**trials
    room = max(map(abs, shifts))
    still, moved = [], []
    for s in shifts:
        p, q = np.zeros(trials + 1 + 2 * room), np.zeros(trials + 1 + 2 * room)
        p[room : room + trials + 1] = mass
        q[room + s : room + s + trials + 1] = mass
        still.append(p)
        moved.append(q)
    p, q = (reduce(np.multiply.outer, x).ravel() for x in (still, moved))
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))


def layouts(episodes: int, counters: int) -> set[tuple[int, ...]]:
    """All sums of so many moves of one episode: one counter up, another down."""
    one = [
        tuple(int(k == i) - int(k == j) for k in range(counters)) for i, j in itertools.permutations(range(counters), 2)
    ]
    each = itertools.combinations_with_replacement(one, episodes)
    return {tuple(map(sum, zip(*moves, strict=True))) for moves in each} - {(0,) * counters}


@pytest.mark.parametrize(
    ("episodes", "trials", "counters"), [(2, 40, 3), pytest.param(2, 30, 4, marks=pytest.mark.slow), (3, 60, 3)]
)
def test_no_way_to_lay_out_the_episodes_costs_more_than_the_price(episodes, trials, counters):
    epsilon = delivered_epsilon(NoiseBits(trials, 1), 2, DELTA, episodes=episodes)
    found = {shifts: divergence(trials, shifts, epsilon) for shifts in layouts(episodes, counters)}
    worst = max(found, key=found.__getitem__)
    assert 0 < found[worst] <= DELTA
    # alike episodes move the same counters, and cost most
    assert sorted(worst) == [-episodes, *[0] * (counters - 2), episodes]


def test_the_accountant_of_alike_episodes_is_exact():
    for by, epsilon in ((1, 0.5), (2, 0.5), (3, 1.0)):
        assert shuffle_delta(40, 0.5, 1, 1, epsilon, by) == pytest.approx(divergence(40, (by, -by), epsilon), rel=0.02)


@pytest.mark.parametrize(("episodes", "epsilon"), [(2, 1.0), (2, 10.0), (4, 1.0)])
def test_the_price_is_kept_and_not_far_from_what_alike_episodes_lose(episodes, epsilon):
    users, changes, delta = 50_000, 12, 1e-5
    bits = tight_bits(users, changes, *of_one_episode(episodes, epsilon, delta))
    told = delivered_epsilon(bits, changes, delta, episodes=episodes)
    true = shuffle_epsilon(users * bits.each, bits.probability, 6, 6, delta, episodes)
    assert 0.8 * epsilon < true <= told <= epsilon * (1 + 1e-6)


def test_a_price_by_the_number_of_counters_alone_is_caught():
    """Twice the counters, each moved by 1: the price before, which alike episodes break."""
    bits = tight_bits(50_000, 2 * 12, 1.0, 1e-5)
    assert shuffle_epsilon(50_000 * bits.each, bits.probability, 6, 6, 1e-5, 2) > 1.4
    assert delivered_epsilon(bits, 12, 1e-5, episodes=2) > 1.4


def test_one_episode_is_the_exact_price_and_too_many_have_none():
    assert of_one_episode(1, 3.0, 1e-5) == (3.0, 1e-5)
    bits = NoiseBits(1000, 1)
    assert delivered_epsilon(bits, 12, 1e-5, episodes=1) == delivered_epsilon(bits, 12, 1e-5)
    assert delivered_epsilon(NoiseBits(30, 1), 12, 1e-9, episodes=20) == math.inf
