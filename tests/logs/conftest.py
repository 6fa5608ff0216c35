"""A small card and its log, written as the test wants it."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from reticent import Card, LogError, LqCard, Store

COLUMNS = {"user_id": "user", "episode_id": "episode", "step": "t", "reward": "r"}
HEAD = ("user", "episode", "t", "s", "a", "r")


def make_card(folder: Path, files: list[str], columns: dict[str, Any] | None = None, **changes: Any) -> Card:
    """H = 3, states x, y, OTHER and the ends died, end; actions 0, 1, OTHER; rewards 0, 0.5, 1."""
    domain = {
        "horizon": 3,
        "states": {"column": "s", "labels": ["x", "y"], "ends": ["died", "end"], "other": True},
        "actions": {"column": "a", "labels": 2, "other": True},
        **changes.pop("domain", {}),
    }
    card = Card.model_validate(
        {
            "schema_version": 1,
            "name": "tiny",
            "kind": "synthetic",
            "unit": {"user": "user", "users_public": 10, **changes.pop("unit", {})},
            "domain": domain,
            "reward": {"range": [0.0, 1.0], "steps": 2, **changes.pop("reward", {})},
            "source": {"files": files, "columns": COLUMNS | (columns or {}), **changes.pop("source", {})},
            "budget": {"rho": 1.0},
            **changes,
        }
    )
    return card.placed(folder)


class Edition(SimpleNamespace):
    """What an ingest made: its manifest, its files, and ``problem``, ``report`` and ``same_as`` of its answer."""

    @property
    def part_files(self) -> list[Path]:
        return sorted(self.folder.glob("part-*.parquet"))


def ingest(card: Card | LqCard, home: Path, frame: object = None) -> Edition:
    """The next edition of a card's files in a home."""
    told = Store(home).ingest(card, frame)
    manifest = json.loads((Path(told["folder"]) / "manifest.json").read_text(encoding="utf-8"))
    more = {name: told[name] for name in ("problem", "report", "same_as")}
    return Edition(**{"set_aside": {}, "ids": 0, **manifest, **more, "folder": Path(told["folder"])})


def check_delivery(made: Edition) -> None:
    """Raise what the shell would say of a log that does not fit its card."""
    if made.problem is not None:
        raise LogError(made.problem)


def write_csv(folder: Path, rows: Sequence[tuple[Any, ...]], head: tuple[str, ...] = HEAD) -> None:
    """Rows in the order of ``head``; None is an empty cell."""
    lines = [",".join("" if x is None else str(x) for x in row) for row in [head, *rows]]
    (folder / "log.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_arrow(path: Path, table: Any, *, file: bool = True, rows: int | None = None) -> None:
    """A file or a stream of batches of so many rows."""
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


@pytest.fixture
def ingested(tmp_path: Path) -> Callable[..., Edition]:
    """Write rows as CSV and ingest them."""

    def run(rows: Sequence[tuple[Any, ...]], head: tuple[str, ...] = HEAD, **card: Any) -> Edition:
        write_csv(tmp_path, rows, head)
        return ingest(make_card(tmp_path, ["log.csv"], **card), tmp_path / "home")

    return run


def canonical(made: Edition) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(p) for p in made.part_files]).sort("user_id", "episode_id", "step")


def quarantine(folder: Path) -> pl.DataFrame:
    files = sorted(folder.glob("quarantine-*.parquet"))
    return pl.concat([pl.read_parquet(p) for p in files]).sort("file", "line", "rule")
