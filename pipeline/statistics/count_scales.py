"""Noise of online counts: from what was asked to integer variances, and back to what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from pipeline.privacy.noise import NoiseBlocks, NoiseSource, RealDataError, SimulatedWorld
from pipeline.statistics.mixture_calibration import Ask
from pipeline.statistics.online_counts import OnlineLayout


@dataclass(frozen=True)
class Scales:
    """Integer variance of each table's noise; 0 draws nothing."""

    variances: tuple[int, ...]

    def rho(self, layout: OnlineLayout, cost: int) -> Fraction | None:
        """Cost in zCDP of one user in a counter of this ``cost``, exactly; None without noise."""
        if 0 in self.variances:
            return None
        return cost * sum((Fraction(m, 2 * v) for m, v in zip(layout.moves, self.variances, strict=True)), Fraction(0))


def tight(layout: OnlineLayout, ask: Ask, cost: int) -> Scales:
    """One joint release over all steps, tables and nodes: equal shares a table, variances rounded up.

    Raises
    ------
    ValueError
        If another calibration is asked: no paper prints scales for these counts.
    """
    if ask.calibration != "tight":
        raise ValueError("no paper prints scales for these counts; use calibration 'tight'")
    if math.isinf(ask.epsilon):
        return silent(layout)
    share = ask.rho() / len(layout.sizes)
    return Scales(tuple(math.ceil(cost * m / (2 * share)) for m in layout.moves))


def silent(layout: OnlineLayout) -> Scales:
    """No noise: the baseline."""
    return Scales((0,) * len(layout.sizes))


def blocks_of(layout: OnlineLayout, scales: Scales, noise: NoiseSource, world: SimulatedWorld) -> NoiseBlocks:
    """Noise of one release."""
    if world.data_kind != "synthetic":
        raise RealDataError("online counts are of simulated worlds; this dataset is registered as real")
    return NoiseBlocks(layout.sizes, scales.variances, noise, world)
