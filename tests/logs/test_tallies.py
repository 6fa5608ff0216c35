"""Tallies of a log agree with a plain loop over its canonical rows, whoever is in which half."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import polars as pl
import pytest

from pipeline.logs.aggregate import aggregate
from pipeline.logs.ingest import ingest
from pipeline.logs.regression_sums import in_second_half, tally
from reticent import load_card
from tests.flows.shop import lay_out, rows

Q, ENDS = 64, (0, 64)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    root = tmp_path_factory.mktemp("tallies")
    log = [(*r[:5], round(0.37 * r[5] + 0.01 * i % 1.3, 3), r[6]) for i, r in enumerate(rows(150))]
    card = load_card(lay_out(root / "shop", log=log) / "card.toml")
    return card, ingest(card, root / "store")


def plain(snapshot, keep) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Visits (H, L, A, L + END), rewards and first states, a row at a time; rewards are in halves of the range 2."""
    n, r, first = np.zeros((3, 2, 3, 3), int), np.zeros((3, 2, 3), int), np.zeros(2, int)
    for part in snapshot.part_files:
        for row in pl.read_parquet(part).iter_rows(named=True):
            if not keep(row["user_id"]):
                continue
            h, s, a, to = row["step"], row["state"], row["action"], row["next_state"]
            first[s] += h == 0
            if row["terminated"]:
                to = 2
            if to is None:
                continue
            n[h, s, a, to] += 1
            r[h, s, a] += min(max(math.floor(row["reward"] / 2 * Q + 1e-9), 0), Q)
    return n, r, first


def test_everybody_and_the_halves_are_what_a_loop_counts(shop):
    card, snapshot = shop
    both = tally(snapshot, card, Q, ENDS, split=False)["both"]
    halves = tally(snapshot, card, Q, ENDS, split=True)
    second = {u: bool(in_second_half(pl.Series([u]), card.name)[0]) for u in (f"c{i}" for i in range(150))}
    wanted = {"D": lambda u: not second[u], "D'": lambda u: second[u]}
    for found, keep in [(both, lambda u: True), *((halves[k], wanted[k]) for k in wanted)]:
        n, r, first = plain(snapshot, keep)
        np.testing.assert_array_equal(found.visits, n)
        np.testing.assert_array_equal(found.rewards, r)
        np.testing.assert_array_equal(found.first, first)
    assert 0.3 < np.mean(list(second.values())) < 0.7
    counts = aggregate(snapshot, card).tables
    np.testing.assert_array_equal(both.visits, counts["n_sas"])
    np.testing.assert_array_equal(both.first, counts["n_0"])


def test_declared_rewards_are_taken_from_the_card_and_none_is_read(shop, tmp_path):
    card, snapshot = shop
    table = [[0.0, 1.0, 2.0], [0.5, 0.25, 1.5]]
    declared = card.model_validate(card.model_dump() | {"reward": {"kind": "table", "range": [0, 2], "table": table}})
    found = tally(snapshot, declared, Q, ENDS, split=False)["both"]
    each = np.floor(np.array(table) / 2 * Q).astype(int)
    np.testing.assert_array_equal(found.rewards, each * found.visits.sum(-1))


def test_the_halves_are_fixed_by_the_id_alone():
    ids = pl.Series(range(50))
    assert in_second_half(ids, "s").reverse().equals(in_second_half(ids.reverse(), "s"))
    assert in_second_half(ids, "s").equals(in_second_half(ids.cast(pl.String), "s"))
    assert (in_second_half(ids, "s") != in_second_half(ids, "t")).any()


def test_a_long_id_takes_no_memory_for_each_row_of_others():
    """A row of one person with an id of 1 MiB once took a terabyte for a batch of others, after the charge."""
    ids = pl.Series([*map(str, range(500)), "z" * 20_000])
    tracemalloc.start()
    halves = in_second_half(ids, "s")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 21 and halves[:500].equals(in_second_half(ids[:500], "s"))
