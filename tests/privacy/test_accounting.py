"""Sharper accounting: the pinned GDP table, exact hockey-stick sums, both orders; and the official grid."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.losses import gdp_delta, gdp_epsilon
from tests.privacy.loss_distributions import DiscreteGaussian, DiscreteLaplace, Given, TwoLaws, pld_epsilon

GDP = [
    (0.01, 1e-6, 0.575),
    (0.1, 1e-6, 1.995),
    (0.5, 1e-6, 4.887),
    (1, 1e-6, 7.286),
    (5, 1e-6, 19.42),
    (1, 1e-5, 6.573),
    (1, 1e-8, 8.534),
]
GDP_RHO = [
    (0.1, 1e-6, 0.000379),
    (0.5, 1e-6, 0.007701),
    (1, 1e-6, 0.028014),
    (2, 1e-6, 0.100502),
    (4, 1e-6, 0.351004),
    (1, 1e-5, 0.035926),
    (8, 1e-6, 1.172815),
]


@pytest.mark.parametrize(("rho", "delta", "epsilon"), GDP)
def test_gdp_epsilon_reproduces_the_table_and_is_below_the_official(rho, delta, epsilon):
    assert gdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-3)
    assert gdp_epsilon(rho, delta) < epsilon_from_rho(rho, delta)
    assert gdp_delta(rho, gdp_epsilon(rho, delta)) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta", "rho"), GDP_RHO)
def test_gdp_rho_of_the_table_gives_its_delta(epsilon, delta, rho):
    assert gdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=2e-3)


def hockey_stick(one, other, epsilon):
    return sum(max(0.0, p - math.exp(epsilon) * other.get(k, 0.0)) for k, p in one.items())


def test_a_discrete_gaussian_matches_its_hockey_stick_sum():
    k = np.arange(-120, 121)
    w = np.exp(-(k.astype(float) ** 2) / (2 * 25))
    p = dict(zip(k.tolist(), (w / w.sum()).tolist(), strict=True))
    shifted = {x + 1: y for x, y in p.items()}
    epsilon = pld_epsilon([DiscreteGaussian(25)], 1e-6)
    assert hockey_stick(p, shifted, epsilon) <= 1e-6 <= hockey_stick(p, shifted, epsilon - 2e-4)


def test_counts_of_the_page_discrete_gaussian_and_laplace():
    # H = 20, rho = 1: 80 = 4H cells shifted by one at variance 2H (privacy.md §2)
    assert pld_epsilon([DiscreteGaussian(40, 1, 80)], 1e-6) == pytest.approx(7.286, rel=1e-3)
    assert pld_epsilon([DiscreteLaplace(37.6, 1, 80)], 1e-6) == pytest.approx(1.0, rel=0.02)
    assert pld_epsilon([DiscreteLaplace(80.0, 1, 80)], 1e-15) <= 1.0 + 80 * 1e-4


def test_given_parameters_add_and_their_delta_is_used_up():
    assert pld_epsilon([Given(0.3, 1e-7, 2)], 1e-6) == pytest.approx(0.6, abs=5e-4)
    assert pld_epsilon([Given(0.3, 1e-7)], 1e-8) == math.inf


LOPSIDED = {0: math.log(0.5), 1: math.log(0.5)}, {0: math.log(0.1), 1: math.log(0.9)}


def brute(epsilon_delta, times):
    """Largest epsilon over every orientation of ``times`` lopsided parts, by enumerating all outcomes."""
    worst = 0.0
    for swapped in range(2**times):
        losses = np.zeros(1)
        mass = np.ones(1)
        for t in range(times):
            p, q = (np.exp(list(law.values())) for law in (LOPSIDED[::-1] if swapped >> t & 1 else LOPSIDED))
            losses = (losses[:, None] + np.log(p / q)).ravel()
            mass = (mass[:, None] * p).ravel()
        low, high = 0.0, 20.0
        for _ in range(60):
            middle = (low + high) / 2
            delta = (mass * np.maximum(0, -np.expm1(middle - losses))).sum()
            low, high = (middle, high) if delta > epsilon_delta else (low, middle)
        worst = max(worst, high)
    return worst


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("delta", [1e-6, 0.05, 0.2])
def test_asymmetric_parts_are_taken_in_every_orientation(times, delta):
    exact = brute(delta, times)
    for pair in (LOPSIDED, LOPSIDED[::-1]):
        found = pld_epsilon([TwoLaws(*pair, times)], delta)
        assert exact - 1e-9 <= found <= exact + times * 1e-4 + 1e-6


def test_one_order_alone_would_be_wrong():
    """The broken twin: only one order of the pair."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    orders = [
        pld.from_two_probability_mass_functions(*pair, symmetric=True).get_epsilon_for_delta(0.05)
        for pair in (LOPSIDED, LOPSIDED[::-1])
    ]
    assert min(orders) < max(orders) - 0.1
    assert pld_epsilon([TwoLaws(*LOPSIDED)], 0.05) == pytest.approx(max(orders))


def test_meaningless_input_is_refused():
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="delta must be"):
            pld_epsilon([DiscreteGaussian(4)], bad)
    with pytest.raises(ValueError, match="at least one"):
        pld_epsilon([], 1e-6)
    with pytest.raises(ValueError, match="rho must be"):
        gdp_epsilon(-1.0, 1e-6)


def test_importing_the_room_loads_no_heavy_library():
    rooms = ["budget", "losses", "noise", "fast_noise", "release", "csprng"]
    code = f"import sys, {', '.join('pipeline.privacy.' + r for r in rooms)}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"dp_accounting", "opendp", "scipy", "cvxpy", "polars", "prefect"} & set(loaded.split())


def official_grid():
    """Largest relative differences from OpenDP and dp-accounting: (ours - theirs) / theirs, lowest and highest."""
    import dp_accounting
    import opendp.prelude as dp
    from dp_accounting.rdp import RdpAccountant

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    orders = 1 + np.exp(np.linspace(-12, 14, 4000))
    gaps = {"opendp": [], "dp-accounting": []}
    for rho in 10.0 ** np.arange(-5, 2.5, 0.5):
        m = dp.m.make_gaussian(*space, scale=float((1 / (2 * rho)) ** 0.5))
        profile = dp.c.make_zCDP_to_approxDP(m).map(1.0)
        accountant = RdpAccountant(orders).compose(dp_accounting.ZCDpEvent(float(rho)))
        for delta in 10.0 ** -np.arange(3, 13):
            ours = epsilon_from_rho(float(rho), float(delta))
            gaps["opendp"].append(ours / profile.epsilon(float(delta)) - 1)
            gaps["dp-accounting"].append(ours / accountant.get_epsilon(float(delta)) - 1)
    return {name: (min(g), max(g)) for name, g in gaps.items()}


@pytest.mark.slow
def test_the_official_conversion_agrees_over_the_grid():
    for name, (low, high) in official_grid().items():
        assert low > -1e-4 and high < 1e-9, (name, low, high)
