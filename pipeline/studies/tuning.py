"""The committed table of how the online agents' knobs were chosen, so that a study can show it."""

from __future__ import annotations

import csv
from pathlib import Path

# written by tests/campaigns/tune_online.py
TABLE = Path(__file__).with_name("tuned_online.csv")


def tuned(agent: str, knob: str) -> list[dict[str, str]]:
    """Rows of one agent and knob: ``world, epsilon, value, taken, mean, std, worst, runs, seeds``, as text."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["agent"] == agent and row["knob"] == knob]
