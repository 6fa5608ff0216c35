"""Exact discrete noise by inversion with lazy bits, in integers: one 64-bit word a draw, more only where it ties.

A draw is the least x with U < F(x), for U uniform in [0, 1) and F the distribution function.  F is never rounded: the
table holds ``floor(2^b F(x))``, *certified* by an enclosure of F (weights from below and from above, the infinite tails
included).  With the first b bits u of U,

* ``u < floor(2^b F(x))`` proves ``U < F(x)``, and ``u > floor(2^b F(x))`` proves ``U >= F(x)``;
* only where they are equal is nothing proved: 64 more bits are drawn, and compared with a table of as many bits.

Left of the table ``floor(2^b F)`` is 0 and right of it ``2^b - 1``, so that a word of all zeros or all ones is a tie as
well, and the tails come out exactly, however unlikely they are.  The law is thus that of F itself: nothing is added to
delta, and a pure guarantee stays pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from math import isqrt
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.csprng import Words, Words64

_CHUNK = 2**15
_WORD = 64


@dataclass(frozen=True)
class Law:
    """``P(x)`` proportional to ``exp(-x^2 / (2 scale))`` (gaussian: the variance) or ``exp(-|x| /
    scale)`` (laplace).
    """

    kind: Literal["gaussian", "laplace"]
    scale: Fraction

    def reach(self, bits: int) -> int:
        """How far a table of so many bits goes: what lies beyond has less than ``2^-bits`` on either side."""
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
    ``before``, ``several`` ``(2^k,)``: of the stretch of words whose first k bits are the place, how many thresholds
    lie before it, and whether it holds more than one.
    """

    thresholds: Words64
    before: NDArray[np.int32]
    several: NDArray[np.bool_]

    @cached_property
    def shift(self) -> np.uint64:
        """Bits of a word behind those that name its stretch."""
        return np.uint64(_WORD + 1 - len(self.before).bit_length())

    def below(self, u: Words64) -> NDArray[np.int64]:
        """How many thresholds are below each word: a look-up and one comparison, a search where several are near."""
        stretch = (u >> self.shift).astype(np.intp)
        j = self.before[stretch].astype(np.int64)
        j += self.thresholds[j] < u
        rest = np.flatnonzero(self.several[stretch])
        j[rest] = np.searchsorted(self.thresholds, u[rest], side="left")
        return j


@lru_cache(maxsize=8)
def first_words(law: Law) -> FirstWords:
    """Of a law, with some four stretches a threshold."""
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
    # as far as the working precision sees, so that the tail beyond leaves no threshold open
    weights = list(_weights(law, precision, law.reach(precision)))
    _, last, ratio = weights[-1]
    # a geometric series is above the tail of either law
    tail = last * ratio // ((1 << precision) - ratio) + 1
    low_total = 2 * sum(low for low, _, _ in weights) - weights[0][0]
    high_total = 2 * (sum(high for _, high, _ in weights) + tail) - weights[0][1]
    found: list[int] = []
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
        found.append(2**bits - 1 - most)
    return found[::-1]


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


def draw(words: Words, size: int, law: Law) -> NDArray[np.int64]:
    """Draws ``(size,)`` of exactly the law."""
    first, out = first_words(law), np.empty(size, dtype=np.int64)
    for begin in range(0, size, _CHUNK):
        u = words.take(min(_CHUNK, size - begin))
        out[begin : begin + len(u)] = invert(law, first, u, words)
    return out


def invert(law: Law, first: FirstWords, u: Words64, words: Words) -> NDArray[np.int64]:
    """The draws that begin with ``u``; more bits are drawn only where 64 do not decide."""
    j = first.below(u)
    # the largest word is the last threshold
    tied = first.thresholds[j] == u
    x = j - law.reach(_WORD)
    for i in np.flatnonzero(tied | (u == 0)):
        x[i] = _settle(law, int(u[i]), words)
    return x


def _settle(law: Law, u: int, words: Words) -> int:
    bits = _WORD
    while True:
        u, bits = u << _WORD | words.one(), bits + _WORD
        found = make_table(law, bits).decide(u)
        if found is not None:
            return found
