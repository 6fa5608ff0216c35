"""Each rule of the table, by a log that breaks it; and where each row that stays leads."""

from collections import Counter
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.logs.rules import RULES
from reticent import CardError, LogError
from tests.documents import section
from tests.logs.conftest import HEAD, Edition, canonical, check_delivery, ingest, make_card, quarantine

GOOD = [("g", 1, 0, "x", 0, 1), ("g", 1, 1, "y", 1, 0.5)]
NO_OTHER = {"states": {"column": "s", "labels": ["x", "y"], "ends": ["end"]}, "actions": {"column": "a", "labels": 2}}
NO_ENDS = {"states": {"column": "s", "labels": ["x", "y"]}}


def fates(snapshot: Edition) -> list[tuple[int, str, str]]:
    """(line, rule, effect) of the quarantine."""
    return quarantine(snapshot.folder).select("line", "rule", "effect").rows()


def test_the_table_of_rules_is_the_table_of_the_documentation():
    rows = [line for line in section("card.md", "## Rules").splitlines() if line.startswith("| `")]
    assert rows == [f"| `{rule.name}` | {rule.effect} | {rule.meaning} |" for rule in RULES]


def row(t: Any = 0, s: Any = "x", a: Any = 0, r: Any = 0, *, episode: Any = 1) -> tuple[Any, ...]:
    return ("u", episode, t, s, a, r)


# The good user's rows fill lines 2 and 3; the first row of the case stands on line 4.
CASES: list[tuple[str, list[tuple[Any, ...]], list[tuple[int, str, str]]]] = [
    ("an unknown state or action is OTHER", [row(s="zz", a=7)], [(4, "unknown_label", "coerce")]),
    ("an empty state is OTHER", [row(s=None)], [(4, "unknown_label", "coerce")]),
    ("a reward outside the range is clipped", [row(r=9)], [(4, "reward_range", "coerce")]),
    ("a reward off the lattice is floored", [row(r=0.7)], [(4, "reward_off_lattice", "coerce")]),
    ("a hair below a lattice point is the point", [row(r=0.49999999999)], []),
    ("steps from H on are dropped", [*map(row, range(3)), row(3, r="NaN")], [(7, "beyond_horizon", "drop_step")]),
    ("a row in an end is dropped", [row(), row(1, "died", None, None)], [(5, "after_end", "drop_step")]),
    ("a gap drops the episode", [row(), row(2)], [(n, "gap", "drop_episode") for n in (4, 5)]),
    ("a late start is a gap", [row(1)], [(4, "gap", "drop_episode")]),
    ("a repeated step drops the episode", [row()] * 2, [(n, "repeat", "drop_episode") for n in (4, 5)]),
    *[
        (f"reward {r} drops the episode", [row(r=r)], [(4, "bad_reward", "drop_episode")])
        for r in ("NaN", None, "inf", "1 euro")
    ],
    *[(f"step {t} cannot be read", [row(t)], [(4, "unparsable", "drop_episode")]) for t in (None, "1.5", -1, "a")],
    ("a row without an episode id cannot be placed", [row(episode=None)], [(4, "unparsable", "drop_episode")]),
    ("only one episode a user is kept", [row(), row(episode=2)], [(5, "over_cap", "over_cap")]),
    (
        "a short line shows a gap",
        [row()[:4], row(1)],
        [(4, "malformed_line", "drop_step"), (5, "gap", "drop_episode")],
    ),
    ("a stray quote costs one line", [row(r='"0')], [(4, "malformed_line", "drop_step")]),
]


def test_a_broken_rule_is_filed_with_its_line_and_its_effect(ingested):
    """Of a person for each case, in one log; what it says of each is its name."""
    rows, expected = list[tuple[Any, ...]](GOOD), list[tuple[str, int, str, str]]()
    for name, told, filed in CASES:
        expected += [(name, line + len(rows) - len(GOOD), rule, effect) for line, rule, effect in filed]
        rows += [(name, *row[1:]) for row in told]
    snapshot = ingested(rows)
    # behind a line of names
    assert [(rows[line - 2][0], line, rule, effect) for line, rule, effect in fates(snapshot)] == expected
    assert snapshot.quarantined == Counter(rule for *_, rule, _ in expected)
    assert snapshot.rows == len(rows) - sum(effect != "coerce" for *_, effect in expected)


