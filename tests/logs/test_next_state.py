"""Where each row leads: as logged, else the next row, else the end, else unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import HEAD, Edition, canonical

Ingest = Callable[..., Edition]
Rows = list[tuple[Any, ...]]
X, Y, OTHER, DIED, END = range(5)
BINS = {"states": {"column": "s", "bins": {"by": "n", "edges": [1, 5]}, "ends": ["died", "end"], "other": True}}


def ways(snapshot: Edition) -> list[tuple[Any, ...]]:
    return canonical(snapshot).select("next_state", "terminated", "truncated").rows()


WITH = {"done": "terminated", "s2": "next_state", "n2": "next_bin"}
STATIONARY = {"dynamics": "stationary"}
NO_ENDS = {"states": {"column": "s", "labels": ["x", "y"]}}
NUMBERED = {"states": {"column": "s", "bins": {"by": "s", "edges": [1, 5]}, "ends": ["died", "end"]}}
XYX = [("u", 1, t, s, 0, 0) for t, s in enumerate("xyx")]
# what it says: the rows, their further columns, the domain, where each row that stays leads, and what is set aside
CASES: dict[str, tuple[Rows, tuple[str, ...], dict[str, Any], Rows, dict[str, int]]] = {
    "without a logged successor the next row tells, and step H leads to the end": (
        XYX, (), {}, [(Y, False, False), (X, False, False), (END, True, False)], {},
    ),
    "an episode that just stops is truncated and leads nowhere": (XYX[:1], (), {}, [(None, False, True)], {}),
    "a final row in an end tells where the episode ended": (
        [XYX[0], ("u", 1, 1, "died", "", "")], (), {}, [(DIED, True, False)], {"after_end": 1},
    ),
    "a terminated row leads to the end even if rows follow": (
        [(*XYX[0], 1), (*XYX[1], 0), ("v", 1, 0, "x", 0, 0, 1), ("v", 1, 1, "died", "", "", 0)], ("done",), {},
        [(END, True, False), (DIED, True, False)], {"after_end": 2},
    ),
    "the next row is trusted before a logged successor, which is set aside": (
        [(*XYX[0], "x"), (*XYX[1], None), (*XYX[2], "nowhere")], ("s2",), {},
        [(Y, False, False), (X, False, False), (OTHER, False, False)], {"leads_elsewhere": 1, "unknown_label": 1},
    ),
    "a logged successor is trusted where no row follows, beyond the last step too": (
        [("u", 1, 0, "x", 0, 0, "y"), *(("v", 1, t, "x", 0, 0, "x" if t < 3 else "y") for t in range(4))], ("s2",), {},
        [(Y, False, False), *[(X, False, False)] * 3], {"beyond_horizon": 1},
    ),
    "a logged end terminates and drops what follows": (
        [(*XYX[0], "died"), (*XYX[1], "x")], ("s2",), {}, [(DIED, True, False)], {"after_end": 1},
    ),
    **{
        f"stationary without logged successors knows nothing after step H: {last!r}": (
            [*((*row, row[2] == 2) for row in XYX), ("u", 1, 3, last, "", "", "")], ("done",), STATIONARY,
            [(Y, False, False), (X, False, False), (None, True, True)], {rule: 1},
        )
        for last, rule in (("", "beyond_horizon"), ("died", "beyond_horizon"))
    },
    "stationary with logged successors uses them at every step": (
        [("u", 1, t, "x", 0, 0, s) for t, s in enumerate(["x", "x", "died"])], ("s2",), STATIONARY,
        [(X, False, False), (X, False, False), (DIED, True, False)], {},
    ),
    "without ends the last step leads nowhere known": (
        [("u", 1, t, "x", 0, 0) for t in range(3)], (), NO_ENDS,
        [(X, False, False), (X, False, False), (None, False, True)], {},
    ),
    "one column may hold both the number and the ends": (
        [("u", 1, 0, "2", 0, 0), ("u", 1, 1, "died", "", "")], (), NUMBERED, [(3, True, False)], {"after_end": 1},
    ),
    "a logged successor in bins is the bin of its number unless it is an end": (
        [("u", 1, 0, "x", 0, 0, 0, "y", 7), ("u", 1, 1, "x", 0, 0, 7, "died", "abc")], ("n", "s2", "n2"), BINS,
        [(2, False, False), (4, True, False)], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_where_a_row_leads(ingested: Ingest, case: str) -> None:
    rows, more, domain, leads, set_aside = CASES[case]
    made = ingested(rows, (*HEAD, *more), columns={WITH[c]: c for c in more if c in WITH}, domain=domain)
    assert ways(made) == leads and made.quarantined == set_aside


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
