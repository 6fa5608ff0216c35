"""Sums over people who measure a one-step policy: every person of a tiny domain, and bounds that are attained."""

from fractions import Fraction

import numpy as np
import pytest

from pipeline.logs import one_step_sums
from pipeline.logs.aggregate import person_rows
from pipeline.logs.one_step_sums import RETURN_STEPS, FeatureQuestion, FollowQuestion, add_people
from pipeline.statistics import one_step_layout
from pipeline.statistics.one_step_layout import FEATURES, STEPS, WEIGHT, FeatureLayout, FollowLayout
from tests.conftest import slow
from tests.statistics.test_sensitivity import largest, largest_square, tiny
from tests.statistics.test_target_layout import frames, people

CASES = {
    "stationary": {"dynamics": "stationary", "horizon": 2},
    "fewer cells than rows": {"dynamics": "stationary", "horizon": 2, "labels": ("x",)},
    "per step": {"dynamics": "per_step", "horizon": 2},
    "two episodes": {"dynamics": "stationary", "horizon": 1, "m": 2},
}


def moves(card, asked, each=1):
    """What each person adds to each table: distinct ones; of every ``each``-th person, where one will do."""
    everybody = frames(card.model_dump_json())[::each]
    every = [add_people(asked, rows).tables for rows in ([], *([one] for one in everybody))]
    return {name: np.unique([e[name].ravel() for e in every], axis=0) for name in every[0]}


@pytest.mark.parametrize("case", [*list(CASES)[:2], *(slow(c) for c in ("per step", "two episodes"))])
def test_followers_move_as_little_as_is_charged_and_no_less(case):
    card = tiny(**CASES[case])
    layout = FollowLayout(card)
    points = moves(card, FollowQuestion(layout, np.zeros(np.prod(layout.cells), dtype=np.int64)))["b_follow"]
    (table,) = layout.tables
    assert largest(points) == (table.replace.l2_squared, table.replace.l1)
    assert (points**2).sum(1).max() == table.add_remove.l2_squared
    for rho in (Fraction(1), Fraction(1, 7)):
        assert layout.summed(rho).rho <= rho < layout.summed(rho).rho * 3 / 2


def test_a_cap_that_looks_at_the_action_moves_more_than_is_charged_and_miscounts(monkeypatch):
    card = tiny(**CASES["fewer cells than rows"])
    asked = FollowQuestion(FollowLayout(card), np.zeros(1, dtype=np.int64))
    # once the other action, then the policy's: a cap by action counts both, and makes the policy's too frequent
    rows = person_rows([[(0, 1, 0.0, 0), (0, 0, 0.0, 0)]], card)
    assert asked.of(rows)["b_follow"].ravel().tolist() == [1, 0]
    honest = one_step_sums.first_rows

    def by_action(user, cell, most, cap):
        return honest(user, cell * 2 + by_action.rows["action"].to_numpy(), most, cap)

    by_action.rows = rows
    monkeypatch.setattr(one_step_sums, "first_rows", by_action)
    counted = asked.of(rows)["b_follow"]
    assert counted.ravel().tolist() == [1, 1]
    assert 2 * (counted**2).sum() > asked.layout.tables[0].replace.l2_squared


