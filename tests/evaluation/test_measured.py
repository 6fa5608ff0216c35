"""An interval holds its estimate."""

from __future__ import annotations

import pytest

from pipeline.facts.evaluation import Interval


def test_an_interval_holds_its_estimate() -> None:
    assert Interval(0.5, 0.4, 0.6).lower == 0.4
    with pytest.raises(ValueError, match="lower <= estimate <= upper"):
        Interval(0.5, 0.6, 0.7)
