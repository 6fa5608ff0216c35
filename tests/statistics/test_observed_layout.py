"""Sums of observations: every person of a tiny domain, bounds that are attained, and twins that leave the ball."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from pipeline.logs.observed_rows import Asked, MomentSums, ObservedScores
from pipeline.mdp.features import ObservedMap
from pipeline.mdp.linear_policy import LinearPolicy, directions
from pipeline.statistics import linear_sums
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram import BallMoves, table_moves
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.observed_layout import BESIDE, DIRECTIONS, FIRST, GRAM, STEPS, ObservedLayout
from pipeline.statistics.scores import Clips
from tests.campaigns.observed_evaluation import card_of, draw_world
from tests.conftest import slow
from tests.privacy.handles import Silent
from tests.statistics.linear_people import loss

# what is logged: inside of the ball, at its edge, far outside
SEEN = (0.0, 1.0, -40.0)


def card(steps=2, episodes=1):
    world = draw_world(1, 2, steps, np.random.default_rng(3))
    found = card_of(world, 1000, {"kind": "affine"})
    unit = found.unit.model_copy(update={"episodes_per_user": episodes})
    return found.model_copy(update={"unit": unit}).placed(found.folder)


def person(name, episodes):
    """Canonical rows: episodes of rows (observation, action, reward, whether it was the last)."""
    rows = [
        (name, e, t, 0, a, list(x), r, int(last), last)
        for e, episode in enumerate(episodes)
        for t, (x, a, r, last) in enumerate(episode)
    ]
    names = ["user_id", "episode_id", "step", "state", "action", "observation", "reward", "next_state", "terminated"]
    return pl.DataFrame(rows, schema=names, orient="row", schema_overrides={"observation": pl.List(pl.Float32)})


def everybody(steps):
    each = [((x,), a, r, last) for x in SEEN for a in (0, 1) for r in (0.0, 1.0) for last in (False, True)]
    for n in range(1, steps + 1):
        for rows in itertools.product(each, repeat=n):
            if not any(last for *_, last in rows[:-1]):
                yield [list(rows)]


def asked(of, rng):
    """A policy of the auditor's own: anything, and practice where it has no evidence."""
    d = of.domain
    f = of.features.observed(1, len(d.action_labels), d.observation)
    H, k = d.horizon, f.dimension
    w, inverse = rng.normal(size=(H, k)), np.broadcast_to(np.eye(k), (H, k, k)).copy()
    clip = np.tile([-9.0, 9.0], (H, 1))
    policy = LinearPolicy(w, inverse, *np.zeros((3, H)), clip, 1 / STEPS, 0.2, np.array([True, True]))
    return Asked(f, policy, directions(f.size, 1, 2, DIRECTIONS), rng.normal(size=(H, k)) * 3, np.ones(H))


def apart(points):
    square = (points.astype(object) ** 2).sum(1)
    return max(int(x) for x in (square[:, None] + square - 2 * points.astype(object) @ points.T.astype(object)).ravel())


@pytest.fixture(scope="module")
def told():
    of = card()
    work = MomentSums(ObservedLayout(of, 4), asked(of, np.random.default_rng(8)), 1.0)
    every = [work.sum_people([person("a", rows)]) for rows in everybody(2)]
    return work, {name: np.unique([e[name].ravel() for e in every], axis=0) for name in every[0]}


def test_nobody_moves_more_than_is_charged(told):
    work, points = told
    for table in work.layout.tables:
        assert apart(points[table.name]) <= table.replace.l2_squared
        assert (points[table.name].astype(object) ** 2).sum(1).max() <= table.add_remove.l2_squared


