"""What a night of a counter adds: the people who are new, each in one leaf, by whatever is summed of them.

A person's part depends on that person's rows alone, and on the hashes of what was counted of them before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import polars as pl

from pipeline.declaration.card import Card
from pipeline.logs.aggregate import count_rows, needed
from pipeline.logs.contribution_bounding import CapsAgain, Hashes, hash_frame, pick_new
from pipeline.logs.parts import Split
from pipeline.logs.store import CANONICAL, Snapshot
from pipeline.statistics.layout import Integers, Tables


class Leaf(Protocol):
    """What people add to the tables of a leaf."""

    @property
    def columns(self) -> Sequence[str]:
        """Canonical columns that are read."""
        ...

    def ready(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of those who may be counted; the others wait until a delivery makes them ready.

        Parameters
        ----------
        rows
            Canonical rows of whole people, sorted by person, episode and step.
        """
        ...

    def tables(self, rows: pl.DataFrame) -> Tables:
        """What they add up to, exactly.

        Parameters
        ----------
        rows
            As in :meth:`ready`; there may be none.
        """
        ...


@dataclass(frozen=True)
class CountLeaf:
    """See :class:`Leaf`: count tables; whoever has rows is counted.

    Parameters
    ----------
    card
        Declares the tables.
    """

    card: Card = field(repr=False)

    @property
    def columns(self) -> Sequence[str]:
        """See :class:`Leaf`."""
        return needed(self.card)

    def ready(self, rows: pl.DataFrame) -> pl.DataFrame:
        """See :class:`Leaf`."""
        return rows

    def tables(self, rows: pl.DataFrame) -> Tables:
        """See :class:`Leaf`."""
        return count_rows(rows, self.card)


def count_new(
    snapshots: Sequence[Snapshot], card: Card, seen: Hashes, key: bytes, leaf: Leaf, split: Split | None = None
) -> tuple[Mapping[str, Integers], Hashes]:
    """Count what is new in the snapshots, in their order, a partition in memory at a time.

    Parameters
    ----------
    snapshots
        Of one night, oldest first; a partition is in memory at a time.
    card
        Its ``unit.recurs`` says whether a person, or each episode, counts once over all nights.
    seen
        ``(n, hash_width)`` of all nights so far.
    key
        The operator's random key of these hashes.
    leaf
        Who is ready, and what they add.
    split
        Whoever evaluates is not counted, ever; None: everybody learns.

    Returns
    -------
    Tables of the leaf, and the hashes ``(k, hash_width)`` to add.
    """
    columns = list(leaf.columns)
    sums = leaf.tables(pl.DataFrame(schema={name: CANONICAL[name] for name in columns}))
    known = hash_frame(seen)
    fresh = known.clear()
    for part in (p for s in snapshots for p in s.part_files):
        rows = pl.read_parquet(part, columns=columns)
        CapsAgain(card, [len(rows)]).check(rows)
        rows = leaf.ready(rows if split is None else split.cut(rows)[0])
        new = pick_new(rows, card, pl.concat([known, fresh]), key)
        on = ["user_id"] if card.unit.recurs == "never" else ["user_id", "episode_id"]
        counted = leaf.tables(rows.join(new, on=on, how="semi", maintain_order="left"))
        sums = {name: table + counted[name] for name, table in sums.items()}
        fresh = pl.concat([fresh, new.select(fresh.columns)])
    return sums, fresh.to_numpy().astype(np.uint64)
