"""The tutorials of the site, followed word by word."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.documents import rehearse


def value(folder: Path, name: str) -> dict[str, float]:
    run = next((folder / ".reticent" / "runs").glob(f"{name}-*"))
    return json.loads((run / "report.json").read_text())["value"]


@pytest.mark.slow
def test_a_course_finds_who_should_repeat_and_does_not_forget_who_leaves(tmp_path: Path):
    _, used = rehearse("course.md", tmp_path)
    for standing, exercise in {"behind": "repeat", "on track": "next", "ahead": "challenge"}.items():
        assert f"{standing:<25}{exercise}" in used
    # this policy is worth 4.25 exercises where people leave, 4.63 if nobody did (200 000 students of the page's script)
    assert value(tmp_path, "course")["lower"] < 4.25 < value(tmp_path, "course")["upper"]


@pytest.mark.slow
def test_a_minari_data_set_becomes_a_policy(tmp_path: Path):
    used, walked = rehearse("minari_tutorial.md", tmp_path)
    assert "6,000 episodes" in used and walked == "reached the goal\n"


@pytest.mark.slow
@pytest.mark.service
def test_a_night_runs_on_a_real_server_and_a_second_start_is_free(tmp_path: Path):
    try:
        priced, started, again = rehearse("service_tutorial.md", tmp_path)
    finally:
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((tmp_path / "service.pid").read_text()), signal.SIGTERM)
    assert "calendar (nightly)" in priced and "is completed" in started and "is completed" in again
    assert "spent ρ = 1 of 4" in again and "all is well" in again
