"""What leaves the store: raw rows that are purged, and raw rows that are exported as a Minari data set.

Retention removes snapshots and what ingest set aside; the ledger and the releases stay.

An export is a Minari data set (HDF5): raw rows, the operator's as the store is.  States are ``0 … S - 1`` in the order
of the card's labels (ends last) and ``S`` where the state after an episode's last step is unknown; vectors are in the
card's units, NaN where unknown.  Where a logged next state differs from the state of the next row, the latter is
exported.  ``infos/behavior_prob`` is there where the card maps it.  People are numbered (attribute ``user`` of an
episode); their ids stay in the store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import AnyCard, Card, CardError, LqCard, task_of
from pipeline.disk import DISK
from pipeline.files import open_private, private_folder, remove_file, remove_tree, whole_folder
from pipeline.logs.readers.hdf5 import library
from pipeline.logs.regression_sums import list_matrix
from pipeline.logs.store import Snapshot
from pipeline.operator.ingest_report import PAGE

NOT_UNDONE = (
    "the budget that was spent on these rows stays spent",
    "the releases, policies and reports made from them stay where they went, and give away what they gave away",
    "copies outside this store (the source files, backups, freed disk blocks) are not touched",
)

# what a folder's name begins with from the moment it goes
_GOING = ".purging-"
# of a lineage with nightly counters
COUNTERS_STAY = "a nightly counter keeps its exact leaf tables and the hashes of who was counted (docs/counter.md)"


@dataclass(frozen=True)
class Purge:
    """What goes: numbers of whole snapshots, and all folders and files to remove, relative to the lineage's folder."""

    snapshots: list[int]
    paths: list[str]
    size: int

    @property
    def noted(self) -> bool:
        """Whether an earlier purge, which died, said in the ledger that all of this goes."""
        return all(name.startswith(_GOING) for name in self.paths)


def plan_purge(lineage: Path, *, keep: int, quarantine_only: bool) -> Purge:
    """What a purge would remove; touches nothing.

    Parameters
    ----------
    lineage
        The lineage's folder in the store.
    keep
        Newest snapshots that stay.
    quarantine_only
        Rows set aside by ingest go; snapshots stay.

    Raises
    ------
    ValueError
        If ``keep`` is negative.
    """
    if keep < 0:
        raise ValueError(f"keep must be 0 or more; got {keep}")
    folders = {int(p.name[9:]): p for p in lineage.glob("snapshot-*") if re.fullmatch(r"snapshot-\d{4,}", p.name)}
    old = sorted(folders)[: max(0, len(folders) - keep)]
    if quarantine_only:
        told = ("quarantine-*.parquet", PAGE)
        gone = [q for number in sorted(folders) for name in told for q in sorted(folders[number].glob(name))]
        old = []
    else:
        gone = [folders[number] for number in old]
    gone += [p for p in (lineage / "refused", lineage / ".ingest", *sorted(lineage.glob(".frame-*"))) if p.exists()]
    # rows of people who evaluate, of a night that was killed
    gone += sorted(lineage.glob("counters/*/evaluate/*"))
    # first, so that the names are free: what an earlier purge had renamed when it died
    gone = sorted(lineage.glob(f"{_GOING}*")) + gone
    size = sum(f.stat().st_size for p in gone for f in ([p] if p.is_file() else p.rglob("*")) if f.is_file())
    return Purge(old, [str(p.relative_to(lineage)) for p in gone], size)


def carry_out(purge: Purge, lineage: Path) -> None:
    """Remove what :func:`plan_purge` named; a folder leaves its name first, so that it is there whole or not at all."""
    going, held = list[Path](), {lineage}
    for path in (lineage / name for name in purge.paths):
        if not path.is_dir():
            remove_file(path)
            held.add(path.parent)
        elif path.name.startswith(_GOING):
            remove_tree(path)
        else:
            going.append(lineage / f"{_GOING}{path.name.lstrip('.')}")
            DISK.move(path, going[-1])
    # before the first file goes: a power cut would give a folder in pieces its old name back
    DISK.sync(lineage)
    for path in going:
        remove_tree(path)
    for folder in sorted(held):
        DISK.sync(folder)


# the version of Minari whose layout this is
MINARI = "0.5.4"
Values = NDArray[Any]


@dataclass(frozen=True)
class Exported:
    """What was written: the data set's id, its folder, and how much."""

    name: str
    folder: Path
    episodes: int
    steps: int


