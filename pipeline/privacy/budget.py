"""Privacy budgets: zero-concentrated, pure and approximate, and the official conversion between them.

A release that is rho-zCDP has Renyi divergence of order a at most ``rho * a`` for all ``a > 1`` (privacy.md §1).
Budgets that are *added up* are exact fractions; the floats here are for people and for calibration.
"""

from __future__ import annotations

import math
from fractions import Fraction

from pipeline.privacy.brent import least, root

_LOG_ORDER = (-12.0, 14.0)


def _log_delta(rho: float, epsilon: float) -> float:
    """Logarithm of the smallest delta over Renyi orders; any order gives a valid bound (privacy.md §1.1)."""

    def at(log_order: float) -> float:
        a1 = math.exp(log_order)
        a = 1.0 + a1
        # log(1 - 1/a) = log(a1) - log1p(a1), stable at both ends
        return a1 * (a * rho - epsilon) - log_order + a * (log_order - math.log1p(a1))

    return least(at, *_LOG_ORDER, 1e-10)


def delta_from_rho(rho: float, epsilon: float) -> float:
    """Smallest delta for which rho-zCDP gives ``(epsilon, delta)``-DP, capped at 1.

    Parameters
    ----------
    rho
        zCDP budget, >= 0.
    epsilon
        Nats of privacy loss, >= 0.
    """
    check_cost(rho=rho)
    check_cost(epsilon=epsilon)
    if rho == 0:
        return 0.0
    return 1.0 if math.isinf(rho) else math.exp(min(0.0, _log_delta(rho, epsilon)))


def largest_delta(people: int) -> float:
    """The largest delta that means anything: with more, publishing somebody's row outright would count as private.

    Parameters
    ----------
    people
        How many are protected, >= 1.
    """
    return 1 / (10 * people)


def check_delta(name: str, delta: float, people: int) -> None:
    """Refuse a delta that means nothing for so few people.

    Parameters
    ----------
    name
        Of the key that declares it, for the message.
    delta
        Of a conversion from rho, in (0, 1).
    people
        How many are protected, >= 1.

    Raises
    ------
    ValueError
        If it exceeds :func:`largest_delta`.
    """
    if delta > largest_delta(people):
        raise ValueError(
            f"{name} = {delta:g} is too large for {people} people; at most {largest_delta(people):g} means anything"
        )


def epsilon_from_rho(rho: float, delta: float) -> float:
    """Epsilon such that every rho-zCDP mechanism is ``(epsilon, delta)``-DP; floored at 0 (privacy.md §1.1, official).

    Raises
    ------
    ValueError
        If ``rho`` is negative or not a number, or ``delta`` is not in (0, 1).

    Examples
    --------
    >>> round(epsilon_from_rho(1.0, 1e-6), 3)
    7.766
    """
    check_cost(rho=rho)
    check_share(delta)
    if rho == 0:
        return 0.0
    if math.isinf(rho):
        return math.inf
    target = math.log(delta)
    if _log_delta(rho, 0.0) <= target:
        return 0.0
    # the textbook form is an upper bound, so it closes the bracket
    upper = rho + 2 * math.sqrt(rho * -target) + 1e-9
    return root(lambda e: _log_delta(rho, e) - target, 0.0, upper, 1e-15)


def rho_from_epsilon(epsilon: float, delta: float) -> float:
    """Largest rho such that rho-zCDP gives ``(epsilon, delta)``-DP: the inverse of :func:`epsilon_from_rho`.

    Raises
    ------
    ValueError
        If ``epsilon`` is negative or not a number, or ``delta`` is not in (0, 1).

    Examples
    --------
    >>> round(rho_from_epsilon(7.766, 1e-6), 3)
    1.0
    """
    check_cost(epsilon=epsilon)
    check_share(delta)
    if math.isinf(epsilon):
        return math.inf
    target, upper = math.log(delta), 1.0
    while _log_delta(upper, epsilon) < target:
        upper *= 2
    lower = upper
    while _log_delta(lower, epsilon) > target:
        lower /= 2
        if lower < 1e-300:
            return 0.0
    return lower if lower == upper else root(lambda r: _log_delta(r, epsilon) - target, lower, upper, 1e-15)


def rho_of_pure(epsilon: Fraction) -> Fraction:
    """Cost in rho of an epsilon-DP release, ``epsilon^2 / 2``: only to enter a pure release into a zCDP ledger."""
    return epsilon * epsilon / 2


def fraction_of(value: float | Fraction) -> Fraction:
    """The decimal a person wrote, exactly: ``0.1`` is one tenth, not the nearest binary float.

    Parameters
    ----------
    value
        A budget, share or scale; a fraction is returned as it is.
    """
    return Fraction(str(value))


def up(value: Fraction) -> float:
    """The smallest float at least ``value``: how a cost is printed or stored."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def down(value: Fraction) -> float:
    """The largest float at most ``value``: how an allowance is printed or stored."""
    return -up(-value)


def check_cost(**named: float) -> None:
    """Refuse what is negative or no number, with a ValueError that names it."""
    for name, value in named.items():
        if not value >= 0:
            raise ValueError(f"{name} must be >= 0; got {value}")


def check_share(delta: float) -> None:
    """Refuse a ``delta`` outside of (0, 1), with a ValueError."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1); got {delta}")
