"""Feature maps are integers of bounded norm, whatever is fed in; the balanced basis is even."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pipeline.mdp.features import FeatureMap, balance, balance_rows, finite_map, quantise


@pytest.mark.parametrize("steps", [1, 7, 256, 4096])
def test_every_row_becomes_integers_of_the_ball_truncated_toward_zero(steps):
    rng = np.random.default_rng(0)
    odd = [[np.nan, 0.5] * 3, [np.inf, 0.0] * 3, [1e300] * 6, [-np.inf, np.nan] * 3]
    rows = np.vstack([rng.normal(size=(5000, 6)) * 10 ** rng.uniform(-3, 3, (5000, 1)), odd])
    f = quantise(rows, steps).astype(np.int64)
    assert ((f * f).sum(1) <= steps**2).all()
    assert (f == quantise(rows, steps)).all()
    np.testing.assert_array_equal(quantise(np.array([[0.256, -0.256]]), 100), [[25, -25]])
    np.testing.assert_array_equal(finite_map(np.array([[[3.0, 4.0]]]), 100).integers, [[[59, 79]]])


@pytest.mark.parametrize(
    ("integers", "square", "words"), [([3, 4], 24, "square"), ([3, 4], 2**31, "square"), ([2**32], 4, "longer")]
)
def test_a_map_longer_than_declared_is_refused_and_a_wrapped_square_does_not_look_small(integers, square, words):
    with pytest.raises(ValueError, match=words):
        FeatureMap(np.array([[integers]]), square, Fraction(1))


def test_a_skewed_map_becomes_even_and_keeps_its_span():
    rng = np.random.default_rng(1)
    rows = rng.random((60, 5)) * [1, 1, 0.01, 1, 0] + [1, 0, 0, 0, 0]
    even = balance_rows(rows)
    assert even.shape == (60, 4) and np.linalg.norm(even, axis=1).max() == pytest.approx(1)
    back = even @ np.linalg.lstsq(even, rows, rcond=None)[0]
    np.testing.assert_allclose(back, rows, atol=1e-9)
    # John: no direction can be longer for the same longest feature; the longest reach 1 in every basis vector's share
    widths = np.abs(even @ np.linalg.svd(even)[2].T).max(axis=0)
    assert widths.min() > 0.3


def test_bits_become_plus_and_minus_one():
    bits = np.array([[b >> 1 & 1, b & 1, 1] for b in range(4)], dtype=np.int64)[None]
    even = balance(FeatureMap(bits, 3, Fraction(1, 3))).integers[0]
    norms = (even * even).sum(-1)
    assert norms.min() > 0.99 * norms.max()
    cosines = even @ even.T / norms.max()
    # corners of a cube: neighbours at 1/3, opposite ones at -1/3
    np.testing.assert_allclose(np.sort(cosines[0]), [-1 / 3, 1 / 3, 1 / 3, 1], atol=0.01)