@pytest.mark.parametrize(("steps", "episodes"), [(1, 1), (3, 1), (2, 3)])
def test_extreme_people_attain_each_bound(steps, episodes):
    layout = ObservedLayout(card(steps, episodes), 4)
    every = [layout.add_up(rows) for rows in layout.extremes()]
    near = {GRAM: 1.0, BESIDE: 0.99, FIRST: 1.0}
    for table in layout.tables:
        points = np.array([e[table.name].ravel() for e in every])
        assert near[table.name] * table.replace.l2_squared <= apart(points) <= table.replace.l2_squared
        alone = max((points.astype(object) ** 2).sum(1))
        assert near[table.name] * table.add_remove.l2_squared <= alone <= table.add_remove.l2_squared


def test_twins_that_do_not_shorten_an_observation_or_count_an_episode_too_many_move_more(told, monkeypatch):
    work, _ = told
    tables = {t.name: t for t in work.layout.tables}
    far = [((40.0,), 0, 1.0, False), ((-40.0,), 0, 0.0, False)]
    twice = work.sum_people([person("a", [far, far])])
    assert (twice[GRAM].astype(object) ** 2).sum() > tables[GRAM].add_remove.l2_squared
    monkeypatch.setattr(ObservedMap, "inside", lambda self, x: x)
    monkeypatch.setattr("pipeline.mdp.features.quantise", lambda phi, steps: np.trunc(phi * steps))
    loose = work.sum_people([person("a", [far])])
    for name in (GRAM, FIRST):
        assert (loose[name].astype(object) ** 2).sum() > tables[name].add_remove.l2_squared


def test_the_price_is_that_of_the_tables_and_no_more_than_asked():
    layout = ObservedLayout(card(12, 2), 8)
    for rho in (Fraction(1), Fraction(1, 7)):
        summed = layout.summed(rho)
        assert rho * Fraction(999, 1000) < summed.rho <= rho
        moved = {t.name: t.replace.l2_squared for t in layout.tables}
        assert summed.rho == sum(Fraction(moved[m.table], 2 * m.variance) for m in summed.mechanisms)
        assert 2 * summed.joining_cost <= summed.rho


def test_what_a_person_tells_does_not_depend_on_who_stands_beside_them(told):
    work, _ = told
    of = work.people_of
    people = [person(f"p{i:04}", rows) for i, rows in enumerate(itertools.islice(everybody(2), 0, None, 5))]
    fitted = np.random.default_rng(2).normal(size=(2, 4, 1 + DIRECTIONS))
    scores = ObservedScores(
        work.asked, fitted[..., 0], fitted[..., 1:], (-0.4, 2.4), (-10, 40), Clips(0.0, 2.0, 4.0), 1.0, changes=True
    )
    together = scores.of(of, pl.concat(people))
    np.testing.assert_array_equal(together, np.concatenate([scores.of(of, rows) for rows in people]))
    alone = [work.sum_people([rows]) for rows in people]
    for name, table in work.sum_people([pl.concat(people)]).items():
        np.testing.assert_array_equal(table, sum(a[name] for a in alone))


ONE = Fraction(1)
MAP = ObservedMap("affine", 1, 1.0, 2, ((1, 0), (0, 1)), steps=6)
# state, observation, action, reward, where it led: state and observation, or None where the episode ended
Row = tuple[int, float, int, float, tuple[int, float] | None]


def plan_of(steps: int = 6) -> LinearPlan:
    domain = LinearDomain("tiny", "synthetic", 1, 100, can_end=True)
    terms = LinearTerms(Ask(ONE), "one_shot", variance=False, value_steps=9)
    return LinearPlan(domain, terms, replace(MAP, steps=steps).feature_map(np.array([[0.5]])))


def rows_of(plan: LinearPlan, row: Row | None, stretched: float = 1.0) -> linear_sums.StreamRows:
    assert plan.onto is not None
    onto, here = plan.onto, replace(MAP, steps=int(plan.features.square**0.5))

    def batches(h: int, side: linear_sums.Side) -> Iterator[linear_sums.StepRows]:
        if row is None:
            return
        s, x, a, reward, led = row
        there = (0, 0.0) if led is None else led
        yield linear_sums.StepRows(
            here.of_taken(np.array([[x]]), np.array([s]), np.array([a])),
            np.array([reward]),
            stretched * onto.of_actions(np.array([[there[1]]]), np.array([there[0]])),
            np.array([led is None]),
        )

    return linear_sums.StreamRows(batches, here.dimension, "synthetic")


