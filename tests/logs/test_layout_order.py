"""Layouts in which order tells the episodes; and RLDS, LeRobot and obp."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import polars as pl
import pytest

from reticent import CardError, LogError

from .conftest import canonical, ingest, quarantine
from .layout_ingest import changed, expected, taken, transitions
from .layouts import LOG, card_of, cards, write_d4rl, write_flat, write_lerobot, write_obp, write_rlds

OPEN_BANDIT = Path(__file__).parents[2] / "datasets" / "open_bandit" / "data" / "all.csv"


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
    values["source"]["columns"] |= {"user_id": "episode", "truncated": "done"}
    snapshot = ingest(card_of(values, tmp_path), tmp_path / "home")
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
    assert transitions(ingest(card_of(values, tmp_path), tmp_path / "home")) == sorted(expected() * 5)


def test_real_people_told_apart_by_order_need_ids(tmp_path: Path) -> None:
    """An episode without its flag would take the next one's rows: two records for the price of one."""
    values = changed("Flat transitions", unit={"user": "episode"}, budget={"ledger": "l.db"}) | {"kind": "real"}
    values["source"]["columns"] |= {"user_id": "episode", "truncated": "done"}
    with pytest.raises(ValueError, match="name a column of user ids"):
        card_of(values, tmp_path)


def test_steps_of_real_people_in_a_row_each_need_ids(tmp_path: Path) -> None:
    write_rlds(tmp_path, LOG, nested=False)
    values = changed("RLDS", budget={"ledger": "l.db"}) | {"kind": "real"}
    with pytest.raises(LogError, match="name a column of user ids"):
        ingest(card_of(values, tmp_path), tmp_path / "home")


@pytest.mark.parametrize("line", ["p1,3,1", "p1,3,1,0,3,perhaps"])
def test_an_order_with_a_hole_in_it_refuses_only_a_log_without_people(line: str, tmp_path: Path) -> None:
    path = write_flat(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:3], line, *lines[3:]]), encoding="utf-8")
    snapshot = taken("Flat transitions", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 1} and transitions(snapshot) == expected()
    columns = cards()["Flat transitions"]["source"]["columns"] | {"user_id": "episode"}
    nobodys = changed("Flat transitions", unit={"user": "episode"}, source={"columns": columns})
    with pytest.raises(LogError, match=r"log.csv: line 4: malformed.*order of the rows"):
        ingest(card_of(nobodys, tmp_path), tmp_path / "again")


def test_flat_rows_in_any_table_format_are_the_same(tmp_path: Path) -> None:
    frame = pl.read_csv(write_flat(tmp_path))
    frame.write_parquet(tmp_path / "log.parquet")
    frame.write_ndjson(tmp_path / "log.ndjson")
    for name in ("log.parquet", "log.ndjson"):
        values = changed("Flat transitions", source={"files": [name]})
        assert transitions(ingest(card_of(values, tmp_path), tmp_path / f"store-{name}")) == expected()


@pytest.mark.parametrize("column", ["s", "s2"])
@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64])
def test_a_column_of_states_that_another_made_text_cuts_nobodys_episodes(
    column: str, kind: type[pl.DataType], tmp_path: Path
) -> None:
    """Where a row leads was no text as where the next one stands was: the ingest ended in an error."""
    frame = pl.read_csv(write_flat(tmp_path))
    odd = frame[:1].with_columns(pl.lit("odd").alias("patient"), pl.lit("somewhere").alias(column))
    mine = frame.with_columns(pl.col("s2" if column == "s" else "s").cast(kind), pl.col(column).cast(pl.String))
    pl.concat([mine, odd], how="vertical_relaxed").write_parquet(tmp_path / "log.parquet")
    values = changed("Flat transitions", source={"files": ["log.parquet"]})
    found = transitions(ingest(card_of(values, tmp_path), tmp_path / "home"))
    assert [row for row in found if row in expected()] == expected()


def test_a_table_that_has_episodes_itself_is_no_flat_one(tmp_path: Path) -> None:
    pl.read_csv(write_flat(tmp_path)).with_columns(episode=1).write_csv(tmp_path / "log.csv")
    with pytest.raises(LogError, match="has a column 'episode' of its own"):
        taken("Flat transitions", tmp_path)


@pytest.mark.slow
def test_rlds_of_a_row_a_step_is_the_same(tmp_path: Path, constants: Callable[..., None]) -> None:
    write_rlds(tmp_path, nested=False)
    assert transitions(taken("RLDS", tmp_path)) == expected()
    for rows in (1, 2, 3):
        constants(batch=rows)
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


@pytest.mark.skipif(not OPEN_BANDIT.exists(), reason="the sample of obp is fetched by `make real-data`")
def test_the_sample_that_obp_ships_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_bytes(OPEN_BANDIT.read_bytes())
    snapshot = taken("obp", tmp_path)
    rows = canonical(snapshot)
    assert (snapshot.rows, snapshot.users, snapshot.quarantined) == (10_000, 10_000, {})
    assert rows["reward"].sum() == 38 and rows["action"].n_unique() == 80
