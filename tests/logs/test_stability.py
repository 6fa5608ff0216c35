"""What holds for every log: no row is lost, users do not touch each other, partitions and formats do not matter."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.logs.ingest import ingest as in_partitions
from reticent import Card

from .conftest import canonical, ingest, make_card, quarantine

HEAD = ("user", "episode", "t", "s", "a", "r", "s2", "done", "cut", "p")
COLUMNS = {"next_state": "s2", "terminated": "done", "truncated": "cut", "behavior_prob": "p"}
CELLS = [
    st.sampled_from(["0", "1", "2", "e", "1.0", "", "-5"]),
    st.sampled_from(["0", "1", "2", "0", "1", "3", "1.0", "-1", "x", ""]),
    st.sampled_from(["x", "y", "x", "y", "died", "?", ""]),
    st.sampled_from(["0", "1", "1.0", "9", ""]),
    st.sampled_from(["0", "1", "0.5", "0.7", "4", "nan", "inf", "", "r"]),
    st.sampled_from(["", "", "x", "end", "?"]),
    st.sampled_from(["", "", "true", "0", "x"]),
    st.sampled_from(["", "F"]),
    st.sampled_from(["", "0.25", "nan", "7"]),
]
MALFORMED = st.sampled_from([("only", "three", "cells"), ('"',) * len(HEAD), ("a\rb",) * len(HEAD)])


def rows_of(user: str, most: int = 16) -> st.SearchStrategy[list[tuple[str, ...]]]:
    row = st.tuples(st.just(user), *CELLS)
    return st.lists(st.one_of(row, row, row, MALFORMED), max_size=most)


# many people: an ingest costs the same for one row or fifty
LOGS = st.tuples(*map(rows_of, ("u", "v", "w", "ü", "x", "y", "z", "10")), st.randoms(use_true_random=False))
PLANS: list[dict[str, Any]] = [
    {},
    {"domain": {"dynamics": "stationary"}, "unit": {"episodes_per_user": 2}},
    {"domain": {"states": {"column": "s", "labels": ["x", "y"]}, "actions": {"column": "a", "labels": 2}}},
]


def read(
    rows: list[tuple[str, ...]], plan: dict[str, Any], into: Callable[[Card, Path], Any] = ingest
) -> tuple[pl.DataFrame, pl.DataFrame, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = "\n".join(",".join(row) for row in [HEAD, *rows])
        (folder / "log.csv").write_text(text, encoding="utf-8", newline="")
        made = into(make_card(folder, ["log.csv"], COLUMNS, **plan), folder / "home")
        return canonical(made), quarantine(made.folder), made


def mixed(log: Any) -> list[tuple[str, ...]]:
    *people, random = log
    rows = [row for person in people for row in person]
    random.shuffle(rows)
    return [("g", "0", "0", "x", "0", "0", "", "", "", ""), *rows]


@settings(max_examples=4, deadline=None)
@given(LOGS, st.sampled_from(PLANS))
def test_every_row_is_canonical_or_filed_once_with_a_drop(log: Any, plan: dict[str, Any]) -> None:
    rows = mixed(log)
    table, filed, snapshot = read(rows, plan)
    dropped = filed.filter(pl.col("effect") != "coerce")
    assert len(table) + len(dropped) == len(rows) == snapshot.source_rows
    assert dropped["line"].n_unique() == len(dropped)
    coerced = filed.filter(pl.col("effect") == "coerce")
    assert not set(coerced["line"]) & set(dropped["line"])
    assert snapshot.quarantined == dict(filed.group_by("rule").len().rows())


@settings(max_examples=4, deadline=None)
@given(LOGS, rows_of("v", 12), st.sampled_from(PLANS))
def test_replacing_one_users_rows_changes_no_other_users_rows(log: Any, other: Any, plan: dict[str, Any]) -> None:
    rows = mixed(log)
    kept = [row for row in rows if row[0] != "v"]
    before, after = (read(r, plan)[0].filter(pl.col("user_id") != "v") for r in (rows, other + kept))
    assert before.equals(after)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(LOGS, st.sampled_from(PLANS))
def test_one_partition_and_seven_give_the_same_rows_and_the_same_quarantine(log: Any, plan: dict[str, Any]) -> None:
    rows = mixed(log)
    one, seven = read(rows, plan), read(rows, plan, partial(in_partitions, partitions=7))
    assert one[0].equals(seven[0])
    assert one[1].equals(seven[1])


@settings(max_examples=3, deadline=None)
@given(LOGS, st.sampled_from(PLANS))
def test_the_canonical_table_keeps_what_its_schema_promises(log: Any, plan: dict[str, Any]) -> None:
    table, _, snapshot = read(mixed(log), plan)
    card: Card = make_card(Path(), ["log.csv"], COLUMNS, **plan)
    live, labels = len(card.domain.live_states), len(card.domain.state_labels)
    assert table["step"].is_between(0, card.domain.horizon - 1).all()
    assert table["state"].is_between(0, live - 1).all()
    assert table["next_state"].drop_nulls().is_between(0, labels - 1).all()
    assert table["reward"].is_in([0.0, 0.5, 1.0]).all()
    assert table.drop("next_state", "behavior_prob").null_count().sum_horizontal().item() == 0
    episodes = table.group_by("user_id", "episode_id").agg((pl.col("step").max() + 1 == pl.len()).alias("contiguous"))
    assert episodes["contiguous"].all()
    assert (episodes.group_by("user_id").len()["len"] <= card.unit.episodes_per_user).all()
    assert snapshot.episodes == len(episodes)
