"""Twenty nights of the year, and that its checks can fail."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pipeline.transaction.continual_step
from pipeline.logs.aggregate import count_new
from tests.campaigns.rows import ROOT
from tests.campaigns.year_nights import Year


def test_twenty_nights_keep_every_promise_under_one_charge(tmp_path):
    found = Year(tmp_path, nights=25, people=20, horizon=2).play(look_every=12)
    assert found["broken"] == []
    assert found["outcomes"] == {"drawn": 23, "drawn with nobody new": 1, "skipped": 1}
    assert found["ledger_total"] == found["charged_once"] and found["intents"] == 24


def test_a_year_that_counts_somebody_twice_is_seen(tmp_path, monkeypatch):
    def forgetful(snapshots, card, seen, *others, **more):
        return count_new(snapshots, card, seen[:0], *others, **more)

    monkeypatch.setattr(pipeline.transaction.continual_step, "count_new", forgetful)
    found = Year(tmp_path, nights=4, people=20, horizon=2).play(look_every=4)
    assert "night 4: the leaves are not the people who were new" in found["broken"]


@pytest.mark.slow
def test_four_killed_nights_break_no_promise():
    command = [sys.executable, "-P", "-m", "tests.campaigns.night_crashes", "--sample", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
