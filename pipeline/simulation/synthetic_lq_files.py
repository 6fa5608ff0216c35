"""Simulated logs of linear plants on disk: list columns, one row a step, reproducible bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.environments.lq_catalog import explorer, load_lq_world
from pipeline.environments.lq_systems import simulate

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LqLog:
    """How a log is made: plant, behaviour, episodes (one a user), seed."""

    world: str
    behaviour: str
    episodes: int
    seed: int


def write_lq_log(log: LqLog, folder: Path) -> list[Path]:
    """Write ``episodes-0000.parquet``; the same library versions give the same bytes.

    Columns: ``user_id``, ``episode_id`` (0), ``step``, ``observation`` and ``action`` (lists of float32), and
    ``next_observation``, which stands on an episode's last row only: elsewhere the next row tells it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    system = load_lq_world(log.world)
    states, controls = simulate(system, explorer(system, log.behaviour), log.episodes, np.random.default_rng(log.seed))
    H, E = system.horizon, log.episodes  # noqa: N806
    last = np.tile(np.arange(H) == H - 1, E)
    table = pa.table(
        {
            "user_id": pa.array(np.repeat(np.arange(E, dtype=np.int32), H)),
            "episode_id": pa.array(np.zeros(E * H, dtype=np.int32)),
            "step": pa.array(np.tile(np.arange(H, dtype=np.int32), E)),
            "observation": _lists(states[:, :-1]),
            "action": _lists(controls),
            "next_observation": _lists(states[:, 1:], ~last),
        }
    )
    path = folder / "episodes-0000.parquet"
    differences = dict.fromkeys(("user_id", "step"), "DELTA_BINARY_PACKED")
    # of noise, the exponents are alike and the digits are not: bytes of a kind together
    vectors = dict.fromkeys((f"{v}.list.element" for v in ("observation", "action", "next_observation")), _SPLIT)
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=19,
        # a list of columns is documented, the stubs know a flag only
        use_dictionary=["episode_id"],  # pyright: ignore[reportArgumentType]
        column_encoding=differences | vectors,
        row_group_size=len(table),
    )
    return [path]


_SPLIT = "BYTE_STREAM_SPLIT"


def _lists(values: Array, absent: NDArray[np.bool_] | None = None) -> pa.Array:
    """``(E, H, k)`` as a list column of E H rows, null where ``absent``."""
    flat = values.reshape(-1, values.shape[-1]).astype(np.float32)
    there = np.ones(len(flat), dtype=bool) if absent is None else ~absent
    offsets = np.concatenate([[0], np.cumsum(there) * flat.shape[1]]).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat[there].reshape(-1)))
    if absent is None:
        return lists
    mask = pa.array(absent)
    return pa.ListArray.from_arrays(pa.array(offsets), lists.values, mask=mask)
