"""One good log in every layout, under the card that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from tests.logs.layouts import (
    LOG,
    cards,
    write_d4rl,
    write_flat,
    write_lerobot,
    write_meds,
    write_minari_arrow,
    write_minari_hdf5,
    write_obp,
    write_rlds,
)

SECRET = "zzSECRETzz"
PEOPLE = LOG * 3
EVERY = frozenset(range(len(PEOPLE)))


def _plain(suffix: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        rows = [
            (f"{SECRET}{i}", i, t, told.states[t], told.actions[t], told.rewards[t], told.states[t + 1])
            for i, told in enumerate(PEOPLE)
            for t in range(told.steps)
        ]
        frame = pl.DataFrame(rows, orient="row", schema=["user", "episode", "t", "s", "a", "r", "s2"])
        path = folder / f"log.{suffix}"
        getattr(
            frame, {"csv": "write_csv", "ndjson": "write_ndjson", "parquet": "write_parquet"}.get(suffix, "write_ipc")
        )(path)
        return path

    return write


def _wide(folder: Path) -> Path:
    head = ["user", *(f"{c}{h}" for h in range(4) for c in "sar")]
    lines = [",".join(head)]
    for i, told in enumerate(PEOPLE):
        cells = [
            f"{told.states[h]},{told.actions[h]},{told.rewards[h]:g}" if h < told.steps else ",," for h in range(4)
        ]
        lines.append(",".join([f"{SECRET}{i}", *cells]))
    (folder / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "log.csv"


def _table_card(suffix: str) -> dict[str, Any]:
    base = cards()["Flat transitions"]
    columns = {"user_id": "user", "episode_id": "episode", "step": "t", "reward": "r", "next_state": "s2"}
    return base | {"unit": {"user": "user", "users_public": 12},
                   "source": {"files": [f"log.{suffix}"], "columns": columns}}  # fmt: skip


def _wide_card() -> dict[str, Any]:
    base = cards()["Flat transitions"]
    domain = base["domain"] | {
        "states": base["domain"]["states"] | {"column": "s{step}"},
        "actions": base["domain"]["actions"] | {"column": "a{step}"},
    }
    source = {
        "layout": "wide",
        "first_step": 0,
        "files": ["log.csv"],
        "columns": {"user_id": "user", "reward": "r{step}"},
    }
    return base | {"unit": {"user": "user", "users_public": 12}, "domain": domain, "source": source}


@dataclass(frozen=True)
class Layout:
    """How the good log is written, under which card."""

    write: Callable[[Path], Path]
    card: dict[str, Any]


def layouts() -> dict[str, Layout]:
    known = cards()
    own = {
        "minari-hdf5": (write_minari_hdf5, "Minari in HDF5"), "minari-arrow": (write_minari_arrow, "Minari in Arrow"),
        "d4rl": (write_d4rl, "D4RL"), "rlds": (write_rlds, "RLDS"), "lerobot": (write_lerobot, "LeRobot"),
        "obp": (write_obp, "obp"), "meds": (write_meds, "MEDS"), "flat": (write_flat, "Flat transitions"),
    }  # fmt: skip
    found = {s: Layout(_plain(s), _table_card(s)) for s in ("csv", "ndjson", "parquet", "arrow")}
    found["wide"] = Layout(_wide, _wide_card())
    for name, (write, head) in own.items():
        found[name] = Layout(lambda folder, write=write: write(folder, PEOPLE), known[head])
    found["rlds-steps"] = Layout(lambda folder: write_rlds(folder, PEOPLE, nested=False), known["RLDS"])
    return found


@dataclass(frozen=True)
class Case:
    """One damage: ``at`` in [0, 1) says where, ``pick`` which of several ways."""

    layout: str
    damage: str
    at: float
    pick: int

    def told(self) -> str:
        return json.dumps(asdict(self))
