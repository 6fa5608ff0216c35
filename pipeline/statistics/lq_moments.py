"""Private moments of LQ episodes: rows cut to declared balls, truncated toward zero, summed exactly, released once.

The guarantee rests on the cut of :mod:`~pipeline.statistics.lq_rows` alone, never on the plant: without it there is
none (privacy.md §7).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.gram import exact_sums
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.lq_layout import LqPlan
from pipeline.statistics.lq_rows import Episodes, LqRows, SummedRows, Transitions, on_lattice
from pipeline.statistics.regression import LqMoments

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


def released_moments(plan: LqPlan, release: Release) -> LqMoments:
    """What a planner sees of a release that this plan priced: integer sums in units of the bounds.

    Parameters
    ----------
    plan
        That priced the release.
    release
        With tables ``gram`` and ``target``, lattice steps squared.

    Raises
    ------
    ValueError
        If the release rests on other terms.
    """
    if release.joint is None or dict(release.joint) != plan.joint():
        raise ValueError(f"{plan.domain.name}: the release was drawn on other terms than this plan's")
    unit = 1.0 / plan.steps**2
    sds = (0.0, 0.0)
    if plan.rho is not None:
        sds = math.sqrt(plan.variances[0] / 2) * unit, math.sqrt(plan.variances[1]) * unit
    gram, cross = (release.tables[name].astype(np.float64) * unit for name in ("gram", "target"))
    return LqMoments(gram, cross, *sds, plan.domain.bounds)


def draw_lq(plan: LqPlan, rows: LqRows | SummedRows, noise: NoiseSource, *, epsilon: float | None = None) -> Release:
    """Draw the one release; without a budget its tables are exact and marked so (simulation only).

    Parameters
    ----------
    plan
        What is declared, and the budget.
    rows
        What is summed; not read before everything else is in order.
    noise
        The operating system's where the data are real.
    epsilon
        The epsilon that will be stated, where a sampler's share of delta has to be listed; None: it is exact.

    Raises
    ------
    RealDataError
        If the data is real and the noise is not the operating system's, or there is none; before a row is read.
    ValueError
        If there are more episodes than declared, or they have other dimensions.
    """
    summed = plan.summed if epsilon is None else plan.summed.with_slack(noise, epsilon)
    summed.admit(noise, rows.data_kind)
    gram, cross = rows.sums() if isinstance(rows, SummedRows) else lq_sums(plan, rows)
    return summed.draw(
        ExactSums(plan.domain.name, rows.data_kind, plan.dynamics, {"gram": gram, "target": cross}), noise
    )


def lq_sums(plan: LqPlan, rows: LqRows) -> tuple[Integers, Integers]:
    """Exact ``sum z z'`` ``(n+d, n+d)`` and ``sum z x_next'`` ``(n+d, n)`` in lattice steps squared.

    Parameters
    ----------
    plan
        Declares bounds and lattice.
    rows
        Raw rows, read once.

    Raises
    ------
    ValueError
        If there are more episodes than declared, or they have other dimensions.
    """
    d, n, seen = plan.domain.dimension, plan.domain.state, 0
    gram, cross = np.zeros((d, d), dtype=np.int64), np.zeros((d, n), dtype=np.int64)
    for batch in rows.batches():
        sizes = (batch.states, batch.controls) if isinstance(batch, Episodes) else (batch.x, batch.u)
        # rows of a log are never counted: what they hold must not decide whether a release is made
        seen += len(batch.lengths) if isinstance(batch, Episodes) else 0
        if seen > plan.domain.episodes or tuple(v.shape[-1] for v in sizes) != (n, plan.domain.control):
            raise ValueError(f"{plan.domain.name}: more episodes than declared, or other dimensions")
        part = batch_sums(plan, batch)
        gram, cross = gram + part[0], cross + part[1]
    return gram, cross


def batch_sums(plan: LqPlan, batch: Episodes | Transitions) -> tuple[Integers, Integers]:
    """:func:`lq_sums` of one batch.

    Returns
    -------
    ``(n+d, n+d)`` and ``(n+d, n)``, lattice steps squared.
    """
    z, following = lattice_rows(plan, batch)
    gram, cross = exact_sums(plan.extent(), z, following.T)
    return gram, cross.T


def lattice_rows(plan: LqPlan, batch: Episodes | Transitions) -> tuple[Array, Array]:
    """Integers held as float64: z ``(rows, n+d)`` and next states ``(rows, n)``; zeros where no row is counted.

    Not a number, or longer than its ball after truncation: the row counts as absent.
    """
    raw, read = _rows_of(batch, plan.domain.horizon)
    with np.errstate(over="ignore"):
        units = [v / b for v, b in zip(raw, plan.domain.bounds, strict=True)]
    return on_lattice(units, read, (plan.steps,) * 3, (plan.steps**2,) * 3)


def _rows_of(batch: Episodes | Transitions, horizon: int) -> tuple[tuple[Array, Array, Array], NDArray[np.bool_]]:
    """x, u and next x, one row each, and which of them are read."""
    if isinstance(batch, Transitions):
        return (batch.x, batch.u, batch.following), np.ones(len(batch.x), dtype=bool)
    H = min(horizon, batch.controls.shape[1])  # noqa: N806
    read = (np.arange(H) < batch.lengths[:, None]).reshape(-1)
    each = batch.states[:, :H], batch.controls[:, :H], batch.states[:, 1 : H + 1]
    x, u, following = (v.reshape(len(read), v.shape[2]) for v in each)
    return (x, u, following), read