def test_coerced_cells_take_the_declared_values(ingested):
    snapshot = ingested([("u", 1, 0, "zz", 7, 9), ("u", 1, 1, "x", 0, -3), ("u", 1, 2, "x", 0, 0.99)])
    assert canonical(snapshot).select("state", "action", "reward").rows() == [(2, 2, 1.0), (0, 0, 0.0), (0, 0, 0.5)]


@pytest.mark.parametrize("cell", [None, "", "nan", "NaN"])
def test_an_empty_reward_pays_what_the_card_declares(ingested, cell):
    rows = [("u", 1, 0, "x", 0, cell), ("u", 1, 1, "x", 0, 1)]
    snapshot = ingested(rows, reward={"range": [0.0, 1.0], "steps": 2, "empty": 0.5})
    assert snapshot.quarantined == {} and canonical(snapshot)["reward"].to_list() == [0.5, 1.0]
    snapshot = ingested([*rows, ("v", 1, 0, "x", 0, "?")], reward={"range": [0.0, 1.0], "empty": 0.0})
    assert snapshot.quarantined == {"bad_reward": 1} and canonical(snapshot)["reward"].to_list() == [0.0, 1.0]


@pytest.mark.parametrize(
    "reward", [{"range": [0.0, 1.0], "empty": 2.0}, {"range": [0.0, 1.0], "kind": "on_entering", "empty": 0.0}]
)
def test_an_empty_reward_lies_in_the_range_of_rewards_that_are_read(ingested, reward):
    with pytest.raises(ValidationError, match="what an empty cell pays lies in range"):
        ingested(GOOD, reward=reward | ({"on_entering": {"y": 1.0}} if "kind" in reward else {}))


def test_rewards_that_are_booleans_are_1_and_0_in_whatever_case_a_program_writes_them(ingested):
    cells = ["true", "True", "TRUE", "false", "False", "FALSE"]
    snapshot = ingested([(f"u{i}", 1, 0, "x", 0, cell) for i, cell in enumerate(cells)])
    assert snapshot.quarantined == {} and canonical(snapshot)["reward"].to_list() == [1, 1, 1, 0, 0, 0]


def test_a_csv_with_other_separators_is_refused_in_words_that_help(tmp_path):
    (tmp_path / "log.csv").write_bytes(b"\xef\xbb\xbfu;e;t;s;a;r\r\n1;1;0;x;0;0,5\r\n")
    with pytest.raises(LogError, match=r"log.csv: line 1: missing_column.*cells are separated by ';'.*separator = "):
        ingest(make_card(tmp_path, ["log.csv"]), tmp_path / "home")


def test_every_lattice_point_is_kept_as_it_is(ingested):
    rows = [(f"u{k:03}", 1, 0, "x", 0, repr(-0.3 + k * (1.0 / 997))) for k in range(998)]
    snapshot = ingested(rows, reward={"range": [-0.3, 0.7], "steps": 997})
    assert snapshot.quarantined == {}
    assert canonical(snapshot)["reward"].to_list() == pytest.approx([float(row[-1]) for row in rows], abs=1e-12)


@pytest.mark.parametrize("row", [("u", 1, 0, "zz", 0, 0), ("u", 1, 0, "x", 7, 0)])
def test_where_no_other_is_declared_an_unknown_label_drops_the_episode(ingested, row):
    snapshot = ingested([*GOOD, row, ("u", 1, 1, "x", 0, 0)], domain=NO_OTHER)
    assert fates(snapshot) == [(4, "unknown_label", "drop_episode"), (5, "unknown_label", "drop_episode")]


