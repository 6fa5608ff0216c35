"""The only door from rows to arrays: canonical rows -> exact int64 sums, one user's contribution bounded.

What is summed here is what :mod:`pipeline.statistics.sensitivity` bounds; the enumeration test runs this code.
Everything looks at one user at a time, so replacing a user changes that user's contribution only (privacy.md §1.2).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.card import Card
from pipeline.logs.schema import default_end, first_end
from pipeline.logs.store import Snapshot
from pipeline.statistics.calibration import reward_lattice
from pipeline.statistics.counts import Counts

_NEEDED = ["user_id", "episode_id", "step", "state", "action", "reward", "next_state", "terminated"]


def aggregate(snapshot: Snapshot, card: Card, progress: Callable[[int, int], None] | None = None) -> Counts:
    """Sum a snapshot, one partition in memory at a time.

    Parameters
    ----------
    snapshot
        What ``ingest`` wrote; partitions are disjoint in users.
    progress
        Called with (partitions done, partitions).
    """
    tables = _empty(card)
    for i, part in enumerate(snapshot.part_files):
        for name, table in count_rows(pl.read_parquet(part, columns=_NEEDED), card).items():
            tables[name] += table
        if progress is not None:
            progress(i + 1, len(snapshot.part_files))
    return Counts(card.name, snapshot.kind, card.domain.dynamics, tables)


def count_rows(rows: pl.DataFrame, card: Card) -> dict[str, NDArray[np.int64]]:
    """Tables of canonical rows that hold whole users.

    Returns
    -------
    ``n_0 (L,)``, ``n_sa (G, L, A)``, ``n_sas (G, L, A, S)``, ``r_sa (G, L, A)`` (lattice integers), all int64.
    """
    d, tables = card.domain, _empty(card)
    # an unknown successor counts in no table: not even as a visit, so that n_sa = sum n_sas
    counted = rows.filter(pl.col("next_state").is_not_null()).with_columns(_successor(card))
    live, actions, states = len(d.live_states), len(d.action_labels), len(d.state_labels)
    first = rows.filter(pl.col("step") == 0)["state"].to_numpy()
    tables["n_0"] += np.bincount(first, minlength=live)
    if d.cell_cap is not None:
        counted = _capped(counted, card)
    if counted.is_empty():
        return tables
    step = counted["step"].to_numpy() if d.dynamics == "per_step" else np.zeros(len(counted), dtype=np.int64)
    cell = (step.astype(np.int64) * live + counted["state"].to_numpy()) * actions + counted["action"].to_numpy()
    successor = cell * states + counted["next_state"].to_numpy()
    cells = d.table_steps * live * actions
    tables["n_sa"] += np.bincount(cell, minlength=cells).reshape(tables["n_sa"].shape)
    tables["n_sas"] += np.bincount(successor, minlength=cells * states).reshape(tables["n_sas"].shape)
    if card.reward.kind == "estimate":
        lattice = reward_lattice(card)
        k = lattice.index(counted["reward"].to_numpy())
        if card.reward.total_steps is not None:
            k = _up_to_total(counted, k, card.reward.total_steps)
        np.add.at(tables["r_sa"].reshape(-1), cell, lattice.integer(k))
    return tables


def _successor(card: Card) -> pl.Expr:
    """A terminated row counts as a transition to an end, whatever live state was logged behind it (design §5.2)."""
    logged, end = pl.col("next_state"), default_end(card)
    if end is None:
        return logged
    over = pl.col("terminated") & (logged < first_end(card))
    return pl.when(over).then(pl.lit(end, dtype=pl.Int32)).otherwise(logged).alias("next_state")


def _empty(card: Card) -> dict[str, NDArray[np.int64]]:
    d = card.domain
    cell = (d.table_steps, len(d.live_states), len(d.action_labels))
    shapes = {"n_0": cell[1:2], "n_sa": cell, "n_sas": (*cell, len(d.state_labels)), "r_sa": cell}
    return {name: np.zeros(shape, dtype=np.int64) for name, shape in shapes.items()}


def _capped(rows: pl.DataFrame, card: Card) -> pl.DataFrame:
    """Keep a user's first ``cell_cap`` steps at each (s, a), in (keyed hash of episode, step) order (§0.1-20)."""
    if card.unit.episodes_per_user > 1:
        rows = _in_keyed_order(rows, card.name.encode())
    rank = pl.int_range(pl.len()).over("user_id", "state", "action")
    return rows.filter(rank < card.domain.cell_cap)


def _in_keyed_order(rows: pl.DataFrame, key: bytes) -> pl.DataFrame:
    """A user's episodes by keyed hash, so that no episode is favoured for its number."""
    episodes = rows.select("user_id", "episode_id").unique(maintain_order=True)
    digests = [
        int.from_bytes(hashlib.blake2b(f"{user}|{episode}".encode(), key=key[:64], digest_size=8).digest(), "big")
        for user, episode in episodes.iter_rows()
    ]
    ordered = episodes.with_columns(pl.Series("_order", digests, dtype=pl.UInt64))
    rows = rows.join(ordered, on=["user_id", "episode_id"], how="left")
    return rows.sort("user_id", "_order", "episode_id", "step").drop("_order")


def _up_to_total(rows: pl.DataFrame, k: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """A person's rewards in (episode, step) order until their sum reaches ``total`` lattice steps, then 0."""
    columns = pl.Series("k", k), pl.Series("_at", np.arange(len(k)))
    frame = rows.select("user_id", "episode_id", "step").with_columns(*columns)
    frame = frame.sort("user_id", "episode_id", "step")
    before = (pl.col("k").cum_sum() - pl.col("k")).over("user_id")
    kept = frame.with_columns(pl.min_horizontal(pl.col("k"), (total - before).clip(lower_bound=0)).alias("k"))
    return kept.sort("_at")["k"].to_numpy()
