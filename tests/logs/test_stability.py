"""What holds for every log: no row is lost, no user touches another, and an independent reference reads it alike."""

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
from pipeline.logs.ingest import screen
from reticent import Card
from tests.logs.conftest import canonical, ingest, make_card, quarantine
from tests.logs.reference import Cells, reference

HEAD = ("user", "episode", "t", "s", "a", "r", "s2", "done", "cut", "p")
COLUMNS = {"next_state": "s2", "terminated": "done", "truncated": "cut", "behavior_prob": "p"}
ROW_CELLS = [
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
    row = st.tuples(st.just(user), *ROW_CELLS)
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
def test_every_row_is_canonical_or_filed_once_with_a_drop(log, plan):
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
def test_replacing_one_users_rows_changes_no_other_users_rows(log, other, plan):
    rows = mixed(log)
    kept = [row for row in rows if row[0] != "v"]
    before, after = (read(r, plan)[0].filter(pl.col("user_id") != "v") for r in (rows, other + kept))
    assert before.equals(after)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(LOGS, st.sampled_from(PLANS))
def test_one_partition_and_seven_give_the_same_rows_and_the_same_quarantine(log, plan):
    rows = mixed(log)
    one, seven = read(rows, plan), read(rows, plan, partial(in_partitions, partitions=7))
    assert one[0].equals(seven[0]) and one[1].equals(seven[1])


@settings(max_examples=3, deadline=None)
@given(LOGS, st.sampled_from(PLANS))
def test_the_canonical_table_keeps_what_its_schema_promises(log, plan):
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


H = 3
LABELS: dict[str, dict[str, Any]] = {
    "list": {"labels": ["x", "1", "2"]},
    "number": {"labels": 3},
    "aliases": {"labels": {"left": ["x", "1"], "right": ["2", "3.0"], "three": ["3"]}},
    "bins": {"bins": {"by": "n", "edges": [1, 5]}},
    "bins of the label's column": {"bins": {"by": "s", "edges": [1, 5], "names": ["low", "middle", "high"]}},
}
# two by default: labels under other names, and bins
KINDS = [pytest.param(k, marks=() if k in ("aliases", "bins") else pytest.mark.slow) for k in LABELS]
ENDS = [[], ["died"], ["End", "died"], ["died", "cured"]]
OPTIONAL = {"next_state": "s2", "next_bin": "n2", "terminated": "done", "truncated": "cut"}
LABEL = st.sampled_from([None, "x", "1", "1.0", "2", "3", "3.0", "died", "End", "cured", "?", "OTHER", "left", "nan"])
NUMBER = st.sampled_from([None, "0.99", "1", "1.0", "4.999", "5", " 7 ", "1e3", "inf", "-inf", "nan", "NaN", "abc"])
ACTION = st.sampled_from(["0", "1", "1.0", "0", "1", None, "go", "7"])
FLAG = st.sampled_from([None, None, "true", "F", "1.0", "Yes", "2"])
REWARD = st.sampled_from(["0", "0.5", "1", "1e-1", " 1", "7", "-3", "0", "1", "nan", "inf", None, "r"])
COMMON = {"state": LABEL, "bin": NUMBER, "action": ACTION, "reward": REWARD, "next_state": LABEL, "next_bin": NUMBER}
CELLS = st.fixed_dictionaries({**COMMON, "terminated": FLAG, "truncated": FLAG})
# mostly sound rows, so that whole episodes survive
SOUND = st.fixed_dictionaries({
    "state": st.sampled_from(["x", "1", "2", "died"]), "bin": st.sampled_from(["0", "1", "5"]),
    "action": st.sampled_from(["0", "1"]), "reward": st.sampled_from(["0", "0.5", "1"]),
    "next_state": st.sampled_from([None, "x", "died"]), "next_bin": st.sampled_from(["0", "5"]),
    "terminated": st.sampled_from([None, None, "true"]), "truncated": st.sampled_from([None, "1"]),
})  # fmt: skip
ROW = st.one_of(SOUND, SOUND, SOUND, CELLS)
EMPTY = dict.fromkeys([*COMMON, "terminated", "truncated"])


def card_of(combination: Any, dynamics: str, optional: list[str], layout: str) -> Card:
    kind, ends, (other_state, other_action) = combination
    wide = layout == "wide"
    step = "_{step}" if wide else ""
    states = {"column": "s", **LABELS[kind], "ends": ENDS[ends], "other": other_state}
    if "bins" in states:
        states["bins"] = {**states["bins"], "by": states["bins"]["by"] + step}
    states["column"] += step
    columns: dict[str, Any] = {name: OPTIONAL[name] + step for name in optional}
    if "next_bin" in columns and ("bins" not in states or "next_state" not in columns):
        del columns["next_bin"]
    return make_card(
        Path(),
        ["log.csv"],
        {**columns, "reward": "r" + step, "step": None if wide else "t"},
        domain={
            "states": states,
            "actions": {"column": "a" + step, "labels": {"stay": ["0"], "go": ["1", "go"]}, "other": other_action},
            "dynamics": dynamics,
        },
        unit={"episodes_per_user": 10},
        source={"layout": layout},
    )


def screened(frame: pl.DataFrame, card: Card) -> list[tuple[Any, ...]]:
    frame = frame.with_columns(file=pl.lit(0, dtype=pl.Int32), line=pl.int_range(pl.len(), dtype=pl.Int64))
    rows, _ = screen(frame, card, ("log.csv",))
    return rows.drop("behavior_prob").rows()


def frame_of(rows: list[Cells], used: dict[str, str]) -> pl.DataFrame:
    """As spilt: two roles of one column hold the same cells."""
    role_of = {column: role for role, column in reversed(used.items())}
    return pl.DataFrame(
        {f"raw_{role}": pl.Series([r[role_of[column]] for r in rows], dtype=pl.String) for role, column in used.items()}
    )


def same_column(cells: Cells, used: dict[str, str]) -> Cells:
    return {**cells, "bin": cells["state"]} if used.get("bin") == used.get("state", "s") else cells


STEPS = st.sampled_from(["0", "1", "2", "0", "1.0", "2", "3", "x", "-1", None])
EPISODE = st.tuples(st.sampled_from("uvw"), st.lists(st.one_of(ROW, ROW, ROW, st.none()), min_size=H, max_size=H))
EPISODES = st.tuples(st.sampled_from("uvw"), st.integers(1, H), st.lists(ROW, min_size=H, max_size=H))


def log_of(item: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[list[Any]]:
    """Mostly many: a log costs the same to read whether it has one row or twenty."""
    many = st.lists(item, min_size=most // 3, max_size=most)
    return st.one_of(many, many, st.lists(item, max_size=2))


LONG = log_of(st.tuples(st.sampled_from("uvw"), st.sampled_from("12"), STEPS, ROW), 18)
WIDE, WHOLE = log_of(EPISODE, 12), log_of(EPISODES, 12)
# a log, ends, what has OTHER, dynamics, and columns that a log may have
COMBINED = given(
    st.data(),
    st.sampled_from(range(len(ENDS))),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from(["per_step", "stationary"]),
    st.lists(st.sampled_from(list(OPTIONAL)), unique=True),
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@COMBINED
def test_a_long_log_is_read_as_the_reference_reads_it(kind, data, ends, other, dynamics, optional):
    card = card_of((kind, ends, other), dynamics, optional, "long")
    used = card.log.roles
    rows: list[Cells] = [
        {"user": user, "episode": episode, "step": step, **cells} for user, episode, step, cells in data.draw(LONG)
    ] + [
        {"user": user, "episode": str(10 + i), "step": str(t), **cells}
        for i, (user, length, steps) in enumerate(data.draw(WHOLE))
        for t, cells in enumerate(steps[:length])
    ]
    rows = [same_column(row, used) for row in rows]
    assert screened(frame_of(rows, used), card) == reference(rows, card, set(used))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@COMBINED
def test_a_wide_log_gives_the_rows_of_the_same_log_in_long_form(kind, data, ends, other, dynamics, optional):
    wide, long = (card_of((kind, ends, other), dynamics, optional, layout) for layout in ("wide", "long"))
    used = long.log.roles
    rows: list[Cells] = []
    spilt: list[dict[str, str | None]] = []
    for i, (user, steps) in enumerate(data.draw(WIDE)):
        cells = [same_column({**EMPTY, **(step or {})}, used) for step in steps]
        spilt.append({"raw_user": user, "raw_episode": str(i)})
        for h, step in enumerate(cells):
            spilt[-1] |= {f"raw_{role}@{h}": step[role] for role in used if f"{role}@{h}" in wide.log.roles}
            bin_ = step["bin"] if "bin" in used and str(step["bin"]).lower() != "nan" else None
            if any(x is not None for x in (step["state"] if "state" in used else None, bin_, step["action"])):
                rows.append({"user": user, "episode": str(i), "step": str(h), **step})
    frame = pl.DataFrame(spilt, schema={f"raw_{role}": pl.String for role in wide.log.roles})
    # the reference reads the long form, as the test above has it
    assert screened(frame, wide) == reference(rows, long, set(used))


def test_a_reference_without_other_would_be_told_from_ours():
    card = card_of(("list", 1, (True, True)), "per_step", [], "long")
    rows = [{**EMPTY, "user": "u", "episode": "1", "step": "0", "state": "?", "action": "0", "reward": "0"}]
    strict = card_of(("list", 1, (False, True)), "per_step", [], "long")
    assert screened(frame_of(rows, card.log.roles), card) == reference(rows, card, set(card.log.roles)) != []
    assert reference(rows, strict, set(strict.log.roles)) == []
