"""What ingest does by column is what it would do cell by cell, for a row that is alone in its partition too."""

import hashlib
import math
import random
from contextlib import closing
from functools import partial

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from pipeline.declaration.domain import Vector
from pipeline.logs import decode as wide
from pipeline.logs.decode import _index, decode, vector_cells
from pipeline.logs.ingest import _sort_people
from pipeline.logs.sources import Sources
from pipeline.logs.spills import _Spill, _split, read_partition, read_users
from reticent import Card
from tests.conftest import card_dict
from tests.logs.conftest import make_card

CELLS = [0, 1, -1, 3, 10**17, 1234567890123456789, -(2**63), 2**63 - 1, None, 7, 42]
TABLES = [
    {"0": 0, "1": 1, "-1": 2, "1234567890123456789": 3, "03": 4, "3.0": 5, "-0": 6, "7": 7},
    {"9223372036854775807": 0, "-9223372036854775808": 1, "9223372036854775808": 2, "42.0": 3, "00": 4},
    {"3": 0, "3.0": 1},
    {"x": 0},
    {"9223372036854775807": 0},
    {"-9223372036854775808": 0},
]


@pytest.mark.parametrize("table", TABLES)
def test_integers_are_looked_up_as_their_text_would_be(table):
    cells = pl.Series("raw_state", CELLS, dtype=pl.Int64)
    found = cells.to_frame().with_columns(_index("state", {"state": pl.Int64()}, table).alias("index"))["index"]
    assert found.to_list() == [None if cell is None else table.get(str(cell), table.get(f"{cell}.0")) for cell in CELLS]


@pytest.mark.parametrize("users", ["aabbbcaad", "abcabcabc", "a", "dcbaabcd", ["a", None, " ", "a", "", "b"]])
@pytest.mark.parametrize("partitions", [1, 2, 3, 7])
def test_rows_go_where_the_hash_of_their_person_says_and_those_of_nobody_apart(users, partitions):
    frame = pl.DataFrame({"raw_user": list(users), "line": range(len(users))})

    def home(user):
        digest = hashlib.blake2b(str(user).encode(), key=b"salt", digest_size=8).digest()
        return int.from_bytes(digest, "little") % partitions if user and user.strip() else None

    pieces = dict(_split(frame, "salt", partitions))
    assert {p: piece.rows() for p, piece in pieces.items()} == {
        p: [row for row in frame.rows() if home(row[0]) == p] for p in set(map(home, users))
    }


@pytest.mark.parametrize("users", [["a", "a", "b"], [1, 1, 2**40]])
def test_what_is_spilt_is_read_as_it_was_whatever_types_held_its_batches(users, tmp_path):
    types = {"user": pl.Series(users).dtype, "state": pl.Int64(), "vector": pl.List(pl.Float64)}
    sources = Sources((), {}, types, None, 0)
    batches = [
        pl.DataFrame(
            {"raw_user": users, "raw_state": [state, None, -state], "raw_vector": [[0.5, None], [], None]},
            schema={f"raw_{role}": dtype for role, dtype in types.items()},
        ).with_columns(
            delivered=pl.Series([other, None, None]),
            file=pl.lit(0, dtype=pl.Int32),
            line=pl.int_range(line, line + 3, dtype=pl.Int64),
        )
        for state, line, other in [(1, 1, None), (2, 4, "a.0"), (2**40, 7, None), (3, 2**33, None), (4, 10, None)]
    ]
    path = tmp_path / "spill-0000.arrow"
    with path.open("wb") as sink, closing(_Spill(sink)) as spill:
        for batch in batches:
            ((_, piece),) = _split(batch, "salt", 1)
            assert piece["raw_state"].dtype != pl.Int64 or piece["raw_state"].max() == 2**40
            spill.write(piece)
    found, beyond = read_partition([path], tmp_path / "more", sources, make_card(tmp_path, ["log.csv"]))
    assert_frame_equal(found, pl.concat(batches, how="vertical_relaxed"))
    assert beyond == 0
    whose = read_users([path], sources)
    assert whose["raw_user"].to_list() == users * len(batches)
    assert whose["delivered"].drop_nulls().to_list() == ["a.0"]


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_sorted_as_by_all_keys_whatever_order_they_came_in(seed):
    some = partial(random.Random(seed).choices, k=60)
    rows = pl.DataFrame(
        {"user_id": list("bac" * 20), "episode_id": some([None, 1, 2]), "step": some([None, 0, 1, 1, 2])},
        schema={"user_id": pl.String, "episode_id": pl.Int64, "step": pl.Int64},
    ).with_row_index("row")
    order = ["user_id", "episode_id", "step", "row"]
    for came in (rows, rows.sort(order), rows.sort("user_id", "row"), rows.sort("step", "row"), rows.drop_nulls()):
        assert_frame_equal(_sort_people(came).drop("person"), came.sort(order, nulls_last=True))


# Polars divides a column of one row by a constant, and multiplies a longer one by the constant's inverse; what a thread
# gets of a column may be one row.  The last digit of such a quotient tells whether anybody else is there.
# a billionth of a step below a lattice point of 0 .. 3 in 1000 steps, as the rule for rounding has it
ON_THE_EDGE = 0.005999999997


def rewards(values: list[float]) -> list[float]:
    card = Card.model_validate(card_dict(reward={"range": [0.0, 3.0], "steps": 1000}))
    cells = {"user": "u", "episode": "1", "step": "0", "state": "x", "action": "a"}
    raw = pl.DataFrame([{f"raw_{k}": v for k, v in (cells | {"reward": repr(r)}).items()} for r in values])
    return decode(raw.with_row_index("raw_row"), card)["reward"].to_list()


@pytest.mark.parametrize("ulps", range(-3, 4))
def test_a_reward_is_floored_alike_alone_and_beside_others(ulps):
    r = ON_THE_EDGE
    for _ in range(abs(ulps)):
        r = math.nextafter(r, math.copysign(math.inf, ulps))
    beside = rewards([r, 1.0, 1.0])[0], rewards([1.0, 1.0, r])[-1], rewards([r] + [1.0] * 8)[0]
    assert {rewards([r])[0]} == set(beside)


def test_a_date_is_the_same_number_alone_and_beside_others():
    def days(texts: list[str]) -> list[float]:
        order = wide.order_of({"order": pl.String()})
        return pl.DataFrame({"raw_order": texts}).select(order.alias("found"))["found"].to_list()

    odd = "0001-01-01T00:00:00+23:59"
    assert days([odd])[0] == days([odd, "2026-01-02"])[0]


def test_a_coordinate_is_scaled_alike_alone_and_beside_others():
    vector = Vector(columns=["v"], scale=[3.7], radius=1e6)

    def scaled(values: list[float]) -> list[float]:
        cells, *_ = vector_cells("o", ["v"], vector, {"o@0": pl.Float64()})
        return [x for (x,) in pl.DataFrame({"raw_o@0": values}).select(cells.alias("x"))["x"].to_list()]

    # half-way between two numbers of 32 bits, and a little beside
    between = (float(np.float32(1.1)) + float(np.nextafter(np.float32(1.1), np.float32(2)))) / 2
    near = [between * 3.7]
    for _ in range(3):
        near = [math.nextafter(near[0], 0.0), *near, math.nextafter(near[-1], 9.0)]
    assert [scaled([x])[0] for x in near] == scaled(near)
