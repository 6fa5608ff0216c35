"""One small log, written in every layout that people hold; the cards of ``docs/card.md``, and what comes of them."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl

from reticent import Card, LqCard
from tests.documents import section
from tests.logs.conftest import Edition, canonical, ingest

FORMATS = section("card.md", "## Formats")


@dataclass(frozen=True)
class Told:
    """An episode: ``states`` has one entry more than ``actions`` and ``rewards``."""

    states: list[int]
    actions: list[int]
    rewards: list[float]
    terminated: bool

    @property
    def steps(self) -> int:
        return len(self.actions)


# two that reach the goal, one cut off, one of a single step right after another end
LOG = [
    Told([1, 2, 5], [0, 1], [0.0, 1.0], True),
    Told([3, 3, 4, 1, 2], [1, 1, 0, 0], [0.0, 0.0, 1.0, 0.0], False),
    Told([1, 1, 3, 5], [1, 0, 1], [0.0, 0.0, 1.0], True),
    Told([4, 5], [0], [1.0], True),
]


def cards() -> dict[str, dict[str, Any]]:
    """Heading -> the card below it: its own tables in place of those of the common card."""
    common, *parts = FORMATS.split("\n### ")
    base, *own = (tomllib.loads(s.partition("```toml\n")[2].partition("```")[0]) for s in (common, *parts))
    made = {s.partition("\n")[0]: base | tables for s, tables in zip(parts, own, strict=True)}
    # a card of vectors has no rewards
    return {head: {k: v for k, v in card.items() if k != "reward" or "cost" not in card} for head, card in made.items()}


def card_of(values: dict[str, Any], folder: Path) -> Card | LqCard:
    kind = LqCard if values["domain"].get("dynamics") == "linear_quadratic" else Card
    return kind.model_validate(values).placed(folder)


def changed(head: str, columns: dict[str, str | None] | None = None, **parts: Any) -> dict[str, Any]:
    """The card below a heading, some of its tables and columns changed; None takes a column away."""
    values = {k: v | parts[k] if k in parts else v for k, v in cards()[head].items()}
    if columns:
        named = (values["source"]["columns"] | columns).items()
        values["source"] = values["source"] | {"columns": {role: name for role, name in named if name is not None}}
    return values


def taken(
    head: str, folder: Path, columns: dict[str, str | None] | None = None, home: str = "home", **parts: Any
) -> Edition:
    """What is ingested by that card; the same files are read again in another home alone."""
    return ingest(card_of(changed(head, columns, **parts), folder), folder / home)


def transitions(snapshot: Edition, *columns: str) -> list[tuple[Any, ...]]:
    """Rows by episode, without the ids; episodes in the order of their rows."""
    wanted = columns or ("state", "action", "reward", "next_state")
    rows = canonical(snapshot)
    return sorted(tuple(e.sort("step").select(wanted).rows()) for e in rows.partition_by("user_id", "episode_id"))


def expected(*, untold: bool = False) -> list[tuple[Any, ...]]:
    def led(told: Told, t: int) -> int:
        return 4 if untold and t == told.steps - 1 else told.states[t + 1] - 1

    return sorted(tuple((t.states[h] - 1, t.actions[h], t.rewards[h], led(t, h)) for h in range(t.steps)) for t in LOG)


def flags(told: Told) -> tuple[np.ndarray, np.ndarray]:
    last = np.arange(told.steps) == told.steps - 1
    return last & told.terminated, last & (not told.terminated)


def numbers(told: Told) -> np.ndarray:
    return np.array(told.states, dtype=np.float32)


def write_minari_hdf5(folder: Path, log: list[Told] = LOG) -> Path:
    """As Minari writes it: ids as group names, which sort as text."""
    (folder / "data").mkdir(parents=True)
    with h5py.File(folder / "data" / "main_data.hdf5", "w", track_order=True) as file:
        for i, told in enumerate(log):
            group = file.create_group(f"episode_{i}")
            group.attrs["id"], group.attrs["total_steps"] = i, told.steps
            group["observations"] = np.array(told.states, dtype=np.int64)
            group["actions"], group["rewards"] = np.array(told.actions, dtype=np.int64), np.array(told.rewards)
            group["terminations"], group["truncations"] = flags(told)
    meta = {"total_episodes": len(log), "total_steps": sum(t.steps for t in log)}
    (folder / "data" / "metadata.json").write_text(json.dumps(meta))
    return folder / "data" / "main_data.hdf5"


def put(path: Path, name: str, value: Any = None, **how: Any) -> None:
    """Another array, group or link in place of one in an HDF5 file; with neither value nor data it is gone."""
    with h5py.File(path, "a") as file:
        if name in file:
            del file[name]
        if how:
            file.create_dataset(name, **how)
        elif value is not None:
            file[name] = value


def write_minari_arrow(folder: Path, log: list[Told] = LOG) -> Path:
    for i, told in enumerate(log):
        home = folder / "data" / str(i)
        home.mkdir(parents=True)
        pad = [0.0]
        terminated, truncated = flags(told)
        frame = pl.DataFrame(
            {
                "observations": np.stack([numbers(told), numbers(told) / 2], 1),
                "actions": np.array([[a] for a in [*told.actions, 0]], dtype=np.float32).reshape(-1, 1),
                "rewards": told.rewards + pad,
                "terminations": [*terminated.tolist(), False],
                "truncations": [*truncated.tolist(), False],
            },
            schema_overrides={"observations": pl.Array(pl.Float32, 2), "actions": pl.Array(pl.Float32, 1)},
        )
        frame.write_ipc(home / "part-0.arrow")
        (home / "metadata.json").write_text(json.dumps({"id": i, "total_steps": told.steps}))
    (folder / "data" / "metadata.json").write_text(json.dumps({"total_episodes": len(log)}))
    return folder / "data" / "1" / "part-0.arrow"


def write_d4rl(folder: Path, log: list[Told] = LOG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    both = [flags(told) for told in log]
    here = np.concatenate([numbers(told)[:-1] for told in log])
    there = np.concatenate([numbers(told)[1:] for told in log])
    with h5py.File(folder / "maze.hdf5", "w") as file:
        file["observations"] = np.stack([here, -here], 1)
        file["next_observations"] = np.stack([there, -there], 1)
        file["actions"] = np.concatenate([told.actions for told in log])
        file["rewards"] = np.concatenate([told.rewards for told in log]).astype(np.float32)
        file["terminals"] = np.concatenate([b[0] for b in both])
        file["timeouts"] = np.concatenate([b[1] for b in both])
    return folder / "maze.hdf5"


def steps_of(told: Told) -> list[dict[str, Any]]:
    """RLDS steps: T + 1 of them, the last without a meaning but its observation."""
    last = told.steps
    return [
        {
            "is_first": t == 0,
            "is_last": t == last,
            "is_terminal": t == last and told.terminated,
            "observation": {"state": [float(state), 0.5]},
            "action": told.actions[t] if t < last else -7,
            "reward": told.rewards[t] if t < last else float("nan"),
            "discount": 1.0,
        }
        for t, state in enumerate(told.states)
    ]


def write_rlds(folder: Path, log: list[Told] = LOG, *, nested: bool = True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"steps": steps_of(told)} for told in log] if nested else [s for told in log for s in steps_of(told)]
    pl.DataFrame(rows).write_parquet(folder / "episodes.parquet")
    return folder / "episodes.parquet"


def write_lerobot(folder: Path, log: list[Told] = LOG, files: int = 2) -> Path:
    rows = [
        {
            "observation.state": [float(told.states[t]), 0.0],
            "action": [float(told.actions[t])],
            "next.reward": told.rewards[t],
            "next.done": told.terminated and t == told.steps - 1,
            "episode_index": i,
            "frame_index": t,
            "timestamp": t / 30,
        }
        for i, told in enumerate(log)
        for t in range(told.steps)
    ]
    (folder / "meta").mkdir(parents=True)
    (folder / "data" / "chunk-000").mkdir(parents=True)
    info = {"codebase_version": "v3.0", "total_episodes": len(log), "total_frames": len(rows)}
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    frame = pl.DataFrame(rows)
    for f in range(files):
        part = frame.filter(pl.col("episode_index") * files // max(1, len(log)) == f)
        part.write_parquet(folder / "data" / "chunk-000" / f"file-{f:03d}.parquet")
    return folder / "data" / "chunk-000" / "file-000.parquet"


def write_obp(folder: Path, log: list[Told] = LOG) -> Path:
    """One impression a step: position, item and click."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(s, a, int(r)) for told in log for s, a, r in zip(told.states, told.actions, told.rewards, strict=False)]
    lines = [
        f"{i},2019-11-24 00:0{i % 10}:01.5+00:00,{a},{1 + s % 3},{c},0.0125,ab{s}c" for i, (s, a, c) in enumerate(rows)
    ]
    head = ",timestamp,item_id,position,click,propensity_score,user_feature_0"
    (folder / "all.csv").write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return folder / "all.csv"