@pytest.mark.parametrize("done", ["maybe", "2"])
def test_a_boolean_that_cannot_be_read_drops_the_episode(ingested, done):
    snapshot = ingested([("u", 1, 0, "x", 0, 0, done)], (*HEAD, "done"), columns={"terminated": "done"})
    assert snapshot.quarantined == {"unparsable": 1}


@pytest.mark.parametrize(("chance", "kept"), [("0.5", 1), ("1", 1), ("1e-300", 1), ("5e-324", 0), ("0", 0), ("1.5", 0)])
def test_what_was_done_had_some_chance(ingested, chance, kept):
    snapshot = ingested([("u", 1, 0, "x", 0, 0, chance)], (*HEAD, "p"), columns={"behavior_prob": "p"})
    assert (snapshot.rows, snapshot.quarantined.get("unparsable", 0)) == (kept, 1 - kept)


def test_where_no_end_is_declared_an_early_end_drops_the_episode(ingested):
    rows = [("g", *row(t)[1:], "") for t in range(3)] + [(*row(), "")]
    rows += [("v", *row(t)[1:], t == 1) for t in range(3)]
    snapshot = ingested(rows, (*HEAD, "done"), columns={"terminated": "done"}, domain=NO_ENDS)
    assert fates(snapshot) == [
        (5, "early_end", "drop_episode"), (6, "early_end", "drop_episode"),
        (7, "early_end", "drop_episode"), (8, "after_end", "drop_step"),
    ]  # fmt: skip


def test_the_kept_episodes_do_not_depend_on_the_order_of_rows(ingested):
    rows = [("u", e, t, "x", 0, 0) for e in range(9) for t in range(2)]
    kept = [canonical(ingested(r, unit={"episodes_per_user": 4})) for r in (rows, rows[::-1])]
    assert kept[0]["episode_id"].n_unique() == 4
    assert kept[0].equals(kept[1])


def test_a_row_without_a_user_is_filed_alone(ingested):
    snapshot = ingested([*GOOD, (None, 1, 0, "x", 0, 0), (" ", 1, 0, "x", 0, 1)])
    assert snapshot.quarantined == {"null_user": 2} and snapshot.rows == len(GOOD) == snapshot.source_rows - 2
    assert fates(snapshot) == [(4, "null_user", "drop_step"), (5, "null_user", "drop_step")]
    assert [cells["r"] for cells in quarantine(snapshot.folder)["source"]] == ["0", "1"]


def test_more_broken_rows_than_tolerated_are_told_and_lose_nothing(ingested):
    rows = [*GOOD, ("secret", 1, 0, "hidden", 0, 0), ("secret", 2, 1, "x", 0, 0)]
    made = ingested(rows, tolerance={"unknown_label": 0.0})
    with pytest.raises(LogError, match=r"unknown_label.*25\.000%.*accepts 0\.000%.*log\.csv, line 4;") as refused:
        check_delivery(made)
    assert "secret" not in str(refused.value) and "hidden" not in str(refused.value)
    assert quarantine(made.folder)["rule"].to_list() == ["unknown_label", "gap"]
    check_delivery(ingested(rows, tolerance={"unknown_label": 0.25}))


def test_a_tolerance_for_no_rule_is_the_cards_fault(ingested):
    with pytest.raises(CardError, match=r"no such rule; allowed: malformed_line, .*reward_off_lattice"):
        ingested(GOOD, tolerance={"unknwon_label": 0.1})
    with pytest.raises(CardError, match="no such rule"):
        ingested(GOOD, tolerance={"missing_column": 0.1})


def test_a_declared_reward_table_leaves_the_logged_rewards_unread(ingested):
    reward = {"kind": "table", "table": [[0.0, 1.0, 0.0]] * 3}
    snapshot = ingested([("u", 1, 0, "x", 0, "oops")], reward=reward)
    assert snapshot.quarantined == {}
    assert canonical(snapshot)["reward"].to_list() == [None]


