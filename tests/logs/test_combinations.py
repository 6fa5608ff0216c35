"""Labels, bins, OTHER, ends and flags in every combination and both layouts, against an independent reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.logs.ingest import screen
from reticent import Card

from .conftest import make_card
from .reference import Cells, reference

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
OPTIONAL = {
    "next_state": "s2",
    "next_bin": "n2",
    "terminated": "done",
    "truncated": "cut",
}
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


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(
    st.data(),
    st.sampled_from(range(len(ENDS))),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from(["per_step", "stationary"]),
    st.lists(st.sampled_from(list(OPTIONAL)), unique=True),
)
def test_a_long_log_is_read_as_the_reference_reads_it(
    kind: str, data: Any, ends: int, other: Any, dynamics: str, optional: list[str]
) -> None:
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
@given(
    st.data(),
    st.sampled_from(range(len(ENDS))),
    st.tuples(st.booleans(), st.booleans()),
    st.sampled_from(["per_step", "stationary"]),
    st.lists(st.sampled_from(list(OPTIONAL)), unique=True),
)
def test_a_wide_log_gives_the_rows_of_the_same_log_in_long_form(
    kind: str, data: Any, ends: int, other: Any, dynamics: str, optional: list[str]
) -> None:
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


def test_a_reference_without_other_would_be_told_from_ours() -> None:
    card = card_of(("list", 1, (True, True)), "per_step", [], "long")
    rows: list[Cells] = [
        {**EMPTY, "user": "u", "episode": "1", "step": "0", "state": "?", "action": "0", "reward": "0"}
    ]
    strict = card_of(("list", 1, (False, True)), "per_step", [], "long")
    assert screened(frame_of(rows, card.log.roles), card) == reference(rows, card, set(card.log.roles)) != []
    assert reference(rows, strict, set(strict.log.roles)) == []
