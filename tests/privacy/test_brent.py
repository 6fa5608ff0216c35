"""Brent's two methods take scipy's steps: the same result to the last bit, where a key may depend on it."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from pipeline.privacy.budget import least, root

CASES = {
    "cubic": lambda c: lambda x: x**3 - c,
    "exponential": lambda c: lambda x: math.exp(x) - 1 - c,
    "flat": lambda c: lambda x: math.atan(40 * (x - c / 3)),
    "kinked": lambda c: lambda x: x - c / 2 if x > c / 2 else 10 * (x - c / 2),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tolerance", [1e-15, 1e-9, 1e-3])
def test_root_is_scipys_to_the_bit(name, tolerance):
    for c in np.random.default_rng(0).uniform(0.01, 2.0, 200):
        f = CASES[name](float(c))
        assert root(f, -1.0, 3.0, tolerance) == brentq(f, -1.0, 3.0, xtol=tolerance)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("tolerance", [1e-10, pytest.param(1e-5, marks=pytest.mark.slow)])
def test_least_is_scipys_to_the_bit(name, tolerance):
    for c in np.random.default_rng(1).uniform(0.01, 2.0, 200):
        f = CASES[name](float(c))
        theirs = minimize_scalar(
            lambda x, f=f: f(x) ** 2 + x, bounds=(-12.0, 14.0), method="bounded", options={"xatol": tolerance}
        )
        assert least(lambda x, f=f: f(x) ** 2 + x, -12.0, 14.0, tolerance) == theirs.fun


def test_an_end_that_is_a_root_is_returned():
    assert root(lambda x: x, 0.0, 1.0, 1e-9) == 0.0
    assert root(lambda x: x - 1, 0.0, 1.0, 1e-9) == 1.0


def test_no_change_of_sign_is_refused():
    with pytest.raises(ValueError, match="different signs"):
        root(lambda x: x * x + 1, -1.0, 1.0, 1e-9)
