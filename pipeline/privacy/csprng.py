"""Random 64-bit words of the operating system, and exact trials made of them: integers only, never a float.

A stream is SHAKE-256 keyed with 32 fresh bytes of the operating system (privacy.md §9).  Each draw call opens its own,
so that neither threads nor forked processes can share one.

Exact samplers of discrete noise by rejection, in integers, at any scale (privacy.md §8).

(Canonne, Kamath, Steinke, Algorithms 2 and 3): candidates are made in batches and every candidate of a
batch is settled before any is kept, in order: a batch cut short would favour the draws that settle early (pitfall i).
Products that pass 64 bits are Python integers (pitfall ii).
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache
from hashlib import shake_256
from math import isqrt
from os import urandom
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words64 = NDArray[np.uint64]
Bits = NDArray[np.bool_]

_BLOCK = 2**15


class Words:
    """One stream of uniform 64-bit words; what a call leaves over is carried to the next, nothing is dropped."""

    def __init__(self) -> None:
        self._key, self._blocks = urandom(32), 0
        self._left: Words64 = np.empty(0, dtype=np.uint64)

    def take(self, n: int) -> Words64:
        """The next ``n`` words of the stream, ``(n,)``."""
        parts, have = [self._left], len(self._left)
        while have < n:
            block = shake_256(self._key + self._blocks.to_bytes(16, "little")).digest(8 * _BLOCK)
            parts.append(np.frombuffer(block, dtype="<u8"))
            self._blocks, have = self._blocks + 1, have + _BLOCK
        joined = np.concatenate(parts) if len(parts) > 1 else self._left
        self._left = joined[n:]
        return joined[:n]

    def one(self) -> int:
        """The next word as a Python integer."""
        return int(self.take(1)[0])


def below(words: Words, n: int, bound: int) -> NDArray[Any]:
    """Uniform integers ``(n,)`` in ``[0, bound)``: uint64, or Python integers where 64 bits do not hold the bound.

    Each place redraws for itself until it fits, so no outcome is favoured.
    """
    limbs = -(-bound.bit_length() // 64)
    mask = (1 << (bound - 1).bit_length()) - 1
    out: NDArray[Any] = np.zeros(n, dtype=np.uint64 if limbs == 1 else object)
    open_ = np.arange(n)
    while open_.size:
        drawn: NDArray[Any] = words.take(open_.size)
        if limbs > 1:
            drawn = drawn.astype(object)
            for _ in range(limbs - 1):
                drawn = drawn << 64 | words.take(open_.size).astype(object)
        drawn = drawn & (mask if limbs > 1 else np.uint64(mask))
        out[open_] = drawn
        open_ = open_[drawn >= bound]
    return out


def fixed_point(part: NDArray[Any], whole: int) -> Words64:
    """``floor(2^64 part / whole)`` for ``0 <= part < whole``, exactly: in 22-bit digits while they fit a word."""
    if whole > 2**42:
        return ((part.astype(object) << 64) // whole).astype(np.uint64)
    left, out, divisor = part, np.zeros(len(part), dtype=np.uint64), np.uint64(whole)
    for digits in (22, 21, 21):
        left = left << np.uint64(digits)
        digit = left // divisor
        left = left - digit * divisor
        out = out << np.uint64(digits) | digit
    return out


def exp_trials(words: Words, exponent: Words64, exact: Callable[[int], Fraction]) -> Bits:
    """True with probability ``exp(-g)``, for each ``g`` in [0, 1) (Canonne, Kamath and Steinke, Algorithm 1).

    ``exponent``: ``floor(2^64 g)``, ``(n,)``.
    ``exact``: ``g`` itself at an index: asked for only when a word ties with the fixed point (about 2^-64 a trial).
    """
    result = np.ones(len(exponent), dtype=np.bool_)
    alive, k = np.arange(len(exponent)), 1
    while alive.size:
        u, threshold = words.take(alive.size), exponent[alive] // np.uint64(k)
        goes_on = u < threshold
        for i in np.flatnonzero(u == threshold):
            goes_on[i] = word_below(words, int(u[i]), exact(int(alive[i])) / k)
        result[alive[~goes_on]] = k % 2 == 1
        alive, k = alive[goes_on], k + 1
    return result


def word_below(words: Words, u: int, p: Fraction) -> bool:
    """Whether the uniform number whose first 64 bits are ``u`` lies below the rational ``p``: draws until sure."""
    bits = 64
    while True:
        scaled = p * (1 << bits)
        if u + 1 <= scaled:
            return True
        if u >= scaled:
            return False
        u, bits = u << 64 | words.one(), bits + 64


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
