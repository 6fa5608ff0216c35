"""How far one person moves the counts of a gate: over all people there can be, by the code that counts them."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from pipeline.logs.ingest import count_people
from pipeline.logs.store import quarantine_schema
from pipeline.privacy.noise import OsNoise, SeededNoise
from pipeline.privacy.release import SET_ASIDE
from pipeline.statistics.layout import ExactSums, GateLayout
from pipeline.statistics.private_sum import PrivateSum

RULES = ("gap", "repeat", "unknown_label", "bad_reward", "over_cap")
# what one person's rows may break, rule by rule how many rows, filed more than once or never
PEOPLE = [
    [rule for rule, rows in zip(RULES[:4], counts, strict=True) for _ in range(rows)]
    for counts in itertools.product((0, 1, 3), repeat=4)
]
CROWD = [("ann", "gap"), ("ann", "gap"), ("bob", "unknown_label"), ("bob", "repeat"), (None, "malformed_line")]


def counted(tmp_path, card, layout, person):
    """What the shipped code counts of the crowd and one more person, who lies in a partition of their own id."""
    filed = [*CROWD, *(("zoe", rule) for rule in person)]
    frame = pl.DataFrame(
        {
            "rule": [rule for _, rule in filed],
            "effect": ["drop_step"] * len(filed),
            "file": ["log.csv"] * len(filed),
            "line": list(range(len(filed))),
            "text": [None] * len(filed),
            "source": [dict.fromkeys(card.log.roles.values(), user) for user, _ in filed],
        },
        schema=quarantine_schema(card),
    )
    # a partition may have filed some of a person's rows apart
    apart = frame["rule"] == "repeat"
    frame.filter(~apart).write_parquet(tmp_path / "quarantine-0000.parquet")
    frame.filter(apart).write_parquet(tmp_path / "quarantine-0000-more.parquet")
    return layout.count(count_people(tmp_path, card))[SET_ASIDE]


@pytest.mark.parametrize("number", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_the_largest_move_of_all_people_is_the_sensitivity(tmp_path, make_card, number):
    layout, card = GateLayout("tiny", "synthetic", RULES[:number]), make_card()
    (table,) = layout.tables
    points = np.array([counted(tmp_path, card, layout, person) for person in PEOPLE])
    moves = points[:, None] - points[None]
    # the cheaper of the two ways
    assert (moves**2).sum(-1).max() == table.replace.l2_squared == min(number, 2)
    assert np.abs(moves).sum(-1).max() == table.replace.l1
    nobody = points[PEOPLE.index([])]
    assert ((points - nobody) ** 2).sum(-1).max() == table.add_remove.l2_squared


def test_broken_twins_that_count_under_each_of_many_rules_or_count_rows_move_further(tmp_path, make_card, monkeypatch):
    layout, card = GateLayout("tiny", "synthetic", RULES[:4]), make_card()
    with monkeypatch.context() as patch:
        patch.setattr(GateLayout, "once", property(lambda self: False))
        points = np.array([counted(tmp_path, card, layout, person) for person in PEOPLE])
    assert ((points[:, None] - points[None]) ** 2).sum(-1).max() == 4 > layout.tables[0].replace.l2_squared
    rows = np.array([[person.count(rule) for rule in RULES[:2]] for person in PEOPLE])
    assert ((rows[:, None] - rows[None]) ** 2).sum(-1).max() > GateLayout("t", "real", RULES[:2]).tables[0].replace.l1


@pytest.mark.parametrize("number", [1, 2, 5])
def test_the_extremes_attain_the_sensitivity_and_who_joins_is_counted_once_or_under_each_rule(number):
    """Every subset of the rules that a person may be counted under, as the layout says."""
    layout = GateLayout("tiny", "synthetic", RULES[:number])
    (table,) = layout.tables
    summed = PrivateSum(layout, (table.mechanism(9),))
    one, other = summed.worst_pair(layout.count)
    move = layout.count(one)[SET_ASIDE] - layout.count(other)[SET_ASIDE]
    assert (move**2).sum() == table.replace.l2_squared and summed.rho == Fraction(table.replace.l2_squared, 18)
    most = 1 if layout.once else number
    people = [p for p in itertools.product((0, 1), repeat=number) if sum(p) <= most]
    assert table.add_remove.l2_squared == table.add_remove.l1 == max(map(sum, people))
    assert table.replace.l1 == max(sum(abs(a - b) for a, b in zip(p, q, strict=True)) for p in people for q in people)


def test_the_noise_is_the_mechanisms_and_real_people_get_the_operating_systems():
    layout = GateLayout("tiny", "synthetic", RULES[:2])
    summed = PrivateSum(layout, (layout.tables[0].mechanism(400),))
    sums = ExactSums("tiny", "synthetic", "people", layout.count({"gap+repeat": 7, "gap": 3}))
    drawn = np.array([summed.draw(sums, SeededNoise(i)).tables[SET_ASIDE] for i in range(2000)])
    assert np.abs(drawn.mean(0) - [10, 7]).max() < 2 and np.abs(drawn.var(0) / 400 - 1).max() < 0.15
    assert summed.draw(sums, OsNoise()).noise == "os"
