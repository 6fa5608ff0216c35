"""Handles of data, as a privatizer would pass them to a noise source."""

from __future__ import annotations

from pipeline.statistics.layout import ExactSums

REAL = ExactSums("shelf", "real", "per_step", {})
SYNTHETIC = ExactSums("shelf", "synthetic", "per_step", {})
