"""The trust models none, joint and local for batches of a simulated world, to compare with the shuffle model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.budget import epsilon_from_rho, rho_from_epsilon
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.batch_counts import BatchTables, Layout, PrivateBatch, noisy_tables, private_batch

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class NoNoise:
    """Exact sums."""

    standard_deviation: float = 0.0

    def bound(self, failure: float, counters: int = 1) -> float:
        """Zero."""
        return 0.0

    def add(self, sums: Integers, seeded: SeededNoise, tables: BatchTables) -> Array:
        """The sums themselves."""
        return sums.astype(np.float64)


@dataclass(frozen=True)
class GaussianNoise:
    """One discrete Gaussian of this variance a counter."""

    variance: int

    @property
    def standard_deviation(self) -> float:
        """Of one counter."""
        return math.sqrt(self.variance)

    def bound(self, failure: float, counters: int = 1) -> float:
        """A quantile of the normal law."""
        from scipy.stats import norm

        return float(norm.isf(failure / 2)) * self.standard_deviation * math.sqrt(counters)

    def add(self, sums: Integers, seeded: SeededNoise, tables: BatchTables) -> Array:
        """See :class:`~pipeline.statistics.batch_counts.CellNoise`."""
        drawn = seeded.gaussian(sums.size, self.variance, tables)
        return (sums + drawn.reshape(sums.shape)).astype(np.float64)


@dataclass(frozen=True)
class ExactBatch:
    """No privacy: the baseline."""

    def release(self, tables: BatchTables, layout: Layout, noise: SeededNoise) -> PrivateBatch:
        """See :class:`~pipeline.statistics.batch_counts.BatchPrivatizer`."""
        return private_batch(noisy_tables(tables, layout, NoNoise(), noise), layout, NoNoise(), 1.0)


@dataclass(frozen=True)
class GaussianBatch:
    """``(epsilon, delta)`` through rho-zCDP, replace-one: noise added once by a trusted curator, or by each user.

    The sum of the users' discrete Gaussians is drawn as one of their summed variance: exact up to a part in 10^9 at the
    variances in use.
    """

    epsilon: float
    delta: float
    trust: Literal["joint", "local"]
    failure: float = 0.01

    def variance(self, layout: Layout) -> int:
        """Of one draw: ``changes / (2 rho)`` rounded up."""
        return math.ceil(layout.changes / (2 * rho_from_epsilon(self.epsilon, self.delta)))

    def delivered(self, users: int, layout: Layout) -> float:
        """Epsilon at ``delta`` of the variance drawn."""
        return epsilon_from_rho(layout.changes / (2 * self.variance(layout)), self.delta)

    def release(self, tables: BatchTables, layout: Layout, noise: SeededNoise) -> PrivateBatch:
        """See :class:`~pipeline.statistics.batch_counts.BatchPrivatizer`."""
        draws = tables.users if self.trust == "local" else 1
        cell = GaussianNoise(draws * self.variance(layout))
        return private_batch(noisy_tables(tables, layout, cell, noise), layout, cell, self.failure)
