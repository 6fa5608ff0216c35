"""The layouts that people hold: one log, the same transitions; and what each layout hides."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pytest

from pipeline.card import CardError
from pipeline.logs.errors import LogError
from pipeline.logs.hidden_state import hidden_state
from pipeline.logs.ingest import ingest
from pipeline.logs.readers import arrow, hdf5, meds, parquet
from pipeline.logs.readers.batch import Asked
from pipeline.logs.readers.fields import field
from pipeline.logs.readers.fields import taken as inside
from pipeline.logs.store import Snapshot

from .conftest import canonical, quarantine
from .layouts import (
    LOG,
    WRITERS,
    Told,
    card_of,
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

TABULAR = [head for head in WRITERS if head not in ("Minari in Arrow", "obp")]
# in these a cut-off episode does not say where its last step led
UNTOLD = ("LeRobot", "MEDS")


def changed(head: str, **parts: dict[str, Any]) -> dict[str, Any]:
    values = cards()[head]
    return {k: v | parts[k] if k in parts else v for k, v in values.items()}


def taken(head: str, folder: Path, **parts: dict[str, Any]) -> Snapshot:
    return ingest(card_of(changed(head, **parts), folder), folder / "store")


def transitions(snapshot: Snapshot, *columns: str) -> list[tuple[Any, ...]]:
    """Rows by episode, without the ids; episodes in the order of their rows."""
    wanted = columns or ("state", "action", "reward", "next_state")
    rows = canonical(snapshot)
    return sorted(tuple(e.sort("step").select(wanted).rows()) for e in rows.partition_by("user_id", "episode_id"))


def expected(*, untold: bool = False) -> list[tuple[Any, ...]]:
    def led(told: Told, t: int) -> int:
        return 4 if untold and t == told.steps - 1 else told.states[t + 1] - 1

    rows = [
        tuple((t.states[h] - 1, t.actions[h], t.rewards[h], led(t, h)) for h in range(t.steps))
        for t in LOG
    ]  # fmt: skip
    return sorted(rows)


@pytest.mark.parametrize("head", TABULAR)
def test_one_log_gives_the_same_transitions_in_every_layout(head: str, tmp_path: Path) -> None:
    WRITERS[head](tmp_path)
    snapshot = taken(head, tmp_path)
    assert transitions(snapshot) == expected(untold=head in UNTOLD)
    assert (snapshot.users, snapshot.episodes, snapshot.quarantined) == (4, 4, {})


@pytest.mark.parametrize("head", list(WRITERS))
def test_small_batches_change_nothing(head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    WRITERS[head](tmp_path)
    whole = canonical(taken(head, tmp_path))
    for module in ("arrow", "d4rl", "minari_hdf5"):
        monkeypatch.setattr(f"pipeline.logs.readers.{module}.BATCH_ROWS", 3)
    monkeypatch.setattr("pipeline.logs.readers.csv.BLOCK_BYTES", 70)
    again = ingest(card_of(cards()[head], tmp_path), tmp_path / "store-2")
    assert canonical(again).equals(whole)


def test_every_row_of_the_page_has_a_card_and_every_card_a_row() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
    listed = {line.split("`")[1] for line in page.splitlines() if line.startswith("| `") and "format" not in line}
    assert listed == {values["source"]["format"] for values in cards().values()}
    assert list(cards()) == list(WRITERS)


# Minari


def test_episodes_of_minari_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write_minari_hdf5(tmp_path, LOG * 4)
    filed = quarantine(taken("Minari in HDF5", tmp_path, domain={"horizon": 2}).folder)
    order = filed.sort("line")["source"].struct.field("episode").str.split("#").list.last().cast(int).to_list()
    assert order == sorted(order) and max(order) > 10


def test_an_episode_whose_arrays_do_not_fit_is_filed_and_the_others_stay(tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        del file["episode_1/rewards"]
        file["episode_1/rewards"] = [0.0, 1.0]
        del file["episode_2/actions"]
    snapshot = taken("Minari in HDF5", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 2} and snapshot.rows == 3
    assert quarantine(snapshot.folder)["text"].to_list() == [
        "episode_1: rewards holds 2 entries, total_steps is another number", "episode_2: no actions",
    ]  # fmt: skip


@pytest.mark.parametrize("odd", [0, 1])
def test_an_episode_of_another_type_is_filed_wherever_it_stands(odd: int, tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        steps = len(file[f"episode_{odd}/rewards"])
        del file[f"episode_{odd}/observations"]
        file[f"episode_{odd}/observations"] = np.zeros((steps + 1, 3))
    snapshot = taken("Minari in HDF5", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 1} and snapshot.rows == 10 - steps


@pytest.mark.parametrize("told", ["x", [1, 2], 7])
def test_a_number_of_steps_that_is_wrong_costs_one_episode(told: Any, tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        file["episode_2"].attrs["total_steps"] = told
    assert taken("Minari in HDF5", tmp_path).quarantined == {"malformed_line": 1}


def test_fewer_episodes_than_the_metadata_tells_refuse_the_log(tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        del file["episode_3"]
    with pytest.raises(LogError, match=r"main_data.hdf5: 3 episodes, metadata.json tells of 4"):
        taken("Minari in HDF5", tmp_path)


def test_a_person_in_the_infos_is_the_unit_where_the_card_says_so(tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        for i, told in enumerate(LOG):
            file[f"episode_{i}"].create_dataset("infos/patient", data=[f"p{i % 2}"] * (told.steps + 1))
    columns = cards()["Minari in HDF5"]["source"]["columns"] | {"user_id": "infos/patient"}
    unit = {"user": "infos/patient", "episodes_per_user": 2}
    snapshot = taken("Minari in HDF5", tmp_path, unit=unit, source={"columns": columns})
    assert (snapshot.users, snapshot.episodes, snapshot.rows) == (2, 4, 10)


def test_two_files_with_an_episode_0_hold_two(tmp_path: Path) -> None:
    for half in ("one", "two"):
        write_minari_hdf5(tmp_path / half)
    snapshot = taken("Minari in HDF5", tmp_path, source={"files": ["*/data/*.hdf5"]})
    assert (snapshot.users, snapshot.episodes, snapshot.quarantined) == (8, 8, {})


def test_a_part_of_an_arrow_episode_is_filed_and_a_missing_one_refuses(tmp_path: Path) -> None:
    path = write_minari_arrow(tmp_path)
    pl.read_ipc(path.read_bytes()).head(3).write_ipc(path)
    snapshot = taken("Minari in Arrow", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 1} and snapshot.rows == 6
    for file in (tmp_path / "data" / "2").iterdir():
        file.unlink()
    (tmp_path / "data" / "2").rmdir()
    with pytest.raises(LogError, match="episode 2 is missing"):
        taken("Minari in Arrow", tmp_path)
    (tmp_path / "data" / "metadata.json").write_text('{"total_episodes": "x"}')
    with pytest.raises(LogError, match=r"data/metadata.json: total_episodes is no whole number"):
        taken("Minari in Arrow", tmp_path)


# HDF5


def test_an_episode_that_is_a_link_is_refused(tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    write_minari_hdf5(tmp_path / "other")
    with h5py.File(path, "a") as file:
        del file["episode_0"]
        file["episode_0"] = h5py.ExternalLink("../other/data/main_data.hdf5", "episode_0")
    with pytest.raises(LogError, match=r"main_data.hdf5: /: 'episode_0' is a link"):
        taken("Minari in HDF5", tmp_path)


@pytest.mark.parametrize("link", ["soft", "external"])
def test_links_in_hdf5_are_refused(link: str, tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    write_d4rl(tmp_path / "other")
    with h5py.File(path, "a") as file:
        del file["episode_0/rewards"]
        to = (
            h5py.SoftLink("/episode_1/rewards")
            if link == "soft"
            else h5py.ExternalLink("../other/maze.hdf5", "rewards")
        )
        file["episode_0/rewards"] = to
    with pytest.raises(LogError, match=r"episode_0: 'rewards' is a link"):
        taken("Minari in HDF5", tmp_path)


def test_data_that_lies_in_another_file_is_refused(tmp_path: Path) -> None:
    path = write_d4rl(tmp_path)
    with h5py.File(path, "a") as file:
        rows = len(file["rewards"])
        del file["rewards"]
        layout = h5py.VirtualLayout((rows,), dtype="f4")
        layout[:] = h5py.VirtualSource("elsewhere.hdf5", "rewards", (rows,))
        file.create_virtual_dataset("rewards", layout)
    with pytest.raises(LogError, match="rewards lies in another file"):
        taken("D4RL", tmp_path)


def test_an_array_that_claims_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    path = write_d4rl(tmp_path)
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file.create_dataset("rewards", (10**12,), "f8", chunks=(10**6,), compression="gzip")
    with pytest.raises(LogError, match="claims to hold far more"):
        taken("D4RL", tmp_path)


def test_a_group_that_holds_itself_has_an_end(tmp_path: Path) -> None:
    path = write_minari_hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        file["episode_0/infos"] = file["episode_0"]
    with pytest.raises(LogError, match="groups inside groups"):
        taken("Minari in HDF5", tmp_path)


def test_without_h5py_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_d4rl(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(CardError, match=r"maze.hdf5: HDF5 files need h5py; pip install 'reticent\[formats\]'"):
        taken("D4RL", tmp_path)


def test_numbers_of_any_width_and_byte_order_are_columns(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for kind in (">i4", "<f2", ">f8", "u1", "?"):
            file[kind] = np.array([0, 1], dtype=kind)
        file["text"], file["image"] = ["a", "ü"], np.zeros((2, 64, 64), np.uint8)
        file["one"], file["two"] = np.ones((2, 1)), np.ones((2, 2), ">i2")
        found = {name: hdf5.type_of(data) for name, data in file.items()}
        assert found["image"] == pl.Object() and found["one"] == pl.Float64() and found["two"] == pl.Array(pl.Int16, 2)
        for kind in (">i4", "<f2", ">f8", "u1", "?"):
            assert hdf5.column(file[kind], 0, 2).cast(pl.Float64).to_list() == [0.0, 1.0]
            assert hdf5.column(file[kind], 0, 2).dtype == found[kind]
        assert hdf5.column(file["text"], 1, 2).to_list() == ["ü"]


# Order


def test_consecutive_terminals_are_an_episode_of_one_step(tmp_path: Path) -> None:
    write_d4rl(tmp_path, [LOG[0], LOG[3], LOG[3], LOG[2]])
    lengths = canonical(taken("D4RL", tmp_path)).group_by("user_id").len()["len"].sort().to_list()
    assert lengths == [1, 1, 2, 3]


def test_timeouts_that_the_card_does_not_map_are_refused(tmp_path: Path) -> None:
    write_d4rl(tmp_path)
    columns = {k: v for k, v in cards()["D4RL"]["source"]["columns"].items() if k != "truncated"}
    with pytest.raises(CardError, match="map truncated = 'timeouts'"):
        taken("D4RL", tmp_path, source={"columns": columns})


def test_missing_timeouts_are_found_by_the_break_in_the_observations(tmp_path: Path) -> None:
    path = write_d4rl(tmp_path)
    with h5py.File(path, "a") as file:
        del file["timeouts"]
    columns = {k: v for k, v in cards()["D4RL"]["source"]["columns"].items() if k != "truncated"}
    assert transitions(taken("D4RL", tmp_path, source={"columns": columns})) == expected()
    del columns["next_state"]
    glued = ingest(card_of(changed("D4RL", source={"columns": columns}), tmp_path), tmp_path / "glued")
    assert glued.episodes == 3 and glued.quarantined == {"beyond_horizon": 3}


def test_flat_rows_without_people_are_cut_by_flag_and_by_where_they_lead(tmp_path: Path) -> None:
    write_flat(tmp_path)
    values = changed("Flat transitions", unit={"user": "episode"})
    values["source"]["columns"]["user_id"] = "episode"
    snapshot = ingest(card_of(values, tmp_path), tmp_path / "store")
    assert transitions(snapshot) == expected() and snapshot.users == 4


def test_people_whose_rows_lie_between_each_other_are_cut_by_their_own_rows(tmp_path: Path) -> None:
    path = write_flat(tmp_path, [t for t in LOG for _ in range(5)])
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    rng = np.random.default_rng(0)
    places = np.argsort(
        rng.permutation(np.repeat(np.arange(20), [t.steps for t in LOG for _ in range(5)])), kind="stable"
    )
    mixed: list[str] = [""] * len(lines)
    for line, place in zip(lines, places, strict=True):
        mixed[place] = line
    path.write_text("\n".join([head, *mixed]) + "\n", encoding="utf-8")
    values = changed("Flat transitions", unit={"users_public": 20})
    assert transitions(ingest(card_of(values, tmp_path), tmp_path / "store")) == sorted(expected() * 5)


def test_of_real_people_flags_alone_cut_and_they_must_be_there(tmp_path: Path) -> None:
    """Were s' compared with the next s, one episode's last row could move the next one's steps."""
    write_flat(tmp_path)
    values = changed("Flat transitions", unit={"user": "episode"}, budget={"ledger": "l.db"}) | {"kind": "real"}
    values["source"]["columns"]["user_id"] = "episode"
    snapshot = ingest(card_of(values, tmp_path), tmp_path / "store")
    assert snapshot.episodes == 3 and snapshot.quarantined == {"beyond_horizon": 3}
    del values["source"]["columns"]["terminated"]
    with pytest.raises(ValueError, match="terminated or truncated is missing"):
        card_of(values, tmp_path)


