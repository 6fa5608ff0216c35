"""Attack on a nightly counter: two made-up people of the first night, through the code that draws a night's rows.

The claim covers the rows, and the ledger charges for them; what a night publishes is post-processing of those so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pipeline.audits.attack import Array, Attack, Side
from pipeline.audits.laws import Gaussian
from pipeline.audits.pooled import Pooled, Silence
from pipeline.audits.streams import WORLD
from pipeline.declaration.card import Card, CardError
from pipeline.logs.aggregate import count_person
from pipeline.privacy.factorisation import Factorisation, Row, draw_rows
from pipeline.privacy.noise import NoiseBlocks, NoiseSource
from pipeline.privacy.release import Mechanism, total_rho
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.private_sum import PrivateSum

Integers = NDArray[np.int64]
Draw = Callable[[Sequence[Row], Callable[[int], Integers | None], NoiseBlocks], Integers]


def night_attack(
    card: Card,
    shipped: Sequence[Mechanism],
    counter: Factorisation,
    *,
    draw: Draw = draw_rows,
    variances: Sequence[int] | None = None,
) -> Attack:
    """The worst of a family of pairs against all rows that hold the first night.

    Parameters
    ----------
    shipped
        Mechanisms of the counter's rows.
    draw, variances
        What really draws, and the variance of each table, where a test breaks them.

    Raises
    ------
    CardError
        If a table has no Gaussian noise.
    """
    rho, scales = total_rho(tuple(shipped)), [m.variance for m in shipped]
    if rho is None or None in scales:
        raise CardError(f"{card.name}: no Gaussian noise, no claim to attack")
    made_up = card.model_copy(update={"kind": "synthetic"})
    worst = PrivateSum(CountLayout(made_up), tuple(shipped)).worst_pair(partial(count_person, made_up))
    pair = [count_person(made_up, person) for person in worst]
    flat = [np.concatenate([person[m.table].ravel() for m in shipped]) for person in pair]
    where = flat[0] != flat[1]
    of_table = np.repeat(np.arange(len(shipped)), [m.cells for m in shipped])[where]
    claimed = np.array(scales, dtype=np.float64)[of_table]
    really = claimed if variances is None else np.array(variances, dtype=np.float64)[of_table]
    path = _Path(counter, (flat[0][where], flat[1][where]), really, draw)
    means = tuple([t[0] for t in path(side, Silence(), 1)] for side in (0, 1))
    return Attack(
        mechanism=f"nightly {counter.kind}, {counter.steps} nights, discrete gaussian, "
        + ", ".join(m.table for m in shipped),
        trust="central",
        path=path,
        means=(means[0], means[1]),
        law=Gaussian([np.broadcast_to(claimed, t.shape) for t in means[0]]),
        claimed_rho=rho,
    )


@dataclass(frozen=True)
class _Path:
    counter: Factorisation
    pair: tuple[Integers, Integers]
    variances: Array
    draw: Draw

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        source = noise if isinstance(noise, Silence | Pooled) else Pooled(noise)
        n = len(self.variances)
        blocks = NoiseBlocks((copies,) * n, tuple(int(v) for v in self.variances), source, WORLD)
        first = np.repeat(self.pair[side], copies)
        found: list[Array] = []
        for night in range(1, self.counter.steps + 1):
            due = self.counter.rows(night)
            holds = [row.first == 1 for row in due]
            # nights of which no row holds the first one tell nothing of it
            if any(holds):
                rows = self.draw(due, lambda t: first if t == 1 else None, blocks)
                found += [row.reshape(n, copies).T.astype(np.float64) for row in rows[holds]]
        return found
