"""Steps numbered by a declared order: what a row's place depends on, and what becomes of gaps."""

from __future__ import annotations

import itertools
import random
import tomllib
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipeline.logs import decode as wide
from reticent import Card
from tests.conftest import card_dict
from tests.flows.observed import cartpole
from tests.logs.conftest import canonical, ingest, quarantine

COLUMNS = {"user_id": "user_id", "episode_id": "user_id", "reward": "reward"}
HEAD = "user_id,at,state,action,reward\n"


def declare(folder: Path, horizon: int = 4, **source) -> Card:
    values = card_dict()
    values["unit"]["user"] = "user_id"
    values["domain"]["horizon"] = horizon
    values["domain"]["states"]["labels"] = ["x", "y", "z"]
    told = {"files": ["log.csv"], "columns": COLUMNS, "order_by": "at"} | source
    values["source"] = {k: v for k, v in told.items() if v is not None}
    return Card.model_validate(values).placed(folder)


def read(folder: Path, rows: list[str], **source):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.csv").write_text(HEAD + "\n".join(rows) + "\n")
    card = declare(folder, **source)
    made = ingest(card, folder / "home")
    return canonical(made), made


def seen(rows: pl.DataFrame) -> list[tuple]:
    return rows.select("user_id", "step", "state", "next_state").rows()


def test_dates_number_the_rows_of_an_episode_wherever_they_stand(tmp_path):
    rows = ["u,2026-01-09,z,a,1", "v,2026-02-01,y,b,0", "u,2026-01-02,x,a,0", "u,2026-01-05T10:00,y,b,1"]
    found, _ = read(tmp_path, rows)
    assert [r[:3] for r in seen(found)] == [("u", 0, 0), ("u", 1, 1), ("u", 2, 2), ("v", 0, 1)]
    assert [r[3] for r in seen(found)][:2] == [1, 2]


def test_the_order_of_lines_decides_nothing_not_even_of_rows_at_one_time(tmp_path):
    """The same four rows of 24 people, each of whom has another order."""
    rows = ["3,x,a,0", "3,y,a,1", "3,y,b,1", "10,z,a,0"]
    orders = list(itertools.permutations(range(4)))
    found, _ = read(tmp_path / "a", [f"u{k:02},{row}" for k in range(len(orders)) for row in rows])
    other, _ = read(tmp_path / "b", [f"u{k:02},{rows[i]}" for k, order in enumerate(orders) for i in order])
    assert seen(found) == seen(other) and [r[2] for r in seen(found)[3::4]] == [2] * 24


def test_a_row_that_was_delivered_twice_is_one_step(tmp_path):
    rows = ["u,2026-01-02T08:15,x,a,0", "u,2026-01-03,y,a,1", "v,2026-01-02T08:15,x,a,0"]
    once, clean = read(tmp_path / "once", rows)
    twice, made = read(tmp_path / "twice", [rows[1], *rows, rows[0], rows[0]])
    assert seen(twice) == seen(once) and not clean.quarantined
    assert made.quarantined == {"repeated_row": 3} and set(quarantine(made.folder)["effect"]) == {"drop_step"}


def test_two_rows_at_one_place_stay_and_are_told(tmp_path):
    found, made = read(tmp_path, ["u,3,x,a,0", "u,3,y,a,1", "u,3,y,a,1", "u,9,y,a,1", "v,3,x,a,0"])
    assert [r[:2] for r in seen(found)] == [("u", 0), ("u", 1), ("u", 2), ("v", 0)]
    assert made.quarantined == {"repeated_row": 1, "same_place": 2}


def test_offsets_from_utc_are_read_as_databases_write_them(tmp_path):
    """Of each person, one row with an offset between two with none."""
    written = {"+02": 6, "-05": 13, "+02:00": 6, "+0200": 6, "Z": 8, "": 8, " UTC": 8}
    rows = [
        f"u{i},2026-01-02 {at},{state},a,0"
        for i, (text, hour) in enumerate(written.items())
        for at, state in ((f"{hour:02}:14", "x"), (f"08:15:00{text}", "y"), (f"{hour:02}:16", "z"))
    ]
    found, _ = read(tmp_path, rows[::-1])
    assert [row[:3] for row in seen(found)] == [(f"u{i}", h, h) for i in range(len(written)) for h in range(3)]


