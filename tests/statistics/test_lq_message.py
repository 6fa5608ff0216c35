"""Running LQ sums: messages are exact and cut as a whole, noise is the printed one, bounds hold as often as said."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest

from pipeline.agents.ofu_rl import batch_ends
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.continual import levels
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.shuffle import gaussian_delta
from pipeline.statistics import lq as module
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq import LqMessage, ResidualMessage, _printed_levels, lq_regularizer, paper_004, paper_tails
from pipeline.statistics.private_sum import asked_rho, cost_of, tight
from tests.privacy.handles import WORLD
from tests.statistics.test_sensitivity import largest_square


def test_a_batch_of_many_has_the_mean_and_the_spread_of_its_sum():
    rng, message = np.random.default_rng(0), LqMessage(1, 1, 3)
    states, controls = rng.uniform(-1, 1, (4000, 4, 1)), rng.uniform(-1, 1, (4000, 3, 1))
    z = np.concatenate([states[:, :-1], controls], axis=2)
    mean = (np.diag([1.0, 1.0]), np.zeros((2, 1)))
    sums = [
        message.integers(LqBatch(states[i : i + 200], controls[i : i + 200], 5000, mean)) / message.steps**2
        for i in range(0, 4000, 200)
    ]
    # 5 000 episodes of three steps with E z z' = I / 3 each: E of the diagonal is one an episode
    np.testing.assert_allclose(np.mean(sums, axis=0)[:2], 5000, rtol=0.01)
    own = np.var((z**2).sum(1)[:, 0])
    assert np.var([s[0] for s in sums]) == pytest.approx(5000 * own, rel=0.9)


def test_a_regularizer_cuts_what_it_observes():
    """The door itself: an unbounded state moves the released sums no further than a bounded one."""
    message = LqMessage(1, 1, 2)
    shown = []
    for scale in (1.0, 50.0):
        r = lq_regularizer(message, (1,), Ask(epsilon=math.inf, delta=1e-5), 1.0, WORLD, SeededNoise(0))
        r.observe(LqBatch(np.full((1, 3, 1), scale), np.zeros((1, 2, 1)), 1))
        shown.append(r.ridge().V)
    np.testing.assert_allclose(shown[1], shown[0], atol=1e-12)


K = 10_000
MESSAGE = LqMessage(2, 1, 10)
EPOCHS = partial(lq_regularizer, counter="epochs")
ASK, PAPER = (Ask(epsilon=1.0, delta=1e-5, calibration=of) for of in ("tight", "paper"))
# standard deviations of one tree node and exact joint epsilon of both counters, as computed independently
PRINTED = {0.5: (2958, 1479, 0.237), 1.0: (1479, 740, 0.504), 4.0: (370, 185, 2.32)}


@pytest.mark.parametrize("epsilon", PRINTED)
def test_printed_scales_and_what_they_are_worth(epsilon):
    variances = paper_004(MESSAGE, Ask(epsilon=epsilon, delta=1e-5, calibration="paper"), K)
    sds = [math.sqrt(v) / MESSAGE.steps**2 for v in (variances["diagonal"], variances["cross"])]
    of_gram, of_cross, true = PRINTED[epsilon]
    assert sds == pytest.approx([of_gram, of_cross], abs=0.6)
    rho = float(cost_of(MESSAGE, variances, levels(K)))
    assert gaussian_delta(rho, true + 0.006) < 1e-5 < gaussian_delta(rho, true - 0.006)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("cost", [1, 14])
def test_tight_spends_what_was_asked_to_the_last_integer(epsilon, cost):
    ask = Ask(epsilon=epsilon, delta=1e-5)
    variances = tight(MESSAGE, ask, cost)
    assert 1 - 1e-9 < cost_of(MESSAGE, variances, cost) / asked_rho(ask) <= 1
    assert variances["diagonal"] == 2 * variances["above"]


def test_each_regularizer_says_what_it_costs():
    ends = batch_ends(K, 2.0)
    none, joint = (lq_regularizer(MESSAGE, ends, ask, 1.0, WORLD, SeededNoise(0)) for ask in (None, ASK))
    assert none.guarantee.rho is None
    assert (none.guarantee.trust, joint.guarantee.trust) == ("none", "joint")
    assert joint.guarantee.epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(ValueError, match="tree only"):
        EPOCHS(MESSAGE, ends, PAPER, 1.0, WORLD, SeededNoise(0))


def silent_batches(ends):
    """Everybody stands at the origin: what is shown is noise."""
    H, n, d = MESSAGE.horizon, MESSAGE.state, MESSAGE.control
    for a, b in zip((0, *ends), ends, strict=False):
        zero = np.zeros((n + d, n + d)), np.zeros((n + d, n))
        yield LqBatch(np.zeros((1, H + 1, n)), np.zeros((1, H, d)), b - a, zero)


def broken(make, ask, runs: int = 40) -> tuple[float, float]:
    """Shares of runs in which the noise of the Gram or the cross sums left its bound at some read."""
    ends, left = batch_ends(K, 2.0), np.zeros((runs, 2), dtype=bool)
    for seed, out in enumerate(left):
        r = make(MESSAGE, ends, ask, 1e-9, WORLD, SeededNoise(seed))
        for batch in silent_batches(ends):
            r.observe(batch)
            (T, U), ridge = r.sums(), r.ridge()
            out |= [np.linalg.norm(T, 2) > ridge.lambda_min, np.linalg.norm(U) > ridge.nu * math.sqrt(ridge.lambda_min)]
    return tuple(left.mean(0))


def test_bounds_hold_at_every_read_and_the_printed_ones_are_wide():
    for make, ask in ((lq_regularizer, ASK), (EPOCHS, ASK), (lq_regularizer, PAPER)):
        # each bound may fail with probability 1/80
        assert max(broken(make, ask)) <= 0.05


def test_a_bound_of_half_the_size_does_not_hold(monkeypatch):
    right = module.tail_bounds
    monkeypatch.setattr(module, "tail_bounds", lambda *a: lambda *s: tuple(x / 2 for x in right(*a)(*s)))
    assert max(broken(lq_regularizer, ASK)) > 0.3


def test_v_is_never_below_lambda_min_and_says_how_often_it_was_raised(monkeypatch):
    monkeypatch.setattr(module, "tail_bounds", lambda *_: lambda above, cross, error: (1.0, 1.0))
    r = lq_regularizer(MESSAGE, (1, 2), ASK, 1.0, WORLD, SeededNoise(3))
    r.observe(next(silent_batches((1,))))
    ridge = r.ridge()
    assert ridge.raised > 0 and np.linalg.eigvalsh(ridge.V)[0] >= ridge.lambda_min * (1 - 1e-9)


def test_the_papers_tails_are_the_printed_ones():
    """Proof of Theorem 3: 4 sqrt(D) + sqrt(8 ln(4K/δ)) and sqrt(2nD) + sqrt(4 ln(2K/δ)), a sum of m nodes each."""
    D, n, failure = 3, 2, 0.05
    assert (MESSAGE.dimension, MESSAGE.state) == (D, n)
    of_gram, of_cross = (x / math.sqrt(_printed_levels(K)) for x in paper_tails(MESSAGE, K, failure)(1.0, 1.0, 1.0))
    assert math.exp((of_gram - 4 * math.sqrt(D)) ** 2 / 8) == pytest.approx(4 * K / failure)
    assert math.exp((of_cross - math.sqrt(2 * n * D)) ** 2 / 4) == pytest.approx(2 * K / failure)


TINY = ResidualMessage(np.array([[0.5, -0.25]]), np.array([[2.0, 0.3], [0.0, 1.0]]), 0.75, 2, 64)
WIDE = ResidualMessage(np.zeros((3, 5)), np.eye(5), 0.2, 6)


def everybody() -> list[tuple[np.ndarray, np.ndarray]]:
    """Short and far too long episodes, one longer than the horizon, and one that is no number."""
    ends, pushes = (-3.0, -0.5, 0.0, 0.3, 1.0), (-2.0, 0.0, 0.7)
    found = [
        (np.array([[a], [b], [c], [9.0]])[None], np.array([[u], [v], [5.0]])[None])
        for a, b, c in product(ends, repeat=3)
        for u, v in product(pushes, repeat=2)
    ]
    strange = [(np.full((1, 3, 1), bad), np.zeros((1, 2, 1))) for bad in (math.nan, math.inf, 1e200)]
    return [*found, *strange]


def moved(message: ResidualMessage, people) -> int:
    return largest_square(np.concatenate([message.each(*one) for one in people]))


def test_no_two_people_are_further_apart_than_charged_and_two_are_nearly():
    declared = TINY.tables[0].replace.l2_squared
    assert declared == 4 * 64**2 == TINY.cost({"residual": Fraction(1)})
    assert 0.9 * declared < moved(TINY, everybody()) <= declared
    longest = max(int((TINY.each(*one) ** 2).sum()) for one in everybody())
    assert longest <= 64**2 <= TINY.tables[0].add_remove.l2_squared


@pytest.mark.parametrize("message", [replace(TINY, steps=2**12), WIDE, replace(WIDE, centre=np.full((3, 5), 0.3))])
def test_the_worst_pair_meets_the_charge(message):
    pair = [message.integers(person) for person in message.extremes()]
    worst = ((pair[0] - pair[1]) ** 2).sum()
    assert 0.99 * message.tables[0].replace.l2_squared < worst <= message.tables[0].replace.l2_squared
    variances = tight(message, ASK, 1)
    assert variances is not None
    assert worst / (2 * variances["residual"]) <= float(cost_of(message, variances, 1))


def test_twins_that_do_not_cut_or_cut_rows_break_the_charge(monkeypatch):
    def uncut(self, states, controls):
        H = min(self.horizon, controls.shape[1])
        z = np.concatenate([states[:, :H], controls[:, :H]], axis=2)
        residual = states[:, 1 : H + 1] - z @ self.centre.T
        found = np.einsum("ij,bhj,bhk->bik", self.frame, z, residual).reshape(len(z), -1)
        return np.trunc(np.nan_to_num(found) / self.radius * self.steps).astype(np.int64)

    def rows(self, states, controls):
        H = min(self.horizon, controls.shape[1])
        one = [RIGHT(self, states[:, h : h + 2], controls[:, h : h + 1]) for h in range(H)]
        return np.sum(one, axis=0)

    people = everybody()[:-3]
    for twin in (uncut, rows):
        monkeypatch.setattr(ResidualMessage, "each", twin)
        assert moved(TINY, people) > 2 * TINY.tables[0].replace.l2_squared


RIGHT = ResidualMessage.each


def test_an_episode_is_the_same_whoever_stands_beside_it():
    rng = np.random.default_rng(0)
    states, controls = rng.normal(size=(257, 7, 3)), rng.normal(size=(257, 6, 2))
    message = replace(WIDE, centre=rng.normal(size=(3, 5)), frame=rng.normal(size=(5, 5)), radius=20.0)
    together = message.each(states, controls)
    alone = np.concatenate([message.each(states[i : i + 1], controls[i : i + 1]) for i in range(257)])
    np.testing.assert_array_equal(together, alone)


def test_what_fits_is_the_sum_of_the_loops_and_nothing_else_is_summed():
    rng = np.random.default_rng(1)
    states, controls = rng.normal(size=(4, 3, 1)) * 0.1, rng.normal(size=(4, 2, 1)) * 0.1
    found = np.zeros((2, 1))
    for e in range(4):
        for h in range(2):
            z = np.array([states[e, h, 0], controls[e, h, 0]])
            found[:, 0] += TINY.frame @ z * (states[e, h + 1, 0] - float(TINY.centre[0] @ z))
    fine = replace(TINY, steps=2**20)
    total = fine.matrix(fine.integers(LqBatch(states, controls, 4)).astype(float))
    np.testing.assert_allclose(total, found, atol=1e-5)
    with pytest.raises(ValueError, match="played in full"):
        TINY.integers(LqBatch(states, controls, 9, (np.eye(2), np.ones((2, 1)))))
    with pytest.raises(ValueError, match="positive"):
        replace(TINY, radius=0.0)
