"""Simulated logs of known worlds: rows, Parquet files with reproducible bytes, and count tables for studies.

Everything here is a simulation of a world whose parameters are public; no person is behind a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.card import Card, CardError
from pipeline.environments.registry import load_world
from pipeline.environments.world import Array, Ints, World, declared_actions, declared_states
from pipeline.logs.aggregate import count_rows
from pipeline.mdp.model import is_stationary
from pipeline.statistics.counts import Counts

# episodes simulated at once: bounds memory, and is part of what a seed means
_CHUNK = 200_000


@dataclass(frozen=True)
class LogRows:
    """One row a step, sorted by (user, step); N rows.  Users are numbered from 0 and have one episode each.

    Attributes
    ----------
    user, step, state, action, next_state
        ``(N,)`` integers: raw states and actions, 0-based steps.
    reward
        ``(N,)`` reward units.
    last
        ``(N,)`` bool: the row ends its episode.
    """

    user: Ints
    step: Ints
    state: Ints
    action: Ints
    reward: Array
    next_state: Ints
    last: NDArray[np.bool_]


@dataclass(frozen=True)
class _Draws:
    """Categorical distributions of many rows, as one running sum over their positive entries."""

    column: Ints
    running: Array
    first: Ints
    end: Ints

    def sample(self, rows: Ints, rng: np.random.Generator) -> Ints:
        """One column for each of ``rows``, with that row's probabilities."""
        low = np.where(self.first[rows] > 0, self.running[self.first[rows] - 1], 0.0)
        high = self.running[self.end[rows] - 1]
        found = np.searchsorted(self.running, low + rng.random(len(rows)) * (high - low), side="right")
        # rounding may step over the edge of a row
        return self.column[np.clip(found, self.first[rows], self.end[rows] - 1)]


def _draws(table: Array) -> _Draws:
    """Of the rows of ``table (R, C)``."""
    row, column = np.nonzero(table)
    end = np.cumsum(np.bincount(row, minlength=len(table)))
    return _Draws(column, np.cumsum(table[row, column]), np.concatenate([[0], end[:-1]]), end)


def sample_log(world: World, behaviour: str | Array, horizon: int, episodes: int, rng: np.random.Generator) -> LogRows:
    """Simulate ``episodes`` episodes; each stops on entering a terminal state or after ``horizon`` steps.

    Parameters
    ----------
    behaviour
        Name of one of the world's logging policies, or probabilities ``(H, S, A)`` over raw states and actions.
    """
    chunks = list(_simulate(world, behaviour, horizon, episodes, rng))
    return LogRows(*(np.concatenate([getattr(c, f.name) for c in chunks]) for f in fields(LogRows)))


def sample_counts(card: Card, world: World, behaviour: str | Array, episodes: int, rng: np.random.Generator) -> Counts:
    """Count tables of a simulated log, without writing it: the rows of :func:`sample_log`, summed as a snapshot's are.

    Marked synthetic whatever the card says, for no person is behind them.
    """
    states, actions = declared_states(card, world), declared_actions(card, world)
    tables: dict[str, NDArray[np.int64]] = {}
    for rows in _simulate(world, behaviour, card.domain.horizon, episodes, rng):
        canonical = pl.DataFrame(
            {
                "user_id": rows.user,
                "episode_id": np.zeros(len(rows.user), dtype=np.int64),
                "step": rows.step,
                "state": states[rows.state],
                "action": actions[rows.action],
                "reward": rows.reward,
                "next_state": states[rows.next_state],
                "terminated": np.zeros(len(rows.user), dtype=bool),
            }
        )
        for name, table in count_rows(canonical, card).items():
            tables[name] = tables[name] + table if name in tables else table
    return Counts(card.name, "synthetic", card.domain.dynamics, tables)


