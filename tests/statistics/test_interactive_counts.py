"""Online counts: what one user moves, by enumeration; what noise costs and is; visits and batches never too small."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from pipeline.privacy.continual import CounterFullError, Once, SquareRoot, Tree, levels
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import FastOsNoise, RealDataError, SeededNoise
from pipeline.privacy.release import total_delta_slack
from pipeline.privacy.shuffle import delivered_epsilon
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive_counts import (
    BatchPrivatizer,
    GaussianCounts,
    ShuffledCounts,
    exact,
    joint,
    local,
    noisy_tables,
    private_batch,
)
from pipeline.statistics.online_counts import (
    BatchLayout,
    BatchTables,
    OnlineCounts,
    OnlineLayout,
    Tally,
    consistent,
    never_under,
)
from pipeline.statistics.private_sum import OnlineSum, asked_rho, begin, cost_of, tight
from tests.privacy.handles import REAL, WORLD

H, S, A = 2, 2, 2
LAYOUT = OnlineLayout(H, S, A)
WIDE = OnlineLayout(3, 20, 10)
QUIET, ASK = (Ask(epsilon=epsilon, delta=1e-5) for epsilon in (math.inf, 1.0))
NOWHERE = np.zeros((H, S, A, S), dtype=np.int64)


def everybody():
    """Tallies of all episodes; rewards are rounded to -1 or +1."""
    each = product(range(S), repeat=H + 1), product(range(A), repeat=H), product((-1, 1), repeat=H)
    for states, actions, ends in product(*each):
        n, r = np.zeros((H, S, A, S), dtype=np.int64), np.zeros((H, S, A), dtype=np.int64)
        n[range(H), states[:-1], actions, states[1:]], r[range(H), states[:-1], actions] = 1, ends
        yield Tally(1, n, r)


def distinct(layout, people):
    """One row of integers for each message that somebody sends."""
    return np.unique([layout.integers(p) for p in people], axis=0)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("rewards", [False, True])
def test_a_replaced_user_moves_each_table_by_the_declared_squared_length_and_no_more(pooled, rewards):
    layout = OnlineLayout(H, S, A, pooled, rewards)
    rows = distinct(layout, (p if rewards else replace(p, rewards=None) for p in everybody()))
    cut = np.cumsum([t.shape[0] for t in layout.tables])[:-1]
    scales, both = tight(layout, ASK, 1), 0.0
    for part, table, variance in zip(np.split(rows, cut, axis=1), layout.tables, scales.values(), strict=True):
        moves = part[:, None] - part
        squares = (moves**2).sum(-1)
        assert squares.max() == table.replace.l2_squared and np.abs(moves).sum(-1).max() <= table.replace.l1
        both = both + squares / (2 * variance)
    # all tables of one release together, which is what is charged
    assert both.max() <= float(cost_of(layout, scales, 1)) * (1 + 1e-12)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("pooled", [False, True])
def test_a_user_of_two_episodes_moves_as_declared_where_they_meet_and_where_they_are_sent_apart(pooled, apart):
    layout = OnlineLayout(H, S, A, pooled, episodes=2, apart=apart)
    rows = distinct(layout, (replace(p, rewards=None) for p in everybody()))
    if apart:
        # two messages, each with noise of its own: squares add up
        largest = 2 * max(int(((row - rows) ** 2).sum(1).max()) for row in rows)
    else:
        both = np.unique((rows[:, None] + rows[None]).reshape(-1, rows.shape[1]), axis=0)
        largest = max(int(((row - both) ** 2).sum(1).max()) for row in both)
    assert largest == layout.tables[0].replace.l2_squared
    one, other = (layout.integers(t) for t in layout.extremes())
    assert ((one - other).reshape(-1, A, S)[:, 0] ** 2).sum() * (2 if apart else 1) == largest or pooled


def test_bits_of_the_shuffle_model_move_by_one_and_as_many_as_declared():
    sent = np.unique(
        [[*p.transitions.ravel(), *((p.rewards + p.transitions.sum(-1)) // 2).ravel()] for p in everybody()], axis=0
    )
    moves = np.abs(sent[:, None] - sent)
    assert moves.max() == 1 and moves.sum(-1).max() == sum(OnlineLayout(H, S, A, rewards=True).bits)


def test_a_table_that_is_forgotten_costs_more_than_was_asked():
    layout = OnlineLayout(H, S, A, rewards=True)
    right, forgot = tight(layout, ASK, 1), tight(OnlineLayout(H + 1, S, A), ASK, 1)
    assert cost_of(layout, right, 1) <= asked_rho(ASK) < cost_of(layout, right, 2)
    # the same moves, but the rewards were not thought of
    assert cost_of(layout, dict.fromkeys(right, forgot["n_sas"]), 1) > asked_rho(ASK)


JOINT = ("bottom-up", "square-root", "fresh")


@pytest.mark.parametrize("mechanism", ["bottom-up", "plain", "square-root", "fresh"])
def test_joint_noise_is_charged_for_every_release_a_user_is_in(mechanism):
    T = 37
    counted = joint(LAYOUT, T, 10**4, ASK, WORLD, SeededNoise(0), mechanism=mechanism)
    assert asked_rho(ASK) * Fraction(99, 100) < counted.guarantee.rho <= asked_rho(ASK)
    assert counted.guarantee.epsilon(1e-5) <= 1.0
    cost = {"square-root": SquareRoot(T).cost, "fresh": 1}.get(mechanism, levels(T))
    v = tight(LAYOUT, ASK, cost)["n_sas"]
    assert Fraction(cost * LAYOUT.tables[0].replace.l2_squared, 2 * v) == counted.guarantee.rho


class HalfNoise(ShuffledCounts):
    """A broken twin: it says more noise than it draws."""

    def variances(self):
        return 4 * super().variances()


NOISY = {
    **{m: lambda noise, m=m: joint(WIDE, 6, 300, ASK, WORLD, noise, mechanism=m) for m in JOINT},
    "episodes": lambda noise: joint(WIDE, 6, 300, ASK, WORLD, noise, leaves="episodes"),
    "local": lambda noise: local(WIDE, 300, ASK, WORLD, noise),
    "shuffle": lambda noise: ShuffledCounts(WIDE, 1.0, 1e-5, WORLD, noise),
    "half": lambda noise: HalfNoise(WIDE, 1.0, 1e-5, WORLD, noise),
}


@pytest.mark.parametrize("trust", NOISY)
def test_the_noise_is_as_large_as_is_said(trust):
    counted = NOISY[trust](SeededNoise(1))
    for _ in range(6):
        counted.add(Tally(50, np.zeros((3, 20, 10, 20), dtype=np.int64)))
    counts = counted.counts()
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
    sums = begin(LAYOUT, tight(LAYOUT, ASK, levels(4)), Tree(4), Trust.JOINT, WORLD, SeededNoise(0), ASK)
    counted = Redrawing(LAYOUT, sums)
    counted.add(Tally(1, NOWHERE))
    assert not np.array_equal(counted.counts().n_sas, counted.counts().n_sas)


def test_without_noise_every_mechanism_shows_the_sums_to_the_last_bit():
    rng = np.random.default_rng(0)
    tallies = [Tally(n, rng.integers(0, 1000, (H, S, A, S))) for n in (1, 3, 7)]
    mechanisms = [
        exact(LAYOUT, 3, WORLD, SeededNoise(0)),
        local(LAYOUT, 11, QUIET, WORLD, SeededNoise(0)),
        *(joint(LAYOUT, 3, 11, QUIET, WORLD, SeededNoise(0), mechanism=m) for m in JOINT),
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
    rng = np.random.default_rng(0)
    first, second = (rng.random((H, S, A)) < 0.5 for _ in range(2))
    first[:, 0, 0] = second[:, 0, 0] = False
    never = ~(first | second)
    made = {
        "local": lambda: local(LAYOUT, 200, ASK, WORLD, SeededNoise(1)),
        "shuffle": lambda: ShuffledCounts(LAYOUT, 1.0, 1e-5, WORLD, SeededNoise(1)),
        "fresh": lambda: joint(LAYOUT, 2, 200, ASK, WORLD, SeededNoise(1), mechanism="fresh"),
        "square-root": lambda: joint(LAYOUT, 2, 200, ASK, WORLD, SeededNoise(1), mechanism="square-root"),
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
        counted.add(Tally(11, NOWHERE))


def test_a_sampler_whose_share_of_delta_is_not_listed_is_refused_and_one_that_is_counted_costs_it():
    """The table sampler is within 2^-130 of its law a draw: what it adds to delta stands in the price."""
    setting = LAYOUT, tight(LAYOUT, ASK, 1), Once(3), Trust.JOINT, WORLD
    listed = begin(*setting, FastOsNoise(), ASK)
    assert total_delta_slack(listed.private.mechanisms) > 0
    listed.add(np.zeros(8, dtype=np.int64))
    unlisted = begin(*setting, SeededNoise(0), ASK).private
    assert not unlisted.mechanisms[0].delta_slack
    with pytest.raises(ValueError, match="share of delta"):
        OnlineSum(unlisted, FastOsNoise(), WORLD)


def test_the_claim_is_that_of_the_worst_batch_and_rests_on_the_honest_alone():
    """Half of the users collude: their coins hide nobody, and the largest epsilon of any batch is what is said."""
    counted = ShuffledCounts(LAYOUT, 1.0, 1e-5, WORLD, SeededNoise(0), honest=0.5)
    for users in (20_000, 31_000):
        counted.add(Tally(users, NOWHERE))
    each = [delivered_epsilon(b, counted.changes, 1e-5, b.users // 2) for b in counted.bits]
    assert len(set(each)) == 2
    assert counted.guarantee.epsilon(1e-5) == max(each) <= 1.0


SHAPE, SHUFFLED = (3, 2, 2), BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5)


def tables(users=500, seed=0, shape=SHAPE):
    rng = np.random.default_rng(seed)
    G, S, A = shape
    n_sas = np.stack([rng.multinomial(users, rng.dirichlet(np.ones(S * A * S))).reshape(S, A, S) for _ in range(G)])
    return BatchTables(users, n_sas, rng.binomial(n_sas.sum(-1), 0.3))


def people(rng, layout):
    """Counters (table, cell) that one random user adds to."""
    G, S, A = layout.shape
    states, actions = rng.integers(0, S, G + 1), rng.integers(0, A, G)
    out = set()
    for g in range(G):
        here = int(states[g]), int(actions[g])
        if g < layout.moving:
            out.add(("n_sas", g, *here, int(states[g + 1])))
        if g >= range(G)[layout.visits].start:
            out.add(("n_sa", g, *here))
        if layout.rewards and rng.random() < 0.8:
            out.add(("r_sa", g, *here))
    return out


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("rewards", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_changes_are_what_a_replaced_user_moves_at_most(lean, rewards, ends):
    layout, rng = BatchLayout(SHAPE, lean, rewards, ends), np.random.default_rng(1)
    users = [people(rng, layout) for _ in range(300)]
    most = max(len(a ^ b) for a in users for b in users)
    assert most == layout.changes
    assert max(len(a - b) for a in users for b in users) == layout.changes // 2


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("users", [40, 500, 10**6])
def test_counts_are_consistent_and_never_underestimated(lean, users):
    layout, truth = BatchLayout(SHAPE, lean, ends=True), tables(users)
    for seed in range(40):
        got = BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5, failure=1e-6).release(truth, layout, SeededNoise(seed))
        np.testing.assert_allclose(got.n_sas.sum(-1), got.n_sa)
        assert (got.n_sa >= truth.n_sa).all() and (got.n_sas > 0).all()
        assert (np.abs(got.n_sa - truth.n_sa) <= got.error).all()
        assert (np.abs(got.n_sas - truth.n_sas)[: layout.moving] <= got.error).all()
        assert (np.abs(got.r_sa - truth.r_sa) <= got.error).all()


@dataclass(frozen=True)
class Corners:
    """Noise at the ends of its bound: the worst that E has to cover."""

    bounded: float
    standard_deviation: float = 1.0

    def bound(self, failure, counters=1):
        return self.bounded * counters**0.5

    def add(self, sums, seeded, tables):
        drawn = self.bounded * (2 * seeded.flips(sums.size, 2**63, tables) - 1).reshape(sums.shape)
        if sums.ndim == 4:
            # sums over successors stay within their own bound, as on the good event
            limit = self.bounded * sums.shape[-1] ** 0.5
            excess = np.abs(drawn.sum(-1, keepdims=True)) > limit
            drawn = np.where(excess, drawn * limit / np.abs(drawn.sum(-1, keepdims=True)).clip(1), drawn)
        return sums + drawn


@pytest.mark.parametrize("states", [2, 3, 5])
@pytest.mark.parametrize("lean", [False, True])
def test_the_bound_holds_in_the_worst_corners(states, lean):
    layout = BatchLayout((2, states, 2), lean)
    for seed in range(60):
        truth = tables(int(10 ** (1 + seed % 3)), seed, layout.shape)
        cell = Corners(20.0)
        got = private_batch(noisy_tables(truth, layout, cell, SeededNoise(seed)), layout, cell, 0.01)
        assert (got.n_sa >= truth.n_sa - 1e-9).all()
        assert (np.abs(got.n_sa - truth.n_sa) <= got.error + 1e-9).all()
        assert (np.abs(got.n_sas - truth.n_sas) <= got.error + 1e-9).all()


def test_without_the_shift_some_counts_are_too_small():
    truth, layout = tables(), BatchLayout(SHAPE)
    short = 0
    for seed in range(40):
        got = SHUFFLED.release(truth, layout, SeededNoise(seed))
        short += (got.n_sa - got.shift < truth.n_sa).any()
    assert short > 20


@pytest.mark.parametrize("lean", [False, True])
def test_without_noise_the_counts_are_the_truth(lean):
    truth = tables()
    got = BatchPrivatizer().release(truth, BatchLayout(SHAPE, lean), SeededNoise(0))
    assert np.array_equal(got.n_sas, truth.n_sas) and np.array_equal(got.n_sa, truth.n_sa)
    assert np.array_equal(got.r_sa, truth.r_sa) and got.error == 0 == got.shift


def test_a_last_step_that_leads_nowhere_keeps_visits_only():
    truth = tables()
    got = BatchPrivatizer().release(truth, BatchLayout(SHAPE, lean=True, ends=True), SeededNoise(0))
    assert np.array_equal(got.n_sa, truth.n_sa)
    np.testing.assert_allclose(got.n_sas[-1], truth.n_sa[-1][..., None] / 2 * np.ones(2))
    noisy = SHUFFLED.release(truth, BatchLayout(SHAPE, True, ends=True), SeededNoise(0)).noisy
    assert noisy.sd_sa[-1] == noisy.sd and noisy.sd_sa[0] == pytest.approx(noisy.sd * 2**0.5)


@pytest.mark.parametrize(
    "how", [(Trust.JOINT, 1.0, 1e-5), (Trust.LOCAL, 1.0, 1e-5), (Trust.SHUFFLE, 1.0, 1e-5, "paper", 3)]
)
def test_users_who_return_are_refused_where_nothing_prices_them(how):
    with pytest.raises(ValueError, match="tight shuffled bits alone"):
        BatchPrivatizer(*how, episodes=2)
    assert BatchPrivatizer(*how, episodes=1).delivered(10**5, BatchLayout(SHAPE)) > 0


def test_the_noise_has_its_standard_deviation():
    truth = tables(10**5, shape=(6, 4, 3))
    noisy = SHUFFLED.release(truth, BatchLayout((6, 4, 3)), SeededNoise(3)).noisy
    off = np.concatenate([(noisy.n_sas - truth.n_sas).ravel(), (noisy.n_sa - truth.n_sa).ravel()])
    assert abs(off.std() / noisy.sd - 1) < 5 / np.sqrt(2 * off.size)
    assert abs(off.mean()) < 5 * noisy.sd / np.sqrt(off.size)


def test_asked_and_delivered_epsilon():
    layout = BatchLayout(SHAPE)
    assert 0.99 < SHUFFLED.delivered(10**6, layout) <= 1.0
    assert BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5, "paper", horizon=3).delivered(10**5, layout) < 0.1
    half = BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5, honest=0.5)
    assert half.bits(10**6, layout).probability > 1.9 * SHUFFLED.bits(10**6, layout).probability
    for trust in ("joint", "local"):
        assert 0.98 < BatchPrivatizer(Trust(trust), 1.0, 1e-5).delivered(10**6, layout) <= 1.0


def test_local_noise_grows_with_the_batch_and_joint_noise_does_not():
    layout = BatchLayout(SHAPE)
    sd = {
        (trust, users): BatchPrivatizer(Trust(trust), 1.0, 1e-5).release(tables(users), layout, SeededNoise(0)).noisy.sd
        for trust in ("joint", "local")
        for users in (100, 10_000)
    }
    assert sd["joint", 100] == sd["joint", 10_000]
    assert sd["local", 10_000] == pytest.approx(10 * sd["local", 100])


def test_a_log_has_no_shuffle_model_and_printed_tables_show_no_count():
    class Log(BatchTables):
        data_kind = "real"

    truth = tables(500)
    assert repr(truth) == "BatchTables(users=500)"
    with pytest.raises(RealDataError):
        SHUFFLED.release(Log(500, truth.n_sas, truth.r_sa), BatchLayout(SHAPE), SeededNoise(0))
