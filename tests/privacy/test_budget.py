"""zCDP conversions: the pinned table, inverses, and agreement with two outside implementations."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pipeline.privacy.budget import delta_from_rho, epsilon_from_rho, fraction_of, rho_from_epsilon, rho_of_pure

TABLE = [
    (0.01, 1e-6, 0.622),
    (0.1, 1e-6, 2.142),
    (0.5, 1e-6, 5.222),
    (1, 1e-6, 7.766),
    (5, 1e-6, 20.55),
    (1, 1e-5, 7.077),
    (1, 1e-8, 8.977),
]
INVERSE = [
    (0.1, 1e-6, 0.000321),
    (0.5, 1e-6, 0.006642),
    (1, 1e-6, 0.024356),
    (2, 1e-6, 0.088153),
    (4, 1e-6, 0.311065),
    (1, 1e-5, 0.030557),
    (8, 1e-6, 1.052358),
]


@pytest.mark.parametrize(("rho", "delta", "epsilon"), TABLE)
def test_epsilon_from_rho_reproduces_the_table(rho, delta, epsilon):
    assert epsilon_from_rho(rho, delta) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta", "rho"), INVERSE)
def test_rho_from_epsilon_reproduces_the_table(epsilon, delta, rho):
    assert rho_from_epsilon(epsilon, delta) == pytest.approx(rho, rel=2e-3)


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_the_two_conversions_are_inverse(rho, delta):
    epsilon = epsilon_from_rho(rho, delta)
    if epsilon > 0:
        assert rho_from_epsilon(epsilon, delta) == pytest.approx(rho, rel=1e-6)
        assert delta_from_rho(rho, epsilon) == pytest.approx(delta, rel=1e-6)


@pytest.mark.parametrize("rho", [0.01, 0.1, 1.0, 5.0])
def test_conversion_agrees_with_opendp_and_dp_accounting(rho):
    import dp_accounting
    import opendp.prelude as dp
    from dp_accounting.rdp import RdpAccountant

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
    profile = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=(1 / (2 * rho)) ** 0.5)).map(1.0)
    assert epsilon_from_rho(rho, 1e-6) == pytest.approx(profile.epsilon(1e-6), rel=1e-4)
    orders = [1 + 10 ** (k / 100) for k in range(-300, 400)]
    accountant = RdpAccountant(orders).compose(dp_accounting.ZCDpEvent(rho))
    assert epsilon_from_rho(rho, 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-3)


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
