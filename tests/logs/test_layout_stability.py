"""Replacing one unit changes no other unit's rows, in every layout: what the guarantee needs of a reader."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pytest

from reticent import LogError

from .conftest import canonical, ingest
from .layouts import (
    LOG,
    WRITERS,
    Told,
    card_of,
    cards,
    steps_of,
    write_d4rl,
    write_flat,
    write_lerobot,
    write_meds,
    write_minari_arrow,
    write_minari_hdf5,
    write_rlds,
)

Write = Callable[[Path, list[Told]], Path]


def without_ids() -> dict[str, Any]:
    """Flat rows of nobody in particular."""
    values = cards()["Flat transitions"]
    source = values["source"] | {"columns": values["source"]["columns"] | {"user_id": "episode"}}
    return values | {"unit": {"user": "episode", "users_public": 6}, "source": source}


CASES: dict[str, tuple[Write, dict[str, Any]]] = {
    "minari-hdf5": (write_minari_hdf5, cards()["Minari in HDF5"]),
    "minari-arrow": (write_minari_arrow, cards()["Minari in Arrow"]),
    "d4rl": (write_d4rl, cards()["D4RL"]),
    "rlds": (write_rlds, cards()["RLDS"]),
    "rlds-steps": (lambda folder, log: write_rlds(folder, log, nested=False), cards()["RLDS"]),
    "lerobot": (write_lerobot, cards()["LeRobot"]),
    "meds": (write_meds, cards()["MEDS"]),
    "flat": (write_flat, cards()["Flat transitions"]),
}


def episode(rng: np.random.Generator, *, ended: bool) -> Told:
    """Sound or not: too long, an undeclared state, a reward that is none."""
    steps = int(rng.integers(1, 7))
    states = [*rng.integers(1, 5, steps).tolist(), 5 if ended else int(rng.integers(1, 5))]
    if rng.random() < 0.2:
        states[0] = 9
    rewards = rng.integers(0, 2, steps).astype(float)
    rewards[-1] = float("nan") if rng.random() < 0.2 else rewards[-1]
    return Told(states, rng.integers(0, 2, steps).tolist(), rewards.tolist(), ended)


def rows_by_user(write: Write, card: dict[str, Any], log: list[Told], folder: Path) -> dict[Any, list[tuple[Any, ...]]]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write(folder, log)
    rows = canonical(ingest(card_of(card, folder), folder / "home"))
    return {user[0]: part.rows() for user, part in rows.partition_by("user_id", as_dict=True).items()}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if i % 2 else ()) for i, name in enumerate(CASES)]
)
def test_a_replaced_unit_moves_nobody_elses_rows(name: str, seed: int, tmp_path: Path) -> None:
    write, card = CASES[name]
    rng = np.random.default_rng(seed)
    log = [Told([1, 5], [0], [1.0], True), *(episode(rng, ended=rng.random() < 0.5) for _ in range(5))]
    at = int(rng.integers(1, 6))
    other = [*log[:at], episode(rng, ended=rng.random() < 0.5), *log[at + 1 :]]
    before, after = (rows_by_user(write, card, some, tmp_path / "log") for some in (log, other))
    moved = {user for user in before | after if before.get(user) != after.get(user)}
    assert len(moved) <= 1, (at, moved)


def test_where_one_row_leads_would_move_the_next_ones_steps(tmp_path: Path) -> None:
    """The broken twin, and why real people need ids: cut by s' alone, a neighbour's steps move."""
    values = without_ids()
    columns = {k: v for k, v in values["source"]["columns"].items() if k not in ("terminated", "truncated")}
    values = values | {"source": values["source"] | {"columns": columns}}
    first, second = Told([1, 2], [0], [0.0], False), Told([3, 4, 5], [0, 0], [0.0, 0.0], True)
    apart = rows_by_user(write_flat, values, [first, second], tmp_path / "log")
    joined = rows_by_user(write_flat, values, [Told([1, 3], [0], [0.0], False), second], tmp_path / "log")
    steps = [[row[2] for rows in found.values() for row in rows] for found in (apart, joined)]
    assert steps == [[0, 0, 1], [0, 1, 2]]


def test_every_layout_of_the_page_is_here() -> None:
    assert {values["source"]["format"] for _, values in CASES.values()} | {"obp"} == {
        cards()[head]["source"]["format"] for head in WRITERS
    }


def people_in_rlds(first: bool, folder: Path, more: int = 0) -> dict[Any, list[tuple[Any, ...]]]:
    """Three people, a row a step; the second may say that the first goes on."""

    def step(who: str, seen: int, first: bool = False, last: bool = False) -> dict[str, Any]:
        flags = {"is_first": first, "is_last": last, "is_terminal": last}
        return {"who": who, **flags, "observation": {"state": [float(seen), 0.5]}, "action": 0, "reward": 0.0}

    rows = [step("B", 1, first=True), step("B", 2), step("A", 3, first=first), *(step("A", 4) for _ in range(more))]
    rows += [step("A", 5, last=True), step("C", 1, first=True), step("C", 5, last=True)]
    values = cards()["RLDS"]
    columns = values["source"]["columns"] | {"user_id": "who"}
    card = values | {"unit": values["unit"] | {"user": "who"}, "source": values["source"] | {"columns": columns}}

    def write(where: Path, _: list[Told]) -> Path:
        pl.DataFrame(rows).write_parquet(where / "episodes.parquet")
        return where

    return rows_by_user(write, card, [], folder)


def test_a_persons_last_step_leads_to_nobody_elses_first(tmp_path: Path) -> None:
    right, odd = (people_in_rlds(first, tmp_path / "log") for first in (True, False))
    assert {who for who in right if right[who] != odd[who]} <= {"A"}
    longer = people_in_rlds(True, tmp_path / "log", more=2)
    assert len(right["B"]) == 2 and {who for who in right if right[who] != longer[who]} == {"A"}


@pytest.mark.parametrize("batch", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_steps_of_people_join_over_batches(batch: int, tmp_path: Path, constants: Callable[..., None]) -> None:
    whole = people_in_rlds(True, tmp_path / "log")
    constants(batch=batch)
    assert people_in_rlds(True, tmp_path / "log") == whole


def test_an_episode_without_steps_moves_nobodys_number(tmp_path: Path) -> None:
    def write(empty: bool) -> Write:
        def to(folder: Path, log: list[Told]) -> Path:
            whole = pl.DataFrame([{"steps": steps_of(told)} for told in log])
            rows = [{"steps": [] if empty and i == 1 else steps_of(told)} for i, told in enumerate(log)]
            pl.DataFrame(rows, schema=whole.schema).write_parquet(folder / "episodes.parquet")
            return folder

        return to

    full, less = (rows_by_user(write(empty), cards()["RLDS"], LOG, tmp_path / "log") for empty in (False, True))
    gone = {user for user in full | less if full.get(user) != less.get(user)}
    assert len(gone) == 1 and gone <= full.keys()


def test_one_file_of_numbers_takes_nobodys_booleans(tmp_path: Path) -> None:
    def write(odd: pl.DataType | None) -> Write:
        def to(folder: Path, log: list[Told]) -> Path:
            write_lerobot(folder, log, files=len(log))
            for i in range(len(log)):
                path = folder / "data" / "chunk-000" / f"file-{i:03d}.parquet"
                rows = pl.read_parquet(path).with_columns(pl.col("next.reward").cast(pl.Boolean))
                if i == 1 and odd is not None:
                    rows = rows.with_columns(pl.col("next.reward").cast(odd))
                rows.write_parquet(path)
            return folder

        return to

    log = [Told([1, 2, 5], [0, 1], [0.0, 1.0], True)] * 4
    alike = rows_by_user(write(None), cards()["LeRobot"], log, tmp_path / "log")
    assert len(alike) == 4
    for odd in (pl.Float64(), pl.Int64(), pl.String()):
        assert rows_by_user(write(odd), cards()["LeRobot"], log, tmp_path / "log") == alike


@pytest.mark.parametrize("head", ["Minari in HDF5", pytest.param("vectors", marks=pytest.mark.slow)])
def test_what_most_episodes_hold_casts_nobodys_numbers(head: str, tmp_path: Path) -> None:
    """Whole numbers in one more episode once made whole numbers of everybody's rewards."""
    values = cards()["Minari in HDF5"]
    values = values | {"reward": values["reward"] | {"steps": 4}}
    if head == "vectors":
        values = cards()["Minari in Arrow"]
        values = values | {"source": values["source"] | {"files": ["data/main_data.hdf5"]}}

    def write(odd: dict[int, Any]) -> Write:
        def to(folder: Path, log: list[Told]) -> Path:
            path = write_minari_hdf5(folder, log)
            with h5py.File(path, "r+") as file:
                for i in range(len(log)):
                    group, dtype = file[f"episode_{i}"], odd.get(i)
                    names = ["observations", "actions"] if head == "vectors" else ["rewards", "observations"]
                    for name in names:
                        found = group[name][()] + (0.75 if name == "rewards" else 0)
                        found = np.stack([found, found + 0.25], 1) if (head, name) == ("vectors", names[0]) else found
                        del group[name]
                        group[name] = found if dtype is None else found.astype(dtype)
            return path

        return to

    log = [Told([1, 2, 5], [0, 1], [0.0, 0.0], True)] * 4
    for low, high in (
        ({}, {0: "i8"}),
        ({1: "i8", 2: "i8"}, {0: "i8", 1: "i8", 2: "i8"}),
        ({}, {0: "f4"}),
        ({}, {0: "?"}),
    ):
        before, after = (rows_by_user(write(odd), values, log, tmp_path / "log") for odd in (low, high))
        assert len(before) == 4
        assert {user[-1] for user in before | after if before.get(user) != after.get(user)} <= {"0"}, (low, high)


def test_ids_that_no_signed_number_holds_are_refused_without_being_told(tmp_path: Path) -> None:
    path = write_meds(tmp_path)
    rows = pl.read_parquet(path).with_columns(pl.col("subject_id").cast(pl.UInt64))
    odd = rows.tail(1).with_columns(pl.lit(2**63 + 987654321, dtype=pl.UInt64).alias("subject_id"))
    pl.concat([rows, odd]).write_parquet(path)
    with pytest.raises(LogError, match=r"0.parquet: column 'subject_id' is UInt64; ") as caught:
        ingest(card_of(cards()["MEDS"], tmp_path), tmp_path / "home")
    assert "987654321" not in str(caught.value)
