"""MEDS: events into windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.logs.readers import batch as framing
from pipeline.logs.readers import meds
from pipeline.logs.readers.batch import Request

from .conftest import canonical, ingest
from .layout_ingest import changed
from .layouts import card_of, cards, write_meds


def window(rows: list[tuple[Any, ...]], folder: Path, **readings: dict[str, Any]) -> pl.DataFrame:
    """Windows of some events ``(hour, code, number)`` of subject 1."""
    events = [(1, int(h * 60), c, x) for h, c, x in rows]
    frame = pl.DataFrame(events, orient="row", schema=["subject_id", "m", "code", "numeric_value"])
    times = (pl.col("m") * 60_000_000).cast(pl.Datetime("us"))
    frame = frame.select("subject_id", times.alias("time"), "code", pl.col("numeric_value").cast(pl.Float32))
    frame.write_parquet(folder / "0.parquet")
    needed = {"lab": {"codes": ["L"]}, "dose": {"codes": ["D"]}, "reward": {"codes": ["R"]}}
    declared = cards()["MEDS"]["source"]["meds"] | {"readings": needed | readings}
    card = card_of(changed("MEDS", source={"meds": declared}), folder)
    asked = Request(["step", "end", *readings])
    return pl.concat(
        [b.frame for b in meds.read_meds(folder / "0.parquet", asked, card.source.meds, card.domain.horizon)]
    )


START = (0.0, "HOSPITAL_ADMISSION", None)


def test_windows_begin_at_the_opening_event_and_close_at_the_end(tmp_path: Path) -> None:
    events = [(-5, "L", 9.0), START, (3.99, "L", 1.0), (4, "L", 2.0), (8, "MEDS_DEATH", None), (8, "L", 3.0)]
    rows = window([*events, (9, "L", 7.0)], tmp_path, lab={"codes": ["L"]})
    assert rows.rows() == [(0, None, 1.0), (1, "died", 3.0)]


def test_a_value_known_at_the_start_never_looks_into_its_window(tmp_path: Path) -> None:
    events = [(-5, "L", 9.0), START, (1, "L", 1.0), (4, "L", 2.0), (5, "L", 3.0), (13, "X", None)]
    rows = window(events, tmp_path, lab={"codes": ["L"], "at": "start"})
    assert rows["lab"].to_list() == [9.0, 2.0, 3.0, 3.0]


def test_readings_take_what_they_are_told(tmp_path: Path) -> None:
    events = [START, (1, "D//a", 1.0), (2, "D//b", 4.0), (3, "D//a", None), (3.5, "D//c", float("nan")), (6, "X", None)]
    readings = {
        take: {"codes": ["D//*"], "take": take} for take in ("first", "mean", "sum", "min", "max", "count", "any")
    }
    rows = window(events, tmp_path, **readings, binned={"codes": ["D//*"], "take": "sum", "empty": 0, "edges": [1, 5]})
    assert rows.select(*readings, "binned").rows() == [
        (1.0, 2.5, 5.0, 1.0, 4.0, 4, 1, 2), (None, None, None, None, None, 0, 0, 0),
    ]  # fmt: skip


def test_a_second_admission_is_a_second_episode(tmp_path: Path) -> None:
    rows = window(
        [START, (2, "L", 1.0), (30, "HOSPITAL_ADMISSION", None), (31, "L", 2.0)], tmp_path, lab={"codes": ["L"]}
    )
    assert rows.rows() == [(0, None, 1.0), (0, None, 2.0)]


def test_a_date_far_off_makes_no_more_windows_than_the_horizon_and_one(tmp_path: Path) -> None:
    assert len(window([START, (24 * 365 * 900, "L", 1.0)], tmp_path, lab={"codes": ["L"]})) == 5


@pytest.mark.parametrize("batch", [1, 5, 1 << 18])
def test_a_subject_whose_rows_are_scattered_has_the_same_windows(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_meds(tmp_path)
    frame = pl.read_parquet(path)
    alike = canonical(ingest(card_of(cards()["MEDS"], tmp_path), tmp_path / "home"))
    monkeypatch.setattr(framing, "BATCH_ROWS", batch)
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


@pytest.mark.parametrize(("unit", "zone"), [("us", None), ("us", "UTC"), ("ms", "Europe/Berlin"), ("ns", None)])
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
