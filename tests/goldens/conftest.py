"""No setting of the shell reaches a golden, and what is played is played in this process."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [n for n in os.environ if n.startswith(("RETICENT_", "PREFECT_API"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
