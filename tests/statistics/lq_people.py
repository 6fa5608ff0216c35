"""Plans and made-up people for the tests of LQ moments."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np

from pipeline.mdp.rollout import LqBatch
from pipeline.statistics.lq import LqSums, lq_sum
from pipeline.statistics.private_sum import PrivateSum

ONE = Fraction(1)


def layout_of(n: int = 1, d: int = 1, horizon: int = 2, steps: int = 64, **more) -> LqSums:
    return LqSums(n, d, horizon, steps=steps, **{"episodes": 50, "dataset": "tiny"} | more)


def plan_of(*sizes: int, rho: Fraction | None = ONE, **more) -> PrivateSum:
    return lq_sum(layout_of(*sizes, **more), rho)


def variances_of(summed: PrivateSum) -> tuple[int, ...]:
    return tuple(m.variance for m in summed.mechanisms)


def person(states, controls, length: int | None = None) -> LqBatch:
    x, u = np.array(states, dtype=float), np.array(controls, dtype=float)
    last = len(u) if length is None else length
    return LqBatch(x[None, : last + 1], u[None, :last], 1)


def everybody() -> list[LqBatch]:
    """Inside, on and outside the balls, short and too long: two steps are read of up to three."""
    ends = [-1.0, 0.4, 1.0, 3.0], [-1.0, 1.0, 2.0]
    return [person([[0.0]] * 3, [[0.0]] * 2, 0)] + [
        person([[a], [b], [c], [5.0]], [[u], [v], [7.0]], length)
        for a, b, c in product(ends[0], repeat=3)
        for u, v in product(ends[1], repeat=2)
        for length in (1, 3)
    ]


def opposed(angle: float, horizon: int, gamma: float = 1.0) -> list[LqBatch]:
    """One stands still, the other flips its sign every step: the worst pair that real episodes can form."""
    sign = (-1.0) ** np.arange(horizon + 1)[:, None]
    still = person(np.ones((horizon + 1, 1)), np.tile([gamma, 0.0], (horizon, 1)))
    return [still, person(sign, gamma * sign[:-1] * [np.cos(angle), np.sin(angle)])]


RIGHT = LqSums.rows


def unclipped(layout: LqSums, batch: LqBatch) -> tuple[np.ndarray, np.ndarray]:
    """A broken twin of ``rows``: nothing is cut."""
    H, q = min(layout.horizon, batch.controls.shape[1]), layout.steps
    parts = [np.trunc(v * q) for v in (batch.states[:, :H], batch.controls[:, :H], batch.states[:, 1 : H + 1])]
    x, u, y = (v.reshape(-1, v.shape[-1]) for v in parts)
    return np.hstack([x, u]), y


def any_length(layout: LqSums, batch: LqBatch) -> tuple[np.ndarray, np.ndarray]:
    """A broken twin: episodes are read to their end."""
    return RIGHT(replace(layout, horizon=99), batch)


def in_a_box(layout: LqSums, batch: LqBatch) -> tuple[np.ndarray, np.ndarray]:
    """A broken twin: each number is cut alone."""
    box = replace(batch, states=np.clip(batch.states, -1, 1), controls=np.clip(batch.controls, -1, 1))
    return unclipped(layout, box)


CORNERS = [person([[a, b]] * 3, [[1.0]] * 2) for a, b in product((-1.0, 1.0), repeat=2)]
