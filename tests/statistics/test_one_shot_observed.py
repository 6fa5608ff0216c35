"""One-shot sums of observations: every person of a tiny ball by enumeration, a twin that leaves it, counts and rows."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipeline.mdp.features import ObservedMap
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram import BallMoves, table_moves
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.linear_sums import (
    Side,
    StepRows,
    StreamRows,
    TalliedRows,
    Tallies,
    draw_one_shot,
    one_shot_sum,
)
from tests.statistics.linear_people import Silent

ONE = Fraction(1)
MAP = ObservedMap("affine", 1, 1.0, 2, ((1, 0), (0, 1)), steps=6)
# state, observation, action, reward, where it led: state and observation, or None where the episode ended
Row = tuple[int, float, int, float, tuple[int, float] | None]


def plan_of(steps: int = 6) -> LinearPlan:
    domain = LinearDomain("tiny", "synthetic", 1, 100, can_end=True)
    terms = LinearTerms(Ask(ONE), "one_shot", variance=False, value_steps=9)
    return LinearPlan(domain, terms, replace(MAP, steps=steps).feature_map(np.array([[0.5]])))


def rows_of(plan: LinearPlan, row: Row | None, stretched: float = 1.0) -> StreamRows:
    assert plan.onto is not None
    onto, here = plan.onto, replace(MAP, steps=int(plan.features.square**0.5))

    def batches(h: int, side: Side) -> Iterator[StepRows]:
        if row is None:
            return
        s, x, a, reward, led = row
        there = (0, 0.0) if led is None else led
        yield StepRows(
            here.of_taken(np.array([[x]]), np.array([s]), np.array([a])),
            np.array([reward]),
            stretched * onto.of_actions(np.array([[there[1]]]), np.array([there[0]])),
            np.array([led is None]),
        )

    return StreamRows(batches, here.dimension, "synthetic")


def point(plan: LinearPlan, row: Row | None, stretched: float = 1.0) -> np.ndarray:
    """What the release says of one person, in units of its noise; of a symmetric matrix the upper half."""
    release = draw_one_shot(plan, rows_of(plan, row, stretched), Silent())
    gram, table = release.mechanisms
    d = gram.shape[-1]
    upper = np.triu_indices(d)
    sd = np.where(np.eye(d)[upper] > 0, 1.0, 0.5) * gram.variance
    return np.concatenate(
        [release.tables["gram"][0][upper] / sd**0.5, release.tables["target"].ravel() / table.variance**0.5]
    )


def everybody() -> list[Row | None]:
    seen = np.linspace(-1.0, 1.0, 5).tolist()
    led = [None, *itertools.product((0, 1), (-1.0, 0.0, 1.0))]
    return [None, *itertools.product((0, 1), seen, (0, 1), (0.0, 1.0), led)]


@pytest.mark.parametrize("share", [9, *(pytest.param(x, marks=pytest.mark.slow) for x in (4, 16))])
def test_no_two_people_of_the_ball_are_further_apart_than_claimed(constants, share):
    constants(gram_share=Fraction(share, 20))
    plan = plan_of()
    at = np.array([point(plan, row) for row in everybody()])
    squares = (at**2).sum(1)
    apart = (squares[:, None] + squares - 2 * at @ at.T) / 2
    # the absent person is first; what somebody adds who joins is charged by itself
    assert 0.5 < apart.max() <= 1 + 1e-9
    assert apart[0].max() <= one_shot_sum(plan).joining_cost <= one_shot_sum(plan).rho <= 1


def test_successors_that_leave_their_ball_are_caught():
    plan = plan_of()
    far = [(0, 1.0, a, 1.0, (s, x)) for a, s, x in itertools.product((0, 1), (0, 1), (-1.0, 1.0))]

    def loss(stretched: float) -> float:
        at = [point(plan, row, stretched) for row in far]
        return max(float(((a - b) ** 2).sum()) / 2 for a in at for b in at)

    assert loss(1.0) <= 1 < 1.5 < loss(3.0)


def test_the_ball_bounds_vector_targets_of_any_sign():
    rng, N = np.random.default_rng(0), 50
    f, g = (
        x / np.linalg.norm(x, axis=1)[:, None] * 10 * rng.random((len(x), 1)) ** 0.1
        for x in rng.normal(size=(2, 200_000, 2))
    )
    x, y = (x / np.linalg.norm(x, axis=1)[:, None] * N**0.5 for x in rng.normal(size=(2, 200_000, 2)))
    inner, n, m = (f * g).sum(1), (f * f).sum(1), (g * g).sum(1)
    for table in (Fraction(1, 400), Fraction(1, 40), Fraction(1, 4)):
        bound = float(BallMoves(100, target=N).cost(Fraction(1, 100), table, Fraction(0)))
        got = 0.01 * (n**2 + m**2 - 2 * inner**2) + float(table) * (N * (n + m) - 2 * inner * (x * y).sum(1))
        assert 0.9 * bound < got.max() <= bound


def test_a_map_of_observations_is_never_enumerated():
    features = plan_of().features
    assert table_moves(features, 2, 3) == BallMoves(features.square, 1, 13)


def test_rows_that_pass_by_add_up_to_what_their_counts_do():
    plan, rng = plan_of(1024), np.random.default_rng(1)
    M, A, _ = plan.features.integers.shape
    visits = rng.integers(0, 3, (1, M, A, M + 1))
    sums = Tallies(visits, 2 * visits.sum(-1), visits[0].sum((1, 2)))
    counted = draw_one_shot(plan, TalliedRows(plan.features, lambda: {"both": sums}, "synthetic"), Silent())
    _, s, a, t = np.nonzero(visits)
    s, a, t = (np.repeat(i, visits[visits > 0]) for i in (s, a, t))
    f = plan.features.integers.astype(np.float64)
    landings = np.concatenate([plan.landings, np.zeros((1, plan.successors))])

    def batches(h: int, side: Side) -> Iterator[StepRows]:
        for i in np.array_split(np.arange(len(s)), 3):
            yield StepRows(f[s[i], a[i]], np.full(len(i), 0.25), landings[t[i]][:, None], t[i] == M)

    passed = draw_one_shot(plan, StreamRows(batches, f.shape[-1], "synthetic"), Silent())
    for name in ("gram", "target"):
        np.testing.assert_array_equal(passed.tables[name], counted.tables[name])


def test_values_that_are_combinations_of_features_are_fitted_exactly():
    plan = plan_of(1024)
    tag = plan.one_shot_steps[0]
    V = plan.landings / tag @ np.arange(1.0, plan.successors + 1)
    columns = plan.fit @ np.append(V, 7.0)
    np.testing.assert_allclose(plan.landings / tag @ columns[:-1], V, atol=1e-9)
    assert columns[-1] == 7.0
