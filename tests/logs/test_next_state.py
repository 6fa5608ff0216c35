"""Where each row leads: as logged, else the next row, else the end, else unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import HEAD, Edition, canonical

Ingest = Callable[..., Edition]
X, Y, OTHER, DIED, END = range(5)
BINS = {"states": {"column": "s", "bins": {"by": "n", "edges": [1, 5]}, "ends": ["died", "end"], "other": True}}


def ways(snapshot: Edition) -> list[tuple[Any, ...]]:
    return canonical(snapshot).select("next_state", "terminated", "truncated").rows()


def test_without_a_logged_successor_the_next_row_tells_and_step_h_leads_to_the_end(ingested: Ingest) -> None:
    rows = [("u", 1, t, s, 0, 0) for t, s in enumerate(["x", "y", "x"])]
    assert ways(ingested(rows)) == [(Y, False, False), (X, False, False), (END, True, False)]


def test_an_episode_that_just_stops_is_truncated_and_leads_nowhere(ingested: Ingest) -> None:
    assert ways(ingested([("u", 1, 0, "x", 0, 0)])) == [(None, False, True)]


def test_a_final_row_in_an_end_tells_where_the_episode_ended(ingested: Ingest) -> None:
    assert ways(ingested([("u", 1, 0, "x", 0, 0), ("u", 1, 1, "died", "", "")])) == [(DIED, True, False)]


def test_a_terminated_row_leads_to_the_end_even_if_rows_follow(ingested: Ingest) -> None:
    rows = [
        ("u", 1, 0, "x", 0, 0, 1),
        ("u", 1, 1, "y", 0, 0, 0),
        ("v", 1, 0, "x", 0, 0, 1),
        ("v", 1, 1, "died", "", "", 0),
    ]
    found = ways(ingested(rows, (*HEAD, "done"), columns={"terminated": "done"}))
    assert found == [(END, True, False), (DIED, True, False)]


def test_a_logged_successor_is_trusted_before_the_next_row(ingested: Ingest) -> None:
    rows = [("u", 1, 0, "x", 0, 0, "x"), ("u", 1, 1, "y", 0, 0, None), ("u", 1, 2, "x", 0, 0, "nowhere")]
    found = ways(ingested(rows, (*HEAD, "s2"), columns={"next_state": "s2"}))
    assert found == [(X, False, False), (X, False, False), (OTHER, False, False)]


def test_a_logged_end_terminates_and_drops_what_follows(ingested: Ingest) -> None:
    rows = [("u", 1, 0, "x", 0, 0, "died"), ("u", 1, 1, "y", 0, 0, "x")]
    snapshot = ingested(rows, (*HEAD, "s2"), columns={"next_state": "s2"})
    assert ways(snapshot) == [(DIED, True, False)]
    assert snapshot.quarantined == {"after_end": 1}


@pytest.mark.parametrize("last", ["", "died"])
def test_stationary_without_logged_successors_knows_nothing_after_step_h(ingested: Ingest, last: str) -> None:
    rows = [("u", 1, t, s, 0, 0, t == 2) for t, s in enumerate(["x", "y", "x"])] + [("u", 1, 3, last, "", "", "")]
    snapshot = ingested(rows, (*HEAD, "done"), columns={"terminated": "done"}, domain={"dynamics": "stationary"})
    assert ways(snapshot) == [(Y, False, False), (X, False, False), (None, True, True)]


def test_stationary_with_logged_successors_uses_them_at_every_step(ingested: Ingest) -> None:
    rows = [("u", 1, t, "x", 0, 0, s) for t, s in enumerate(["x", "x", "died"])]
    snapshot = ingested(rows, (*HEAD, "s2"), columns={"next_state": "s2"}, domain={"dynamics": "stationary"})
    assert ways(snapshot)[-1] == (DIED, True, False)


def test_without_ends_the_last_step_leads_nowhere_known(ingested: Ingest) -> None:
    rows = [("u", 1, t, "x", 0, 0) for t in range(3)]
    snapshot = ingested(rows, domain={"states": {"column": "s", "labels": ["x", "y"]}})
    assert ways(snapshot) == [(X, False, False), (X, False, False), (None, False, True)]


def test_bins_are_left_closed_and_the_label_tells_only_the_ends(ingested: Ingest) -> None:
    numbers = ["0.9", "1", "4.9", "5", "nan", "", "abc"]
    rows = [(f"u{i}", 1, 0, "whatever", 0, 0, n) for i, n in enumerate(numbers)] + [
        ("u7", 1, 0, "x", 0, 0, 0),
        ("u7", 1, 1, "died", 0, 0, "abc"),
    ]
    snapshot = ingested(rows, (*HEAD, "n"), domain=BINS)
    assert canonical(snapshot)["state"].to_list() == [0, 1, 1, 2, 3, 3, 0]
    assert canonical(snapshot)["next_state"].to_list()[-1] == 4
    assert snapshot.quarantined == {"after_end": 1, "unknown_label": 2, "unparsable": 1}


def test_one_column_may_hold_both_the_number_and_the_ends(ingested: Ingest) -> None:
    states = {"column": "s", "bins": {"by": "s", "edges": [1, 5]}, "ends": ["died", "end"]}
    snapshot = ingested([("u", 1, 0, "2", 0, 0), ("u", 1, 1, "died", "", "")], domain={"states": states})
    assert ways(snapshot) == [(3, True, False)]


def test_a_logged_successor_in_bins_is_the_bin_of_its_number_unless_it_is_an_end(ingested: Ingest) -> None:
    rows = [("u", 1, 0, "x", 0, 0, 0, "y", 7), ("u", 1, 1, "x", 0, 0, 7, "died", "abc")]
    snapshot = ingested(rows, (*HEAD, "n", "s2", "n2"), columns={"next_state": "s2", "next_bin": "n2"}, domain=BINS)
    assert ways(snapshot) == [(2, False, False), (4, True, False)]
    assert snapshot.quarantined == {}


def test_a_log_of_single_decisions_needs_neither_step_nor_episode(ingested: Ingest) -> None:
    rows = [("u", "x", 0, 1), ("v", "y", 1, 0), ("u", "y", 1, 0)]
    columns: dict[str, Any] = {"episode_id": None, "step": None}
    snapshot = ingested(
        rows, ("user", "s", "a", "r"), columns=columns, domain={"horizon": 1}, unit={"episodes_per_user": 2}
    )
    table = canonical(snapshot)
    assert table.select("user_id", "episode_id", "step", "state", "next_state").rows() == [
        ("u", 0, 0, X, END), ("u", 1, 0, Y, END), ("v", 0, 0, Y, END),
    ]  # fmt: skip
