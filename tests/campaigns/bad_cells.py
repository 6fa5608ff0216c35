"""Damage to columns, rows, cells and arrays.  Each returns the episodes it may touch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl

from tests.campaigns.bad_layouts import EVERY, PEOPLE, SECRET, Case


def _frame(path: Path) -> pl.DataFrame:
    match path.suffix:
        case ".csv":
            return pl.read_csv(path, infer_schema=False)
        case ".ndjson":
            return pl.read_ndjson(path)
        case ".parquet":
            return pl.read_parquet(path)
        case _:
            return pl.read_ipc(path.read_bytes())


def _put(frame: pl.DataFrame, path: Path) -> None:
    nested = any(t.is_nested() for t in frame.schema.values())
    match path.suffix:
        case ".csv":
            flat = [
                pl.col(c).cast(pl.String) if not t.is_nested() else pl.lit("[1]").alias(c)
                for c, t in frame.schema.items()
            ]
            (frame.select(flat) if nested else frame).write_csv(path)
        case ".ndjson":
            frame.write_ndjson(path)
        case ".parquet":
            frame.write_parquet(path)
        case _:
            frame.write_ipc(path)


def _owner_of_row(layout: str, row: int, height: int) -> frozenset[int]:
    if layout in ("csv", "ndjson", "parquet", "arrow"):
        return frozenset({[i for i, told in enumerate(PEOPLE) for _ in range(told.steps)][row]})
    return frozenset({row}) if layout in ("wide", "rlds") and height == len(PEOPLE) else EVERY


def columns(path: Path, case: Case) -> frozenset[int]:
    """Whole columns: gone, renamed, retyped, nested, in another order, many more."""
    frame = _frame(path)
    name = frame.columns[int(case.at * frame.width)]
    dtype = frame.schema[name]
    text = pl.lit(SECRET)
    ways: list[Callable[[], Any]] = [
        lambda: frame.drop(name),
        lambda: frame.rename({name: f"{name} "}),
        lambda: frame.select(frame.columns[::-1]),
        lambda: frame.with_columns(text.alias(name)),
        lambda: frame.with_columns(pl.lit(None).alias(name)),
        lambda: frame.with_columns(pl.lit(float("nan")).alias(name)),
        lambda: frame.with_columns(pl.lit(2**62).alias(name)),
        lambda: frame.with_columns(pl.lit(1e308).alias(name)),
        lambda: frame.with_columns(pl.lit([[["x"]]]).alias(name)),
        lambda: frame.with_columns(pl.lit([1, 2]).alias(name)),
        lambda: frame.with_columns(pl.struct(pl.lit(1).alias("a")).alias(name)),
        lambda: frame.with_columns(pl.lit(True).alias(name)),
        lambda: frame.with_columns(pl.datetime(2020, 1, 1).alias(name)),
        lambda: (
            frame.with_columns(pl.lit(b"\xff").alias(name))
            if path.suffix in (".parquet", ".arrow")
            else frame.drop(name)
        ),
        lambda: frame.with_columns(**{f"extra{i}": i for i in range(400)}),
        lambda: frame.clear(),
        lambda: frame.with_columns(pl.col(name).cast(pl.String)) if not dtype.is_nested() else frame.drop(name),
        lambda: frame.with_columns(pl.duration(days=1).alias(name)) if path.suffix != ".csv" else frame.drop(name),
    ]
    way = case.pick % len(ways)
    _put(ways[way](), path)
    return frozenset() if way in (2, 14) and case.layout not in ("minari-arrow",) else EVERY


def rows(path: Path, case: Case) -> frozenset[int]:
    """Rows twice, gone, in another order; many copies."""
    frame = _frame(path)
    row = int(case.at * frame.height)
    touched = _owner_of_row(case.layout, row, frame.height)
    match case.pick % 5:
        case 0:
            frame = pl.concat([frame, frame[row : row + 1]])
        case 1:
            frame = pl.concat([frame[:row], frame[row + 1 :]])
        case 2:
            frame = frame.sample(fraction=1, shuffle=True, seed=case.pick)
            touched = frozenset() if case.layout in ("csv", "ndjson", "parquet", "arrow", "wide") else EVERY
        case 3:
            frame = pl.concat([frame[:row], frame[row : row + 1], frame[row:]])
        case _:
            frame = pl.concat([frame, *[frame[row : row + 1]] * 50_000])
    _put(frame, path)
    return touched


def cells(path: Path, case: Case) -> frozenset[int]:
    """One cell: missing, another number, text."""
    frame = _frame(path)
    row, name = int(case.at * frame.height), frame.columns[case.pick % frame.width]
    touched = _owner_of_row(case.layout, row, frame.height)
    values = [
        None,
        "",
        "NaN",
        "inf",
        "-1",
        "99999999999999999999",
        "1e400",
        SECRET,
        "1.5",
        "x" * 100_000,
        "\u202e",
        "=1+1",
        "0x1",
    ]
    value = values[(case.pick // 7) % len(values)]
    dtype = frame.schema[name]
    here = pl.int_range(pl.len()) == row
    if dtype.is_nested():
        cell = pl.lit(None, dtype=dtype)
    elif path.suffix in (".csv", ".ndjson"):
        frame, cell = frame.with_columns(pl.col(name).cast(pl.String)), pl.lit(value, dtype=pl.String)
    elif dtype == pl.String:
        cell = pl.lit(value, dtype=pl.String)
    else:
        odd = (
            [None, -1, 1, 127]
            if dtype.is_integer() or dtype == pl.Boolean or dtype.is_temporal()
            else [None, float("nan"), float("inf"), -1e30]
        )
        cell = pl.lit(odd[case.pick % 4]).cast(dtype)
    _put(frame.with_columns(pl.when(here).then(cell).otherwise(pl.col(name)).alias(name)), path)
    return touched


def bombs(path: Path, case: Case) -> frozenset[int]:
    """Small files that hold many rows: a few hundred thousand."""
    frame = _frame(path)
    times = 300_000 // frame.height
    _put(pl.concat([frame[:1]] * times * frame.height) if case.pick % 2 else pl.concat([frame] * (times // 4)), path)
    return EVERY


def arrays(path: Path, case: Case) -> frozenset[int]:
    """One array (or group): gone, shorter, of another type or shape, a link, nested, far too big."""
    with h5py.File(path, "a") as file:
        victim = int(case.at * len(PEOPLE))
        home = file[f"episode_{victim}"] if "episode_0" in file else file
        names = sorted(home)
        name = names[case.pick % len(names)]
        touched = frozenset({victim}) if "episode_0" in file else EVERY
        old = home[name][()]
        n = len(old)
        way = (case.pick // 5) % 18
        if way == 0:
            home.attrs["total_steps"] = [7, -1, "x", 2.5, [1, 2], float("nan")][case.pick % 6]
            return touched
        if way == 1:
            home.create_group("infos").create_group("a/b/c/d/e/f/g/h/i/j/k")
            return EVERY
        if way == 2:
            file["episode_x"], file["stray"] = [1.0], SECRET
            return frozenset()
        if way == 3:
            file.create_group("episode_999")
            return frozenset() if "episode_0" in file else EVERY
        del home[name]
        if way == 4:
            return touched
        if way in (5, 6, 7):
            home[name] = [h5py.SoftLink("/nowhere"), h5py.ExternalLink("other.hdf5", "/x"), h5py.SoftLink(home.name)][
                way - 5
            ]
            return EVERY
        if way == 8:
            home.create_group(name)["inner"] = old
            return touched
        if way == 9:
            home.create_dataset(name, (10**11,), "f8", chunks=(10**6,), compression="gzip")
            return EVERY
        if way == 10:
            home.create_dataset(name, data=np.zeros(3_000_000), compression="gzip")
            return EVERY
        made: list[Callable[[], Any]] = [
            lambda: old[:-1], lambda: np.concatenate([old, old]), lambda: np.full(old.shape, np.nan),
            lambda: [SECRET] * n, lambda: np.zeros((n, 2, 2, 40)),
            lambda: np.zeros(n, dtype=[("a", "i4"), ("b", "f8")]),
            lambda: np.zeros(n, dtype="c16"),
        ]  # fmt: skip
        home[name] = made[way - 11]()
        return touched