@pytest.mark.parametrize("last_row", ["unknown", "ends"])
def test_a_short_episode_ends_with_its_last_row_where_the_card_says_so(tmp_path, last_row):
    rows = ["u,1,x,a,0", "u,2,y,a,1", "v,1,x,a,0", "w,1,x,a,0", "w,2,x,a,0", "w,3,x,a,0", "w,40,x,a,1"]
    found, made = read(tmp_path, rows, gap="cut", gap_over=30.0, last_row=last_row)
    end = {"unknown": None, "ends": 3}[last_row]
    assert seen(found)[:3] == [("u", 0, 0, 1), ("u", 1, 1, end), ("v", 0, 0, end)]
    # what lies behind a gap was there: nobody knows where the row before it led
    assert seen(found)[-1] == ("w", 2, 0, None) and made.quarantined == {"beyond_gap": 1}
    assert found["terminated"].to_list()[:3] == [False, end is not None, end is not None]


def test_without_the_digest_ties_would_follow_the_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(wide, "keyed_hash", lambda texts, salt: pl.Series([0] * len(texts), dtype=pl.UInt64))
    rows = ["u,3,x,a,0", "u,3,y,a,1"]
    assert seen(read(tmp_path / "a", rows)[0]) != seen(read(tmp_path / "b", rows[::-1])[0])


def test_numbers_in_text_are_numbers_and_other_text_drops_the_episode(tmp_path):
    found, made = read(tmp_path, ["u,10,y,a,0", "u,9,x,a,0", "v,soon,x,a,0", "v,1,x,a,0", "w,31/12/2025,x,a,0"])
    assert [r[:3] for r in seen(found)] == [("u", 0, 0), ("u", 1, 1)]
    assert made.quarantined == {"unparsable": 3}


def test_a_gap_is_dropped_cut_or_kept(tmp_path):
    rows = [
        "u,2026-01-01,x,a,0",
        "u,2026-01-08,y,a,0",
        "u,2026-03-08,z,a,1",
        "u,2026-03-09,x,a,1",
        "v,2026-01-01,x,a,0",
    ]
    cut, made = read(tmp_path / "cut", rows, gap="cut", gap_over=30.0)
    assert seen(cut) == [("u", 0, 0, 1), ("u", 1, 1, None), ("v", 0, 0, None)]
    assert made.quarantined == {"beyond_gap": 2} and cut["truncated"].to_list() == [False, True, True]
    assert set(quarantine(made.folder)["effect"]) == {"drop_step"}
    drop, made = read(tmp_path / "drop", rows, gap_over=30.0)
    assert [r[0] for r in seen(drop)] == ["v"] and made.quarantined == {"gap": 4}
    keep, made = read(tmp_path / "keep", rows, gap="keep", gap_over=30.0)
    assert [r[1] for r in seen(keep)] == [0, 1, 2, 3, 0] and not made.quarantined
    assert seen(keep)[1][3] == 2


def test_a_missing_step_may_cut_instead_of_drop(tmp_path):
    steps = {"columns": {**COLUMNS, "step": "at"}, "order_by": None}
    rows = ["u,1,x,a,0", "u,2,y,a,1", "u,4,z,a,1", "v,2,x,a,0", "w,0,x,a,0"]
    cut, made = read(tmp_path / "cut", rows, **steps, first_step=1, gap="cut")
    assert seen(cut) == [("u", 0, 0, 1), ("u", 1, 1, None)]
    # v has no first step, and w one before the first
    assert made.quarantined == {"beyond_gap": 2, "unparsable": 1}
    drop, made = read(tmp_path / "drop", rows, **steps, first_step=1)
    assert drop.is_empty() and made.quarantined == {"gap": 4, "unparsable": 1}


cells = st.sampled_from(
    ["1", "2", "2.5", "2026-01-02", "2026-01-02T03:04Z", "", "nan", "x", "-1", "1e400", "999999999999"]
)
persons = st.lists(
    st.tuples(cells, st.sampled_from(["x", "y", "?"]), st.sampled_from(["a", "b"])), min_size=0, max_size=10
)


