"""The way from two people to the tables that are drawn of them, many copies at once, and the law that is claimed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.audits.attack import Array, AuditTarget, Side, silence
from pipeline.audits.laws import Gaussian, Laplace
from pipeline.audits.sampling import WORLD
from pipeline.declaration.card import CardError
from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import Integers, NoiseSource
from pipeline.privacy.release import total_epsilon
from pipeline.statistics.layout import ExactSums, Tables
from pipeline.statistics.private_sum import PrivateSum

# a made-up person, in the form that the layout's summing code takes
One = TypeVar("One")


def tables_target(
    words: str,
    shipped: PrivateSum,
    made_up: PrivateSum,
    sum_of: Callable[[One], Tables],
    rho: Fraction | None,
) -> AuditTarget:
    """The worst pair of people against a private sum of tables.

    Parameters
    ----------
    words
        Name of what is attacked.
    shipped, made_up
        What is claimed, and what draws, of people who do not exist.
    sum_of
        From a person to their exact tables, by the shipped code that sums.
    rho
        The claim.

    Raises
    ------
    CardError
        If there is no noise: there is nothing to claim.
    """
    mechanisms, time = shipped.mechanisms, shipped.time
    if rho is None or (time is not None and any(m.variance is None for m in mechanisms)):
        name = shipped.layout.dataset
        raise CardError(f"{name}: no{'' if time is None else ' Gaussian'} noise, no claim to attack")
    one, other = replace(shipped, layout=made_up.layout).worst_pair(sum_of)
    path = TablesPath(made_up, (sum_of(one), sum_of(other)))
    means, pure = silence(path), total_epsilon(mechanisms)
    law = Laplace(tuple(float(m.scale or 0) for m in mechanisms))
    if pure is None or time is not None:
        claimed = [m.standard_deviation**2 if time is None else float(m.variance or 0) for m in mechanisms]
        tables = zip(means[0], claimed * (len(means[0]) // len(claimed)), strict=True)
        law = Gaussian([np.full(table.shape, variance) for table, variance in tables])
        if mirrored := path.mirrored:
            law = Gaussian(
                [_once(v) if m.table in mirrored else v for m, v in zip(mechanisms, law.variances, strict=True)]
            )
    names = ", ".join(m.table for m in mechanisms)
    return AuditTarget(f"{words}, {names}", Trust.CENTRAL, path, means, law, rho, claimed_epsilon=pure)


def _once(variances: Array) -> Array:
    """Of a symmetric table ``(d, d)``, whose entries off the diagonal are drawn once, at half the variance."""
    found = np.triu(variances / 2, 1) + np.diag(np.diag(variances))
    found[np.tril_indices(len(found), -1)] = np.inf
    return found


@dataclass(frozen=True)
class BothPaths:
    """Two parts of a release, drawn one after the other."""

    first: TablesPath
    second: TablesPath

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        """See :class:`~pipeline.audits.attack.ReleasePath`."""
        return [*self.first(side, noise, copies), *self.second(side, noise, copies)]


@dataclass(frozen=True)
class TablesPath:
    """The private sum's own draw, on the entries in which two people differ, many copies at once."""

    drawn: PrivateSum
    pair: tuple[Tables, Tables]

    @property
    def mirrored(self) -> frozenset[str]:
        """Tables that are drawn as whole symmetric matrices."""
        return frozenset(t.name for t in self.drawn.layout.tables if t.symmetric)

    @cached_property
    def _where(self) -> list[NDArray[np.bool_]]:
        return [self.pair[0][m.table] != self.pair[1][m.table] for m in self.drawn.mechanisms]

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        """See :class:`~pipeline.audits.attack.ReleasePath`."""
        tables, wide = dict[str, Integers](), list(self.drawn.mechanisms)
        for i, (m, where) in enumerate(zip(self.drawn.mechanisms, self._where, strict=True)):
            entries = self.pair[side][m.table]
            entries = entries if m.table in self.mirrored else entries[where]
            tables[m.table] = np.broadcast_to(entries, (copies, *entries.shape)).astype(np.int64)
            copied = replace(m, shape=(copies, *entries.shape))
            # the plan's own share of delta, a draw: without it the sampler is refused here as it is in a run
            wide[i] = replace(copied, delta_slack=m.delta_slack * Fraction(copied.drawn, m.drawn))
        drawn = replace(self.drawn, mechanisms=tuple(wide))
        if self.drawn.time is not None:
            return self._rows(drawn, list(tables.values()), noise)
        release = drawn.draw(ExactSums(drawn.layout.dataset, "synthetic", drawn.layout.dynamics, tables), noise)
        return [release.tables[name].astype(np.float64) for name in tables]

    def _rows(self, drawn: PrivateSum, tables: list[Integers], noise: NoiseSource) -> list[Array]:
        first, ends = np.concatenate([t.ravel() for t in tables]), np.cumsum([t.size for t in tables])[:-1]
        found, time = list[Array](), drawn.time
        assert isinstance(time, Factorisation)
        for night in range(1, time.steps + 1):
            # rows that do not hold the first night tell nothing of it, but whether their noise is their own
            for row in drawn.draw_rows(time.rows(night), lambda t: first if t == 1 else None, noise, WORLD):
                parts = zip(np.split(row, ends), tables, strict=True)
                found += [part.reshape(table.shape).astype(np.float64) for part, table in parts]
        return found
