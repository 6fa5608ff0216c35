"""Random 64-bit words of the operating system, and exact trials made of them: integers only, never a float.

A stream is SHAKE-256 keyed with 32 fresh bytes of the operating system (privacy.md §9).  Each draw call opens its own,
so that neither threads nor forked processes can share one.

Exact samplers of discrete noise by rejection, in integers, at any scale (privacy.md §8).

(Canonne, Kamath, Steinke, Algorithms 2 and 3): candidates are made in batches and every candidate of a
batch is settled before any is kept, in order: a batch cut short would favour the draws that settle early (pitfall i).
Products that pass 64 bits are Python integers (pitfall ii).

Exact discrete noise by inversion with lazy bits, in integers: one 64-bit word a draw, more only where it ties.

A draw is the least x with U < F(x), for U uniform in [0, 1) and F the distribution function.  F is never rounded: the
table holds ``floor(2^b F(x))``, *certified* by an enclosure of F (weights from below and from above, the infinite tails
included).  With the first b bits u of U,

* ``u < floor(2^b F(x))`` proves ``U < F(x)``, and ``u > floor(2^b F(x))`` proves ``U >= F(x)``;
* only where they are equal is nothing proved: 64 more bits are drawn, and compared with a table of as many bits.

Left of the table ``floor(2^b F)`` is 0 and right of it ``2^b - 1``, so that a word of all zeros or all ones is a tie as
well, and the tails come out exactly, however unlikely they are.  The law is thus that of F itself: nothing is added to
delta, and a pure guarantee stays pure.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from hashlib import shake_256
from math import isqrt
from os import urandom
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import Bools, Integers

Words64 = NDArray[np.uint64]

_BLOCK = 2**15


class Words:
    """One stream of uniform 64-bit words; what a call leaves over is carried to the next, nothing is dropped."""

    def __init__(self) -> None:
        self._key, self._blocks = urandom(32), 0
        self._left: Words64 = np.empty(0, dtype=np.uint64)

    def take(self, n: int) -> Words64:
        """The next ``n`` words of the stream, ``(n,)``."""
        parts, count = [self._left], len(self._left)
        while count < n:
            block = shake_256(self._key + self._blocks.to_bytes(16, "little")).digest(8 * _BLOCK)
            parts.append(np.frombuffer(block, dtype="<u8"))
            self._blocks, count = self._blocks + 1, count + _BLOCK
        joined = np.concatenate(parts) if len(parts) > 1 else self._left
        self._left = joined[n:]
        return joined[:n]

    def one(self) -> int:
        """The next word as a Python integer."""
        return int(self.take(1)[0])


def below(words: Words, n: int, bound: int) -> NDArray[Any]:
    """Uniform integers ``(n,)`` in ``[0, bound)``: uint64, or Python integers where 64 bits do not hold the bound.

    Each entry redraws for itself until it fits, so no outcome is favoured.
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


