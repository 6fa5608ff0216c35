"""Conversions of losses: inverses, edges, two outside implementations, which way rounding goes, and scipy's roots."""

import math
import subprocess
import sys
from fractions import Fraction
from statistics import NormalDist

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar

from pipeline.privacy import budget
from pipeline.privacy.losses import membership_advantage, safe_epsilon
from tests.conftest import slow


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_the_two_conversions_are_inverse(rho, delta):
    epsilon = budget.epsilon_from_rho(rho, delta)
    if epsilon > 0:
        assert budget.rho_from_epsilon(epsilon, delta) == pytest.approx(rho, rel=1e-6)
        assert budget.delta_from_rho(rho, epsilon) == pytest.approx(delta, rel=1e-6)


def relative_differences(rhos, deltas):
    """From OpenDP and dp-accounting: (ours - theirs) / theirs, lowest and highest."""
    import dp_accounting
    import opendp.prelude as dp
    from dp_accounting.rdp import RdpAccountant

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    orders = 1 + np.exp(np.linspace(-12, 14, 4000))
    gaps = {"opendp": [], "dp-accounting": []}
    for rho in map(float, rhos):
        profile = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=(1 / (2 * rho)) ** 0.5)).map(1.0)
        accountant = RdpAccountant(orders).compose(dp_accounting.ZCDpEvent(rho))
        for delta in map(float, deltas):
            ours = budget.epsilon_from_rho(rho, delta)
            gaps["opendp"].append(ours / profile.epsilon(delta) - 1)
            gaps["dp-accounting"].append(ours / accountant.get_epsilon(delta) - 1)
    return {name: (min(g), max(g)) for name, g in gaps.items()}


@pytest.mark.parametrize(
    ("rhos", "deltas"),
    [([0.01, 0.1, 1.0, 5.0], [1e-6]), slow(10.0 ** np.arange(-5, 2.5, 0.5), 10.0 ** -np.arange(3, 13))],
)
def test_the_conversion_agrees_with_opendp_and_dp_accounting(rhos, deltas):
    for name, (low, high) in relative_differences(rhos, deltas).items():
        assert low > -1e-4 and high < 1e-9, (name, low, high)


def test_importing_the_room_loads_no_heavy_library():
    rooms = ["budget", "losses", "noise", "release", "csprng"]
    code = f"import sys, {', '.join('pipeline.privacy.' + r for r in rooms)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"dp_accounting", "opendp", "scipy", "cvxpy", "polars", "prefect"} & set(loaded.split())


def test_a_pure_release_enters_at_half_its_square():
    assert [budget.rho_of_pure(Fraction(e)) for e in ("0", "1", "1/3")] == [0, Fraction(1, 2), Fraction(1, 18)]


def test_edges_are_floored_and_refused():
    assert budget.epsilon_from_rho(0.0, 1e-6) == 0.0
    assert budget.epsilon_from_rho(1e-12, 0.1) == 0.0
    with pytest.raises(ValueError, match="rho must be >= 0"):
        budget.epsilon_from_rho(-1.0, 1e-6)
    with pytest.raises(ValueError, match="delta must be"):
        budget.rho_from_epsilon(1.0, 0.0)
    assert budget.fraction_of(0.1) == Fraction(1, 10)


@given(st.fractions(min_value=-(10**9), max_value=10**9))
def test_up_and_down_enclose_the_fraction_within_two_neighbours(value):
    assert Fraction(budget.down(value)) <= value <= Fraction(budget.up(value))
    assert budget.up(value) - budget.down(value) <= 2 * abs(float(value)) * 2**-52


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
        assert budget.epsilon_from_rho(rho, delta) == pytest.approx(float(exact), rel=1e-10)


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


CASES = {
    "cubic": lambda c: lambda x: x**3 - c,
    "exponential": lambda c: lambda x: math.exp(x) - 1 - c,
    "flat": lambda c: lambda x: math.atan(40 * (x - c / 3)),
    "kinked": lambda c: lambda x: x - c / 2 if x > c / 2 else 10 * (x - c / 2),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tolerance", [1e-15, 1e-9, 1e-3])
def test_root_is_scipys_to_the_bit(name, tolerance):
    for c in np.random.default_rng(0).uniform(0.01, 2.0, 200):
        f = CASES[name](float(c))
        assert budget.root(f, -1.0, 3.0, tolerance) == brentq(f, -1.0, 3.0, xtol=tolerance)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tolerance", [1e-10, slow(1e-5)])
def test_least_is_scipys_to_the_bit(name, tolerance):
    for c in np.random.default_rng(1).uniform(0.01, 2.0, 200):
        f = CASES[name](float(c))

        def g(x, f=f):
            return f(x) ** 2 + x

        theirs = minimize_scalar(g, bounds=(-12.0, 14.0), method="bounded", options={"xatol": tolerance})
        assert budget.least(g, -12.0, 14.0, tolerance) == theirs.fun


def test_an_end_that_is_a_root_is_returned_and_no_change_of_sign_refused():
    assert budget.root(lambda x: x, 0.0, 1.0, 1e-9) == 0.0
    assert budget.root(lambda x: x - 1, 0.0, 1.0, 1e-9) == 1.0
    with pytest.raises(ValueError, match="different signs"):
        budget.root(lambda x: x * x + 1, -1.0, 1.0, 1e-9)
