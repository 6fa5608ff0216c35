"""What ingest does by column is what it would do cell by cell: labels, partitions, and how many keys there are."""

from __future__ import annotations

import hashlib

import polars as pl
import pytest

from pipeline.logs.decode import _index, keyed_hash
from pipeline.logs.second_pass import count_runs
from pipeline.logs.spills import _split

CELLS = [0, 1, -1, 3, 10**17, 1234567890123456789, -(2**63), 2**63 - 1, None, 7, 42]
TABLES = [
    {"0": 0, "1": 1, "-1": 2, "1234567890123456789": 3, "03": 4, "3.0": 5, "-0": 6, "7": 7},
    {"9223372036854775807": 0, "-9223372036854775808": 1, "9223372036854775808": 2, "42.0": 3, "00": 4},
    {"3": 0, "3.0": 1},
    {"x": 0},
]


@pytest.mark.parametrize("table", TABLES)
def test_integers_are_looked_up_as_their_text_would_be(table):
    cells = pl.Series("raw_state", CELLS, dtype=pl.Int64)
    found = cells.to_frame().with_columns(_index("state", {"state": pl.Int64()}, table).alias("index"))["index"]
    assert found.to_list() == [None if cell is None else table.get(str(cell)) for cell in CELLS]


@pytest.mark.parametrize("users", ["aabbbcaad", "abcabcabc", "a", "dcbaabcd"])
@pytest.mark.parametrize("partitions", [2, 3, 7])
def test_rows_go_where_the_hash_of_their_person_says(users, partitions):
    frame = pl.DataFrame({"raw_user": list(users), "line": range(len(users))})

    def home(user):
        digest = hashlib.blake2b(user.encode(), key=b"salt", digest_size=8).digest()
        return int.from_bytes(digest, "little") % partitions

    pieces = dict(_split(frame, "salt", partitions))
    assert {p: piece.rows() for p, piece in pieces.items()} == {
        p: [row for row in frame.rows() if home(row[0]) == p] for p in set(map(home, users))
    }


def test_the_hash_is_the_same_whatever_holds_the_texts():
    texts = ["a", "ä", "", "person-1"]
    expected = [int.from_bytes(hashlib.blake2b(t.encode(), key=b"s", digest_size=8).digest(), "little") for t in texts]
    assert keyed_hash(texts, "s").to_list() == keyed_hash(pl.Series(texts), "s").to_list() == expected


@pytest.mark.parametrize("rows", [[], [("a", 1)], [("a", 1), ("a", 1), ("a", 2), ("b", 2), ("c", 1), ("c", 1)]])
def test_sorted_keys_are_counted_by_their_changes(rows):
    frame = pl.DataFrame(rows, schema={"user_id": pl.String, "episode_id": pl.Int64}, orient="row")
    assert count_runs(frame, "user_id") == frame["user_id"].n_unique()
    assert count_runs(frame, "user_id", "episode_id") == frame.n_unique()
