"""docs/ten_minutes.md, followed word by word."""

from __future__ import annotations

import json

import pytest

from tests.documents import rehearse


@pytest.mark.slow
def test_a_stranger_gets_from_a_csv_to_a_report(tmp_path):
    log, looked, planned, ran, used = rehearse("ten_minutes.md", tmp_path)
    assert log.startswith("patient,month,systolic,treatment,controlled")
    assert "48,000 rows, 12,000 users" in looked
    assert "left after it" in planned
    assert "differential privacy for the people in the log" in ran
    assert "use tablet" in used and "blood_pressure" in used and ": ok" in used
    run = next((tmp_path / ".reticent" / "runs").glob("blood_pressure-*"))
    report = json.loads((run / "report.json").read_text())
    # the behaviour's value is 2.33; the truth of this made-up clinic is far above it
    assert report["value"]["lower"] > 2.4
    assert report["evaluation"]["people"] > 3000 and report["verdict"]["answer"] == "better"
    assert (run / "report.html").stat().st_size < 300_000
