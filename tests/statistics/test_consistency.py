"""The consistency programme: closed form, cvxpy and an independent bisection agree; a wrong water level is caught."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.statistics.consistency as consistency
from pipeline.statistics.consistency import CASES, certify, consistency_case, consistent_counts, consistent_counts_cvxpy


def by_bisection(total, parts, slack):
    """Smallest t by bisection on what sums are reachable, then the x that the paper's programme forces."""
    low_sum = lambda t: np.maximum(parts - t, 0).sum()  # noqa: E731
    high_sum = lambda t: (parts + t).sum()  # noqa: E731
    feasible = lambda t: low_sum(t) <= total + slack and high_sum(t) >= total - slack  # noqa: E731
    if feasible(0.0):
        return parts
    low, high = 0.0, 1.0
    while not feasible(high):
        high *= 2
    for _ in range(200):
        mid = (low + high) / 2
        low, high = (low, mid) if feasible(mid) else (mid, high)
    return parts + high if parts.sum() < total else np.maximum(parts - high, 0)


cell = st.integers(1, 7).flatmap(
    lambda n: st.tuples(
        st.lists(st.one_of(st.just(0.0), st.floats(0, 1e4, allow_nan=False)), min_size=n, max_size=n),
        st.one_of(st.just(0.0), st.floats(0, 2e4)),
        st.one_of(st.just(0.0), st.floats(0, 500)),
    )
)


@pytest.mark.slow
@given(cell)
@settings(max_examples=100, deadline=None)
def test_closed_form_is_the_bisection_minimiser(drawn):
    parts, total, slack = np.array(drawn[0]), drawn[1], drawn[2]
    x = consistent_counts(total, parts, slack)
    scale = max(1.0, parts.max(), total)
    np.testing.assert_allclose(x, by_bisection(total, parts, slack), atol=1e-9 * scale)
    assert (x >= 0).all() and abs(x.sum() - total) <= slack + 1e-9 * scale


def cells(n, size, seed):
    rng = np.random.default_rng(seed)
    parts = np.maximum(rng.normal(3, 8, (n, size)).round(), 0)
    return np.maximum(parts.sum(-1) + rng.normal(0, 12, n).round(), 0), parts


@pytest.mark.parametrize(
    ("slack", "size"),
    [
        (0.0, 1),
        pytest.param(5.0, 2, marks=pytest.mark.slow),
        pytest.param(0.0, 5, marks=pytest.mark.slow),
        pytest.param(5.0, 11, marks=pytest.mark.slow),
    ],
)
def test_closed_form_equals_cvxpy_in_every_case(slack, size):
    total, parts = cells(60, size, size)
    x = consistent_counts(total, parts, slack)
    np.testing.assert_allclose(x, consistent_counts_cvxpy(total, parts, slack), atol=1e-7 * 60)
    assert (consistency_case(total, parts, slack) == 2).any()


def test_leading_axes_are_free_and_totals_are_sums():
    total, parts = cells(24, 5, 0)
    x = consistent_counts(total.reshape(2, 3, 4), parts.reshape(2, 3, 4, 5), 2.0)
    assert x.shape == (2, 3, 4, 5)
    np.testing.assert_array_equal(x.reshape(24, 5), consistent_counts(total, parts, 2.0))
    assert (np.abs(x.sum(-1).reshape(24) - total) <= 2.0 + 1e-9).all()


def test_counts_that_already_agree_are_left_alone_to_the_bit():
    parts = np.random.default_rng(1).poisson(4, (50, 6)).astype(float)
    np.testing.assert_array_equal(consistent_counts(parts.sum(-1), parts, 0.0), parts)


@pytest.mark.parametrize(
    ("total", "parts", "slack"),
    [
        (-1.0, [1.0], 0.0),
        (1.0, [-1.0], 0.0),
        (np.nan, [1.0], 0.0),
        (1.0, [np.inf], 0.0),
        (1.0, [1.0], -1.0),
        ([1.0, 2.0], [1.0], 0.0),
    ],
)
def test_bad_input_is_a_value_error(total, parts, slack):
    with pytest.raises(ValueError):
        consistent_counts(total, parts, slack)


def test_certificate_draws_every_case_that_occurs():
    total, parts = cells(300, 5, 3)
    proof = certify(total, parts, 3.0, consistent_counts(total, parts, 3.0))
    assert set(proof.cells) == set(CASES) and sum(proof.cells.values()) == 300
    assert all(proof.certified[c] == min(8, proof.cells[c]) for c in CASES)
    assert proof.holds and proof.largest_relative_difference <= 1e-7


@pytest.mark.parametrize("wrong", [0.99, 1.01, None])
def test_a_wrong_water_level_or_lift_of_short_cells_is_caught(monkeypatch, wrong):
    total, parts = cells(300, 5, 3)
    if wrong is None:
        x = consistent_counts(total, parts, 3.0)
        short = consistency_case(total, parts, 3.0) == 1
        x[short] = parts[short] * (x[short].sum(-1) / np.maximum(parts[short].sum(-1), 1e-9))[:, None]
    else:
        right = consistency.water_level
        monkeypatch.setattr(consistency, "water_level", lambda p, t: wrong * right(p, t))
        x = consistent_counts(total, parts, 3.0)
    assert not certify(total, parts, 3.0, x).holds
