"""Handles of data, as a privatizer would pass them to a noise source."""

from __future__ import annotations

from pipeline.statistics.counts import Counts

REAL = Counts("shelf", "real", "per_step", {})
SYNTHETIC = Counts("shelf", "synthetic", "per_step", {})