@pytest.mark.parametrize(
    ("line", "what"), [("p1,3,1", "line 4: malformed"), ("p1,3,1,0,3,perhaps", "column 'done', line 4")]
)
def test_an_order_with_a_hole_in_it_refuses_the_log(line: str, what: str, tmp_path: Path) -> None:
    path = write_flat(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:3], line, *lines[3:]]), encoding="utf-8")
    with pytest.raises(LogError, match=rf"log.csv: {what}.*order of the rows"):
        taken("Flat transitions", tmp_path)


def test_flat_rows_in_any_table_format_are_the_same(tmp_path: Path) -> None:
    frame = pl.read_csv(write_flat(tmp_path))
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_ndjson(tmp_path / "log.ndjson")
    for name in ("log.parquet", "log.ndjson"):
        values = changed("Flat transitions", source={"files": [name]})
        assert transitions(ingest(card_of(values, tmp_path), tmp_path / f"store-{name}")) == expected()


def test_a_table_that_has_episodes_itself_is_no_flat_one(tmp_path: Path) -> None:
    pl.read_csv(write_flat(tmp_path)).with_columns(episode=1).write_csv(tmp_path / "log.csv")
    with pytest.raises(LogError, match="has a column 'episode' of its own"):
        taken("Flat transitions", tmp_path)