def export_minari(snapshot: Snapshot, card: AnyCard, to: Path) -> Exported:
    """Write ``to/<dataset>-v<snapshot>/data/``; Minari reads it with ``MINARI_DATASETS_PATH=to``.

    The folder is there whole or not at all; only its owner may enter.

    Parameters
    ----------
    snapshot
        Whose rows are written: raw, so for the operator only.
    card
        Its labels become the spaces of the data set.

    Raises
    ------
    CardError
        If h5py is not installed, the folder exists, or a link stands where it is written.
    """
    name = f"{card.name}-v{snapshot.number}"
    folder = to / name
    h5py = library(Path(f"{name}/data/main_data.hdf5"))
    if folder.exists():
        raise CardError(f"{folder}: exists already; remove it, or export to another folder")
    partial = folder.with_name(f".{name}.partial")
    if partial.is_symlink():
        raise CardError(f"{partial}: a link, and raw rows would go where it leads; remove it")
    with whole_folder(folder, private=True) as inside:
        data = private_folder(inside / "data")
        main, episodes, steps = data / "main_data.hdf5", 0, 0
        with h5py.File(main, "w", track_order=True) as file:
            main.chmod(0o600)
            for episode in _episodes(snapshot, card):
                _write(file.create_group(f"episode_{episodes}"), episodes, episode)
                episodes, steps = episodes + 1, steps + len(episode.rewards)
        told = {
            "total_episodes": episodes,
            "total_steps": steps,
            "data_format": "hdf5",
            "jpeg_encoding": False,
            **{key: json.dumps(space) for key, space in _spaces(card).items()},
            "dataset_id": name,
            "minari_version": MINARI,
            "dataset_size": round(main.stat().st_size / 1e6, 1),
            "description": f"{card.kind} rows of {card.name}, snapshot {snapshot.number}: raw, of nobody's privacy",
            **_labels(card),
        }
        with open_private(data / "metadata.json") as file:
            file.write(json.dumps(told, indent=1).encode() + b"\n")
    return Exported(name, folder, episodes, steps)


@dataclass(frozen=True)
class _Episode:
    """Arrays of an episode, under Minari's names, and whose it is."""

    user: int
    observations: Values
    actions: Values
    rewards: Values
    terminations: Values
    truncations: Values
    behavior_prob: Values | None


def _episodes(snapshot: Snapshot, card: AnyCard) -> Iterator[_Episode]:
    """By user and episode; one partition in memory at a time."""
    people = 0
    for part in snapshot.part_files:
        rows = pl.read_parquet(part).sort("user_id", "episode_id", "step")
        if rows.is_empty():
            continue
        here, after, actions, rewards = _columns(rows, card)
        starts = rows.select(
            pl.struct("user_id", "episode_id").rle_id().alias("e"), pl.col("user_id").rle_id().alias("u")
        )
        first = np.flatnonzero(np.diff(starts["e"].to_numpy(), prepend=-1))
        users, prob = starts["u"].to_numpy(), rows["behavior_prob"].to_numpy()
        terminated = rows["terminated"].to_numpy()
        for low, high in zip(first, [*first[1:], len(rows)], strict=True):
            last = np.arange(high - low) == high - low - 1
            yield _Episode(
                people + int(users[low]),
                np.concatenate([here[low:high], after[high - 1 : high]]),
                actions[low:high],
                rewards[low:high],
                terminated[low:high] & last,
                ~terminated[low:high] & last,
                None if np.isnan(prob[low:high]).all() else np.append(prob[low:high], np.nan),
            )
        people += int(users[-1]) + 1


def _columns(rows: pl.DataFrame, card: AnyCard) -> tuple[Values, Values, Values, Values]:
    """Observation, next observation, action and reward of each row."""
    if isinstance(card, LqCard):
        n, d = card.domain.observation.size, card.domain.action.size
        x, u, after = (
            list_matrix(rows[c].to_arrow(), width)
            for c, width in (("observation", n), ("action", d), ("next_observation", n))
        )
        cost = np.einsum("ti,ij,tj->t", x, card.quadratic.Q, x) + np.einsum("ti,ij,tj->t", u, card.quadratic.R, u)
        return x.astype(np.float32), after.astype(np.float32), u.astype(np.float32), -cost
    here, actions = (rows[c].cast(pl.Int64).to_numpy() for c in ("state", "action"))
    after = rows["next_state"].cast(pl.Int64).fill_null(len(card.domain.state_labels)).to_numpy()
    task = task_of(card)
    if task.rewards is not None:
        # a successor that is not known pays nothing
        entering = np.append(np.zeros(len(card.domain.state_labels)) if task.entering is None else task.entering, 0.0)
        table = np.broadcast_to(task.rewards, (card.domain.horizon, *task.rewards.shape[-2:]))
        return here, after, actions, table[rows["step"].to_numpy(), here, actions] + entering[after]
    return here, after, actions, rows["reward"].to_numpy()


def _write(group: Any, number: int, episode: _Episode) -> None:
    group.attrs["id"], group.attrs["total_steps"] = number, len(episode.rewards)
    group.attrs["user"] = episode.user
    for name in ("observations", "actions", "rewards", "terminations", "truncations"):
        group[name] = getattr(episode, name)
    if episode.behavior_prob is not None:
        group["infos/behavior_prob"] = episode.behavior_prob


def _spaces(card: AnyCard) -> dict[str, dict[str, object]]:
    """Observation and action space as Minari writes them."""
    if isinstance(card, Card):
        sizes = {"observation_space": len(card.domain.state_labels) + 1, "action_space": len(card.domain.action_labels)}
        return {key: {"type": "Discrete", "dtype": "int64", "start": 0, "n": n} for key, n in sizes.items()}
    found = {"observation_space": card.domain.observation.size, "action_space": card.domain.action.size}
    bound = float("inf")
    return {
        key: {"type": "Box", "dtype": "float32", "shape": [n], "low": [-bound] * n, "high": [bound] * n}
        for key, n in found.items()
    }


def _labels(card: AnyCard) -> dict[str, list[str]]:
    if isinstance(card, Card):
        return {
            "observation_labels": [*card.domain.state_labels, "UNKNOWN"],
            "action_labels": card.domain.action_labels,
        }
    return {"observation_labels": card.domain.observation.labels, "action_labels": card.domain.action.labels}
