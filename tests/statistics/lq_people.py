"""Plans and made-up people for the tests of LQ moments."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

from pipeline.statistics.ask import Ask
from pipeline.statistics.lq_layout import LqDomain, LqPlan
from pipeline.statistics.lq_rows import Episodes

ONE = Fraction(1)


def plan_of(n: int = 1, d: int = 1, horizon: int = 2, steps: int = 64, rho: Fraction | None = ONE, **domain) -> LqPlan:
    return LqPlan(LqDomain("tiny", domain.pop("kind", "synthetic"), n, d, horizon, 50, **domain), Ask(rho), steps)


def person(states, controls, length: int | None = None) -> Episodes:
    x, u = np.array(states, dtype=float), np.array(controls, dtype=float)
    return Episodes(x[None], u[None], np.array([len(u) if length is None else length]))


def everybody() -> list[Episodes]:
    """Inside, on and outside the balls, short and too long: two steps are read of up to three."""
    ends = [-1.0, 0.4, 1.0, 3.0], [-1.0, 1.0, 2.0]
    return [person([[0.0]] * 3, [[0.0]] * 2, 0)] + [
        person([[a], [b], [c], [5.0]], [[u], [v], [7.0]], length)
        for a, b, c in product(ends[0], repeat=3)
        for u, v in product(ends[1], repeat=2)
        for length in (1, 3)
    ]
