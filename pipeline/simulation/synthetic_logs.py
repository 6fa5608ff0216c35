"""Simulated logs on disk, of tabular worlds and of linear plants: Parquet files with reproducible bytes."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.declaration.card import AnyCard, CardError, require_tabular
from pipeline.environments.lq_catalog import explorer, load_lq_world
from pipeline.environments.lq_systems import simulate
from pipeline.environments.world import Array, Ints, World, world_features
from pipeline.environments.worlds import load_world
from pipeline.logs.work import write_record
from pipeline.simulation.simulate import LogRows, sample_log, simulate_chunks

_SPLIT = "BYTE_STREAM_SPLIT"
# rows a file of a streamed log holds at most: bounds memory, and is part of what a seed means
_ROWS_PER_FILE = 1_000_000


@dataclass(frozen=True)
class Made:
    """How a log is made: world or plant, behaviour, episodes (one a user), seed."""

    world: str
    behaviour: str
    episodes: int
    seed: int


def write_lq_log(log: Made, folder: Path) -> list[Path]:
    """Write the log of a plant: ``episodes-0000.parquet``; the same library versions give the same bytes.

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
    # of noise, the exponents are alike and the digits are not: bytes of a kind together
    vectors = dict.fromkeys((f"{v}.list.element" for v in ("observation", "action", "next_observation")), _SPLIT)
    _write(table, folder / "episodes-0000.parquet", 19, ["episode_id"], vectors)
    return [folder / "episodes-0000.parquet"]


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


def write_log(
    world: World, rows: LogRows, folder: Path, users_per_file: int = 100_000, only: Collection[str] | None = None
) -> list[Path]:
    """Write ``episodes-0000.parquet, …``; the same rows and library versions give the same bytes.

    Columns: ``user_id``, ``episode_id``, ``step``, ``state`` (its label; a number where all labels are), each column
    the world can be binned by, ``action``, ``reward``, ``next_state``.  Where episodes never end early ``next_state``
    stands on every row.  Where they may, it is text and stands on an episode's last row only: the end label, or the
    label of a state reached at the horizon, whose bin columns are then given as ``next_<column>``.  Where ``only`` is
    given, other columns are left out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    # users are consecutive and sorted: a file is a slice of the rows
    users = int(rows.user[-1]) + 1 if len(rows.user) else 0
    for i, first in enumerate(range(0, users, users_per_file)):
        low, high = np.searchsorted(rows.user, [first, first + users_per_file])
        part = LogRows(*(getattr(rows, f.name)[low:high] for f in fields(LogRows)))
        paths.append(folder / f"episodes-{i:04d}.parquet")
        table = _table(world, part, 1)
        _write(
            table if only is None else table.select([c for c in table.column_names if c in only]), paths[-1], level=19
        )
    return paths


def stream_log(
    world: World,
    behaviour: str | Array,
    horizon: int,
    episodes: int,
    rng: np.random.Generator,
    folder: Path,
    episodes_per_user: int = 1,
) -> list[Path]:
    """Simulate and write as :func:`write_log` does, holding about a million rows at a time.

    Consecutive episodes belong to one user, ``episodes_per_user`` each (the last user may have fewer), and a user's
    episodes stay in one file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    chunk = max(1, _ROWS_PER_FILE // (horizon * episodes_per_user)) * episodes_per_user
    for rows in simulate_chunks(world, behaviour, horizon, episodes, rng, chunk):
        paths.append(folder / f"episodes-{len(paths):04d}.parquet")
        _write(_table(world, rows, episodes_per_user), paths[-1], level=3)
    return paths


# by lineage; what version 0.1 shipped under the lineage icu_sepsis is made on demand
_SHIPPED = {
    "icu_sepsis_clinicians": Made("icu_sepsis", "clinician", 100_000, 20261122),
    "icu_sepsis": Made("icu_sepsis", "uniform", 100_000, 20240606),
    "riverswim": Made("riverswim", "right-0.8", 50_000, 2008),
}
_SHIPPED_PLANTS = {"double_integrator": Made("double-integrator", "sphere", 10_000, 2004)}


def is_shipped(name: str) -> bool:
    """Whether the log of a lineage of that name can be made anew.

    Parameters
    ----------
    name
        Of a lineage.
    """
    return name in _SHIPPED or name in _SHIPPED_PLANTS


def regenerate(card: AnyCard, folder: Path) -> list[Path]:
    """Write a dataset's log anew where its card looks for it, byte for byte where the library versions are the same.

    Parameters
    ----------
    card
        Of the shipped dataset.
    folder
        Where the files are written.

    Raises
    ------
    CardError
        If no log of that name is shipped, or the world's file is not beside the card.
    """
    if not is_shipped(card.name):
        known = ", ".join([*_SHIPPED, *_SHIPPED_PLANTS])
        raise CardError(f"no simulated log {card.name!r} is shipped; there are: {known}")
    if card.name in _SHIPPED_PLANTS:
        return write_lq_log(_SHIPPED_PLANTS[card.name], folder)
    made, tabular = _SHIPPED[card.name], require_tabular(card)
    below = folder / Path(tabular.source.files[0]).parent
    world, rng = load_world(made.world, card.folder), np.random.default_rng(made.seed)
    rows = sample_log(world, made.behaviour, tabular.domain.horizon, made.episodes, rng)
    log = write_log(world, rows, below, only=tabular.log.roles.values())
    write_record(below, made.world, made.behaviour, made.seed, made.episodes, log)
    features = world_features(world)
    # the table is read with the card, so that a card without its table has none yet
    return log if features is None or tabular.domain.states.bins is not None else [*log, features.write(folder)]


def _write(
    table: pa.Table, path: Path, level: int, few: list[str] | None = None, encodings: dict[str, str] | None = None
) -> None:
    # few distinct values suit a dictionary; sorted numbers suit their differences
    differences = dict.fromkeys(("user_id", "step"), "DELTA_BINARY_PACKED")
    few = few or [c for c in table.column_names if c not in differences]
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=level,
        # a list of columns is documented, the stubs know a flag only
        use_dictionary=few,  # pyright: ignore[reportArgumentType]
        column_encoding=differences | (encodings or {}),
        row_group_size=len(table),
    )


