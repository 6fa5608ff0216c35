"""Online counts: what one user moves, by enumeration; what the noise costs and is; visits never too small."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from pipeline.privacy.continual import CounterFullError, Once, SquareRoot, Tree, levels
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import FastOsNoise, RealDataError, SeededNoise, SimulatedWorld
from pipeline.privacy.release import total_delta_slack
from pipeline.privacy.shuffle import delivered_epsilon
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive_counts import (
    GaussianCounts,
    ShuffledCounts,
    exact,
    joint,
    local,
)
from pipeline.statistics.online_counts import OnlineCounts, OnlineLayout, Tally, consistent, never_under
from pipeline.statistics.private_sum import OnlineSum, asked_rho, begin, cost_of, tight
from tests.privacy.handles import REAL

H, S, A, WORLD = 2, 2, 2, SimulatedWorld("tests")
LAYOUT = OnlineLayout(H, S, A)
WIDE = OnlineLayout(3, 20, 10)
QUIET = Ask(epsilon=math.inf, delta=1e-5)


def person(states, actions, ends):
    """The tally of one episode; ``ends`` are the rewards, rounded to -1 or +1."""
    n, r = np.zeros((H, S, A, S), dtype=np.int64), np.zeros((H, S, A), dtype=np.int64)
    for h in range(H):
        n[h, states[h], actions[h], states[h + 1]] += 1
        r[h, states[h], actions[h]] += ends[h]
    return Tally(1, n, r)


def everybody():
    for states, actions, ends in product(
        product(range(S), repeat=H + 1), product(range(A), repeat=H), product((-1, 1), repeat=H)
    ):
        yield person(states, actions, ends)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("rewards", [False, True])
def test_a_replaced_user_moves_each_table_by_the_declared_squared_length_and_no_more(pooled, rewards):
    layout = OnlineLayout(H, S, A, pooled, rewards)
    leaves = {layout.integers(p if rewards else replace(p, rewards=None)).tobytes() for p in everybody()}
    rows = np.array([np.frombuffer(b, dtype=np.int64) for b in sorted(leaves)])
    cut = np.cumsum([t.shape[0] for t in layout.tables])[:-1]
    largest, lengths, both = [0] * len(layout.tables), [0] * len(layout.tables), Fraction(0)
    scales = tight(layout, Ask(epsilon=1.0, delta=1e-5), 1)
    for row in rows:
        squares = [(part**2).sum(1) for part in np.split(row - rows, cut, axis=1)]
        largest = [max(a, int(b.max())) for a, b in zip(largest, squares, strict=True)]
        sums = [np.abs(part).sum(1).max() for part in np.split(row - rows, cut, axis=1)]
        lengths = [max(a, int(b)) for a, b in zip(lengths, sums, strict=True)]
        cost = sum(sq / (2 * v) for sq, v in zip(squares, scales.values(), strict=True))
        both = max(both, Fraction(float(cost.max())))
    assert largest == [t.replace.l2_squared for t in layout.tables]
    assert all(length <= t.replace.l1 for length, t in zip(lengths, layout.tables, strict=True))
    # all tables of one release together, which is what is charged
    assert float(both) <= float(cost_of(layout, scales, 1)) * (1 + 1e-12)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("pooled", [False, True])
def test_a_user_of_two_episodes_moves_as_declared_where_they_meet_and_where_they_are_sent_apart(pooled, apart):
    layout = OnlineLayout(H, S, A, pooled, episodes=2, apart=apart)
    leaves = {layout.integers(replace(p, rewards=None)).tobytes() for p in everybody()}
    rows = np.array([np.frombuffer(b, dtype=np.int64) for b in sorted(leaves)])
    if apart:
        # two messages, each with noise of its own: squares add up
        largest = 2 * max(int(((row - rows) ** 2).sum(1).max()) for row in rows)
    else:
        both = np.unique((rows[:, None] + rows[None]).reshape(-1, rows.shape[1]), axis=0)
        largest = max(int(((row - both) ** 2).sum(1).max()) for row in both)
    assert largest == layout.tables[0].replace.l2_squared
    one, other = (layout.integers(t) for t in layout.extremes())
    assert ((one - other).reshape(-1, A, S)[:, 0] ** 2).sum() * (2 if apart else 1) == largest or pooled


@pytest.mark.slow
def test_bits_of_the_shuffle_model_move_by_one_and_as_many_as_declared():
    layout = OnlineLayout(H, S, A, rewards=True)
    found = 0
    for one, other in product(everybody(), repeat=2):
        leaves = [
            np.concatenate([p.transitions.ravel(), ((p.rewards + p.transitions.sum(-1)) // 2).ravel()])
            for p in (one, other)
        ]
        move = leaves[0] - leaves[1]
        assert np.abs(move).max(initial=0) <= 1
        found = max(found, int(np.abs(move).sum()))
    assert found == sum(layout.bits)


def test_a_table_that_is_forgotten_costs_more_than_was_asked():
    layout, ask = OnlineLayout(H, S, A, rewards=True), Ask(epsilon=1.0, delta=1e-5)
    right, forgot = tight(layout, ask, 1), tight(OnlineLayout(H + 1, S, A), ask, 1)
    assert cost_of(layout, right, 1) <= asked_rho(ask) < cost_of(layout, right, 2)
    # the same moves, but the rewards were not thought of
    assert cost_of(layout, dict.fromkeys(right, forgot["n_sas"]), 1) > asked_rho(ask)


@pytest.mark.parametrize("mechanism", ["bottom-up", "plain", "square-root", "fresh"])
def test_joint_noise_is_charged_for_every_release_a_user_is_in(mechanism):
    ask, T = Ask(epsilon=1.0, delta=1e-5), 37
    counted = joint(LAYOUT, T, 10**4, ask, WORLD, SeededNoise(0), mechanism=mechanism)
    assert asked_rho(ask) * Fraction(99, 100) < counted.guarantee.rho <= asked_rho(ask)
    assert counted.guarantee.epsilon(1e-5) <= 1.0
    cost = {"square-root": SquareRoot(T).cost, "fresh": 1}.get(mechanism, levels(T))
    v = tight(LAYOUT, ask, cost)["n_sas"]
    assert Fraction(cost * LAYOUT.tables[0].replace.l2_squared, 2 * v) == counted.guarantee.rho


def noise_of(counted, batches, users=50):
    """Released sums of batches in which nobody was anywhere."""
    nobody = Tally(users, np.zeros((3, 20, 10, 20), dtype=np.int64))
    for _ in range(batches):
        counted.add(nobody)
    return counted.counts()


class HalfNoise(ShuffledCounts):
    """A broken twin: it says more noise than it draws."""

    def variances(self):
        return 4 * super().variances()


@pytest.mark.parametrize("trust", ["bottom-up", "square-root", "fresh", "local", "shuffle", "episodes", "half"])
def test_the_noise_is_as_large_as_is_said(trust):
    ask, batches = Ask(epsilon=1.0, delta=1e-5), 6
    if trust == "local":
        counted = local(WIDE, 300, ask, WORLD, SeededNoise(1))
    elif trust == "shuffle":
        counted = ShuffledCounts(WIDE, 1.0, 1e-5, WORLD, SeededNoise(1))
    elif trust == "half":
        counted = HalfNoise(WIDE, 1.0, 1e-5, WORLD, SeededNoise(1))
    elif trust == "episodes":
        counted = joint(WIDE, batches, 300, ask, WORLD, SeededNoise(1), leaves="episodes")
    else:
        counted = joint(WIDE, batches, 300, ask, WORLD, SeededNoise(1), mechanism=trust)
    counts = noise_of(counted, batches)
    n = counts.n_sas.size
    squares = ((counts.n_sas / counts.sd_sas[..., None]) ** 2).sum()
    inside = [1e-6 < stats.chi2.cdf(squares / wrong, n) < 1 - 1e-6 for wrong in (1.0, 0.5, 2.0)]
    assert inside == ([False, False, False] if trust == "half" else [True, False, False])
    assert counts.episodes == 300
    assert np.array_equal(counted.counts().n_sas, counts.n_sas), "read twice, drawn twice"


class Redrawing(GaussianCounts):
    """A broken twin: the sums get new noise when they are read."""

    def total(self):
        return super().total() + self.sums.blocks.draw(1)[0]


def test_noise_drawn_on_reading_is_caught():
    ask = Ask(epsilon=1.0, delta=1e-5)
    sums = begin(LAYOUT, tight(LAYOUT, ask, levels(4)), Tree(4), Trust.JOINT, WORLD, SeededNoise(0), ask)
    counted = Redrawing(LAYOUT, sums)
    counted.add(Tally(1, np.zeros((H, S, A, S), dtype=np.int64)))
    assert not np.array_equal(counted.counts().n_sas, counted.counts().n_sas)


def test_without_noise_every_mechanism_shows_the_sums_to_the_last_bit():
    rng = np.random.default_rng(0)
    tallies = [Tally(n, rng.integers(0, 1000, (H, S, A, S))) for n in (1, 3, 7)]
    mechanisms = [
        exact(LAYOUT, 3, WORLD, SeededNoise(0)),
        local(LAYOUT, 11, QUIET, WORLD, SeededNoise(0)),
        *(
            joint(LAYOUT, 3, 11, QUIET, WORLD, SeededNoise(0), mechanism=m)
            for m in ("bottom-up", "square-root", "fresh")
        ),
        joint(LAYOUT, 3, 11, QUIET, WORLD, SeededNoise(0), leaves="episodes"),
    ]
    for counted in mechanisms:
        for tally in tallies:
            counted.add(tally)
        counts = counted.counts()
        assert np.array_equal(counts.n_sas[0], sum(t.transitions[0] for t in tallies))
        assert not counts.sd_sas.any() and (counts.sd_r, counts.episodes) == (0.0, 11)
        assert counted.guarantee.epsilon(1e-5) is None


def test_visits_are_never_too_small_with_the_shift_and_often_without():
    rng, sd, z = np.random.default_rng(3), 30.0, 6.5
    truth = rng.integers(0, 400, (50, 20, 4, 5))
    noisy = OnlineCounts(1, truth + rng.normal(0, sd, truth.shape), None, sd, 0.0)
    n, n_sas = never_under(consistent(noisy), z * noisy.sd_sa)
    np.testing.assert_allclose(n, n_sas.sum(-1), rtol=1e-12)
    assert (n >= truth.sum(-1)).all()
    assert (never_under(consistent(noisy), 0.0)[0] < truth.sum(-1)).mean() > 0.4
    assert (n - truth.sum(-1)).max() < 2 * z * noisy.sd_sa


def test_where_a_batchs_policy_never_goes_nothing_is_counted_and_nothing_else_changes():
    """Only where a batch is noisy by itself: in a running sum its noise cannot be told from that of others."""
    ask, rng = Ask(epsilon=1.0, delta=1e-5), np.random.default_rng(0)
    first, second = (rng.random((H, S, A)) < 0.5 for _ in range(2))
    first[:, 0, 0] = second[:, 0, 0] = False
    never = ~(first | second)
    made = {
        "local": lambda: local(LAYOUT, 200, ask, WORLD, SeededNoise(1)),
        "shuffle": lambda: ShuffledCounts(LAYOUT, 1.0, 1e-5, WORLD, SeededNoise(1)),
        "fresh": lambda: joint(LAYOUT, 2, 200, ask, WORLD, SeededNoise(1), mechanism="fresh"),
        "square-root": lambda: joint(LAYOUT, 2, 200, ask, WORLD, SeededNoise(1), mechanism="square-root"),
    }
    for trust, make in made.items():
        told, untold = make(), make()
        for possible in (first, second):
            n = rng.integers(0, 1000, (H, S, A, S)) * possible[..., None]
            told.add(Tally(100, n, possible=possible))
            untold.add(Tally(100, n))
        known, noisy, steps = told.counts(), untold.counts(), LAYOUT.steps
        both, one = (first & second)[:steps], (first ^ second)[:steps]
        assert np.array_equal(known.n_sas[both], noisy.n_sas[both])
        left, same = told.release().tables, untold.release().tables
        assert left.keys() == same.keys() and all(np.array_equal(left[name], same[name]) for name in left)
        if trust == "square-root":
            assert np.array_equal(known.n_sas, noisy.n_sas)
            continue
        assert never[:steps].any() and not known.n_sas[never[:steps]].any() and not known.sd_sas[never[:steps]].any()
        # two batches of as many users, of which one was there
        assert np.allclose(known.sd_sas[one] * 2**0.5, noisy.sd_sas[one])
        assert np.array_equal(known.sd_sas[both], noisy.sd_sas[both])


def test_rewards_come_back_from_the_shuffled_bits():
    layout, rng = OnlineLayout(H, S, A, rewards=True), np.random.default_rng(0)
    n = rng.integers(0, 10**6, (H, S, A, S))
    r = rng.integers(-(10**5), 10**5, (H, S, A)) * 2 + n.sum(-1) % 2
    counted = ShuffledCounts(layout, 1.0, 1e-5, WORLD, SeededNoise(0))
    counted.add(Tally(10**6, n, r))
    counts = counted.counts()
    assert (np.abs(counts.n_sas - n).max(-1) < 6 * counts.sd_sas).all()
    assert (np.abs(counts.r_sa - r) < 6 * counts.sd_r).all()
    assert 0.9 < counted.guarantee.epsilon(1e-5) <= 1.0


def test_what_cannot_be_done_is_refused():
    with pytest.raises(ValueError, match="nothing to count"):
        OnlineLayout(1, S, A)
    with pytest.raises(ValueError, match="no paper prints"):
        tight(LAYOUT, Ask(epsilon=1.0, delta=1e-5, calibration="paper"), 1)
    with pytest.raises(ValueError, match="leave out pooled"):
        ShuffledCounts(OnlineLayout(H, S, A, pooled=True), 1.0, 1e-5, WORLD, SeededNoise(0))
    with pytest.raises(RealDataError):
        exact(LAYOUT, 3, REAL, SeededNoise(0))
    counted = local(LAYOUT, 10, QUIET, WORLD, SeededNoise(0))
    with pytest.raises(CounterFullError, match="declared for 10 "):
        counted.add(Tally(11, np.zeros((H, S, A, S), dtype=np.int64)))


def test_a_sampler_whose_share_of_delta_is_not_listed_is_refused_and_one_that_is_counted_costs_it():
    """The table sampler is within 2^-130 of its law a draw: what it adds to delta stands in the price."""
    ask = Ask(epsilon=1.0, delta=1e-5)
    setting = LAYOUT, tight(LAYOUT, ask, 1), Once(3), Trust.JOINT, WORLD
    listed = begin(*setting, FastOsNoise(), ask)
    assert total_delta_slack(listed.private.mechanisms) > 0
    listed.add(np.zeros(8, dtype=np.int64))
    unlisted = begin(*setting, SeededNoise(0), ask).private
    assert not unlisted.mechanisms[0].delta_slack
    with pytest.raises(ValueError, match="share of delta"):
        OnlineSum(unlisted, FastOsNoise(), WORLD)


def test_a_visit_made_by_summation_carries_the_noise_of_every_successor():
    counts = OnlineCounts(1, np.zeros((2, 3, 2, 3)), None, 2.0, 0.0)
    drawn = SeededNoise(0).gaussian(60_000, 4, SimulatedWorld("tests")).reshape(-1, 3).sum(1)
    assert counts.sd_sa == pytest.approx(drawn.std(), rel=0.02)


def test_the_claim_is_that_of_the_worst_batch_and_rests_on_the_honest_alone():
    """Half of the users collude: their coins hide nobody, and the largest epsilon of any batch is what is said."""
    counted = ShuffledCounts(LAYOUT, 1.0, 1e-5, WORLD, SeededNoise(0), honest=0.5)
    for users in (20_000, 31_000):
        counted.add(Tally(users, np.zeros((H, S, A, S), dtype=np.int64)))
    each = [delivered_epsilon(b, counted.changes, 1e-5, b.users // 2) for b in counted.bits]
    assert len(set(each)) == 2
    assert counted.guarantee.epsilon(1e-5) == max(each) <= 1.0
