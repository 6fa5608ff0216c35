"""Brent's bracketed root and minimum of a function of one number, step for step as scipy takes them.

``scipy.optimize`` costs a command a third of a second to import, for one scalar.  Calibrated scales are part of a
release's key, so every step here rounds as scipy's does: a test compares the results to the last bit.
(R. P. Brent 1973, *Algorithms for Minimization without Derivatives*, chapters 4 and 5.)
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

_GOLDEN = 0.5 * (3.0 - math.sqrt(5.0))
_STEPS = 500


def root(f: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """A zero of ``f`` between two points where its signs differ; ``scipy.optimize.brentq``.

    Parameters
    ----------
    f
        Continuous, of one number.
    low, high
        Ends of the bracket.
    tolerance
        Absolute; four units in the last place of the root are added to it.

    Raises
    ------
    ValueError
        If ``f`` has the same sign at both ends.
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
    """The least value of a unimodal ``f`` on an interval; ``scipy.optimize.minimize_scalar(method="bounded")``.

    Parameters
    ----------
    f
        Of one number.
    low, high
        Ends of the interval.
    tolerance
        Absolute, of the point where it is taken.
    """
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
