"""Layouts in which order tells the episodes; RLDS, LeRobot and obp; and that one unit replaced moves no other."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pytest

from reticent import CardError, LogError
from tests.conftest import slow
from tests.logs import layouts
from tests.logs.conftest import canonical, ingest, quarantine
from tests.logs.layouts import LOG, WRITERS, Told, card_of, cards, changed, expected, steps_of, taken, transitions

OPEN_BANDIT = Path(__file__).parents[2] / "datasets" / "open_bandit" / "data" / "all.csv"


def test_consecutive_terminals_are_an_episode_of_one_step(tmp_path):
    layouts.write_d4rl(tmp_path, [LOG[0], LOG[3], LOG[3], LOG[2]])
    lengths = canonical(taken("D4RL", tmp_path)).group_by("user_id").len()["len"].sort().to_list()
    assert lengths == [1, 1, 2, 3]


def test_timeouts_that_the_card_does_not_map_are_refused(tmp_path):
    layouts.write_d4rl(tmp_path)
    with pytest.raises(CardError, match="map truncated = 'timeouts'"):
        taken("D4RL", tmp_path, {"truncated": None})


def test_missing_timeouts_are_found_by_the_break_in_the_observations(tmp_path):
    path = layouts.write_d4rl(tmp_path)
    layouts.put(path, "timeouts")
    assert transitions(taken("D4RL", tmp_path, {"truncated": None})) == expected()
    glued = taken("D4RL", tmp_path, {"truncated": None, "next_state": None})
    assert glued.episodes == 3 and glued.quarantined == {"beyond_horizon": 3}


def test_flat_rows_without_people_are_cut_by_flag_and_by_where_they_lead(tmp_path):
    layouts.write_flat(tmp_path)
    columns = {"user_id": "episode", "truncated": "done"}
    snapshot = taken("Flat transitions", tmp_path, columns, unit={"user": "episode"})
    assert transitions(snapshot) == expected() and snapshot.users == 4


def test_people_whose_rows_lie_between_each_other_are_cut_by_their_own_rows(tmp_path):
    log = [t for t in LOG for _ in range(5)]
    path = layouts.write_flat(tmp_path, log)
    head, *lines = path.read_text(encoding="utf-8").splitlines()
    turns = np.random.default_rng(0).permutation(np.repeat(np.arange(20), [t.steps for t in log]))
    mixed = [""] * len(lines)
    for line, place in zip(lines, np.argsort(turns, kind="stable"), strict=True):
        mixed[place] = line
    path.write_text("\n".join([head, *mixed]) + "\n", encoding="utf-8")
    made = taken("Flat transitions", tmp_path, unit={"users_public": 20})
    assert transitions(made) == sorted(expected() * 5)


def test_real_people_told_apart_by_order_need_ids(tmp_path):
    """An episode without its flag would take the next one's rows: two records for the price of one."""
    columns = {"user_id": "episode", "truncated": "done"}
    values = changed("Flat transitions", columns, unit={"user": "episode"}, budget={"ledger": "l.db"})
    with pytest.raises(ValueError, match="name a column of user ids"):
        card_of(values | {"kind": "real"}, tmp_path)


def test_steps_of_real_people_in_a_row_each_need_ids(tmp_path):
    layouts.write_rlds(tmp_path, LOG, nested=False)
    values = changed("RLDS", budget={"ledger": "l.db"}) | {"kind": "real"}
    with pytest.raises(LogError, match="name a column of user ids"):
        ingest(card_of(values, tmp_path), tmp_path / "home")


@pytest.mark.parametrize("line", ["p1,3,1", "p1,3,1,0,3,perhaps"])
def test_an_order_with_a_hole_in_it_refuses_only_a_log_without_people(line, tmp_path):
    path = layouts.write_flat(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:3], line, *lines[3:]]), encoding="utf-8")
    snapshot = taken("Flat transitions", tmp_path)
    assert snapshot.quarantined == {"malformed_line": 1} and transitions(snapshot) == expected()
    with pytest.raises(LogError, match=r"log.csv: line 4: malformed.*order of the rows"):
        taken("Flat transitions", tmp_path, {"user_id": "episode"}, unit={"user": "episode"})


