"""Rows of people who do not exist, through the door that counts real ones: for audits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.logs.aggregate import count_rows

# rows (state, action, reward, next state) of every step of every episode of one person
Person = Sequence[Sequence[tuple[int, int, float, int]]]
_INTEGERS = ("step", "state", "action", "next_state")


def counted(card: Card, person: Person) -> Mapping[str, NDArray[np.int64]]:
    """What the person adds to every table; see :func:`~pipeline.logs.aggregate.count_rows`."""
    flat = [
        {"user_id": 0, "episode_id": e, "step": h, "state": s, "action": a, "reward": float(r), "next_state": s2}
        for e, episode in enumerate(person)
        for h, (s, a, r, s2) in enumerate(episode)
    ]
    over = (pl.col("next_state") >= len(card.domain.live_states)).alias("terminated")
    return count_rows(pl.DataFrame(flat).with_columns(pl.col(*_INTEGERS).cast(pl.Int32), over), card)
