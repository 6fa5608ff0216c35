"""Features of observations: inside the unit ball whatever was logged, one row at a time, the same from their text."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipeline.mdp.features import KINDS, ObservedMap, observed_map
from pipeline.statistics.gram import BallMoves, moves

ONE_HOT = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
MAPS = [ObservedMap(kind, 4, 1.5, 2, ONE_HOT, waves=7, bandwidth=0.3, seed=3) for kind in KINDS]
MAPS.append(replace(MAPS[1], actions=((2, -3), (0, 1), (7, 7))))


def anything(p: int, rows: int = 400) -> np.ndarray:
    """Tiny, usual, far too long, and no numbers."""
    rng = np.random.default_rng(0)
    found = rng.normal(size=(rows, p)) * 10.0 ** rng.integers(-200, 200, size=(rows, 1))
    found[:5] = np.array([[np.nan], [np.inf], [-np.inf], [1e308], [0.0]])
    return found


@pytest.mark.parametrize("features", MAPS)
def test_no_observation_leaves_the_ball(features):
    x = anything(features.size)
    states = np.arange(len(x)) % 2
    f = features.of_actions(x, states)
    assert f.shape == (len(x), 3, features.dimension)
    assert (f == np.trunc(f)).all()
    assert (f * f).sum(-1).max() <= features.steps**2
    assert np.abs(features.psi(x)).max() <= 1 + 1e-12
    # nothing is wasted: some row is as long as the ball allows, for a kind that can
    if features.kind == "fourier":
        assert (f[:, 0] ** 2).sum(-1).max() > 0.95 * features.steps**2


def unclipped(self, observations):
    return np.nan_to_num(observations) / self.radius


def test_a_twin_that_does_not_shorten_leaves_it(monkeypatch):
    """The lattice cuts again, so nobody gains from it; psi itself would not be bounded."""
    features = MAPS[0]
    monkeypatch.setattr(ObservedMap, "inside", unclipped)
    far = np.full((1, 4), 50.0)
    assert np.linalg.norm(features.psi(far)) > 10
    assert (features.of_actions(far, np.zeros(1, dtype=np.int64)) ** 2).sum(-1).max() <= features.steps**2


@pytest.mark.parametrize("features", MAPS)
def test_a_row_is_the_same_whoever_stands_beside_it(features):
    rng = np.random.default_rng(1)
    x, states, taken = rng.normal(size=(257, 4)), rng.integers(0, 2, 257), rng.integers(0, 3, 257)
    together, of_taken = features.of_actions(x, states), features.of_taken(x, states, taken)
    for i in (0, 1, 100, 255, 256):
        alone = features.of_actions(x[i : i + 1], states[i : i + 1])[0]
        np.testing.assert_array_equal(together[i], alone)
        np.testing.assert_array_equal(of_taken[i], alone[taken[i]])


def test_states_have_blocks_of_their_own():
    f = MAPS[0].of_actions(np.zeros((2, 4)), np.array([0, 1]))
    assert (f[0] * f[1]).sum() == 0
    assert (f[0] ** 2).sum() > 0


def test_linear_functions_of_an_observation_are_linear_in_its_features():
    rng = np.random.default_rng(2)
    x = rng.uniform(-0.5, 0.5, size=(500, 4))
    for features, y in ((MAPS[0], x @ [1.0, -2.0, 0.5, 0.0]), (MAPS[1], x[:, 0] * x[:, 1] - x[:, 2] ** 2)):
        psi = features.psi(x)
        fitted = psi @ np.linalg.lstsq(psi, y, rcond=None)[0]
        np.testing.assert_allclose(fitted, y, atol=1e-9)


def test_the_map_is_its_text_and_the_sample_begins_with_what_is_declared():
    for features in MAPS:
        again = observed_map(features.told)
        x = np.random.default_rng(3).normal(size=(9, 4))
        states = np.zeros(9, dtype=np.int64)
        np.testing.assert_array_equal(again.of_actions(x, states), features.of_actions(x, states))
        first = np.array([[0.1, 0.0, 0.0, -0.2]])
        points, where = features.sample(first)
        np.testing.assert_array_equal(points[:2], np.repeat(first, 2, axis=0))
        np.testing.assert_array_equal(where[:2], [0, 1])


def test_a_sample_is_never_taken_for_the_whole_map():
    """Enumerating a public sample would charge for the people in it; the ball charges for anybody."""
    of_sample = MAPS[0].feature_map(np.zeros((1, 4)))
    assert isinstance(moves(of_sample), BallMoves)
    enumerated = moves(replace(of_sample, sample_of=None))
    rates = Fraction(1), Fraction(1), Fraction(0)
    assert enumerated.cost(*rates) < moves(of_sample).cost(*rates)
