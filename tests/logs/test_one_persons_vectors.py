"""Wide rows and vectors: whatever one person's record holds, every other person's rows stay as they are."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.logs.readers.batch import RECORD_BYTES
from reticent import Card

from .conftest import make_card
from .layouts import card_of, cards
from .test_one_persons_bytes import AT, CELL, rows_of_others

WIDE = {
    "domain": {
        "horizon": 2,
        "states": {"column": "s{step}", "labels": ["x", "y"], "ends": ["died", "end"], "other": True},
        "actions": {"column": "a{step}", "labels": 2, "other": True},
    },
    "source": {
        "layout": "wide",
        "files": ["log.csv"],
        "columns": {"user_id": "user", "episode_id": "episode", "reward": "r{step}"},
    },
}
LINE = st.one_of(
    st.lists(CELL.map(lambda cell: cell or b""), min_size=1, max_size=8).map(lambda cells: b",".join([b"odd", *cells])),
    st.binary(max_size=30).map(lambda line: b"odd" + line),
)


@settings(max_examples=3, deadline=None)
@given(st.lists(LINE, max_size=5))
def test_of_wide_rows_too(odd: list[bytes]) -> None:
    good = [b"%s,1,x,0,1,y,1,0" % user for user in (b"anna", b"bert", b"cleo")]
    found: list[Any] = []
    for some in ([], [line.replace(b"\n", b" ") for line in odd]):
        with tempfile.TemporaryDirectory() as name:
            lines_ = [b"user,episode,s1,a1,r1,s2,a2,r2", good[0], *some, *good[1:], b""]
            (Path(name) / "log.csv").write_bytes(b"\n".join(lines_))
            card = Card.model_validate(_values(make_card(Path(name), ["log.csv"])) | WIDE).placed(Path(name))
            found.append(rows_of_others(card, Path(name) / "store"))
    assert found[0] == found[1] and len(found[0]) == 6


def _values(card: Card) -> dict[str, Any]:
    return card.model_dump(exclude_unset=True)


NUMBER = st.one_of(st.floats(width=32), st.none(), st.just(1e300), st.just(-0.0))
VECTOR = st.one_of(st.none(), st.lists(NUMBER, max_size=4), st.just([0.5] * (RECORD_BYTES // 8 + 1)))


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(st.lists(st.tuples(VECTOR, VECTOR, st.integers(-(2**63), 2**63 - 1)), max_size=5))
def test_of_vectors_too(odd: list[tuple[Any, Any, int]]) -> None:
    values = cards()["Minari in Arrow"]
    columns = {"user_id": "user", "episode_id": "episode", "step": "t"}
    good = [(user, 1, t, [1.0, 0.5], [0.25]) for user in ("anna", "bert", "cleo") for t in range(3)]
    found: list[Any] = []
    for some in ([], [("odd", step, step, seen, done) for seen, done, step in odd]):
        with tempfile.TemporaryDirectory() as name:
            schema = {"user": pl.String, "episode": pl.Int64, "t": pl.Int64,
                      "observations": pl.List(pl.Float64), "actions": pl.List(pl.Float64)}  # fmt: skip
            frame = pl.DataFrame([*good[:AT], *some, *good[AT:]], schema=schema, orient="row")
            frame.write_parquet(Path(name) / "log.parquet")
            text = [f"[{', '.join(map(str, x))}]" if x is not None else "" for x in frame["observations"].to_list()]
            frame.with_columns(observations=pl.Series(text), actions=pl.col("actions").list.first()).write_csv(
                Path(name) / "log.csv"
            )
            for file in ("log.parquet", "log.csv"):
                source = {"files": [file], "columns": columns}
                card = card_of(values | {"unit": {"user": "user", "users_public": 4}, "source": source}, Path(name))
                found.append(rows_of_others(card, Path(name) / f"store-{file}"))
    assert found[0] == found[1] == found[2] == found[3] and len(found[0]) == 9
