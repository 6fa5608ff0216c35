"""Biased coins of the operating system: what a user's device flips in the shuffle model, exactly and without a float.

A coin's chance is ``chance / 2^64``: a uniform 64-bit word falls below ``chance`` with just that probability.
``SeededNoise`` flips them too, for simulations only.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.csprng import Words
from pipeline.privacy.noise import DataHandle

Bits = NDArray[np.bool_]

# chances are integers out of this many
WHOLE = 2**64
FAIR = WHOLE // 2


class Coins(Protocol):
    """Flips of one user's device.  ``data`` is a handle of what they will hide."""

    @property
    def name(self) -> str:
        """``os`` or ``seeded``."""
        ...

    def flips(self, size: int, chance: int, data: DataHandle) -> Bits:
        """Independent flips ``(size,)``, each true with probability ``chance / 2^64``."""
        ...

    def rounded(self, value: NDArray[np.float64], data: DataHandle) -> Bits:
        """One bit ``(n,)`` for each ``value (n,)`` in [0, 1], true with that probability."""
        ...


class OsCoins:
    """Operating-system randomness; takes no seed and no argument.  For a deployment."""

    name = "os"

    def flips(self, size: int, chance: int, data: DataHandle) -> Bits:
        """See :class:`Coins`."""
        checked_chance(chance)
        # a certain coin: no 64-bit threshold says "every word"
        return Words().take(size) < np.uint64(chance) if chance < WHOLE else np.ones(size, dtype=np.bool_)

    def rounded(self, value: NDArray[np.float64], data: DataHandle) -> Bits:
        """See :class:`Coins`; exact for multiples of 2^-53, within 2^-53 for smaller floats."""
        return (Words().take(len(value)) >> np.uint64(11)).astype(np.float64) < value * 2.0**53


def checked_chance(chance: int) -> None:
    """Refuse what is no probability."""
    if not 0 <= chance <= WHOLE:
        raise ValueError(f"a chance must be between 0 and 2^64; got {chance}")