def test_the_quarantine_keeps_the_raw_cells_as_they_were(ingested):
    snapshot = ingested([("u", "e7", "01x", "x", 0, "1e3"), ("u", "e7")])
    kept = quarantine(snapshot.folder)
    assert kept["source"].to_list() == [dict(zip(HEAD, ("u", "e7", "01x", "x", "0", "1e3"), strict=True)), None]
    assert kept["text"].to_list() == [None, "u,e7"]


Rows = list[tuple[Any, ...]]
X, Y, OTHER, DIED, END = range(5)
BINS = {"states": {"column": "s", "bins": {"by": "n", "edges": [1, 5]}, "ends": ["died", "end"], "other": True}}


WITH = {"done": "terminated", "s2": "next_state", "n2": "next_bin"}
STATIONARY = {"dynamics": "stationary"}
NUMBERED = {"states": {"column": "s", "bins": {"by": "s", "edges": [1, 5]}, "ends": ["died", "end"]}}
XYX = [("u", 1, t, s, 0, 0) for t, s in enumerate("xyx")]
# what it says: the rows, their further columns, the domain, where each row that stays leads, and what is set aside
LEADS: dict[str, tuple[Rows, tuple[str, ...], dict[str, Any], Rows, dict[str, int]]] = {
    "without a logged successor the next row tells, and step H leads to the end": (
        XYX, (), {}, [(Y, False, False), (X, False, False), (END, True, False)], {},
    ),
    "an episode that just stops is truncated and leads nowhere": (XYX[:1], (), {}, [(None, False, True)], {}),
    "a final row in an end tells where the episode ended": (
        [XYX[0], ("u", 1, 1, "died", "", "")], (), {}, [(DIED, True, False)], {"after_end": 1},
    ),
    "a terminated row leads to the end even if rows follow": (
        [(*XYX[0], 1), (*XYX[1], "maybe"), ("v", 1, 0, "x", 0, 0, 1), ("v", 1, 1, "died", "", "", 0)], ("done",), {},
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


@pytest.mark.parametrize("case", LEADS)
def test_where_a_row_leads(ingested, case):
    rows, more, domain, leads, set_aside = LEADS[case]
    made = ingested(rows, (*HEAD, *more), columns={WITH[c]: c for c in more if c in WITH}, domain=domain)
    assert canonical(made).select("next_state", "terminated", "truncated").rows() == leads
    assert made.quarantined == set_aside


def test_bins_are_left_closed_and_the_label_tells_only_the_ends(ingested):
    numbers = ["0.9", "1", "4.9", "5", "nan", "", "abc"]
    rows = [(f"u{i}", 1, 0, "whatever", 0, 0, n) for i, n in enumerate(numbers)] + [
        ("u7", 1, 0, "x", 0, 0, 0),
        ("u7", 1, 1, "died", 0, 0, "abc"),
    ]
    snapshot = ingested(rows, (*HEAD, "n"), domain=BINS)
    assert canonical(snapshot)["state"].to_list() == [0, 1, 1, 2, 3, 3, 0]
    assert canonical(snapshot)["next_state"].to_list()[-1] == 4
    assert snapshot.quarantined == {"after_end": 1, "unknown_label": 2, "unparsable": 1}


def test_a_log_of_single_decisions_needs_neither_step_nor_episode(ingested):
    rows = [("u", "x", 0, 1), ("v", "y", 1, 0), ("u", "y", 1, 0)]
    columns: dict[str, Any] = {"episode_id": None, "step": None}
    snapshot = ingested(
        rows, ("user", "s", "a", "r"), columns=columns, domain={"horizon": 1}, unit={"episodes_per_user": 2}
    )
    table = canonical(snapshot)
    assert table.select("user_id", "episode_id", "step", "state", "next_state").rows() == [
        ("u", 0, 0, X, END), ("u", 1, 0, Y, END), ("v", 0, 0, Y, END),
    ]  # fmt: skip