def write_log(world: World, rows: LogRows, folder: Path, users_per_file: int = 100_000) -> list[Path]:
    """Write ``episodes-0000.parquet, …``; the same rows and library versions give the same bytes.

    Columns: ``user_id``, ``episode_id``, ``step``, ``state`` (raw number), each column the world can be binned by,
    ``action``, ``reward``, ``next_state``.  Where episodes never end early ``next_state`` is a number on every row.
    Where they may, it is text and stands on an episode's last row only: the end label, or the raw number of a state
    reached at the horizon, whose bin columns are then given as ``next_<column>``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    # users are consecutive and sorted: a file is a slice of the rows
    users = int(rows.user[-1]) + 1 if len(rows.user) else 0
    for i, first in enumerate(range(0, users, users_per_file)):
        low, high = np.searchsorted(rows.user, [first, first + users_per_file])
        part = LogRows(*(getattr(rows, f.name)[low:high] for f in fields(LogRows)))
        paths.append(folder / f"episodes-{i:04d}.parquet")
        table = _table(world, part)
        # few distinct values suit a dictionary; sorted numbers suit their differences
        differences = {"user_id": "DELTA_BINARY_PACKED", "step": "DELTA_BINARY_PACKED"}
        pq.write_table(
            table,
            paths[-1],
            compression="zstd",
            compression_level=19,
            # a list of columns is documented, the stubs know a flag only
            use_dictionary=[c for c in table.column_names if c not in differences],  # pyright: ignore[reportArgumentType]
            column_encoding=differences,
            row_group_size=len(part.user),
        )
    return paths


@dataclass(frozen=True)
class _Shipped:
    """How a log on the shelf was made."""

    behaviour: str
    episodes: int
    seed: int


_SHIPPED = {
    "icu_sepsis": _Shipped("uniform", 100_000, 20240606),
    "riverswim": _Shipped("right-0.8", 50_000, 2008),
}


def regenerate(card: Card, folder: Path) -> list[Path]:
    """Write a shipped dataset's log anew, byte for byte where the library versions are the same.

    Raises
    ------
    CardError
        If no log of that name is shipped, or the world's file is not beside the card.
    """
    if card.name not in _SHIPPED:
        raise CardError(f"no simulated log {card.name!r} is shipped; there are: {', '.join(_SHIPPED)}")
    made, world = _SHIPPED[card.name], load_world(card.name, card.folder)
    rng = np.random.default_rng(made.seed)
    return write_log(world, sample_log(world, made.behaviour, card.domain.horizon, made.episodes, rng), folder)


def _simulate(
    world: World, behaviour: str | Array, horizon: int, episodes: int, rng: np.random.Generator
) -> Iterator[LogRows]:
    """Rows of at most ``_CHUNK`` episodes at a time."""
    states, actions = world.shape
    policy = world.behaviours(behaviour, horizon) if isinstance(behaviour, str) else behaviour
    if policy.shape != (horizon, states, actions):
        raise ValueError(f"behaviour must be {(horizon, states, actions)}; got {policy.shape}")
    act = [_draws(policy[0])] * horizon if is_stationary(policy) else [_draws(p) for p in policy]
    terminal = world.terminal
    move, begin = _draws(world.transition.reshape(states * actions, states)), _draws(world.start[None])
    for first in range(0, episodes, _CHUNK):
        user = np.arange(first, min(first + _CHUNK, episodes))
        state = begin.sample(np.zeros(len(user), dtype=np.int64), rng)
        steps: list[LogRows] = []
        for h in range(horizon):
            action = act[h].sample(state, rng)
            after = move.sample(state * actions + action, rng)
            reward = world.visit_reward[state, action] + world.entry_reward[after]
            last = terminal[after] | (h == horizon - 1)
            steps.append(LogRows(user, np.full(len(user), h), state, action, reward, after, last))
            user, state = user[~last], after[~last]
        order = np.argsort(np.concatenate([s.user for s in steps]), kind="stable")
        yield LogRows(*(np.concatenate([getattr(s, f.name) for s in steps])[order] for f in fields(LogRows)))


def _table(world: World, rows: LogRows) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "user_id": pa.array(rows.user, pa.int32()),
        "episode_id": pa.array(np.zeros(len(rows.user), dtype=np.int32)),
        "step": pa.array(rows.step, pa.int32()),
        "state": pa.array(rows.state, pa.int16()),
        **{name: pa.array(value[rows.state], pa.float32()) for name, value in world.bin_values.items()},
        "action": pa.array(rows.action, pa.int8()),
        "reward": pa.array(rows.reward, pa.float64()),
    }
    if not world.ends:
        return pa.table({**columns, "next_state": pa.array(rows.next_state, pa.int16())})
    named = np.array([world.ends.get(s, label) for s, label in enumerate(world.raw_labels)], dtype=object)
    columns["next_state"] = pa.array(named[rows.next_state], pa.string(), mask=~rows.last)
    unknown = ~rows.last | world.terminal[rows.next_state]
    for name, value in world.bin_values.items():
        columns[f"next_{name}"] = pa.array(value[rows.next_state], pa.float32(), mask=unknown)
    return pa.table(columns)
