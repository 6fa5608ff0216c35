"""Losses as values: what adds, what refuses to, what a mixed ledger costs; and which way rounding goes."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.privacy.budget import down, epsilon_from_rho, up
from pipeline.privacy.losses import ZCDP, Approximate, ApproximateZCDP, Pure, RelationError, mixed, safe_epsilon

TENTH = Fraction(1, 10)


def test_losses_of_one_kind_and_relation_add_exactly():
    assert ZCDP(TENTH) + ZCDP(2 * TENTH) == ZCDP(Fraction(3, 10))
    assert Pure(TENTH) + Pure(TENTH) == Pure(Fraction(1, 5))
    assert Approximate(TENTH, TENTH) + Approximate(TENTH, TENTH) == Approximate(Fraction(1, 5), Fraction(1, 5))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ZCDP(TENTH), ZCDP(TENTH, "zero_out")),
        (Pure(TENTH, "add_remove"), Pure(TENTH)),
        (Approximate(TENTH, TENTH), Approximate(TENTH, TENTH, "add_remove")),
        (ZCDP(TENTH), Pure(TENTH)),
        (Pure(TENTH), ZCDP(TENTH)),
    ],
)
def test_other_relations_and_kinds_refuse_to_be_added(one, other):
    with pytest.raises(RelationError, match="do not add"):
        _ = one + other


def test_a_mixed_ledger_keeps_rho_and_slack_apart():
    total = mixed([ZCDP(TENTH), Pure(Fraction(1)), Approximate(Fraction(1, 2), Fraction(1, 10**7))])
    assert total == ApproximateZCDP(TENTH + Fraction(1, 2) + Fraction(1, 8), Fraction(1, 10**7))
    with pytest.raises(RelationError):
        mixed([ZCDP(TENTH), Approximate(TENTH, TENTH, "add_remove")])
    with pytest.raises(ValueError, match="at least one"):
        mixed([])


def test_the_slack_is_paid_out_of_delta():
    slack, delta = Fraction(4, 10**7), Fraction(1, 10**6)
    ledger = ApproximateZCDP(Fraction(1), slack)
    found = ledger.at(delta)
    rest = (delta - slack) / (1 - slack)
    assert slack + (1 - slack) * rest == delta
    assert float(found.epsilon) == pytest.approx(epsilon_from_rho(1.0, float(rest)), rel=1e-9)
    assert found.epsilon > ApproximateZCDP(Fraction(1)).at(delta).epsilon and found.delta == delta
    for refused in (slack, slack / 2, Fraction(1)):
        with pytest.raises(ValueError, match="delta must be"):
            ledger.at(refused)


def test_negative_losses_are_refused():
    for make in (lambda: ZCDP(-TENTH), lambda: Pure(-TENTH), lambda: Approximate(TENTH, -TENTH)):
        with pytest.raises(ValueError, match="must be >= 0"):
            make()


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


def test_slacks_of_delta_add_as_rhos_do():
    one, two = (ApproximateZCDP(Fraction(1, n), Fraction(1, 10**n)) for n in (6, 7))
    assert one + two == ApproximateZCDP(Fraction(13, 42), Fraction(11, 10**7))
