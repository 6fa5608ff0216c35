"""Exponents, not seconds: what doubles the log or the domain must not square the time."""

from itertools import islice

import pytest

from tests.benchmarks.growth import GROWTHS, Growth, exponent, measure


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
