"""Private counts of a batch: consistent, never underestimated, within E, and equal to the truth without noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import RealDataError, SeededNoise
from pipeline.statistics.interactive_counts import BatchPrivatizer, noisy_tables, private_batch
from pipeline.statistics.online_counts import BatchLayout, BatchTables, NoisyTables, pooled

SHAPE = (3, 2, 2)


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


def test_tables_counted():
    assert BatchLayout((5, 3, 2)).changes == 30
    assert BatchLayout((5, 3, 2), lean=True).changes == 20
    # the last step has visits in place of transitions
    assert BatchLayout((5, 3, 2), lean=True, ends=True).changes == 20
    assert BatchLayout((1, 3, 2), rewards=False).changes == 4
    assert BatchLayout((3, 3, 2)).counters == 3 * 2 * 3 * (3 + 2)


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
        got = BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5).release(truth, layout, SeededNoise(seed))
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
    noisy = (
        BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5)
        .release(truth, BatchLayout(SHAPE, True, ends=True), SeededNoise(0))
        .noisy
    )
    assert noisy.sd_sa[-1] == noisy.sd and noisy.sd_sa[0] == pytest.approx(noisy.sd * 2**0.5)


@pytest.mark.parametrize(
    "how", [(Trust.JOINT, 1.0, 1e-5), (Trust.LOCAL, 1.0, 1e-5), (Trust.SHUFFLE, 1.0, 1e-5, "paper", 3)]
)
def test_users_who_return_are_refused_where_nothing_prices_them(how):
    with pytest.raises(ValueError, match="tight shuffled bits alone"):
        BatchPrivatizer(*how, episodes=2)
    assert BatchPrivatizer(*how, episodes=1).delivered(10**5, BatchLayout(SHAPE)) > 0


def test_the_noise_has_its_standard_deviation():
    truth, layout, privatizer = (
        tables(10**5, shape=(6, 4, 3)),
        BatchLayout((6, 4, 3)),
        BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5),
    )
    noisy = privatizer.release(truth, layout, SeededNoise(3)).noisy
    off = np.concatenate([(noisy.n_sas - truth.n_sas).ravel(), (noisy.n_sa - truth.n_sa).ravel()])
    assert abs(off.std() / noisy.sd - 1) < 5 / np.sqrt(2 * off.size)
    assert abs(off.mean()) < 5 * noisy.sd / np.sqrt(off.size)


def test_asked_and_delivered_epsilon():
    layout = BatchLayout(SHAPE)
    assert 0.99 < BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5).delivered(10**6, layout) <= 1.0
    assert BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5, "paper", horizon=3).delivered(10**5, layout) < 0.1
    assert BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5, honest=0.5).bits(10**6, layout).probability > (
        1.9 * BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5).bits(10**6, layout).probability
    )
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


def test_pooling_adds_counts_and_variances():
    layout = BatchLayout(SHAPE)
    parts = [
        BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5).release(tables(seed=k), layout, SeededNoise(k)).noisy
        for k in range(3)
    ]
    got = pooled(parts)
    assert isinstance(got, NoisyTables) and got.users == 1500
    np.testing.assert_allclose(got.n_sas, sum(p.n_sas for p in parts))
    assert got.sd == pytest.approx(parts[0].sd * 3**0.5)


def test_a_log_has_no_shuffle_model_and_printed_tables_show_no_count():
    class Log(BatchTables):
        data_kind = "real"

    truth = tables(500)
    assert repr(truth) == "BatchTables(users=500)"
    with pytest.raises(RealDataError):
        BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5).release(
            Log(500, truth.n_sas, truth.r_sa), BatchLayout(SHAPE), SeededNoise(0)
        )
