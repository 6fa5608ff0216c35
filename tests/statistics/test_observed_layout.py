"""Moments of people who judge a policy on observations: every person of a tiny domain, and bounds that are attained."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from pipeline.logs.observed_rows import Asked, MomentSums, ObservedScores
from pipeline.mdp.directions import directions
from pipeline.mdp.features import ObservedMap
from pipeline.mdp.linear_policy import LinearPolicy
from pipeline.statistics.observed_layout import BESIDE, DIRECTIONS, FIRST, GRAM, STEPS, ObservedLayout
from pipeline.statistics.scores import Clips
from tests.campaigns.observed_evaluation import card_of, draw_world

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