def question(card, most, practice=True, turn=True):
    """States at right angles, or against each other; steps weigh all there is."""
    K = len(card.domain.live_states)
    first, second = np.eye(FEATURES, dtype=np.int64)[:2] * STEPS
    features = np.tile(first, (K, 1))
    features[1] = second if turn else -first
    layout, nowhere = FeatureLayout(card, most, practice), np.zeros(K, dtype=np.int64)
    return FeatureQuestion(layout, nowhere, np.full(K, WEIGHT), features, np.full(K, RETURN_STEPS // 2), 1.0)


@pytest.fixture
def short(monkeypatch):
    """As many rows enter the moments of practice as a tiny episode has."""
    for module in (one_step_layout, one_step_sums):
        monkeypatch.setattr(module, "PRACTICE_ROWS", 2)


@pytest.mark.parametrize("most", [1, slow(2)])
def test_moments_move_as_little_as_is_charged_and_each_bound_is_attained(most, short):
    card = tiny("stationary", horizon=2, total=1.0)
    found = {}
    for turn in (True, False):
        asked = question(card, most, turn=turn)
        tables = {t.name: t for t in asked.layout.tables}
        for name, points in moves(card, asked).items():
            square, length = largest(points)
            assert square <= tables[name].replace.l2_squared and length <= tables[name].replace.l1
            assert (points**2).sum(1).max() <= tables[name].add_remove.l2_squared
            found[name] = max(found.get(name, 0), square)
    assert found == {name: t.replace.l2_squared for name, t in tables.items()}


@pytest.mark.slow
def test_a_random_question_stays_within_the_joint_bound(short):
    card, rng = tiny("stationary", horizon=2, labels=("x", "y", "z")), np.random.default_rng(1)
    layout = FeatureLayout(card, 2)
    phi = rng.normal(size=(3, FEATURES))
    phi = np.trunc(phi / np.sqrt((phi**2).sum(1, keepdims=True)) * STEPS).astype(np.int64)
    values = rng.integers(-RETURN_STEPS, 2 * RETURN_STEPS, 3)
    asked = FeatureQuestion(layout, np.array([0, -1, 1]), rng.integers(0, WEIGHT + 1, 3), phi, values, 1.0)
    every = [
        np.concatenate([t.ravel() / layout.unit for t in add_people(asked, [person_rows(p, card)]).tables.values()])
        for p in people(card)
        if p and rng.random() < 0.2
    ]
    points = np.unique(np.round(every, 9), axis=0)
    square = (points**2).sum(1)
    assert (square[:, None] + square - 2 * points @ points.T).max() <= layout.square == 16 * 2**2 + 4
    assert square.max() <= 5 * 2**2 + 1


def test_squares_and_costs_are_those_that_were_proved():
    card = tiny("stationary", horizon=20, total=1.0)
    assert FeatureLayout(card, 5).square == 404
    assert FeatureLayout(card, 3, practice=False).square == 90
    assert sum(t.add_remove.l2_squared for t in FeatureLayout(card, 5).tables) == 126 * FeatureLayout(card).unit ** 2
    for layout in (FeatureLayout(card, 5), FeatureLayout(card, 3, practice=False)):
        for rho in (Fraction(3, 10), Fraction(1, 11)):
            summed = layout.summed(rho)
            assert summed.rho <= rho < summed.rho * Fraction(1000001, 1000000)
            assert 2 * layout.cost(summed.rates, "add_remove") <= rho
    wide = tiny("stationary", horizon=20, labels=tuple(map(str, range(30))))
    assert FollowLayout(wide).tables[0].replace.l2_squared == 40


def test_rows_enter_while_the_past_leaves_room_and_a_longer_question_is_refused():
    user, weight = np.array([0, 0, 0, 0, 1, 1]), np.array([WEIGHT, 0, WEIGHT, WEIGHT, 1, WEIGHT])
    assert one_step_sums.enough_left(user, weight, 2 * WEIGHT).tolist() == [True, True, True, False, True, True]
    assert one_step_sums.enough_left(user, weight, WEIGHT).tolist() == [True, False, False, False, True, False]
    card = tiny("stationary", horizon=2)
    asked = question(card, 1)
    # a square that wraps to nothing is longer too
    far = {"features": asked.features * 0 + 2**32}
    for change in ({"features": asked.features + 1}, {"weight": asked.weight + 1}, {"weight": -asked.weight}, far):
        with pytest.raises(ValueError, match="longer"):
            FeatureQuestion(**{**vars(asked), **change})


def test_without_a_cap_a_person_moves_more_than_is_charged(monkeypatch):
    card = tiny("stationary", horizon=2, total=1.0)
    monkeypatch.setattr(one_step_sums, "enough_left", lambda user, weight, most: np.ones(len(user), dtype=bool))
    asked = question(card, 1, practice=False)
    tables = {t.name: t.replace.l2_squared for t in asked.layout.tables}
    assert largest_square(moves(card, asked, 9)["b_gram"]) > tables["b_gram"]
