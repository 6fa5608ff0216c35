"""A sample of the power cuts, and what their committed rows say."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.campaigns.power_cuts import ALL, NAME, REASONS, syncs_table
from tests.campaigns.rows import ROOT, read

VERBS = {
    "register",
    "ingest",
    "ingest, new log",
    "first ingest",
    "run",
    "run, edition 2",
    "promote",
    "purge",
    "purge the quarantine",
    "night",
    "first night",
}


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["promote", "purge"])
def test_a_few_cuts_break_no_promise(verb: str) -> None:
    command = [sys.executable, "-P", "-m", "tests.campaigns.power_cuts", "--verb", verb, "--most", "30", "--dry"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_committed_cut_broke_a_promise() -> None:
    told = {r["verb"]: r for r in read(NAME) if r["taken out"] == ALL}
    assert set(told) == VERBS and not any(int(r["broken"]) for r in told.values())
    assert sum(int(r["laid down"]) for r in told.values()) > 1000


def test_every_sync_has_its_failure_or_its_reason() -> None:
    failed = {r["taken out"] for r in read(NAME) if int(r["broken"])}
    without = {r["taken out"] for r in read(NAME)} - failed - {ALL}
    assert failed and all(any(place in of for place in REASONS["unneeded"]) for of in without), without
    assert "not explained" not in syncs_table(NAME)