def _table(world: World, rows: LogRows, episodes_per_user: int) -> pa.Table:
    live = [label for s, label in enumerate(world.raw_labels) if s not in world.ends]
    columns: dict[str, pa.Array] = {
        "user_id": pa.array(rows.user // episodes_per_user, pa.int32()),
        "episode_id": pa.array((rows.user % episodes_per_user).astype(np.int32)),
        "step": pa.array(rows.step, pa.int32()),
        "state": _labelled(rows.state, world.raw_labels, live, pa.int16()),
        **{name: pa.array(value[rows.state], pa.float32()) for name, value in world.bin_values.items()},
        "action": _labelled(rows.action, world.actions, world.actions, pa.int8()),
        "reward": pa.array(rows.reward, pa.float64()),
    }
    if not world.ends:
        return pa.table({**columns, "next_state": _labelled(rows.next_state, world.raw_labels, live, pa.int16())})
    named = np.array([world.ends.get(s, label) for s, label in enumerate(world.raw_labels)], dtype=object)
    columns["next_state"] = pa.array(named[rows.next_state], pa.string(), mask=~rows.last)
    unknown = ~rows.last | world.terminal[rows.next_state]
    for name, value in world.bin_values.items():
        columns[f"next_{name}"] = pa.array(value[rows.next_state], pa.float32(), mask=unknown)
    return pa.table(columns)


def _labelled(index: Ints, labels: list[str], used: list[str], small: pa.DataType) -> pa.Array:
    """Labels of ``index``: numbers (``small`` where they fit) if every label in use is one, else text."""
    if not all(label.isascii() and label.isdecimal() and str(int(label)) == label for label in used):
        return pa.array(np.array(labels, dtype=object)[index], pa.string())
    numbers = np.array([int(label) if label.isdecimal() else -1 for label in labels])
    fits = numbers.max(initial=0) < 2 ** (small.bit_width - 1)
    return pa.array(numbers[index], small if fits else pa.int64())
