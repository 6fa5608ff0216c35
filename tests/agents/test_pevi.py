"""PEVI: VAPVI without weights, and what its theory's beta does."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from pipeline.agents.linear_backup import linear_task
from pipeline.agents.pevi import pevi, theory_beta
from pipeline.online.linear import linear_003
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.linear_plan import LinearTerms
from pipeline.statistics.linear_sums import InteractiveRegression
from tests.agents.linear_bench import C, planned, setting


@pytest.mark.parametrize("rho", [None, Fraction(1)])
def test_with_weights_of_one_vapvi_is_pevi(rho):
    """On Appendix F every variance is below 1: only the multiplier tells the two apart."""
    w = linear_003(0)
    one = planned(LinearTerms(Ask(rho)), w)
    plan, rows = setting(LinearTerms(Ask(rho)), w)
    task = linear_task(plan)
    two = pevi(InteractiveRegression(plan, rows, SeededNoise(0)), task, C, np.random.default_rng(0), C.C * 10**0.5)
    np.testing.assert_array_equal(one.V, two.V)
    assert not one.weighted.any()


def test_the_theorys_beta_pushes_every_value_to_zero():
    plan, rows = setting(LinearTerms(Ask(None)), linear_003(0))
    task = linear_task(plan)
    result = pevi(
        InteractiveRegression(plan, rows, SeededNoise(0)), task, C, np.random.default_rng(0), theory_beta(task, 0.1)
    )
    assert result.V.max() == 0 and result.tied.all()
    # ties go to the unclipped Q: not to action 0 by default, nor to chance
    assert (result.policy.probabilities.max(axis=2) == 1).all()


def test_the_theorys_beta_is_the_printed_one():
    """(β / c d H)² is the logarithm of 2 d H K / δ."""
    task = linear_task(setting(LinearTerms(Ask(None)), linear_003(0))[0])
    d, H, K = 10, task.horizon, 400
    assert math.exp((theory_beta(task, 0.5, 0.05) / (0.5 * d * H)) ** 2) == pytest.approx(2 * d * H * K / 0.05)
