"""zCDP conversions: inverses, edges, and agreement with two outside implementations."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest

from pipeline.privacy.budget import delta_from_rho, epsilon_from_rho, fraction_of, rho_from_epsilon, rho_of_pure


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_the_two_conversions_are_inverse(rho, delta):
    epsilon = epsilon_from_rho(rho, delta)
    if epsilon > 0:
        assert rho_from_epsilon(epsilon, delta) == pytest.approx(rho, rel=1e-6)
        assert delta_from_rho(rho, epsilon) == pytest.approx(delta, rel=1e-6)


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
            ours = epsilon_from_rho(rho, delta)
            gaps["opendp"].append(ours / profile.epsilon(delta) - 1)
            gaps["dp-accounting"].append(ours / accountant.get_epsilon(delta) - 1)
    return {name: (min(g), max(g)) for name, g in gaps.items()}


@pytest.mark.parametrize(
    ("rhos", "deltas"),
    [
        ([0.01, 0.1, 1.0, 5.0], [1e-6]),
        pytest.param(10.0 ** np.arange(-5, 2.5, 0.5), 10.0 ** -np.arange(3, 13), marks=pytest.mark.slow),
    ],
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
    assert [rho_of_pure(Fraction(e)) for e in ("0", "1", "1/3")] == [0, Fraction(1, 2), Fraction(1, 18)]


def test_edges_are_floored_and_refused():
    assert epsilon_from_rho(0.0, 1e-6) == 0.0
    assert epsilon_from_rho(1e-12, 0.1) == 0.0
    with pytest.raises(ValueError, match="rho must be >= 0"):
        epsilon_from_rho(-1.0, 1e-6)
    with pytest.raises(ValueError, match="delta must be"):
        rho_from_epsilon(1.0, 0.0)
    assert fraction_of(0.1) == Fraction(1, 10)