def exp_trials(words: Words, exponent: Words64, exact: Callable[[int], Fraction]) -> Bools:
    """True with probability ``exp(-g)``, for each ``g`` in [0, 1) (Canonne, Kamath and Steinke, Algorithm 1).

    ``exponent``: ``floor(2^64 g)``, ``(n,)``.
    ``exact``: ``g`` itself at an index: needed only when a word ties with the fixed point (about 2^-64 a trial).
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


_BATCH = 2**15
_MASK = 2**64 - 1


def by_rejection(words: Words, size: int, law: "Law") -> Integers:
    """Draws ``(size,)`` of exactly the law, of any rational scale: the first kept candidates.

    How many candidates are made next depends on how many are missing, never on values.
    """
    batch = _gaussian_batch if law.kind == "gaussian" else _laplace_batch
    parts: list[Integers] = []
    missing = size
    while missing:
        kept = batch(words, min(_BATCH, missing + missing // 2 + 64), law.scale)[:missing]
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
    y = by_rejection(words, n, Law("laplace", Fraction(t)))
    # exponent (|y| - variance / t)^2 / (2 variance), over one denominator
    whole_part: NDArray[Any] = (np.abs(y).astype(object) * (t * b) - a) ** 2
    divisor = 2 * a * b * t * t
    scaled: NDArray[Any] = (whole_part << 64) // divisor
    passed: Bools = geometric(words, n) >= np.minimum(scaled >> 64, 2**62).astype(np.int64)
    y, left = y[passed], whole_part[passed]
    exponent: Words64 = (scaled[passed] & _MASK).astype(np.uint64)
    return y[exp_trials(words, exponent, lambda i: Fraction(int(left[i]) % divisor, divisor))]


def geometric(words: Words, n: int) -> Integers:
    """Numbers of unit exponents that trials survive, ``(n,)``: P(v >= k) = exp(-k)."""
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


_CHUNK = 2**15
_WORD = 64


@dataclass(frozen=True)
class Law:
    """``P(x)`` proportional to ``exp(-x^2 / (2 scale))`` (gaussian: the variance), ``exp(-|x| / scale)`` (laplace)."""

    kind: Literal["gaussian", "laplace"]
    scale: Fraction

    def reach(self, bits: int) -> int:
        """Largest value of a table of so many bits: beyond it lies less than ``2^-bits`` on either side."""
        a, b = self.scale.numerator, self.scale.denominator
        # 7 / 10 is more than log 2
        if self.kind == "gaussian":
            return isqrt(14 * (bits + 4) * a // (10 * b)) + 3
        return 7 * (bits + 4) * a // (10 * b) + 3


@dataclass(frozen=True)
class InversionTable:
    """``thresholds[j] = floor(2^bits F(j - reach))`` for j = 0 .. 2 reach - 1, rising."""

    bits: int
    reach: int
    thresholds: tuple[int, ...] = field(repr=False)

    def decide(self, u: int) -> int | None:
        """The draw whose first bits are ``u``; None where they do not decide it."""
        j = bisect_left(self.thresholds, u)
        tied = j < len(self.thresholds) and self.thresholds[j] == u
        return None if tied or u in (0, 2**self.bits - 1) else j - self.reach


@dataclass(frozen=True)
class FirstWords:
    """The thresholds of a law in one word, and how many of them lie before each stretch of words.

    ``thresholds`` ``(2 reach + 1,)``: rising; the last is the largest word, above which nothing is.
    ``before``, ``several`` ``(2^k,)``: of each stretch of words, by their first k bits: the number of thresholds before
    it, and whether it holds more than one.
    """

    thresholds: Words64
    before: NDArray[np.int32]
    several: Bools

    @cached_property
    def shift(self) -> np.uint64:
        """Number of bits of a word behind those that name its stretch."""
        return np.uint64(_WORD + 1 - len(self.before).bit_length())

    def below(self, u: Words64) -> Integers:
        """Number of thresholds below each word: a look-up and one comparison, a search where several are near."""
        stretch = (u >> self.shift).astype(np.intp)
        j = self.before[stretch].astype(np.int64)
        j += self.thresholds[j] < u
        rest = np.flatnonzero(self.several[stretch])
        j[rest] = np.searchsorted(self.thresholds, u[rest], side="left")
        return j


@lru_cache(maxsize=8)
def first_words(law: Law) -> FirstWords:
    """First words of a law, with about four stretches a threshold."""
    thresholds = np.array([*make_table(law, _WORD).thresholds, 2**_WORD - 1], dtype=np.uint64)
    bits = len(thresholds).bit_length() + 2
    edges = np.arange(2**bits, dtype=np.uint64) << np.uint64(_WORD - bits)
    before = np.searchsorted(thresholds, edges, side="left").astype(np.int32)
    return FirstWords(thresholds, before, np.diff(before, append=len(thresholds)) > 1)


def make_table(law: Law, bits: int) -> InversionTable:
    """Certified thresholds: the working precision is doubled until no enclosure holds an integer."""
    precision = bits + 128
    while True:
        upper = _upper_half(law, bits, precision)
        if upper is not None:
            # F(-x - 1) = 1 - F(x), and 2^bits F(x) is no integer
            lower = [2**bits - 1 - floor for floor in reversed(upper)]
            return InversionTable(bits, law.reach(bits), (*lower, *upper))
        precision *= 2


def _upper_half(law: Law, bits: int, precision: int) -> list[int] | None:
    """``floor(2^bits F(x))`` for x = 0 .. reach - 1; None where this precision leaves one of them open."""
    reach = law.reach(bits)
    # as far as the working precision reaches, so that the tail beyond leaves no threshold open
    weights = list(_weights(law, precision, law.reach(precision)))
    _, last, ratio = weights[-1]
    # a geometric series is above the tail of either law
    tail = last * ratio // ((1 << precision) - ratio) + 1
    low_total = 2 * sum(low for low, _, _ in weights) - weights[0][0]
    high_total = 2 * (sum(high for _, high, _ in weights) + tail) - weights[0][1]
    floors: list[int] = []
    # 1 - F(x) is what lies above x: summed from the far end, so that small numbers keep their digits
    low_above, high_above = sum(low for low, _, _ in weights[reach + 1 :]), tail
    high_above += sum(high for _, high, _ in weights[reach + 1 :])
    if high_above << bits >= low_total:
        return None
    for low, high, _ in reversed(weights[1 : reach + 1]):
        low_above, high_above = low_above + low, high_above + high
        most, rest = divmod(high_above << bits, low_total)
        if most != (low_above << bits) // high_total or not rest:
            return None
        floors.append(2**bits - 1 - most)
    return floors[::-1]


def _weights(law: Law, precision: int, reach: int) -> Iterator[tuple[int, int, int]]:
    """For k = 0 .. reach: integers below and above ``2^precision w(k)``, and one above ``w(k + 1) / w(k)``."""
    a, b = law.scale.numerator, law.scale.denominator
    rate = Fraction(b, 2 * a) if law.kind == "gaussian" else Fraction(b, a)
    # the ratio of neighbours falls by exp(-2 rate) a step, or not at all
    low_fall, high_fall = _exp(2 * rate, precision) if law.kind == "gaussian" else (1 << precision, 1 << precision)
    low_ratio, high_ratio = _exp(rate, precision)
    low = high = 1 << precision
    for _ in range(reach + 1):
        yield low, high, high_ratio
        low, high = low * low_ratio >> precision, (high * high_ratio >> precision) + 1
        low_ratio = low_ratio * low_fall >> precision
        high_ratio = min((high_ratio * high_fall >> precision) + 1, high_ratio)


def _exp(rate: Fraction, precision: int) -> tuple[int, int]:
    """Integers below and above ``2^precision exp(-rate)``: a correctly rounded exponential, digits to spare."""
    digits = Context(prec=precision + 40)
    power = digits.divide(Decimal(-rate.numerator), Decimal(rate.denominator))
    near = int(digits.multiply(digits.exp(power), Decimal(1 << precision)))
    return max(near - 1, 0), near + 2


def draw(words: Words, size: int, law: Law) -> Integers:
    """Draws ``(size,)`` of exactly the law."""
    first, out = first_words(law), np.empty(size, dtype=np.int64)
    for begin in range(0, size, _CHUNK):
        u = words.take(min(_CHUNK, size - begin))
        out[begin : begin + len(u)] = invert(law, first, u, words)
    return out


def invert(law: Law, first: FirstWords, u: Words64, words: Words) -> Integers:
    """The draws that begin with ``u``; more bits are drawn only where 64 do not decide."""
    j = first.below(u)
    # the largest word is the last threshold
    tied = first.thresholds[j] == u
    x = j - law.reach(_WORD)
    for i in np.flatnonzero(tied | (u == 0)):
        x[i] = _settle_inverse(law, int(u[i]), words)
    return x


def _settle_inverse(law: Law, u: int, words: Words) -> int:
    bits = _WORD
    while True:
        u, bits = u << _WORD | words.one(), bits + _WORD
        x = make_table(law, bits).decide(u)
        if x is not None:
            return x
