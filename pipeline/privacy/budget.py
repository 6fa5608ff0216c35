"""Privacy budgets: zero-concentrated, pure and approximate, and the official conversion between them.

A release that is rho-zCDP has Renyi divergence of order a at most ``rho * a`` for all ``a > 1`` (privacy.md §1).
Budgets that are *added up* are exact fractions; the floats here are for people and for calibration.

Brent's bracketed root and minimum stand here step for step as scipy takes them: ``scipy.optimize`` costs a command a
third of a second to import, for one scalar.  Calibrated scales are part of a release's key, so every step rounds as
scipy's does: a test compares the results to the last bit.  (R. P. Brent 1973, *Algorithms for Minimization without
Derivatives*, chapters 4 and 5.)
"""

import math
import sys
from collections.abc import Callable
from fractions import Fraction

_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
_STEPS = 500


def root(f: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """A zero of ``f`` between two points where its signs differ; ``scipy.optimize.brentq``.

    Raises ValueError if ``f`` has the same sign at both ends.
    """
    before, now, f_before, f_now = low, high, f(low), f(high)
    if f_before == 0:
        return before
    if f_now == 0:
        return now
    if math.copysign(1.0, f_before) == math.copysign(1.0, f_now):
        raise ValueError("f(low) and f(high) must have different signs")
    behind = f_behind = step = last = 0.0
    for _ in range(_STEPS):
        if f_before != 0 and f_now != 0 and (f_before < 0) != (f_now < 0):
            behind, f_behind = before, f_before
            step = last = now - before
        if abs(f_behind) < abs(f_now):
            before, now, behind = now, behind, now
            f_before, f_now, f_behind = f_now, f_behind, f_now
        delta = (tolerance + 4 * sys.float_info.epsilon * abs(now)) / 2
        half = (behind - now) / 2
        if f_now == 0 or abs(half) < delta:
            return now
        if abs(last) > delta and abs(f_now) < abs(f_before):
            if before == behind:
                guess = -f_now * (now - before) / (f_now - f_before)
            else:
                ahead = (f_before - f_now) / (before - now)
                back = (f_behind - f_now) / (behind - now)
                guess = -f_now * (f_behind * back - f_before * ahead) / (back * ahead * (f_behind - f_before))
            short = 2 * abs(guess) < min(abs(last), 3 * abs(half) - delta)
            last, step = (step, guess) if short else (half, half)
        else:
            last = step = half
        before, f_before = now, f_now
        now += step if abs(step) > delta else math.copysign(delta, half)
        f_now = f(now)
    raise ArithmeticError(f"no root in {_STEPS} steps")


def least(f: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """The least value of a unimodal ``f`` on an interval; ``scipy.optimize.minimize_scalar(method="bounded")``."""
    best = second = third = low + _GOLDEN * (high - low)
    f_best = f_second = f_third = f(best)
    step = last = 0.0
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        near = math.sqrt(2.2e-16) * abs(best) + tolerance / 3.0
        if not abs(best - middle) > 2.0 * near - 0.5 * (high - low):
            break
        parabola = False
        if abs(last) > near:
            r = (best - second) * (f_best - f_third)
            q = (best - third) * (f_best - f_second)
            p = (best - third) * q - (best - second) * r
            q = 2.0 * (q - r)
            p, q = (-p if q > 0.0 else p), abs(q)
            r, last = last, step
            if abs(p) < abs(0.5 * q * r) and p > q * (low - best) and p < q * (high - best):
                parabola = True
                step = p / q
                x = best + step
                if x - low < 2.0 * near or high - x < 2.0 * near:
                    step = near if middle >= best else -near
        if not parabola:
            last = low - best if best >= middle else high - best
            step = _GOLDEN * last
        x = best + math.copysign(max(abs(step), near), 1.0 if step >= 0 else -1.0)
        value = f(x)
        if value <= f_best:
            low, high = (best, high) if x >= best else (low, best)
            third, f_third, second, f_second, best, f_best = second, f_second, best, f_best, x, value
        else:
            low, high = (x, high) if x < best else (low, x)
            if value <= f_second or second == best:
                third, f_third, second, f_second = second, f_second, x, value
            elif value <= f_third or third in (best, second):
                third, f_third = x, value
    return f_best


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

    ``rho``: zCDP budget, >= 0.
    ``epsilon``: nats of privacy loss, >= 0.
    """
    check_cost(rho=rho)
    check_cost(epsilon=epsilon)
    if rho == 0:
        return 0.0
    return 1.0 if math.isinf(rho) else math.exp(min(0.0, _log_delta(rho, epsilon)))


def largest_delta(people: int) -> float:
    """The largest meaningful delta: with more, publishing one person's row outright would count as private.

    ``people``: number of protected people, >= 1.
    """
    return 1 / (10 * people)


def check_delta(name: str, delta: float, people: int) -> None:
    """Refuse a delta that is too large for so few people.

    ``delta``: of a conversion from rho, in (0, 1).
    ``people``: number of protected people, >= 1.
    Raises ValueError if it exceeds :func:`largest_delta`.
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
    """The written decimal, exactly: ``0.1`` is one tenth, not the nearest binary float."""
    return Fraction(str(value))


def up(value: Fraction) -> float:
    """The smallest float at least ``value``, for costs that are printed or stored."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def down(value: Fraction) -> float:
    """The largest float at most ``value``, for allowances that are printed or stored."""
    return -up(-value)


def check_cost(**named: float) -> None:
    """Refuse negative values and NaN, with a ValueError that names them."""
    for name, value in named.items():
        if not value >= 0:
            raise ValueError(f"{name} must be >= 0; got {value}")


def check_share(delta: float) -> None:
    """Refuse a ``delta`` outside of (0, 1), with a ValueError."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1); got {delta}")