# RLDS, LeRobot, obp


def test_rlds_of_a_row_a_step_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rlds(tmp_path, nested=False)
    assert transitions(taken("RLDS", tmp_path)) == expected()
    for rows in (1, 2, 3):
        monkeypatch.setattr(arrow, "BATCH_ROWS", rows)
        again = ingest(card_of(cards()["RLDS"], tmp_path), tmp_path / f"store-{rows}")
        assert transitions(again) == expected()


def test_the_last_rlds_step_is_no_row_and_a_broken_off_episode_leads_nowhere(tmp_path: Path) -> None:
    path = write_rlds(tmp_path)
    steps = pl.read_parquet(path).with_columns(pl.col("steps").list.head(2))
    steps.write_parquet(path)
    rows = transitions(taken("RLDS", tmp_path), "state", "next_state", "truncated")
    assert rows == sorted([((0, 1, False), (1, None, True)), ((2, 2, False), (2, None, True)),
                           ((0, 0, False), (0, None, True)), ((3, 4, False),)])  # fmt: skip


def test_an_rlds_episode_without_steps_is_filed(tmp_path: Path) -> None:
    path = write_rlds(tmp_path)
    row = pl.int_range(pl.len())
    empty = pl.when(row == 1).then(None).when(row == 2).then(pl.col("steps").list.head(0)).otherwise("steps")
    pl.read_parquet(path).with_columns(empty.alias("steps")).write_parquet(path)
    snapshot = taken("RLDS", tmp_path)
    assert quarantine(snapshot.folder)["line"].to_list() == [2, 3] and snapshot.rows == 3