@pytest.mark.parametrize("column", ["s", "s2"])
@pytest.mark.parametrize("kind", [pl.Int64, pl.Float64])
def test_a_column_of_states_that_another_made_text_cuts_nobodys_episodes(column, kind, tmp_path):
    """Where a row leads was no text as where the next one stands was: the ingest ended in an error."""
    frame = pl.read_csv(layouts.write_flat(tmp_path))
    odd = frame[:1].with_columns(pl.lit("odd").alias("patient"), pl.lit("somewhere").alias(column))
    mine = frame.with_columns(pl.col("s2" if column == "s" else "s").cast(kind), pl.col(column).cast(pl.String))
    pl.concat([mine, odd], how="vertical_relaxed").write_parquet(tmp_path / "log.parquet")
    found = transitions(taken("Flat transitions", tmp_path, source={"files": ["log.parquet"]}))
    assert [row for row in found if row in expected()] == expected()


def test_a_table_that_has_episodes_itself_is_no_flat_one(tmp_path):
    pl.read_csv(layouts.write_flat(tmp_path)).with_columns(episode=1).write_csv(tmp_path / "log.csv")
    with pytest.raises(LogError, match="has a column 'episode' of its own"):
        taken("Flat transitions", tmp_path)


def test_the_last_rlds_step_is_no_row_and_a_broken_off_episode_leads_nowhere(tmp_path):
    path = layouts.write_rlds(tmp_path)
    pl.read_parquet(path).with_columns(pl.col("steps").list.head(2)).write_parquet(path)
    rows = transitions(taken("RLDS", tmp_path), "state", "next_state", "truncated")
    assert rows == sorted([((0, 1, False), (1, None, True)), ((2, 2, False), (2, None, True)),
                           ((0, 0, False), (0, None, True)), ((3, 4, False),)])  # fmt: skip


def test_an_rlds_episode_without_steps_is_filed(tmp_path):
    path = layouts.write_rlds(tmp_path)
    row = pl.int_range(pl.len())
    empty = pl.when(row == 1).then(None).when(row == 2).then(pl.col("steps").list.head(0)).otherwise("steps")
    pl.read_parquet(path).with_columns(empty.alias("steps")).write_parquet(path)
    snapshot = taken("RLDS", tmp_path)
    assert quarantine(snapshot.folder)["line"].to_list() == [2, 3] and snapshot.rows == 3


def test_an_rlds_step_behind_the_last_one_refuses_the_log(tmp_path):
    path = layouts.write_rlds(tmp_path, nested=False)
    pl.read_parquet(path).with_columns(pl.col("is_first") & (pl.int_range(pl.len()) != 3)).write_parquet(path)
    with pytest.raises(LogError, match=r"episodes.parquet: row 4: a step that is_first does not begin"):
        taken("RLDS", tmp_path)


def test_lerobot_frames_that_are_missing_refuse_the_log(tmp_path):
    layouts.write_lerobot(tmp_path).unlink()
    with pytest.raises(LogError, match=r"4 frames in data/, meta/info.json tells of 10"):
        taken("LeRobot", tmp_path)


def test_an_episode_that_goes_on_in_the_next_lerobot_file_is_one(tmp_path):
    path = layouts.write_lerobot(tmp_path, files=1)
    frame = pl.read_parquet(path)
    frame.head(4).write_parquet(path)
    frame.tail(6).write_parquet(path.with_name("file-001.parquet"))
    assert transitions(taken("LeRobot", tmp_path)) == expected(untold=True)


def test_an_impression_is_the_unit_of_obp_and_the_horizon_is_one(tmp_path):
    layouts.write_obp(tmp_path)
    rows = canonical(taken("obp", tmp_path))
    assert rows["user_id"].n_unique() == len(rows) == 10 and set(rows["behavior_prob"]) == {0.0125}
    with pytest.raises(ValueError, match="horizon must be 1"):
        card_of(changed("obp", domain={"horizon": 2}), tmp_path)


@pytest.mark.skipif(not OPEN_BANDIT.exists(), reason="the sample of obp is fetched by `make real-data`")
def test_the_sample_that_obp_ships_is_read_whole(tmp_path):
    (tmp_path / "all.csv").write_bytes(OPEN_BANDIT.read_bytes())
    snapshot = taken("obp", tmp_path)
    rows = canonical(snapshot)
    assert (snapshot.rows, snapshot.users, snapshot.quarantined) == (10_000, 10_000, {})
    assert rows["reward"].sum() == 38 and rows["action"].n_unique() == 80


