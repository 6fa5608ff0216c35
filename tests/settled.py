"""Runs whose chance is settled: noise by a seed, and one secret by which people are split, whatever their data's kind.

Of a difference that is planted and well above the noise a verdict still misses once in hundreds of runs, which is no
fault.  For tests of what is said of it; that noise is fresh, and of the listed law, is tested elsewhere.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from pipeline.arrays import Integers
from pipeline.ledger.ledger import Ledger
from pipeline.privacy.noise import OsNoise


def settle(patch: pytest.MonkeyPatch, seed: int = 0) -> None:
    """Settle the runs of this process for as long as ``patch`` lasts."""
    rng = np.random.default_rng(seed)

    def gaussian(self: OsNoise, size: int, variance: int, data: Any) -> Integers:
        return np.rint(rng.normal(0, math.sqrt(variance), size)).astype(np.int64)

    def laplace(self: OsNoise, size: int, scale: Fraction, data: Any) -> Integers:
        return np.rint(rng.laplace(0, float(scale), size)).astype(np.int64)

    patch.setattr(OsNoise, "gaussian", gaussian)
    patch.setattr(OsNoise, "laplace", laplace)
    patch.setattr(Ledger, "people_key", lambda ledger, store: bytes(32))
