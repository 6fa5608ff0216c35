"""Wide logs: one row an episode; constants, qualified labels, tails, holes, and what the quarantine says."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from reticent import Card, LogError
from tests.logs.conftest import Edition, canonical, ingest, make_card, quarantine

HEAD = "user,episode,s_1,a_1,r_1,s_2,a_2,r_2,s_3,a_3,r_3\n"
X, Y, OTHER, DIED, END = range(5)
WIDE: dict[str, Any] = {
    "columns": {"step": None, "reward": "r_{step}"},
    "domain": {
        "states": {"column": "s_{step}", "labels": ["x", "y"], "ends": ["died", "end"], "other": True},
        "actions": {"column": "a_{step}", "labels": 2, "other": True},
    },
    "source": {"layout": "wide"},
}


def wide_card(folder: Path, files: tuple[str, ...] = ("log.csv",), **changes: Any) -> Card:
    """The card of a wide log; ``domain``, ``columns`` and ``source`` are merged, the rest replaces."""
    merged = {k: {**WIDE.get(k, {}), **changes.pop(k, {})} for k in ("columns", "domain", "source")}
    return make_card(folder, list(files), merged.pop("columns"), **merged, **changes)


def read(folder: Path, text: str, **changes: Any) -> Edition:
    (folder / "log.csv").write_text(text, encoding="utf-8")
    return ingest(wide_card(folder, **changes), folder / "home")


def steps(snapshot: Edition) -> list[tuple[Any, ...]]:
    return canonical(snapshot).select("user_id", "step", "state", "action", "reward", "next_state").rows()


def test_columns_of_three_steps_are_three_rows(tmp_path):
    snapshot = read(tmp_path, HEAD + "u,1,x,0,1,y,1,0.5,x,0,0\n")
    assert steps(snapshot) == [("u", 0, X, 0, 1.0, Y), ("u", 1, Y, 1, 0.5, X), ("u", 2, X, 0, 0.0, END)]
    assert (snapshot.source_rows, snapshot.rows, snapshot.quarantined) == (1, 3, {})


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "ndjson"])
def test_a_table_of_typed_columns_is_the_csv_of_it(tmp_path, suffix):
    text = HEAD + "u,1,x,0,1,y,1,0.5,x,0,0\nv,1,x,1,1,died,,,,,\nw,1,y,0,0.5,,,,,,\n"
    from_csv = read(tmp_path, text)
    frame = pl.read_csv(text.encode()).with_columns(pl.col("a_3", "r_2").cast(pl.Float64).fill_null(float("nan")))
    path = tmp_path / f"log.{suffix}"
    {"parquet": frame.write_parquet, "arrow": frame.write_ipc, "ndjson": frame.write_ndjson}[suffix](path)
    other = ingest(wide_card(tmp_path, (path.name,)), tmp_path / "other")
    assert other.data_digest == from_csv.data_digest
    assert other.quarantined == from_csv.quarantined == {"after_end": 1}
    assert from_csv.rows == 5


def test_an_empty_tail_is_where_the_episode_stopped_whatever_its_reward_says(tmp_path):
    snapshot = read(tmp_path, HEAD + "u,1,x,0,1,,,7,,,7\n")
    assert steps(snapshot) == [("u", 0, X, 0, 1.0, None)]
    assert snapshot.quarantined == {}


def test_a_hole_is_a_gap_and_a_row_without_a_step_is_filed(tmp_path):
    snapshot = read(tmp_path, HEAD + "u,1,x,0,1,,,,x,0,0\nv,1,,,,,,,,,\nw,1,x,0,0,,,,,,\n")
    assert steps(snapshot) == [("w", 0, X, 0, 0.0, None)]
    filed = quarantine(snapshot.folder).select("line", "rule", "effect", "text").rows()
    assert filed == [(2, "gap", "drop_episode", "step 1, 3"), (3, "gap", "drop_episode", "no step")]


def test_a_row_is_filed_once_a_rule_with_its_steps_and_all_its_cells(tmp_path):
    snapshot = read(tmp_path, HEAD + "g,1,x,0,1,y,1,1,x,0,0\nu,1,?,0,9,x,8,7,died,1,1\n")
    filed = quarantine(snapshot.folder)
    assert filed.select("line", "rule", "effect", "text").rows() == [
        (3, "after_end", "drop_step", "step 3"),
        (3, "reward_range", "coerce", "step 1, 2"),
        (3, "unknown_label", "coerce", "step 1, 2"),
    ]
    assert snapshot.quarantined == {"after_end": 1, "reward_range": 1, "unknown_label": 1}
    cells = dict(zip(HEAD.strip().split(","), ["u", "1", "?", "0", "9", "x", "8", "7", "died", "1", "1"], strict=True))
    assert filed["source"].to_list() == [cells] * 3
    assert snapshot.rows == 3 + 2


def test_the_first_step_may_have_another_number(tmp_path):
    head = "user,episode," + ",".join(f"{c}_{t}" for t in range(3) for c in "sar") + "\n"
    snapshot = read(tmp_path, head + "u,1,x,0,1,y,5,0,x,0,0\n", source={"layout": "wide", "first_step": 0})
    assert [row[1] for row in steps(snapshot)] == [0, 1, 2]
    assert quarantine(snapshot.folder)["text"].to_list() == ["step 1"]


TWO_STEPS: dict[str, Any] = {
    "columns": {"step": None, "episode_id": None, "reward": ["=0", "points"]},
    "domain": {
        "horizon": 2,
        "states": {"column": ["=start", "planet"], "labels": ["start", "planet=1", "planet=2"], "ends": ["end"]},
        "actions": {"column": ["choice", "=look"], "labels": {"ship 1": [1], "ship 2": [2], "look": ["look"]}},
    },
    "unit": {"episodes_per_user": 5},
}


def test_two_steps_of_a_game_from_one_row_a_decision(tmp_path):
    snapshot = read(tmp_path, "user,choice,planet,points\nu,1,2,1\nv,2,1,0.5\nu,2,,\n", **TWO_STEPS)
    table = canonical(snapshot).select("user_id", "episode_id", "step", "state", "action", "reward", "next_state")
    assert table.rows() == [
        ("u", 0, 0, 0, 0, 0.0, 2), ("u", 0, 1, 2, 2, 1.0, 3), ("u", 1, 0, 0, 1, 0.0, None),
        ("v", 0, 0, 0, 1, 0.0, 1), ("v", 0, 1, 1, 2, 0.5, 3),
    ]  # fmt: skip


QUALIFIED: dict[str, Any] = {
    "columns": {"step": None, "reward": ["=0", "r"], "next_state": ["planet", "last"]},
    "domain": {
        "horizon": 2,
        "states": {
            "column": ["ship", "planet"],
            "labels": {"one": [1, "last=1"], "two": [2], "red": ["planet=1"], "blue": ["planet=2.0"]},
            "ends": ["end"],
            "other": True,
        },
        "actions": {"column": ["a", "b"], "labels": {"a": [0], "b": ["b=0"]}, "other": True},
    },
}


def test_a_qualified_label_takes_the_values_of_its_column_and_no_others(tmp_path):
    rows = "u,1,1,1,0,0,1,end\nv,1,2,2,0,0,1,1\nw,1,planet=1,3,b=0,5,1,2\nz,1,1,1.0,0,0,1,1.0\ny,1,1,end,0,,,\n"
    snapshot = read(tmp_path, "user,episode,ship,planet,a,b,r,last\n" + rows, **QUALIFIED)
    table = canonical(snapshot).select("user_id", "step", "state", "action", "next_state").rows()
    one, two, red, blue, other, end = range(6)
    assert table == [
        ("u", 0, one, 0, red), ("u", 1, red, 1, end), ("v", 0, two, 0, blue), ("v", 1, blue, 1, one),
        ("w", 0, other, 2, other), ("w", 1, other, 2, other),
        ("y", 0, one, 0, end),
        ("z", 0, one, 0, red), ("z", 1, red, 1, one),
    ]  # fmt: skip


def test_bins_by_step_take_the_name_of_the_pattern(tmp_path):
    states = {"column": "s_{step}", "bins": {"by": "n_{step}", "edges": [1]}, "ends": ["died"]}
    card = wide_card(tmp_path, domain={"states": states, "actions": {"column": "a_{step}", "labels": 2}})
    assert card.domain.live_states == ["n < 1", "n ≥ 1"]


def states(column: Any, **more: Any) -> dict[str, Any]:
    return {"domain": {**WIDE["domain"], "states": {"column": column, "labels": ["x", "y"], "ends": ["end"], **more}}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"columns": {"step": "t"}}, "source.columns.step: in a wide source the columns tell the step; take the key"),
        (states("s"), r"domain.states.column: 's' is one column, .* a pattern such as 's_{step}', or a list of 3"),
        (states(["a", "b"]), "domain.states.column: names 2 columns, the horizon is 3; name one a step"),
        (states(["a", "", "b"]), "domain.states.column: entry 2 is empty"),
        (states("=x"), r"domain.states.column: a constant stands in a list of H entries"),
        (states(["=z", "b", "c"]), r"states.column: the constant '=z' is no declared label; declared: .*'x', 'y'"),
        (states(["=", "b", "c"]), "the constant '=' is no declared label"),
        ({"columns": {"reward": ["=2", "b", "c"]}}, r"source.columns.reward: .* must be a number in \[0, 1\]"),
        ({"columns": {"reward": ["=", "b", "c"]}}, r"source.columns.reward: the constant '=' must be a number"),
        ({"columns": {"terminated": ["=", "=maybe", "c"]}}, "source.columns.terminated: the constant '=maybe' must be"),
        ({"columns": {"behavior_prob": ["=", "=1.5", "c"]}}, "source.columns.behavior_prob: the constant '=1.5'"),
        ({"columns": {"behavior_prob": ["=", "=0", "c"]}}, "source.columns.behavior_prob: the constant '=0'"),
        (states("s_{step}", bins={"by": ["n", "m", "o"], "edges": [1]}, labels=None), "names: 'by' is a list"),
        (states("s_{step}", bins={"by": "n_{step}", "edges": [1, 2], "names": ["low", "low", "high"]}, labels=None),
         "names must be distinct"),
        ({"source": {"layout": "long"}, "columns": {"step": "t", "reward": ["r"]}}, "source.columns.reward: a list"),
        ({"domain": {"states": {"column": ["=x", "s", "s"], "labels": ["x", "y"], "ends": ["end"]},
                     "actions": {"column": ["=0", "a", "b"], "labels": 2}}},
         "domain.actions.column: entry 1 and that of domain.states.column are constants"),
    ],
)  # fmt: skip
def test_a_card_that_does_not_fit_the_layout_says_which_key_and_what_to_write(changes, says):
    with pytest.raises(ValidationError, match=says):
        wide_card(Path(), **changes)


@pytest.mark.parametrize("card", [make_card(Path(), ["a.csv"]), wide_card(Path())], ids=["long", "wide"])
def test_a_card_that_was_written_out_reads_back_as_it_was(card):
    assert Card.model_validate(card.model_dump(mode="json")) == card


def test_a_missing_column_of_a_step_is_named(tmp_path):
    with pytest.raises(LogError, match=r"missing_column: 'r_3', 's_3' not there"):
        read(tmp_path, "user,episode,s_1,a_1,r_1,s_2,a_2,r_2,a_3\n")
