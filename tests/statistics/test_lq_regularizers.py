"""Noise of the LQ counters: the printed scales, what they cost, and bounds that hold as often as they say."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from pipeline.agents.ofu_rl import batch_ends
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.continual import levels
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.privacy.shuffle import gaussian_delta
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq import LqMessage, _printed_levels, lq_regularizer, paper_004, paper_tails
from pipeline.statistics.private_sum import asked_rho, cost_of, tight

WORLD, K = SimulatedWorld("tests"), 10_000
MESSAGE = LqMessage(2, 1, 10)
EPOCHS = partial(lq_regularizer, counter="epochs")
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
    ends, ask = batch_ends(K, 2.0), Ask(epsilon=1.0, delta=1e-5)
    none, joint = (
        lq_regularizer(MESSAGE, ends, None, 1.0, WORLD, SeededNoise(0)),
        lq_regularizer(MESSAGE, ends, ask, 1.0, WORLD, SeededNoise(0)),
    )
    assert none.guarantee.rho is None
    assert none.guarantee.trust == "none"
    assert joint.guarantee.trust == "joint"
    assert joint.guarantee.epsilon(1e-5) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(ValueError, match="tree only"):
        EPOCHS(MESSAGE, ends, Ask(epsilon=1.0, delta=1e-5, calibration="paper"), 1.0, WORLD, SeededNoise(0))


def silent_batches(ends):
    """Everybody stands at the origin: what is shown is noise."""
    H, n, d = MESSAGE.horizon, MESSAGE.state, MESSAGE.control
    for a, b in zip((0, *ends), ends, strict=False):
        zero = np.zeros((n + d, n + d)), np.zeros((n + d, n))
        yield LqBatch(np.zeros((1, H + 1, n)), np.zeros((1, H, d)), b - a, zero)


def broken(make, ask, runs: int = 40) -> tuple[float, float]:
    """Shares of runs in which the noise of the Gram or the cross sums left its bound at some read."""
    ends = batch_ends(K, 2.0)
    left = np.zeros(2)
    for seed in range(runs):
        r = make(MESSAGE, ends, ask, 1e-9, WORLD, SeededNoise(seed))
        out = np.zeros(2, dtype=bool)
        for batch in silent_batches(ends):
            r.observe(batch)
            T, U = r.sums()
            ridge = r.ridge()
            out |= [
                np.linalg.norm(T, 2) > ridge.lambda_min,
                np.linalg.norm(U) > ridge.nu * math.sqrt(ridge.lambda_min),
            ]
        left += out
    return tuple(left / runs)


def test_bounds_hold_at_every_read_and_the_printed_ones_are_wide():
    for make, ask in (
        (lq_regularizer, Ask(epsilon=1.0, delta=1e-5)),
        (EPOCHS, Ask(epsilon=1.0, delta=1e-5)),
        (lq_regularizer, Ask(epsilon=1.0, delta=1e-5, calibration="paper")),
    ):
        # each bound may fail with probability 1/80
        assert max(broken(make, ask)) <= 0.05


def test_a_bound_of_half_the_size_does_not_hold(monkeypatch):
    from pipeline.statistics import lq as module

    right = module.tail_bounds
    monkeypatch.setattr(module, "tail_bounds", lambda *a: lambda *s: tuple(x / 2 for x in right(*a)(*s)))
    assert max(broken(lq_regularizer, Ask(epsilon=1.0, delta=1e-5))) > 0.3


def test_v_is_never_below_lambda_min_and_says_how_often_it_was_raised(monkeypatch):
    from pipeline.statistics import lq as module

    monkeypatch.setattr(module, "tail_bounds", lambda *_: lambda above, cross, error: (1.0, 1.0))
    r = lq_regularizer(MESSAGE, (1, 2), Ask(epsilon=1.0, delta=1e-5), 1.0, WORLD, SeededNoise(3))
    r.observe(next(silent_batches((1,))))
    ridge = r.ridge()
    assert ridge.raised > 0
    assert np.linalg.eigvalsh(ridge.V)[0] >= ridge.lambda_min * (1 - 1e-9)


def test_the_papers_tails_are_the_printed_ones():
    """Proof of Theorem 3: 4 sqrt(D) + sqrt(8 ln(4K/δ)) and sqrt(2nD) + sqrt(4 ln(2K/δ)), a sum of m nodes each."""
    D, n, failure = 3, 2, 0.05
    assert (MESSAGE.dimension, MESSAGE.state) == (D, n)
    of_gram, of_cross = (x / math.sqrt(_printed_levels(K)) for x in paper_tails(MESSAGE, K, failure)(1.0, 1.0, 1.0))
    assert math.exp((of_gram - 4 * math.sqrt(D)) ** 2 / 8) == pytest.approx(4 * K / failure)
    assert math.exp((of_cross - math.sqrt(2 * n * D)) ** 2 / 4) == pytest.approx(2 * K / failure)
