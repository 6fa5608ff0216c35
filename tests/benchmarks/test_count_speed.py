"""The benchmark of counting still runs, and its routes agree; nothing is timed here."""

import importlib.util
from pathlib import Path

import pytest

from . import count_speed


@pytest.mark.parametrize("what", count_speed.CELLS)
def test_every_route_counts_the_same(what: str, tmp_path: Path) -> None:
    count_speed.make_partitions(tmp_path, 2000)
    totals = {
        route: count_speed.timed(route, what, tmp_path)["totals"]
        for route in count_speed.ROUTES
        if "DuckDB" not in route or importlib.util.find_spec("duckdb")
    }
    counted = [t for route, t in totals.items() if "read only" not in route]
    assert len(counted) >= 2 and all(t == counted[0] for t in counted)
    assert counted[0][0] == 2000