@pytest.mark.parametrize("gap", ["drop", pytest.param("cut", marks=pytest.mark.slow)])
@given(one=persons, other=persons, seed=st.integers(0, 99))
@settings(max_examples=4, deadline=None)
def test_one_persons_bytes_decide_only_this_persons_rows(tmp_path_factory, gap, one, other, seed):
    """Whatever stands in the rows of u, those of v and w stay as they are."""
    folder, kept = tmp_path_factory.mktemp("twins"), []
    others = [f"{who},{at},{state},a,1" for who in "vw" for at, state in (("5", "x"), ("2026-01-01", "y"), ("5", "z"))]
    for name, rows in (("one", one), ("other", other)):
        mine = [f"u,{at},{state},{action},0" for at, state, action in rows]
        lines = others + mine
        random.Random(seed).shuffle(lines)
        found, made = read(folder / name, lines, gap=gap, gap_over=2.0)
        filed = quarantine(made.folder).filter(pl.col("source").struct.field("user_id") != "u")
        filed = filed.select("rule", "source").rows()
        kept.append((seen(found.filter(pl.col("user_id") != "u")), sorted(map(str, filed))))
    assert kept[0] == kept[1] and (kept[0][0] or kept[0][1])


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"columns": {**COLUMNS, "step": "at"}}, "take columns.step and first_step out"),
        ({"first_step": 3}, "take columns.step and first_step out"),
        ({"gap": "cut"}, "source.gap_over is missing"),
        ({"order_by": None, "columns": {**COLUMNS, "step": "at"}, "gap_over": 2.0}, "goes with source.order_by"),
        ({"order_by": None, "columns": {**COLUMNS, "step": "at"}, "gap": "keep"}, "order_by = 'at' in place of"),
        ({"order_by": None}, "name one that orders the rows"),
        ({"layout": "wide"}, "belong to source.layout = 'long'"),
        ({"layout": "wide", "order_by": None, "last_row": "ends"}, "belong to source.layout = 'long'"),
    ],
)
def test_an_order_that_says_too_much_or_too_little_is_refused(tmp_path, source, said):
    with pytest.raises(ValidationError, match=said):
        declare(tmp_path, **source)


def test_a_last_row_that_ends_needs_an_end():
    values = card_dict()
    values["source"]["last_row"] = "ends"
    del values["domain"]["states"]["ends"]
    with pytest.raises(ValidationError, match="needs an end to lead to"):
        Card.model_validate(values)


def test_what_is_left_at_its_default_leaves_the_cards_digest(tmp_path):
    def digest(**more) -> str:
        columns = {**COLUMNS, "step": "at"}
        return read(tmp_path, ["u,1,x,a,0"], columns=columns, order_by=None, **more)[1].source_hash

    plain = digest()
    assert plain == digest(first_step=0) == digest(last_row="unknown")
    assert plain not in (digest(first_step=1), digest(gap="cut"), digest(last_row="ends"))


@pytest.mark.parametrize("files", [["a.parquet", "b.parquet"], ["b.parquet"]])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize(
    "other",
    [[1, 2], pytest.param([1.0, None], marks=pytest.mark.slow), pytest.param([True, False], marks=pytest.mark.slow)],
)
def test_the_types_that_anothers_cells_give_a_column_decide_no_ones_steps(tmp_path, files, suffix, other):
    def steps(folder: Path, rewards: list) -> list[tuple]:
        # u stands in both files, and once with another reward; w's cells decide what type the second file's column has
        mine = {"user_id": ["u", "u"], "at": [3, 9], "state": ["x", "y"], "action": ["a", "b"], "reward": [1, 0]}
        both = {"user_id": ["u", "u", "w", "w"], "at": [3, 3, 3, 4], "state": ["x"] * 4, "action": list("abab")}
        kind = {int: pl.Int64, float: pl.Float64, bool: pl.Float32}[type(rewards[0])]
        shared = pl.DataFrame(both).with_columns(pl.Series("reward", [1, 0, *rewards], dtype=kind, strict=False))
        folder.mkdir()
        named = [name.replace("parquet", suffix) for name in files]
        for frame, name in zip([pl.DataFrame(mine), shared][-len(named) :], named, strict=True):
            frame.write_parquet(folder / name) if suffix == "parquet" else frame.write_ipc(folder / name)
        made = ingest(declare(folder, files=named), folder / "home")
        return canonical(made).filter(pl.col("user_id") == "u").select("step", "action", "reward", "next_state").rows()

    assert steps(tmp_path / "one", [1, 1]) == steps(tmp_path / "other", other)


def test_two_rows_of_vectors_at_one_place_are_read(tmp_path):
    def rows(last: int) -> list[tuple]:
        v, w = [0.1, 0.0, 0.0, 0.0], [0.2, 0.0, 0.0, 0.0]
        return [("u", 1, v, 0, 1.0), ("u", 2, w, 1, 1.0), ("w", 1, v, 0, 1.0), ("w", last, w, 0, 1.0)]

    values = tomllib.loads(cartpole(10, 4))
    columns = {"user_id": "u", "episode_id": "u", "reward": "r"}
    values["source"] = {"files": ["log.parquet"], "order_by": "at", "columns": columns}
    values["unit"]["user"] = "u"
    values["domain"]["observation"]["column"], values["domain"]["actions"]["column"] = "o", "a"
    for last in (2, 1):
        pl.DataFrame(rows(last), schema=["u", "at", "o", "a", "r"], orient="row").write_parquet(
            tmp_path / "log.parquet"
        )
        made = ingest(Card.model_validate(values).placed(tmp_path), tmp_path / "home")
        assert sum(len(pl.read_parquet(part)) for part in made.part_files) == 4
