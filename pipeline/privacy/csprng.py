"""Random 64-bit words of the operating system, and exact trials made of them: integers only, never a float.

A stream is SHAKE-256 keyed with 32 fresh bytes of the operating system (privacy.md §9).  Each draw call opens its own,
so that neither threads nor forked processes can share one.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from hashlib import shake_256
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

    Parameters
    ----------
    exponent
        ``floor(2^64 g)``, ``(n,)``.
    exact
        ``g`` itself at an index: asked for only when a word ties with the fixed point (about 2^-64 a trial).
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