def test_an_rlds_step_behind_the_last_one_refuses_the_log(tmp_path: Path) -> None:
    path = write_rlds(tmp_path, nested=False)
    pl.read_parquet(path).with_columns(pl.col("is_first") & (pl.int_range(pl.len()) != 3)).write_parquet(path)
    with pytest.raises(LogError, match=r"episodes.parquet: row 4: a step that is_first does not begin"):
        taken("RLDS", tmp_path)


def test_lerobot_frames_that_are_missing_refuse_the_log(tmp_path: Path) -> None:
    write_lerobot(tmp_path).unlink()
    with pytest.raises(LogError, match=r"4 frames in data/, meta/info.json tells of 10"):
        taken("LeRobot", tmp_path)


def test_an_episode_that_goes_on_in_the_next_lerobot_file_is_one(tmp_path: Path) -> None:
    path = write_lerobot(tmp_path, files=1)
    frame = pl.read_parquet(path)
    frame.head(4).write_parquet(path)
    frame.tail(6).write_parquet(path.with_name("file-001.parquet"))
    assert transitions(taken("LeRobot", tmp_path)) == expected(untold=True)


def test_an_impression_is_the_unit_of_obp_and_the_horizon_is_one(tmp_path: Path) -> None:
    write_obp(tmp_path)
    rows = canonical(taken("obp", tmp_path))
    assert rows["user_id"].n_unique() == len(rows) == 10 and set(rows["behavior_prob"]) == {0.0125}
    with pytest.raises(ValueError, match="horizon must be 1"):
        card_of(changed("obp", domain={"horizon": 2}), tmp_path)


