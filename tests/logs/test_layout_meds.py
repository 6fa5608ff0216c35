"""MEDS: events into windows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from .conftest import Edition, canonical, ingest
from .layout_ingest import changed, taken
from .layouts import card_of, cards, write_meds


def window(rows: list[tuple[Any, ...]], folder: Path, **reading: Any) -> tuple[list[float], Edition]:
    """What a reading says of the windows of some events ``(hour, code, number)`` of subject 1; 9.5: nothing."""
    events = [(1, int(h * 60), c, x) for h, c, x in rows]
    frame = pl.DataFrame(events, orient="row", schema=["subject_id", "m", "code", "numeric_value"])
    times = (pl.col("m") * 60_000_000).cast(pl.Datetime("us"))
    frame = frame.select("subject_id", times.alias("time"), "code", pl.col("numeric_value").cast(pl.Float32))
    frame.write_parquet(folder / "0.parquet")
    meds = cards()["MEDS"]["source"]["meds"]
    readings = {
        "lab": {"codes": ["LAB"]},
        "dose": {"codes": ["DOSE"], "empty": 0},
        "reward": {"codes": ["L"]} | reading,
    }
    made = taken(
        "MEDS", folder, source={"files": ["0.parquet"], "meds": meds | {"readings": readings}},
        reward={"range": [0.0, 10.0], "steps": 20, "empty": 9.5}, unit={"episodes_per_user": 2},
        domain={"states": {**cards()["MEDS"]["domain"]["states"], "other": True}},
    )  # fmt: skip
    return canonical(made)["reward"].to_list(), made


START = (0.0, "HOSPITAL_ADMISSION", None)


def test_windows_begin_at_the_opening_event_and_close_at_the_end(tmp_path: Path) -> None:
    events = [(-5, "L", 9.0), START, (3.99, "L", 1.0), (4, "L", 2.0), (8, "MEDS_DEATH", None), (8, "L", 3.0)]
    found, made = window([*events, (9, "L", 7.0)], tmp_path)
    assert found == [1.0, 3.0] and canonical(made)["terminated"].to_list() == [False, True]


def test_a_value_known_at_the_start_never_looks_into_its_window(tmp_path: Path) -> None:
    events = [(-5, "L", 9.0), START, (1, "L", 1.0), (4, "L", 2.0), (5, "L", 3.0), (13, "X", None)]
    assert window(events, tmp_path, at="start")[0] == [9.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("take", "found"),
    [("first", [1, 9.5]), ("mean", [2.5, 9.5]), ("sum", [5, 9.5]), ("min", [1, 9.5]), ("max", [4, 9.5]),
     ("count", [4, 0]), ("any", [1, 0]), ("binned", [2, 0])],
)  # fmt: skip
def test_readings_take_what_they_are_told(take: str, found: list[float], tmp_path: Path) -> None:
    events = [START, (1, "D//a", 1.0), (2, "D//b", 4.0), (3, "D//a", None), (3.5, "D//c", float("nan")), (6, "X", None)]
    told = {"take": "sum", "empty": 0, "edges": [1, 5]} if take == "binned" else {"take": take}
    assert window(events, tmp_path, codes=["D//*"], **told)[0] == found


def test_a_second_admission_is_a_second_episode(tmp_path: Path) -> None:
    events = [START, (2, "L", 1.0), (30, "HOSPITAL_ADMISSION", None), (31, "L", 2.0)]
    found, made = window(events, tmp_path)
    assert sorted(found) == [1.0, 2.0] and made.episodes == 2


def test_a_date_far_off_makes_no_more_windows_than_the_horizon_and_one(tmp_path: Path) -> None:
    _, made = window([START, (24 * 365 * 900, "L", 1.0)], tmp_path)
    assert (made.rows, made.source_rows, made.quarantined["beyond_horizon"]) == (4, 5, 1)


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.slow), 5, 1 << 18])
def test_a_subject_whose_rows_are_scattered_has_the_same_windows(
    batch: int, tmp_path: Path, constants: Callable[..., None]
) -> None:
    path = write_meds(tmp_path)
    frame = pl.read_parquet(path)
    alike = canonical(ingest(card_of(cards()["MEDS"], tmp_path), tmp_path / "home"))
    constants(batch=batch)
    frame.sort(pl.int_range(pl.len()).over("subject_id"), maintain_order=True).write_parquet(path)
    assert canonical(ingest(card_of(cards()["MEDS"], tmp_path), tmp_path / "again")).equals(alike)


def test_a_reading_that_means_nothing_is_a_wrong_card(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"codes": []}, "codes"),
        ({"codes": ["a"], "take": "sum", "at": "start"}, "take must be 'last'"),
        ({"codes": ["a"], "edges": [2, 1]}, "increasing"),
    ]
    for reading, what in wrong:
        declared = cards()["MEDS"]["source"]["meds"] | {"readings": {"lab": reading}}
        with pytest.raises(ValueError, match=what):
            card_of(changed("MEDS", source={"meds": declared}), tmp_path)


@pytest.mark.parametrize(
    ("unit", "zone"),
    [
        ("us", None),
        ("us", "UTC"),
        pytest.param("ms", "Europe/Berlin", marks=pytest.mark.slow),
        pytest.param("ns", None, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("odd", [2**63 - 1, -(2**63)])
def test_a_time_that_no_calendar_holds_moves_nobody_elses_windows(
    tmp_path: Path, unit: Any, zone: str | None, odd: int
) -> None:
    """With a zone, or in milliseconds, it once ended the process or wrapped around."""
    here = write_meds(tmp_path)
    card, usual = card_of(cards()["MEDS"], tmp_path), pl.read_parquet(here)
    time = pl.col("time").dt.cast_time_unit(unit).dt.replace_time_zone(zone)
    usual = usual.with_columns(time)

    def windows(events: pl.DataFrame, store: str) -> list[tuple[Any, ...]]:
        events.write_parquet(here)
        return canonical(ingest(card, tmp_path / store)).filter(pl.col("user_id") != 77).rows()

    stray = pl.DataFrame({"subject_id": [77], "code": ["HOSPITAL_ADMISSION"], "numeric_value": [0.0], "time": [odd]})
    stray = stray.with_columns(pl.col("time").cast(usual.schema["time"])).select(usual.columns)
    stray = stray.with_columns(pl.col("numeric_value").cast(pl.Float32))
    assert windows(pl.concat([usual, stray]), "b") == windows(usual, "a") != []
