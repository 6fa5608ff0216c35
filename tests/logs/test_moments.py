"""Dates and times far out: missing, never the end of the process."""

from __future__ import annotations

import polars as pl
import pytest

from pipeline.logs.readers.batch import readable_times
from pipeline.logs.sources import _cell


@pytest.mark.parametrize("kind", [pl.Datetime("ms"), pl.Datetime("us"), pl.Datetime("ns"), pl.Date])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_moment_beyond_every_calendar_is_missing_and_the_others_stay(kind, sign):
    far = sign * (2**31 - 1 if kind == pl.Date else 2**63 - 1)
    column = pl.Series([0, far, 1], dtype=pl.Int32 if kind == pl.Date else pl.Int64).cast(kind)
    told = _cell(readable_times(column), pl.String())
    alone = _cell(readable_times(column.filter([True, False, True])), pl.String())
    years = kind == pl.Datetime("ns")
    assert years or told[1] is None
    assert [told[0], told[2]] == alone.to_list() and None not in alone