def test_the_sample_that_obp_ships_is_read_whole(tmp_path: Path) -> None:
    from importlib.util import find_spec

    found = find_spec("obp")
    places = [os.environ.get("RETICENT_OBP", ""), *((found and found.submodule_search_locations) or [])]
    shipped = next(filter(None, places), None)
    if not shipped:
        pytest.skip("the package obp is not here; RETICENT_OBP may name its unpacked folder")
    (tmp_path / "all.csv").write_bytes((Path(shipped) / "dataset/obd/random/all/all.csv").read_bytes())
    snapshot = taken("obp", tmp_path)
    rows = canonical(snapshot)
    assert (snapshot.rows, snapshot.users, snapshot.quarantined) == (10_000, 10_000, {})
    assert rows["reward"].sum() == 38 and rows["action"].n_unique() == 80


# MEDS


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
    asked = Asked(["step", "end", *readings])
    return pl.concat([b.frame for b in meds.read(folder / "0.parquet", asked, card.source.meds, card.domain.horizon)])


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


def test_a_subject_whose_rows_are_scattered_refuses_the_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_meds(tmp_path)
    frame = pl.read_parquet(path)
    pl.concat([frame, frame.head(1)]).write_parquet(path)
    with pytest.raises(LogError, match=r"a subject's rows do not stand together"):
        taken("MEDS", tmp_path)
    monkeypatch.setattr(arrow, "BATCH_ROWS", 1)
    with pytest.raises(LogError, match=rf"row {len(frame) + 1}: a subject's rows do not stand together"):
        ingest(card_of(cards()["MEDS"], tmp_path), tmp_path / "again")


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


# What the card and the rest of the house say


