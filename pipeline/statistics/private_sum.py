"""A private sum, a noisy sum over people, is one value: *layout × trust × time*.

==========  ===================================================================================================
part        defines
==========  ===================================================================================================
layout      the tables of integers, their sensitivity to one person (each alone, and jointly), and the extreme people
            whom an audit compares
trust       who adds the noise, and to what: a curator to the sums, or every person to their own message
time        released once, or again and again as a running sum (:mod:`pipeline.privacy.continual`)
==========  ===================================================================================================

:class:`PrivateSum` puts the three together.  It knows its cost, adds its noise, lists its
mechanisms for the certificate, and names the two people who are easiest to distinguish.  Noise is added to the sums of
a log only here, so the conditions of every release (source of noise, kind of data, the sampler's share of delta) are
checked here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.privacy import release
from pipeline.privacy.budget import rho_of_pure
from pipeline.privacy.continual import NoiseBlocks, Row, Time, draw_rows
from pipeline.privacy.losses import GaussianGuarantee, Trust
from pipeline.privacy.noise import DataHandle, NoiseSource, RealDataError, admit_release, symmetric_noise
from pipeline.statistics.layout import ExactSums, Layout, Tables

Person = TypeVar("Person")


@dataclass(frozen=True)
class PrivateSum:
    """Sums over people, seen through noise.

    ``time``: when sums are released; None: once.
    """

    layout: Layout
    mechanisms: tuple[release.Mechanism, ...]
    time: Time | None = None
    trust: Trust = Trust.CENTRAL

    @property
    def exact(self) -> bool:
        """True where no table has noise: a baseline, simulation only."""
        return all(m.variance is None and m.scale is None for m in self.mechanisms)

    @property
    def rates(self) -> dict[str, Fraction]:
        """Table -> zCDP cost of moving it by length 1, for every table of Gaussian noise."""
        return {m.table: Fraction(1, 2 * m.variance) for m in self.mechanisms if m.variance}

    @property
    def rho(self) -> Fraction | None:
        """Exact zCDP cost of all that is ever released, tables bounded together; None where a table has no noise."""
        if any(m.variance is None for m in self.mechanisms):
            return release.total_rho(self.mechanisms)
        return self.layout.cost(self.rates) * (1 if self.time is None else self.time.cost)

    @property
    def joining_cost(self) -> Fraction | None:
        """Exact zCDP cost to an added or removed person: the cost to a person who is in one of two disjoint lineages.

        At most the cost of replacing one, which may be by an absent person; None where a table has no noise.
        """
        scales = {m.table: m.scale for m in self.mechanisms if m.scale}
        if len(scales) + len(self.rates) < len(self.mechanisms):
            return None
        pure = sum((t.add_remove.l1 / scales[t.name] for t in self.layout.tables if t.name in scales), Fraction(0))
        gaussian = self.layout.cost(self.rates, "add_remove") * (1 if self.time is None else self.time.cost)
        return rho_of_pure(pure) + gaussian

    @property
    def guarantee(self) -> GaussianGuarantee:
        """Guarantee of the noise to one user, under *replace one*."""
        return GaussianGuarantee(self.trust, self.rho)

    def at(self, t: int) -> tuple[release.Mechanism, ...]:
        """The mechanisms with the noise of the ``t``-th running sum, ``t`` from 1; unchanged for a one-off release."""
        if self.time is None:
            return self.mechanisms
        error = self.time.error(t)
        return tuple(
            m if m.running is None else replace(m, running=replace(m.running, error=error)) for m in self.mechanisms
        )

    def with_slack(self, noise: NoiseSource, epsilon: float) -> PrivateSum:
        """The same with the sampler's share of delta listed; see
        :func:`~pipeline.privacy.release.with_sampler_slack`.
        """
        return replace(self, mechanisms=release.with_sampler_slack(self.mechanisms, noise, epsilon, self._symmetric))

    def admit(self, noise: NoiseSource, data_kind: str | None = None) -> None:
        """Refuse, before any row is read, a draw that would not be private on real data (privacy.md §0.1-2).

        ``data_kind``: kind recorded with the data; None: not known yet.
        Raises RealDataError if the data are real and the noise is not the operating system's, a table has none, the
        trust model is not central; or if the data are of another kind than declared.
        Raises ValueError if the sampler's share of delta is not listed.
        """
        layout, without_noise = self.layout, any(m.variance is None and m.scale is None for m in self.mechanisms)
        admit_release(noise, layout.dataset, layout.data_kind, without_noise)
        if layout.data_kind == "real" and self.trust != Trust.CENTRAL:
            raise RealDataError(f"{layout.dataset} is registered as real: whoever holds a log is a central curator")
        if data_kind is not None and data_kind != layout.data_kind:
            noise.admit(data_kind)
            raise RealDataError(
                f"{layout.dataset}: the data say {data_kind!r}, declared is {layout.data_kind!r}; nothing was drawn"
            )
        # every draw passes here first, so a sampler's share is always counted
        release.check_slack(self.mechanisms, noise, self._symmetric)

    def perturb(self, sums: Tables, noise: NoiseSource, data: DataHandle) -> dict[str, Integers]:
        """Noisy tables, each with noise of its own drawn once, in the order of the mechanisms.

        Raises RealDataError see :meth:`admit`.
        Raises ValueError as well, if the mechanisms are those of a counter's rows, or a table has another shape.
        """
        self.admit(noise, data.data_kind)
        if any(m.running is not None for m in self.mechanisms):
            raise ValueError("these are scales of a counter's rows: its nights are drawn one by one, never at once")
        tables: dict[str, Integers] = {}
        for m in self.mechanisms:
            if sums[m.table].shape != m.shape:
                raise ValueError(f"table {m.table} must be {m.shape}; got {sums[m.table].shape}")
            tables[m.table] = sums[m.table] + _noise(m, m.table in self._symmetric, noise, data)
        return tables

    def draw(self, sums: ExactSums, noise: NoiseSource) -> release.Release:
        """Add noise to every table; never-visited cells get noise like all others.

        Raises RealDataError, ValueError see :meth:`perturb`.
        """
        tables, joint = self.perturb(sums.tables, noise, sums), self.layout.joint()
        what = "counts" if joint is None else "sums"
        return release.Release(
            dataset=sums.dataset,
            data_kind=sums.data_kind,
            dynamics=sums.dynamics,
            mechanisms=self.mechanisms,
            tables=tables,
            noise="none" if self.exact else noise.name,
            sampler=f"none: exact {what}, simulation, not private" if self.exact else noise.sampler,
            trust_model=self.trust.value,
            joint_rho=None if joint is None else self.rho,
            joint=joint,
        )

    def draw_rows(
        self, rows: Sequence[Row], leaf: Callable[[int], Integers | None], noise: NoiseSource, data: DataHandle
    ) -> Integers:
        """Rows of a counter as they are released: each with noise of its own, drawn here and once.

        ``leaf``: from the number of a step, counted from 1, to its exact tables, flat and one after the other ``(n,)``,
        or None.
        Returns ``(len(rows), n)``.
        Raises RealDataError, ValueError see :meth:`admit`.
        """
        self.admit(noise, data.data_kind)
        sizes, variances = tuple(m.cells for m in self.mechanisms), tuple(m.variance or 0 for m in self.mechanisms)
        return draw_rows(rows, leaf, NoiseBlocks(sizes, variances, noise, data))

    def worst_pair(self, sum_of: Callable[[Person], Tables]) -> tuple[Person, Person]:
        """The two extreme people of the layout whom this noise hides least; an audit attacks this pair.

        ``sum_of``: from a person of the layout's ``extremes`` to that person's exact tables, by the shipped code that
        sums.
        """
        people: list[Person] = list(self.layout.extremes())
        points = np.array([self._whiten(sum_of(person)) for person in people])
        pure, worst, pair = release.total_epsilon(self.mechanisms) is not None, -1.0, (0, 0)
        for i in range(len(points) - 1):
            moves = np.abs(points[i + 1 :] - points[i])
            losses = moves.sum(1) if pure else (moves**2).sum(1)
            if (most := float(losses.max())) > worst:
                worst, pair = most, (i, i + 1 + int(losses.argmax()))
        return people[pair[0]], people[pair[1]]

    def farthest(self, sum_of: Callable[[Person], Tables], people: Iterable[Person]) -> Tables:
        """Tables of the person whom noise hides least when added or removed; ``sum_of`` as in :meth:`worst_pair`."""
        return max(map(sum_of, people), key=lambda tables: float((self._whiten(tables) ** 2).sum()))

    @cached_property
    def _symmetric(self) -> frozenset[str]:
        return frozenset(t.name for t in self.layout.tables if t.symmetric)

    def _whiten(self, sums: Tables) -> Array:
        """All entries in units of their noise: a mirrored pair, drawn once at half the variance, counts as two."""
        units = (math.sqrt(2 * m.variance) if m.variance else float(m.scale or 1) for m in self.mechanisms)
        return np.concatenate([sums[m.table].ravel() / u for m, u in zip(self.mechanisms, units, strict=True)])


def joining_facts(data_kind: str, costs: Iterable[Fraction | None]) -> dict[str, str]:
    """Field of an INTENT of real people: the cost to an added or removed person.

    ``costs``: of all draws, under *add or remove one*; None of one without noise.
    """
    listed = list(costs)
    if data_kind != "real" or None in listed:
        return {}
    return {"rho_add_remove": str(sum((c for c in listed if c is not None), Fraction(0)))}


def _noise(m: release.Mechanism, symmetric: bool, noise: NoiseSource, data: DataHandle) -> Integers:
    """Noise of one table, of its shape."""
    if m.variance is not None and symmetric:
        each = [symmetric_noise(noise, 1, m.shape[-1], m.variance, data) for _ in range(math.prod(m.shape[:-2]))]
        return np.concatenate(each).reshape(m.shape)
    drawn = np.zeros(m.cells, dtype=np.int64)
    if m.variance is not None:
        drawn = noise.gaussian(m.cells, m.variance, data)
    elif m.scale is not None:
        drawn = noise.laplace(m.cells, m.scale, data)
    return drawn.reshape(m.shape)
