"""Discrete Gaussian draws by table inversion: one 64-bit word a draw, 192-bit thresholds where it ties (privacy.md §8).

The table leaves out what lies beyond 13.5 standard deviations, so the law is not exact: it is within total variation
``TV_BOUND`` of the discrete Gaussian.  That turns a pure guarantee into an approximate one; never use it for pure DP.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.csprng import Words, Words64

# largest variance a table is made for: above it the table costs more to build than it saves
LARGEST_VARIANCE = 20_000**2
# tail 2 exp(-13.5^2 / 2) < 0.73 * 2^-130; 192-bit floors and the recurrence stay below 2^-170 (tested by enumeration)
TV_BOUND = Fraction(1, 2**130)

_THRESHOLD, _WEIGHT, _CHUNK = 192, 320, 2**15


@dataclass(frozen=True)
class Table:
    """``thresholds[j] = floor(2^192 P(X <= j - reach))`` and their first 64 bits; the last, 2^192, is left out."""

    reach: int
    thresholds: tuple[int, ...] = field(repr=False)
    first: Words64 = field(repr=False)


@lru_cache(maxsize=8)
def gaussian_table(variance: Fraction) -> Table:
    """Thresholds of the discrete Gaussian of rational ``variance``, at most ``LARGEST_VARIANCE``.

    Raises
    ------
    ValueError
        If ``variance`` is not in (0, ``LARGEST_VARIANCE``].
    """
    if not 0 < variance <= LARGEST_VARIANCE:
        raise ValueError(f"a table needs a variance in (0, {LARGEST_VARIANCE}]; got {variance}")
    a, b = variance.numerator, variance.denominator
    # ceil(13.5 sd) + 1, with 13.5^2 = 729 / 4
    reach = isqrt(-(-729 * a // (4 * b))) + 2
    weights = _weights(a, b, reach)
    rising = list(accumulate(weights[:0:-1] + weights))
    thresholds = tuple((c << _THRESHOLD) // rising[-1] for c in rising[:-1])
    return Table(reach, thresholds, np.array([t >> (_THRESHOLD - 64) for t in thresholds], dtype=np.uint64))


def _weights(a: int, b: int, reach: int) -> list[int]:
    """``2^320 exp(-k^2 b / 2a)`` for k = 0..reach by w_{k+1} = w_k r_k, r_{k+1} = r_k q^2; each product floored."""
    digits = Context(prec=120)
    q = digits.exp(digits.divide(Decimal(-b), Decimal(2 * a)))
    r = int(digits.multiply(q, Decimal(1 << _WEIGHT)))
    squared = r * r >> _WEIGHT
    weights = [1 << _WEIGHT]
    for _ in range(reach):
        weights.append(weights[-1] * r >> _WEIGHT)
        r = r * squared >> _WEIGHT
    return weights


def gaussian_by_table(words: Words, size: int, variance: Fraction) -> NDArray[np.int64]:
    """Discrete Gaussian draws ``(size,)`` within ``TV_BOUND`` of the exact law, each."""
    table = gaussian_table(variance)
    out = np.empty(size, dtype=np.int64)
    for begin in range(0, size, _CHUNK):
        u = words.take(min(_CHUNK, size - begin))
        out[begin : begin + len(u)] = invert(table, u, words)
    return out


def invert(table: Table, u: Words64, words: Words) -> NDArray[np.int64]:
    """The draw of each 192-bit number that begins with ``u``; 128 more bits are drawn only where 64 do not decide."""
    j = np.searchsorted(table.first, u, side="left").astype(np.int64)
    ties = np.flatnonzero(table.first[np.minimum(j, len(table.first) - 1)] == u)
    for i in ties:
        whole = int(u[i]) << 128 | words.one() << 64 | words.one()
        j[i] = bisect_right(table.thresholds, whole)
    return j - table.reach