Write = Callable[[Path, list[Told]], object]
CASES: dict[str, tuple[Write, dict[str, Any]]] = {
    "minari-hdf5": (layouts.write_minari_hdf5, cards()["Minari in HDF5"]),
    "minari-arrow": (layouts.write_minari_arrow, cards()["Minari in Arrow"]),
    "d4rl": (layouts.write_d4rl, cards()["D4RL"]),
    "rlds": (layouts.write_rlds, cards()["RLDS"]),
    "rlds-steps": (lambda folder, log: layouts.write_rlds(folder, log, nested=False), cards()["RLDS"]),
    "lerobot": (layouts.write_lerobot, cards()["LeRobot"]),
    "meds": (layouts.write_meds, cards()["MEDS"]),
    "flat": (layouts.write_flat, cards()["Flat transitions"]),
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


@pytest.mark.parametrize("seed", [0, *(slow(seed) for seed in (1, 2))])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if i % 2 else ()) for i, name in enumerate(CASES)]
)
def test_a_replaced_unit_moves_nobody_elses_rows(name, seed, tmp_path):
    write, card = CASES[name]
    rng = np.random.default_rng(seed)
    log = [Told([1, 5], [0], [1.0], True), *(episode(rng, ended=rng.random() < 0.5) for _ in range(5))]
    at = int(rng.integers(1, 6))
    other = [*log[:at], episode(rng, ended=rng.random() < 0.5), *log[at + 1 :]]
    before, after = (rows_by_user(write, card, some, tmp_path / "log") for some in (log, other))
    moved = {user for user in before | after if before.get(user) != after.get(user)}
    assert len(moved) <= 1, (at, moved)


def test_where_one_row_leads_would_move_the_next_ones_steps(tmp_path):
    """The broken twin, and why real people need ids: cut by s' alone, a neighbour's steps move."""
    columns = {"user_id": "episode", "terminated": None, "truncated": None}
    values = changed("Flat transitions", columns) | {"unit": {"user": "episode", "users_public": 6}}
    first, second = Told([1, 2], [0], [0.0], False), Told([3, 4, 5], [0, 0], [0.0, 0.0], True)
    apart = rows_by_user(layouts.write_flat, values, [first, second], tmp_path / "log")
    joined = rows_by_user(layouts.write_flat, values, [Told([1, 3], [0], [0.0], False), second], tmp_path / "log")
    steps = [[row[2] for rows in found.values() for row in rows] for found in (apart, joined)]
    assert steps == [[0, 0, 1], [0, 1, 2]]


def test_every_layout_of_the_page_is_here():
    listed = {cards()[head]["source"]["format"] for head in WRITERS}
    assert {values["source"]["format"] for _, values in CASES.values()} | {"obp"} == listed


def people_in_rlds(first: bool, folder: Path, more: int = 0) -> dict[Any, list[tuple[Any, ...]]]:
    """Three people, a row a step; the second may say that the first goes on."""

    def step(who: str, seen: int, first: bool = False, last: bool = False) -> dict[str, Any]:
        flags = {"is_first": first, "is_last": last, "is_terminal": last}
        return {"who": who, **flags, "observation": {"state": [float(seen), 0.5]}, "action": 0, "reward": 0.0}

    rows = [step("B", 1, first=True), step("B", 2), step("A", 3, first=first), *(step("A", 4) for _ in range(more))]
    rows += [step("A", 5, last=True), step("C", 1, first=True), step("C", 5, last=True)]
    card = changed("RLDS", {"user_id": "who"}, unit={"user": "who"})
    return rows_by_user(lambda where, _: pl.DataFrame(rows).write_parquet(where / "episodes.parquet"), card, [], folder)


def test_a_persons_last_step_leads_to_nobody_elses_first(tmp_path):
    right, odd = (people_in_rlds(first, tmp_path / "log") for first in (True, False))
    assert {who for who in right if right[who] != odd[who]} <= {"A"}
    longer = people_in_rlds(True, tmp_path / "log", more=2)
    assert len(right["B"]) == 2 and {who for who in right if right[who] != longer[who]} == {"A"}


