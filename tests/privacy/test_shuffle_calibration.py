"""Accounting of the shuffle protocol: against enumeration, another accountant and the paper; users who return."""

import itertools
import math
from functools import reduce
from math import comb, exp, log

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from pipeline.privacy.shuffle import (
    NoiseBits,
    delivered_epsilon,
    gaussian_delta,
    loss_laws,
    of_one_episode,
    paper_bits,
    paper_total,
    shuffle_delta,
    shuffle_epsilon,
    smallest_total,
    tight_bits,
)
from tests.conftest import slow


def binomial(n, q):
    return np.array([comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)])


def divergence(trials, shifts, epsilon, q=0.5):
    """Smallest delta at ``epsilon`` between coins and coins that are shifted so far, counter by counter; exact."""
    room = max(map(abs, shifts))
    still, moved = (
        [np.pad(binomial(trials, q), (room + s, room - s)) for s in by] for by in (np.zeros_like(shifts), shifts)
    )
    p, q = (reduce(np.multiply.outer, x).ravel() for x in (still, moved))
    return max(np.maximum(a - exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))


@pytest.mark.parametrize(("n", "q", "up", "down"), [(8, 0.5, 1, 1), (9, 0.2, 1, 1), (7, 0.3, 2, 1), (6, 0.1, 1, 0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.0])
def test_the_accountant_is_exact_and_never_below(n, q, up, down, epsilon):
    exact = divergence(n, (1,) * up + (-1,) * down, epsilon, q)
    found = shuffle_delta(n, q, up, down, epsilon)
    # a loss is moved by half a grid step on average, and the divergence changes by no more than the loss
    moved = (up + down) * max(law.step for law in loss_laws(n, q, up, down)) / 2
    assert exact - 1e-12 <= found <= exact + moved


def test_another_accountant_agrees():
    n, low = 700, np.append(binomial(700, 0.5), 0.0)
    with np.errstate(divide="ignore"):
        one, other = np.log(np.append(0.0, low[:-1])), np.log(low)
    laws = [{k: float(p) for k, p in enumerate(x) if p > -80} for x in (one, other)]
    losses = [
        pld.from_two_probability_mass_functions(*pair, value_discretization_interval=1e-4, symmetric=True)
        for pair in (laws, laws[::-1])
    ]
    theirs = losses[0].compose(losses[1]).get_epsilon_for_delta(1e-4)
    assert shuffle_epsilon(n, 0.5, 1, 1, 1e-4) == pytest.approx(theirs, rel=1e-3)
    # twelve counters: findings/shuffle-lq.md has 6.81e-6 of one accountant and 6.85e-6 of the other, rounding up
    assert shuffle_delta(700, 0.5, 6, 6, 1.0) == pytest.approx(6.78e-6, rel=1e-3)


def test_a_large_batch_is_nearly_gaussian():
    mu_squared = 4 * 60 / 3_000_000
    assert shuffle_delta(3_000_000, 0.5, 30, 30, 0.04) == pytest.approx(gaussian_delta(mu_squared / 2, 0.04), rel=5e-3)


@pytest.mark.parametrize(("horizon", "three", "lean"), [(2, 669, 447), (5, 1671, 1114), (10, 3341, 2228)])
def test_the_fewest_bits_at_epsilon_one(horizon, three, lean):
    assert smallest_total(6 * horizon, 1.0, 1e-5) == three
    assert smallest_total(4 * horizon, 1.0, 1e-5) == lean
    half = 3 * horizon
    assert shuffle_delta(three, 0.5, half, half, 1.0) <= 1e-5 < shuffle_delta(three - 1, 0.5, half, half, 1.0)


@pytest.mark.parametrize(("horizon", "delivered"), [(2, 0.104), (5, 0.063), (10, 0.043)])
def test_the_papers_bits_deliver_far_more_privacy_than_asked(horizon, delivered):
    tau = paper_total(horizon, 1.0, 1e-5)
    assert tau == pytest.approx(864 * horizon**2 * log(2e5))
    users = int(np.ceil(tau))
    found = delivered_epsilon(paper_bits(users, horizon, 1.0, 1e-5), 6 * horizon, 1e-5)
    assert found == pytest.approx(delivered, abs=0.0006)
    # so many bits are a Gaussian
    rho = 2 * 6 * horizon / users
    assert gaussian_delta(rho, found * 1.003) < 1e-5 < gaussian_delta(rho, found / 1.003)


@pytest.mark.parametrize("users", [1, 50, 669, 670, 1400, 10**5, 10**9, 10**12])
def test_every_batch_keeps_what_it_was_asked(users):
    bits = tight_bits(users, 12, 1.0, 1e-5)
    assert delivered_epsilon(bits, 12, 1e-5) <= 1.0
    assert bits.trials * bits.probability * (1 - bits.probability) >= 669 / 4
    # half the noise bits, or half their number of users, are caught
    twin = NoiseBits(users, bits.each, bits.chance // 2) if bits.each == 1 else NoiseBits(users, bits.each // 2)
    assert delivered_epsilon(twin, 12, 1e-5) > 1.0


def test_a_skew_coin_needs_one_percent_more_than_a_fair_one():
    bits = tight_bits(10**7, 12, 1.0, 1e-5)
    assert 1.0 < 4 * bits.standard_deviation**2 / 669 < 1.015
    # n q (1 - q) = N / 4 alone falls just short of the asked delta
    q = (1 - np.sqrt(1 - 669 / 1e7)) / 2
    assert 1e-5 < shuffle_delta(10**7, float(q), 6, 6, 1.0) < 1.1e-5


def test_a_forgotten_table_is_caught():
    # enough noise for two tables of three: the third is not paid for
    assert delivered_epsilon(NoiseBits(smallest_total(8, 1.0, 1e-5), 1), 12, 1e-5) > 1.2


@pytest.mark.parametrize(("horizon", "total"), [(2, 203_088), (5, 1_348_468), (10, 5_633_424)])
def test_basic_composition_of_what_a_replacement_moves_asks_for_hundreds_of_times_more(horizon, total):
    # the paper splits epsilon over 3H counters and beta over none; a replacement moves 6H
    moved = 6 * horizon
    assert moved * (1 / (3 * horizon)) == pytest.approx(2.0)
    assert 96 * log(2 * moved / 1e-5) * moved**2 == pytest.approx(total, abs=1)
    assert total > 300 * smallest_total(moved, 1.0, 1e-5)


def test_honest_users_alone_are_counted_on():
    all_honest, few = tight_bits(10**6, 12, 1.0, 1e-5), tight_bits(10**6, 12, 1.0, 1e-5, honest=10**5)
    assert few.probability > 9 * all_honest.probability
    assert delivered_epsilon(few, 12, 1e-5, honest=10**5) <= 1.0 < delivered_epsilon(all_honest, 12, 1e-5, 10**5)


def test_what_cannot_be_asked():
    with pytest.raises(ValueError, match="as many counters up as down"):
        smallest_total(3, 1.0, 1e-5)
    with pytest.raises(ValueError, match="delta must be"):
        smallest_total(4, 1.0, 1e-15)
    with pytest.raises(ValueError, match="honest"):
        tight_bits(10, 4, 1.0, 1e-5, honest=11)


DELTA = 1e-3


def layouts(episodes: int, counters: int) -> set[tuple[int, ...]]:
    """All sums of so many moves of one episode: one counter up, another down."""
    one = [
        tuple(int(k == i) - int(k == j) for k in range(counters)) for i, j in itertools.permutations(range(counters), 2)
    ]
    each = itertools.combinations_with_replacement(one, episodes)
    return {tuple(map(sum, zip(*moves, strict=True))) for moves in each} - {(0,) * counters}


@pytest.mark.parametrize(("episodes", "trials", "counters"), [(2, 40, 3), slow(2, 30, 4), (3, 60, 3)])
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
