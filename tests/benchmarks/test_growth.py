"""Exponents, not seconds: what doubles the log or the domain must not square the time."""

from __future__ import annotations

import pytest

from tests.benchmarks.growth import GROWTHS, exponent, measure


@pytest.mark.slow
@pytest.mark.parametrize("growth", GROWTHS, ids=lambda g: f"{g.name} in {g.of}")
def test_nothing_grows_faster_than_it_says(growth):
    assert exponent(growth.sizes, measure(growth, 3)) <= growth.most


def test_a_quadratic_is_seen():
    sizes = (100, 200, 400)
    assert exponent(sizes, [s * 1e-6 for s in sizes]) == pytest.approx(1.0)
    assert exponent(sizes, [s * s * 1e-9 for s in sizes]) == pytest.approx(2.0)