@pytest.mark.parametrize("batch", [1, slow(2), slow(3)])
def test_steps_of_people_join_over_batches(batch, tmp_path, constants):
    whole = people_in_rlds(True, tmp_path / "log")
    constants(batch=batch)
    assert people_in_rlds(True, tmp_path / "log") == whole


def test_an_episode_without_steps_moves_nobodys_number(tmp_path):
    def write(empty, folder, log):
        whole = pl.DataFrame([{"steps": steps_of(told)} for told in log])
        rows = [{"steps": [] if empty and i == 1 else steps_of(told)} for i, told in enumerate(log)]
        pl.DataFrame(rows, schema=whole.schema).write_parquet(folder / "episodes.parquet")

    card, at = cards()["RLDS"], tmp_path / "log"
    full, less = (rows_by_user(partial(write, empty), card, LOG, at) for empty in (False, True))
    gone = {user for user in full | less if full.get(user) != less.get(user)}
    assert len(gone) == 1 and gone <= full.keys()


def test_one_file_of_numbers_takes_nobodys_booleans(tmp_path):
    def write(odd, folder, log):
        layouts.write_lerobot(folder, log, files=len(log))
        for i in range(len(log)):
            path = folder / "data" / "chunk-000" / f"file-{i:03d}.parquet"
            rows = pl.read_parquet(path).with_columns(pl.col("next.reward").cast(pl.Boolean))
            rows.with_columns(pl.col("next.reward").cast(odd if i == 1 else pl.Boolean)).write_parquet(path)

    log, card = [Told([1, 2, 5], [0, 1], [0.0, 1.0], True)] * 4, cards()["LeRobot"]
    alike = rows_by_user(partial(write, pl.Boolean()), card, log, tmp_path / "log")
    assert len(alike) == 4
    for odd in (pl.Float64(), pl.Int64(), pl.String()):
        assert rows_by_user(partial(write, odd), card, log, tmp_path / "log") == alike


@pytest.mark.parametrize("head", ["Minari in HDF5", slow("vectors")])
def test_what_most_episodes_hold_casts_nobodys_numbers(head, tmp_path):
    """Whole numbers in one more episode once made whole numbers of everybody's rewards."""
    values, names = changed("Minari in HDF5", reward={"steps": 4}), ["rewards", "observations"]
    if head == "vectors":
        values = changed("Minari in Arrow", source={"files": ["data/main_data.hdf5"]})
        names = ["observations", "actions"]

    def write(odd, folder, log):
        with h5py.File(layouts.write_minari_hdf5(folder, log), "r+") as file:
            for i in range(len(log)):
                group, dtype = file[f"episode_{i}"], odd.get(i)
                for name in names:
                    found = group[name][()] + (0.75 if name == "rewards" else 0)
                    found = np.stack([found, found + 0.25], 1) if (head, name) == ("vectors", names[0]) else found
                    del group[name]
                    group[name] = found if dtype is None else found.astype(dtype)

    log = [Told([1, 2, 5], [0, 1], [0.0, 0.0], True)] * 4
    two = {1: "i8", 2: "i8"}
    for low, high in (({}, {0: "i8"}), (two, {0: "i8"} | two), ({}, {0: "f4"}), ({}, {0: "?"})):
        before, after = (rows_by_user(partial(write, odd), values, log, tmp_path / "log") for odd in (low, high))
        assert len(before) == 4
        assert {user[-1] for user in before | after if before.get(user) != after.get(user)} <= {"0"}, (low, high)


def test_ids_that_no_signed_number_holds_are_refused_without_being_told(tmp_path):
    path = layouts.write_meds(tmp_path)
    rows = pl.read_parquet(path).with_columns(pl.col("subject_id").cast(pl.UInt64))
    odd = rows.tail(1).with_columns(pl.lit(2**63 + 987654321, dtype=pl.UInt64).alias("subject_id"))
    pl.concat([rows, odd]).write_parquet(path)
    with pytest.raises(LogError, match=r"0.parquet: column 'subject_id' is UInt64; ") as caught:
        taken("MEDS", tmp_path)
    assert "987654321" not in str(caught.value)
