"""Exponents, not seconds: what doubles the log or the domain must not square the time.  Routes of counting agree."""

import importlib.util
from itertools import islice
from pathlib import Path

import pytest

from tests.benchmarks import count_speed
from tests.benchmarks.growth import GROWTHS, Growth, exponent, measure


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


@pytest.mark.slow
@pytest.mark.parametrize("growth", GROWTHS, ids=lambda g: f"{g.name} in {g.of}")
def test_nothing_grows_faster_than_it_says(growth):
    # other processes only add time: more rounds, of which the least counts, until it is free of them
    assert any(exponent(growth.sizes, least) <= growth.most for least in islice(measure(growth, 40), 1, None))


def quadratic(folder, size):
    return lambda: [abs(i) for i in range(size * size)]


def test_a_quadratic_is_seen():
    sizes = (100, 200, 400)
    assert exponent(sizes, [s * 1e-6 for s in sizes]) == pytest.approx(1.0)
    assert exponent(sizes, [s * s * 1e-9 for s in sizes]) == pytest.approx(2.0)
    seen = [exponent(sizes, least) for least in measure(Growth("a square", "size", sizes, quadratic, 1.1), 5)]
    assert min(seen[2:]) > 1.1
