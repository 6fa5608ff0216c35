"""Spending against time, drawn and as data."""

from __future__ import annotations

import pytest

from flows.jobs.book import Spent, chart, spending

CHARGES = [
    ("2026-01-01T00:00:00+00:00", 0.5),
    ("2026-02-01T00:00:00+00:00", 0.0),
    ("2026-07-02T12:00:00+00:00", 1.5),
]


def test_only_what_cost_something_is_a_point_and_sums_grow():
    assert spending(CHARGES) == [Spent(at=CHARGES[0][0], spent_rho=0.5), Spent(at=CHARGES[2][0], spent_rho=2.0)]
    assert spending([]) == []


@pytest.mark.parametrize(("cap", "low", "high"), [(4.0, "▂", "▅"), (2.0, "▃", "█"), (2.5, "▂", "▇")])
def test_the_line_rises_where_it_was_charged_and_is_full_at_the_cap(cap, low, high):
    line, times = chart(spending(CHARGES), cap, CHARGES[0][0], "2026-12-31T00:00:00+00:00")
    assert line[2:62] == low * 30 + high * 30 or line[2:62] == low * 29 + high * 31
    assert line.endswith(f"ρ = 2 of {cap:g}") and times.split() == ["2026-01-01", "2026-12-31"]
    assert len(times) == 62


def test_before_the_first_charge_there_is_nothing_and_without_one_no_line():
    line, _ = chart(spending(CHARGES[2:]), 4.0, "2026-01-01T00:00:00+00:00", "2026-12-31T00:00:00+00:00")
    assert line[2:31] == " " * 29 and line[40] == "▄"
    assert chart([], 4.0, CHARGES[0][0], CHARGES[2][0]) == []
