"""Exact samplers of discrete noise by rejection, in integers, at any scale (privacy.md §8).

(Canonne, Kamath, Steinke, Algorithms 2 and 3): candidates are made in batches and every candidate of a
batch is settled before any is kept, in order: a batch cut short would favour the draws that settle early (pitfall i).
Products that pass 64 bits are Python integers (pitfall ii).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache
from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.csprng import Bits, Words, Words64, below, exp_trials, fixed_point

Integers = NDArray[np.int64]

_BATCH = 2**15
_MASK = 2**64 - 1


def gaussian_by_rejection(words: Words, size: int, variance: Fraction) -> Integers:
    """Discrete Gaussian ``(size,)``: P(x) proportional to exp(-x^2 / (2 variance)), exactly; any rational variance."""
    return _filled(size, lambda n: _gaussian_batch(words, n, variance))


def laplace_by_rejection(words: Words, size: int, scale: Fraction) -> Integers:
    """Discrete Laplace ``(size,)``: P(x) proportional to exp(-|x| / scale), exactly; any rational scale."""
    return _filled(size, lambda n: _laplace_batch(words, n, scale))


def _filled(size: int, batch: Callable[[int], Integers]) -> Integers:
    """The first ``size`` kept candidates; how many are made next depends on how many are missing, never on values."""
    parts: list[Integers] = []
    missing = size
    while missing:
        kept = batch(min(_BATCH, missing + missing // 2 + 64))[:missing]
        parts.append(kept)
        missing -= len(kept)
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _laplace_batch(words: Words, n: int, scale: Fraction) -> Integers:
    t, s = scale.numerator, scale.denominator
    rest = below(words, n, t)
    kept = exp_trials(words, fixed_point(rest, t), lambda i: Fraction(int(rest[i]), t))
    rest = rest[kept]
    whole = geometric(words, len(rest))
    if t <= 2**42:
        size = (rest.astype(np.int64) + t * whole) // s
    else:
        size = ((rest.astype(object) + t * whole.astype(object)) // s).astype(np.int64)
    negative = (words.take(len(size)) & np.uint64(1)).astype(np.bool_)
    # zero would otherwise be counted under both signs
    once = ~(negative & (size == 0))
    return np.where(negative, -size, size)[once]


def _gaussian_batch(words: Words, n: int, variance: Fraction) -> Integers:
    a, b = variance.numerator, variance.denominator
    t = isqrt(a // b) + 1
    y = laplace_by_rejection(words, n, Fraction(t))
    # exponent (|y| - variance / t)^2 / (2 variance), over one denominator
    whole_part: NDArray[Any] = (np.abs(y).astype(object) * (t * b) - a) ** 2
    divisor = 2 * a * b * t * t
    scaled: NDArray[Any] = (whole_part << 64) // divisor
    passed: Bits = geometric(words, n) >= np.minimum(scaled >> 64, 2**62).astype(np.int64)
    y, left = y[passed], whole_part[passed]
    exponent: Words64 = (scaled[passed] & _MASK).astype(np.uint64)
    return y[exp_trials(words, exponent, lambda i: Fraction(int(left[i]) % divisor, divisor))]


def geometric(words: Words, n: int) -> Integers:
    """How many unit exponents a trial survives, ``(n,)``: P(v >= k) = exp(-k)."""
    u, steps = words.take(n), _powers()
    falling = len(steps) - np.searchsorted(steps, u, side="right")
    for i in np.flatnonzero(steps[np.searchsorted(steps, u, side="left") % len(steps)] == u):
        falling[i] = _settle(words, int(u[i]))
    return falling.astype(np.int64)


@cache
def _powers() -> Words64:
    """``floor(2^64 exp(-k))`` for k = 45..1, rising; the first is 0."""
    return np.array([_power(k, 64) for k in range(45, 0, -1)], dtype=np.uint64)


def _settle(words: Words, u: int) -> int:
    """The count of one word that ties with a threshold: more bits until every comparison is strict."""
    bits, k = 64, 0
    while True:
        threshold = _power(k + 1, bits)
        if u < threshold:
            k += 1
        elif u > threshold:
            return k
        else:
            u, bits = u << 64 | words.one(), bits + 64


@cache
def _power(k: int, bits: int) -> int:
    """``floor(2^bits exp(-k))``, from a correctly rounded exponential with 40 digits to spare."""
    exact = Context(prec=bits + 40, rounding=ROUND_FLOOR)
    return int(exact.multiply(exact.exp(Decimal(-k)), Decimal(1 << bits)))
