"""Logs of vectors: every format gives the same rows, every rule files what it should, and a killed ingest goes on."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from reticent import LqCard, load_card
from tests.learners.lq_shop import CARD
from tests.logs.conftest import Edition, canonical, ingest, quarantine
from tests.logs.snapshot_rows import rows_of

SPLIT = CARD.format(kind="synthetic", ledger="home", cap=9.0, m=1, people=20)
LISTS = SPLIT.replace('columns = ["p", "v"]', 'column = "x", dimension = 2')
LISTS = LISTS.replace('columns = ["f"]', 'column = "u", dimension = 1')
LISTS = LISTS.replace('step = "t"', 'step = "t", next_observation = "nx"')
LOGGED = SPLIT.replace('step = "t"', 'step = "t", next_observation = ["np", "nv"]')

# user, episode, step, observation, control, next observation, over
Row = tuple[str, int, int, list, list, list | None, bool]
GOOD: list[Row] = [
    ("a", 0, 0, [1.0, 0.5], [0.25], [0.5, 0.5], False),
    ("a", 0, 1, [0.5, 0.5], [-1.0], [0.25, -0.5], False),
    ("b", 7, 0, [-1.0, 2.0], [0.0], None, True),
    ("c", 0, 0, [0.125, 0.0], [0.5], None, False),
]


def card_of(folder: Path, text: str, file: str) -> LqCard:
    (folder / "card.toml").write_text(text.replace('"log.csv"', file))
    card = load_card(folder / "card.toml")
    assert isinstance(card, LqCard)
    return card


def write(folder: Path, rows: list[Row], form: str) -> str:
    """The text of a card whose file holds the rows in a format."""
    head = ("who", "e", "t", "over")
    if form == "csv":
        lines = ["who,e,t,over,p,v,f,np,nv"]
        for who, e, t, x, u, y, over in rows:
            cells = [who, e, t, str(over).lower(), *x, *u, *(["", ""] if y is None else y)]
            lines.append(",".join("" if c is None else str(c) for c in cells))
        (folder / "log.csv").write_text("\n".join(lines) + "\n")
        return LOGGED
    if form == "csv text":
        lines = ["who,e,t,over,x,u,nx"]
        for who, e, t, x, u, y, over in rows:
            lists = ("" if v is None else f'"{json.dumps(v)}"' for v in (x, u, y))
            lines.append(f"{who},{e},{t},{str(over).lower()},{','.join(lists)}")
        (folder / "log.csv").write_text("\n".join(lines) + "\n")
        return LISTS
    each = [dict(zip(head, (*r[:3], r[6]), strict=True)) | {"x": r[3], "u": r[4], "nx": r[5]} for r in rows]
    if form == "ndjson":
        (folder / "log.ndjson").write_text("\n".join(json.dumps(r) for r in each) + "\n")
        return LISTS.replace("log.csv", "log.ndjson")
    types = {"x": pl.List(pl.Float32), "u": pl.List(pl.Float64), "nx": pl.List(pl.Float64)}
    frame = pl.DataFrame(each, schema_overrides=types)
    if form == "parquet":
        frame.write_parquet(folder / "log.parquet")
    elif form == "parquet arrays":
        arrays = [pl.col("x").list.to_array(2), pl.col("u").list.get(0)]
        frame.with_columns(arrays).write_parquet(folder / "log.parquet")
    else:
        frame.write_ipc(folder / "log.arrow")
    return LISTS.replace("log.csv", "log.arrow" if form == "arrow" else "log.parquet")


def ingested(folder: Path, rows: list[Row], form: str = "csv") -> Edition:
    (folder / "card.toml").write_text(write(folder, rows, form))
    return ingest(load_card(folder / "card.toml"), folder / "home")


FORMS = ["csv", "csv text", "ndjson", "parquet", "parquet arrays", "arrow"]


@pytest.mark.parametrize("form", FORMS)
def test_every_format_gives_the_same_rows_in_declared_units(tmp_path, form):
    rows = canonical(ingested(tmp_path, GOOD, form))
    assert rows.schema["observation"] == pl.List(pl.Float32) and rows["reward"].null_count() == 4
    # pace has scale 2
    assert rows["observation"].to_list() == [[1.0, 0.25], [0.5, 0.25], [-1.0, 1.0], [0.125, 0.0]]
    assert rows["action"].to_list() == [[0.25], [-1.0], [0.0], [0.5]]
    assert rows["next_observation"].to_list() == [[0.5, 0.25], [0.25, -0.25], None, None]
    assert rows["truncated"].to_list() == [False, False, True, True]
    assert rows["terminated"].to_list() == [False, False, True, False]


def test_a_log_whose_files_differ_in_format_is_read_as_one(tmp_path):
    write(tmp_path, GOOD[:2], "parquet")
    write(tmp_path, GOOD[2:], "ndjson")
    card = card_of(tmp_path, LISTS, '"log.parquet", "log.ndjson"')
    assert canonical(ingest(card, tmp_path / "home"))["observation"].to_list()[2] == [-1.0, 1.0]


ODD = {
    "a list too short": ([0.5], [0.1], None, ["wrong_length"]),
    "a list too long": ([0.5, 0.5, 0.5], [0.1], None, ["wrong_length"]),
    "no list": (None, [0.1], None, ["not_finite"]),
    "an empty list": ([], [0.1], None, ["wrong_length"]),
    "a hole": ([0.5, None], [0.1], None, ["not_finite"]),
    "a hole after": ([0.5, 0.5], [0.1], [0.5, None], ["not_finite"]),
    "too many after": ([0.5, 0.5], [0.1], [0.5, 0.5, 0.5], ["wrong_length"]),
    "two controls": ([0.5, 0.5], [0.1, 0.2], None, ["wrong_length"]),
    "far": ([9.0, 0.0], [0.1], [0.5, 0.5], ["beyond_radius"]),
    "pushed too hard": ([0.5, 0.5], [7.0], [0.5, 0.5], ["beyond_radius"]),
    "far after": ([0.5, 0.5], [0.1], [0.0, 9.0], ["beyond_radius"]),
    "on the edge": ([2.0, 0.0], [1.0], [0.0, 4.0], []),
    "more than a float holds": ([1e300, 0.0], [0.1], None, ["not_finite"]),
}


@pytest.mark.parametrize("form", ["csv text", "ndjson", "parquet"])
def test_each_rule_files_its_rows_and_leaves_the_others_alone(tmp_path, form):
    # a missing list in a CSV is an empty cell, which the next test has
    odd = {who: told for who, told in ODD.items() if told[0] is not None or form != "csv text"}
    s = ingested(tmp_path, [*GOOD, *((who, 0, 0, *told[:3], False) for who, told in odd.items())], form)
    first = 6 if form == "csv text" else 5
    wanted = [(line, who, rule) for line, (who, told) in enumerate(odd.items(), first) for rule in told[3]]
    filed = quarantine(s.folder)
    assert [(e["line"], e["source"]["who"], e["rule"]) for e in filed.iter_rows(named=True)] == wanted
    assert s.quarantined == Counter(rule for *_, rule in wanted)
    kept = Counter(canonical(s)["user_id"])
    assert kept == {"a": 2, "b": 1, "c": 1} | {who: 1 for who, told in odd.items() if set(told[3]) <= {"beyond_radius"}}


@pytest.mark.parametrize("odd", [{}, {"a": 0.5}, [[0.5], [0.5]]])
def test_what_is_no_flat_list_is_no_vector(tmp_path, odd):
    s = ingested(tmp_path, [*GOOD, ("odd", 0, 0, odd, [0.1], None, False)], "ndjson")
    assert s.quarantined == {"malformed_line": 1} and s.rows == 4


@pytest.mark.parametrize(
    ("cells", "rule"),
    [
        (["x", "0", "0", "", ""], "unparsable"),
        (["0", "0", "hello", "", ""], "unparsable"),
        (["0", "0", "0", "1", "!"], "unparsable"),
        (["nan", "0", "0", "", ""], "not_finite"),
        (["0", "inf", "0", "", ""], "not_finite"),
        (["", "", "0", "", ""], "not_finite"),
        (["0", "0", "0", "1", ""], "not_finite"),
    ],
)
def test_cells_of_a_csv_are_read_one_by_one(tmp_path, cells, rule):
    write(tmp_path, GOOD, "csv")
    with (tmp_path / "log.csv").open("a") as file:
        file.write(f"odd,0,0,false,{','.join(cells)}\nodd,0,1,false,0,0,0,,\n")
    s = ingest(card_of(tmp_path, LOGGED, '"log.csv"'), tmp_path / "home")
    assert s.quarantined == {rule: 2} and s.rows == 4


def test_the_last_row_may_tell_nothing_but_where_the_episode_led(tmp_path):
    rows = [("d", 0, t, [0.5, 1.0 * t], [0.1], None, False) for t in range(2)]
    rows.append(("d", 0, 2, [0.25, 0.5], [None], None, False))
    s = ingested(tmp_path, rows, "ndjson")
    assert s.quarantined == {"closing_row": 1}
    assert canonical(s)["next_observation"].to_list() == [[0.5, 0.5], [0.25, 0.25]]
    # in the middle such a row is a fault
    (tmp_path / "m").mkdir()
    middle = ingested(tmp_path / "m", [rows[0], (*rows[1][:4], [None], *rows[1][5:]), rows[2]], "ndjson")
    assert middle.rows == 0 and middle.quarantined == {"closing_row": 1, "not_finite": 2}


def test_caps_gaps_repeats_and_ends_hold_for_vectors_too(tmp_path):
    one = [0.5, 0.5], [0.1], [0.5, 0.5]
    rows: list[Row] = [("cap", e, 0, *one, False) for e in range(3)]
    rows += [("gap", 0, t, *one, False) for t in (0, 2)] + [("twice", 0, 0, *one, False)] * 2
    rows += [("long", 0, t, *one, False) for t in range(6)] + [("over", 0, t, *one, t == 0) for t in range(2)]
    s = ingested(tmp_path, rows)
    assert s.quarantined == {"over_cap": 2, "gap": 2, "repeat": 2, "beyond_horizon": 2, "after_end": 1}
    assert canonical(s).group_by("user_id").len().sort("user_id").rows() == [("cap", 1), ("long", 4), ("over", 1)]


def test_a_row_that_leads_nowhere_counts_nowhere(tmp_path):
    s = ingested(tmp_path, GOOD)
    card = load_card(tmp_path / "card.toml")
    assert isinstance(card, LqCard)
    [batch] = rows_of(s, card)
    np.testing.assert_array_equal(batch.x, [[1.0, 0.25], [0.5, 0.25]])
    np.testing.assert_array_equal(batch.following, [[0.5, 0.25], [0.25, -0.25]])
