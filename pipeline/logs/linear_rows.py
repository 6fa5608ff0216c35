"""Observation columns of a log, out of core: Parquet parts -> batches of integer features, a step at a time.

No n x d matrix is ever in memory: each call of the desk reads the parts anew, keeps the rows of its step and of its
half, lifts, clips and quantises them, and forgets them.  Columns: ``user_id``, ``step``, ``observation``, ``action``,
``reward``, ``next_observation``, ``terminated`` (design §5.2); users are whole in one part and their rows adjacent,
as ``ingest`` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.logs.keyed_hash import keyed_hash
from pipeline.mdp.features import ObservationMap
from pipeline.statistics.rows import Batch, Side

Array = NDArray[np.float64]

pc: Any = pyarrow.compute
_COLUMNS = ["user_id", "step", "observation", "action", "reward", "next_observation", "terminated"]


@dataclass(frozen=True)
class ParquetBatches:
    """Callable for :class:`~pipeline.statistics.rows.StreamRows`.

    Parameters
    ----------
    salt
        Public; a user is in D' if the hash of the id under it is odd.
    episodes
        Declared cap: further rows of one user at one step are dropped, because the guarantee rests on it.
    """

    parts: tuple[Path, ...]
    features: ObservationMap
    salt: str
    episodes: int = 1
    size: int = 16_384

    def __call__(self, h: int, side: Side) -> Iterator[Batch]:
        """Rows of step ``h`` of one side; an unknown successor that is no end counts in no sum."""
        for part in self.parts:
            last, seen = None, 0
            with pq.ParquetFile(part) as file:
                for records in file.iter_batches(self.size, columns=_COLUMNS):
                    table = records.filter(pc.equal(records["step"], h))
                    if not len(table):
                        continue
                    users = table["user_id"].to_numpy(zero_copy_only=False)
                    rank = _rank(users, last, seen)
                    last, seen = users[-1], int(rank[-1]) + 1
                    keep = rank < self.episodes
                    if side != "both":
                        keep &= in_second_half(users, self.salt) == (side == "D'")
                    ended = table["terminated"].to_numpy(zero_copy_only=False).astype(bool)
                    keep &= ended | ~np.asarray(table["next_observation"].is_null())
                    if keep.any():
                        yield self._batch(table.filter(pa.array(keep)), ended[keep])

    def _batch(self, table: Any, ended: NDArray[np.bool_]) -> Batch:
        action = table["action"].to_numpy(zero_copy_only=False).astype(np.int64)
        p = self.features.observed
        return Batch(
            features=self.features.chosen(_matrix(table["observation"], p), action),
            reward=table["reward"].to_numpy(zero_copy_only=False).astype(np.float64),
            successors=self.features.every(_matrix(table["next_observation"], p)),
            ended=ended,
        )


def in_second_half(users: NDArray[Any], salt: str) -> NDArray[np.bool_]:
    """Whether each user belongs to D': a keyed hash of the id alone, so that nobody's rows move another."""
    distinct, where = np.unique(users.astype(str), return_inverse=True)
    return (keyed_hash(distinct.tolist(), salt).to_numpy() % 2 == 1)[where]


def _rank(users: NDArray[Any], last: Any, seen: int) -> NDArray[np.int64]:
    """How many rows of the same user came before, in this batch or at the end of the one before."""
    index = np.arange(len(users))
    first = np.concatenate([[True], users[1:] != users[:-1]])
    rank = index - np.maximum.accumulate(np.where(first, index, 0))
    return rank + np.where(np.cumsum(first) == 1, seen if users[0] == last else 0, 0)


def _matrix(column: Any, width: int) -> Array:
    """List column ``(n,)`` of ``width`` numbers to ``(n, width)``; a null or a list of another length is all zeros."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    out = np.zeros((len(column), width))
    fits = lengths == width
    values = column.filter(pa.array(fits)).flatten().to_numpy(zero_copy_only=False)
    out[fits] = values.reshape(-1, width)
    return out