def point(plan: LinearPlan, row: Row | None, stretched: float = 1.0) -> np.ndarray:
    """What the release says of one person, in units of its noise; of a symmetric matrix the upper half."""
    release = linear_sums.draw_one_shot(plan, rows_of(plan, row, stretched), Silent(0))
    gram, table = release.mechanisms
    d = gram.shape[-1]
    upper = np.triu_indices(d)
    sd = np.where(np.eye(d)[upper] > 0, 1.0, 0.5) * gram.variance
    return np.concatenate(
        [release.tables["gram"][0][upper] / sd**0.5, release.tables["target"].ravel() / table.variance**0.5]
    )


def ball() -> list[Row | None]:
    seen = np.linspace(-1.0, 1.0, 5).tolist()
    led = [None, *itertools.product((0, 1), (-1.0, 0.0, 1.0))]
    return [None, *itertools.product((0, 1), seen, (0, 1), (0.0, 1.0), led)]


@pytest.mark.parametrize("share", [9, *(slow(x) for x in (4, 16))])
def test_no_two_people_of_the_ball_are_further_apart_than_claimed(constants, share):
    constants(gram_share=Fraction(share, 20))
    plan = plan_of()
    at, summed = np.array([point(plan, row) for row in ball()]), linear_sums.one_shot_sum(plan)
    assert 0.5 < loss(at) <= 1 + 1e-9
    # the absent person is first; what somebody adds who joins is charged by itself
    assert ((at - at[0]) ** 2).sum(1).max() / 2 <= summed.joining_cost <= summed.rho <= 1


def test_successors_that_leave_their_ball_are_caught():
    plan = plan_of()
    far = [(0, 1.0, a, 1.0, (s, x)) for a, s, x in itertools.product((0, 1), (0, 1), (-1.0, 1.0))]
    inside, outside = (loss(np.array([point(plan, row, stretched) for row in far])) for stretched in (1.0, 3.0))
    assert inside <= 1 < 1.5 < outside


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
    sums = linear_sums.Tallies(visits, 2 * visits.sum(-1), visits[0].sum((1, 2)))
    counted = linear_sums.draw_one_shot(
        plan, linear_sums.TalliedRows(plan.features, lambda: {"both": sums}, "synthetic"), Silent(0)
    )
    _, s, a, t = np.nonzero(visits)
    s, a, t = (np.repeat(i, visits[visits > 0]) for i in (s, a, t))
    f = plan.features.integers.astype(np.float64)
    landings = np.concatenate([plan.landings, np.zeros((1, plan.successors))])

    def batches(h: int, side: linear_sums.Side) -> Iterator[linear_sums.StepRows]:
        for i in np.array_split(np.arange(len(s)), 3):
            yield linear_sums.StepRows(f[s[i], a[i]], np.full(len(i), 0.25), landings[t[i]][:, None], t[i] == M)

    passed = linear_sums.draw_one_shot(plan, linear_sums.StreamRows(batches, f.shape[-1], "synthetic"), Silent(0))
    for name in ("gram", "target"):
        np.testing.assert_array_equal(passed.tables[name], counted.tables[name])


def test_values_that_are_combinations_of_features_are_fitted_exactly():
    plan = plan_of(1024)
    tag = plan.one_shot_steps[0]
    V = plan.landings / tag @ np.arange(1.0, plan.successors + 1)
    columns = plan.fit @ np.append(V, 7.0)
    np.testing.assert_allclose(plan.landings / tag @ columns[:-1], V, atol=1e-9)
    assert columns[-1] == 7.0
