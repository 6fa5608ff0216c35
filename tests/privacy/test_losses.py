"""Losses as values: which way rounding goes."""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.privacy.budget import down, epsilon_from_rho, up
from pipeline.privacy.losses import membership_advantage, safe_epsilon


@given(st.fractions(min_value=-(10**9), max_value=10**9))
def test_up_and_down_enclose_the_fraction_within_two_neighbours(value):
    assert Fraction(down(value)) <= value <= Fraction(up(value))
    assert up(value) - down(value) <= 2 * abs(float(value)) * 2**-52


def exact_epsilon(rho: float, delta: float) -> mpmath.mpf:
    """The official conversion in 40 digits: the best order by golden section."""
    with mpmath.workdps(40):
        r, log_delta = mpmath.mpf(rho), mpmath.log(mpmath.mpf(delta))

        def at(log_order):
            a = 1 + mpmath.exp(log_order)
            # log delta = (a-1)(a rho - eps) - log(a-1) + a log(1-1/a), solved for eps
            return a * r + (-log_delta - mpmath.log(a - 1) + a * mpmath.log(1 - 1 / a)) / (a - 1)

        low, high = mpmath.mpf(-12), mpmath.mpf(14)
        golden = (mpmath.sqrt(5) - 1) / 2
        for _ in range(140):
            one, two = high - golden * (high - low), low + golden * (high - low)
            low, high = (low, two) if at(one) < at(two) else (one, high)
        return at((low + high) / 2)


@pytest.mark.parametrize("rho", [1e-5, 1e-3, 0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_the_safe_conversion_errs_upwards_and_hardly(rho, delta):
    exact = exact_epsilon(rho, delta)
    if exact > 0:
        assert exact <= safe_epsilon(rho, delta) <= exact * (1 + mpmath.mpf(10) ** -9)
        assert epsilon_from_rho(rho, delta) == pytest.approx(float(exact), rel=1e-10)


@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.3, 1.0, 4.0])
def test_no_test_of_membership_beats_a_coin_by_more_than_is_printed(rho):
    """The best test against a Gaussian of this rho; of pure and approximate losses the worst there is."""
    best = 2 * NormalDist().cdf((rho / 2) ** 0.5) - 1
    assert best <= membership_advantage(rho, None, None) <= 1.6 * best
    for epsilon, delta in ((0.1, 0.0), (1.0, 1e-6), (3.0, 0.01)):
        # randomised response, and a slip that tells all
        right = math.exp(epsilon) / (1 + math.exp(epsilon)) * (1 - delta) + delta
        assert membership_advantage(None, epsilon, delta) == pytest.approx(2 * right - 1)
    assert membership_advantage(None, None, None) == 1
