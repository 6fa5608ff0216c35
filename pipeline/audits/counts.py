"""Attack on released count tables: two made-up people, through the code that counts and the code that adds noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.audits.attack import Array, Attack, Side
from pipeline.audits.laws import Gaussian, Laplace
from pipeline.audits.pooled import Silence
from pipeline.declaration.card import Card, CardError
from pipeline.logs.aggregate import count_person
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Mechanism, total_epsilon, total_rho
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.private_sum import PrivateSum

Integers = NDArray[np.int64]
Tables = Mapping[str, Integers]


def counts_attack(card: Card, shipped: PrivateSum, drawn: PrivateSum | None = None) -> Attack:
    """The worst of a family of pairs against ``shipped``; ``drawn`` is what really draws, where a test breaks it.

    The people of the family stay in one kind of row, or spread over as many cells as a cell cap makes them.

    Raises
    ------
    CardError
        If a table has no noise: there is nothing to claim.
    """
    rho = total_rho(shipped.mechanisms)
    if rho is None:
        raise CardError(f"{card.name}: no noise, no claim to attack")
    made_up = card.model_copy(update={"kind": "synthetic"})
    one, other = PrivateSum(CountLayout(made_up), shipped.mechanisms).worst_pair(partial(count_person, made_up))
    pair = count_person(made_up, one), count_person(made_up, other)
    path = _Path(made_up, pair, (drawn or shipped).mechanisms)
    pure = total_epsilon(shipped.mechanisms)
    law = Laplace(tuple(float(m.scale or 0) for m in shipped.mechanisms))
    if pure is None:
        sizes = zip(path.sizes, shipped.mechanisms, strict=True)
        law = Gaussian([np.full(n, m.standard_deviation**2) for n, m in sizes])
    name = " and ".join(dict.fromkeys(m.name for m in shipped.mechanisms))
    return Attack(
        mechanism=f"counts, {name}, {', '.join(m.table for m in shipped.mechanisms)}",
        trust="central",
        path=path,
        means=([t[0] for t in path(0, Silence(), 1)], [t[0] for t in path(1, Silence(), 1)]),
        law=law,
        claimed_rho=rho,
        claimed_epsilon=pure,
    )


@dataclass(frozen=True)
class _Path:
    """The privatizer's own draw, on the entries in which the two people differ, many copies at once."""

    card: Card
    pair: tuple[Tables, Tables]
    mechanisms: tuple[Mechanism, ...]

    @property
    def sizes(self) -> list[int]:
        """Entries of each table that differ."""
        return [int(where.sum()) for where in self._where()]

    def _where(self) -> list[NDArray[np.bool_]]:
        return [self.pair[0][m.table] != self.pair[1][m.table] for m in self.mechanisms]

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        tables, mechanisms = dict[str, Integers](), list[Mechanism]()
        for m, where in zip(self.mechanisms, self._where(), strict=True):
            entries = self.pair[side][m.table][where]
            tables[m.table] = np.broadcast_to(entries, (copies, len(entries))).astype(np.int64)
            share = m.delta_slack * copies * len(entries) / m.cells
            mechanisms.append(replace(m, shape=(copies, len(entries)), delta_slack=share))
        counts = ExactSums(self.card.name, "synthetic", self.card.domain.dynamics, tables)
        release = PrivateSum(CountLayout(self.card), tuple(mechanisms)).draw(counts, noise)
        return [release.tables[m.table].astype(np.float64) for m in mechanisms]
