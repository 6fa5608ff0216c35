"""Private moments of LQ episodes: rows cut to declared balls, truncated toward zero, summed exactly, released once.

A row (x, u, x_next) that is too long in x or u is shortened *as a whole*, so that x_next = A x + B u + w still holds on
what is left; then x_next alone is projected onto its ball.  Where the declared bounds hold, nothing is changed.  The
guarantee rests on the cut alone, never on the plant: without it there is none (privacy.md §7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.gram import exact_sums
from pipeline.statistics.interactive import symmetric_noise
from pipeline.statistics.lq_plan import LqMoments, LqPlan, moments_of

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Episodes:
    """Raw episodes behind the privacy wall; ``T`` is the longest.

    Parameters
    ----------
    states
        ``(E, T+1, n)``: the state after the last control is needed.
    controls
        ``(E, T, d)``.
    lengths
        ``(E,)`` transitions of each episode; what lies behind them is never read.

    Raises
    ------
    ValueError
        If shapes disagree.
    """

    states: Array
    controls: Array
    lengths: Integers

    def __post_init__(self) -> None:
        E, T, _ = self.controls.shape  # noqa: N806
        if self.states.shape[:2] != (E, T + 1) or self.lengths.shape != (E,):
            raise ValueError(
                f"episodes need states (E, T+1, n), controls (E, T, d), lengths (E,); got {self.states.shape}, "
                f"{self.controls.shape}, {self.lengths.shape}"
            )


@dataclass(frozen=True)
class Transitions:
    """Raw rows behind the privacy wall, each of its own: ``x (R, n)``, ``u (R, d)`` and where they led.

    At most H rows an episode and m episodes a person: whoever makes them has to see to that.
    """

    x: Array
    u: Array
    following: Array


class LqRows(Protocol):
    """Raw rows that pass by once, a batch at a time; contributions are already capped at m a person."""

    @property
    def data_kind(self) -> str:
        """Registered kind of the data: real | synthetic."""
        ...

    def batches(self) -> Iterator[Episodes | Transitions]:
        """Every row in exactly one batch."""
        ...


@dataclass(frozen=True)
class SimulatedRows:
    """Episodes made up in this process: there is no way to say ``real`` with them."""

    episodes: tuple[Episodes, ...]

    @property
    def data_kind(self) -> str:
        """Always ``synthetic``."""
        return "synthetic"

    def batches(self) -> Iterator[Episodes]:
        """See :class:`LqRows`."""
        return iter(self.episodes)


@dataclass(frozen=True)
class SummedRows:
    """Rows that were summed where they lie; ``sums`` is called once, when nothing stands against reading them."""

    data_kind: str
    sums: Callable[[], tuple[Integers, Integers]]


def release_lq_moments(plan: LqPlan, rows: LqRows, noise: NoiseSource) -> LqMoments:
    """Draw the one release, or the exact sums where the plan has no budget (simulation only).

    Raises
    ------
    RealDataError
        If the data is real and the noise is not the operating system's, or there is none; before a row is read.
    ValueError
        If there are more episodes than declared, or they have other dimensions.
    """
    release = drawn_lq(plan, rows, noise)
    seen = moments_of(plan, release.tables["gram"], release.tables["target"], release)
    # what nothing protects is no release to whoever asks for one
    return seen if plan.ask.rho is not None else replace(seen, release=None)


def drawn_lq(plan: LqPlan, rows: LqRows | SummedRows, noise: NoiseSource) -> Release:
    """The release itself; without a budget its tables are exact and marked so (simulation only).

    Raises
    ------
    RealDataError, ValueError
        As of :func:`release_lq_moments`.
    """
    domain, exact = plan.domain, plan.ask.rho is None
    noise.admit(domain.kind)
    if domain.kind != rows.data_kind or (domain.kind == "real" and exact):
        raise RealDataError(f"{domain.name}: rows are {rows.data_kind}, the plan {domain.kind}; nothing was released")
    gram, cross = rows.sums() if isinstance(rows, SummedRows) else lq_sums(plan, rows)
    if not exact:
        of_gram, of_cross = plan.variances
        gram = gram + symmetric_noise(noise, domain.dimension, of_gram, rows)
        cross = cross + noise.gaussian(cross.size, of_cross, rows).reshape(cross.shape)
    return Release(
        dataset=domain.name,
        data_kind=domain.kind,
        dynamics="linear_quadratic",
        mechanisms=lq_mechanisms(plan),
        tables={"gram": gram, "target": cross},
        noise="none" if exact else noise.name,
        sampler="none: exact sums, simulation, not private" if exact else noise.sampler,
        joint_rho=plan.joint_rho,
        joint=plan.joint(),
    )


def lq_mechanisms(plan: LqPlan) -> tuple[Mechanism, ...]:
    """The two tables of a plan, without noise where it has no budget; reads no row."""
    d, n, rule = plan.domain.dimension, plan.domain.state, "{}; both tables together cost less than their sum"
    described = (
        ("gram", (d, d), plan.gram_l2_squared, "svec: half the variance off the diagonal"),
        ("target", (d, n), plan.cross_l2_squared, "rows cut to their balls"),
    )
    variances = (None, None) if plan.ask.rho is None else plan.variances
    return tuple(
        Mechanism(
            name,
            shape,
            "lattice steps squared",
            square,
            math.isqrt(square * shape[0] * shape[1]) + 1,
            rule.format(why),
            variance=variance,
        )
        for (name, shape, square, why), variance in zip(described, variances, strict=True)
    )


def lq_sums(plan: LqPlan, rows: LqRows) -> tuple[Integers, Integers]:
    """Exact ``sum z z'`` ``(n+d, n+d)`` and ``sum z x_next'`` ``(n+d, n)`` in lattice steps squared."""
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
    """:func:`lq_sums` of one batch."""
    z, following = lattice_rows(plan, batch)
    gram, cross = exact_sums(plan.extent(), z, following.T)
    return gram, cross.T


def lattice_rows(plan: LqPlan, batch: Episodes | Transitions) -> tuple[Array, Array]:
    """Integers held as float64: z ``(rows, n+d)`` and next states ``(rows, n)``; zeros where no row is counted.

    Not a number, or longer than its ball after truncation: the row counts as absent.
    """
    raw, read = _rows_of(batch, plan.domain.horizon)
    # a number near the largest float may overflow on its way; its row does not count
    with np.errstate(over="ignore", invalid="ignore"):
        units = [v / b for v, b in zip(raw, plan.domain.bounds, strict=True)]
        read = np.logical_and.reduce([read, *(np.isfinite(v).all(1) for v in units)])
        x, u, following = cut(*(np.where(read[:, None], v, 0.0) for v in units))
        whole = [np.trunc(v * plan.ask.steps) for v in (x, u, following)]
        within = np.logical_and.reduce([(v * v).sum(1) <= plan.ask.steps**2 for v in whole])[:, None]
    x, u, following = (np.where(within, v, 0.0) for v in whole)
    return np.hstack([x, u]), following


def _rows_of(batch: Episodes | Transitions, horizon: int) -> tuple[tuple[Array, Array, Array], NDArray[np.bool_]]:
    """x, u and next x, one row each, and which of them are read."""
    if isinstance(batch, Transitions):
        return (batch.x, batch.u, batch.following), np.ones(len(batch.x), dtype=bool)
    H = min(horizon, batch.controls.shape[1])  # noqa: N806
    read = (np.arange(H) < batch.lengths[:, None]).reshape(-1)
    each = batch.states[:, :H], batch.controls[:, :H], batch.states[:, 1 : H + 1]
    x, u, following = (v.reshape(len(read), v.shape[2]) for v in each)
    return (x, u, following), read


def cut(x: Array, u: Array, following: Array) -> tuple[Array, Array, Array]:
    """Rows whose vectors, in units of their bounds, are at most 1 long."""
    factor = np.minimum(shortening(x), shortening(u))
    following = following * factor
    return x * factor, u * factor, following * shortening(following)


def shortening(v: Array) -> Array:
    """``(rows, 1)``: the factor that brings a vector onto the unit ball, 1 inside it."""
    return 1.0 / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1.0)