@pytest.mark.parametrize(("head", "name"), [("D4RL", "log.csv"), ("LeRobot", "data/c/x.csv"), ("obp", "log.parquet")])
def test_a_file_of_another_format_names_the_suffixes_that_fit(head: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("a\n")
    with pytest.raises(LogError, match=rf"not of format '{cards()[head]['source']['format']}'; give files of "):
        taken(head, tmp_path, source={"files": [name]})


def test_an_hdf5_file_in_a_plain_card_is_told_its_formats(tmp_path: Path) -> None:
    write_d4rl(tmp_path)
    values = changed("D4RL")
    del values["source"]["format"]
    with pytest.raises(LogError, match=r"read with source\.format = 'minari' or 'd4rl'"):
        ingest(card_of(values, tmp_path), tmp_path / "store")


@pytest.mark.parametrize("head", ["Minari in Arrow", "RLDS", "LeRobot", "obp", "MEDS"])
def test_a_plain_card_over_a_known_layout_is_told_its_format(head: str, tmp_path: Path) -> None:
    WRITERS[head](tmp_path)
    form, files = cards()[head]["source"]["format"], cards()[head]["source"]["files"]
    values = cards()["Flat transitions"] | {"domain": cards()["Flat transitions"]["domain"] | {"horizon": 1}}
    columns = {"user_id": "patient", "reward": "r"}
    with pytest.raises(LogError, match=rf"it looks like source.format = '{form}'"):
        ingest(card_of(values | {"source": {"files": files, "columns": columns}}, tmp_path), tmp_path / "store")


def test_a_card_without_a_format_keeps_its_digest() -> None:
    plain = {"files": ["a.csv"], "columns": {"user_id": "impression", "reward": "click"}}
    source = card_of({**changed("obp"), "source": plain}, Path()).source
    assert sorted(source.model_dump(mode="json")) == ["columns", "files", "first_step", "layout"]


def test_a_csv_without_a_header_quotes_nobodys_row(tmp_path: Path) -> None:
    path = write_flat(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    for text, told in (("\n".join(lines[1:]), ""), (lines[0].replace("patient", "patiemt"), "did you mean 'patiemt'")):
        path.write_text(text + "\n", encoding="utf-8")
        with pytest.raises(LogError, match=rf"missing_column: .*{told}") as caught:
            taken("Flat transitions", tmp_path)
        assert "p0" not in str(caught.value) and "0.5" not in str(caught.value)


@pytest.mark.parametrize("head", ["pa\rtient,s", "x" * 140_000])
def test_a_first_line_that_is_no_line_of_a_csv_is_told(head: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_bytes(head.encode() + b"\n")
    with pytest.raises(LogError, match=r"log.csv: line 1: not a line of a CSV"):
        taken("Flat transitions", tmp_path)


def test_a_span_of_time_is_no_cell(tmp_path: Path) -> None:
    frame = pl.read_csv(write_flat(tmp_path)).with_columns(s=pl.duration(days="s"))
    frame.write_parquet(tmp_path / "log.parquet")
    with pytest.raises(LogError, match=r"column 's' is Duration.*write it as numbers, booleans or text"):
        taken("Flat transitions", tmp_path, source={"files": ["log.parquet"]})


def test_what_the_states_hide_is_looked_for_in_every_layout(tmp_path: Path) -> None:
    write_flat(tmp_path)
    snapshot = taken("Flat transitions", tmp_path)
    found = hidden_state(snapshot, card_of(cards()["Flat transitions"], tmp_path))
    assert found["why_not"] == "no state stands for two raw values that were logged often enough"


def test_what_stands_inside_a_cell_is_a_column(tmp_path: Path) -> None:
    frame = pl.DataFrame({"o": [{"v": [1.0, 2.0], "w": 3}], "o/w": [4], "l": [[5]]}).with_columns(
        a=pl.Series([[6, 7]], dtype=pl.Array(pl.Int64, 2))
    )
    names = ["o/v[1]", "o/w", "l[0]", "l[1]", "a[1]"]
    assert frame.select(inside(names, frame.schema)).rows() == [(2.0, 4, 5, None, 7)]
    assert [field(name, frame.schema) for name in ("a[2]", "o/x", "o/v/x", "x[0]", "o[0]")] == [None] * 5


def test_a_parquet_with_no_rows_is_an_empty_log(tmp_path: Path) -> None:
    path = write_meds(tmp_path)
    pl.read_parquet(path).clear().write_parquet(path)
    assert parquet.row_count(path) == 0
    with pytest.raises(LogError, match="the files hold no rows"):
        taken("MEDS", tmp_path)


def test_metadata_that_is_no_json_object_refuses_the_log(tmp_path: Path) -> None:
    write_minari_hdf5(tmp_path)
    for text in ("{", "[]", json.dumps("x")):
        (tmp_path / "data" / "metadata.json").write_text(text)
        with pytest.raises(LogError, match=r"data/metadata.json: no JSON object"):
            taken("Minari in HDF5", tmp_path)