HOUR = 3_600_000_000


def events(told: Told, subject: int) -> list[tuple[int, int | None, str, float | None]]:
    """A stay of four-hour windows: what is known at the start, a drug an hour later, a score, the end."""
    start = subject * 1000 * HOUR
    found: list[tuple[int, int | None, str, float | None]] = [
        (subject, None, "GENDER//F", None),
        (subject, start - HOUR, "LAB//old", 9.0),
        (subject, start, "HOSPITAL_ADMISSION//ER", None),
    ]
    for t in range(told.steps):
        at = start + 4 * HOUR * t
        found += [
            (subject, at, "LAB//state", float(told.states[t])),
            (subject, at + HOUR, "MED//x" if t % 2 else "MED//y", float(told.actions[t])),
            (subject, at + 2 * HOUR, "SCORE", told.rewards[t]),
        ]
    if told.terminated:
        found += [(subject, start + 4 * HOUR * told.steps, "MEDS_DEATH", None)]
        found += [(subject, start + 4 * HOUR * told.steps + 1, "SCORE", 100.0)]
    return found


def write_meds(folder: Path, log: list[Told] = LOG) -> Path:
    (folder / "data" / "train").mkdir(parents=True)
    rows = [row for i, told in enumerate(log) for row in events(told, i + 1)]
    frame = pl.DataFrame(rows, schema={"subject_id": pl.Int64, "time": pl.Int64, "code": pl.String,
                                       "numeric_value": pl.Float32}, orient="row")  # fmt: skip
    frame.with_columns(pl.col("time").cast(pl.Datetime("us"))).write_parquet(folder / "data" / "train" / "0.parquet")
    return folder / "data" / "train" / "0.parquet"


def write_flat(folder: Path, log: list[Told] = LOG) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["patient,s,a,r,s2,done"]
    for i, told in enumerate(log):
        for t in range(told.steps):
            done = int(told.terminated and t == told.steps - 1)
            lines.append(f"p{i},{told.states[t]},{told.actions[t]},{told.rewards[t]:g},{told.states[t + 1]},{done}")
    (folder / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "log.csv"


# heading of docs/card.md -> writer of its files, which returns one of them
WRITERS: dict[str, Callable[[Path], Path]] = {
    "Minari in HDF5": write_minari_hdf5,
    "Minari in Arrow": write_minari_arrow,
    "D4RL": write_d4rl,
    "RLDS": write_rlds,
    "LeRobot": write_lerobot,
    "obp": write_obp,
    "MEDS": write_meds,
    "Flat transitions": write_flat,
}
