"""Feature maps: integers of bounded norm, whatever is fed in, declared, balanced or of observations."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.mdp.features import (
    KINDS,
    FeatureMap,
    ObservedMap,
    balance,
    balance_rows,
    finite_map,
    observed_map,
    quantise,
)
from pipeline.statistics.gram import BallMoves, moves


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


@pytest.fixture
def mapped(make_card):
    """The map of a card of two states and two actions."""
    return lambda **features: make_card(features=features).features.feature_map(2, 2)


def test_each_kind_gives_the_integers_of_its_words_and_no_longer_ones_than_declared(mapped):
    one_hot = mapped(kind="one_hot")
    np.testing.assert_array_equal(one_hot.integers.reshape(4, 4), np.eye(4))
    assert one_hot.square == 1 and one_hot.unit == 1
    product = mapped(kind="product", states=[[1, 2], [0, 3]], actions=[[1, 0], [5, -1]])
    np.testing.assert_array_equal(product.integers[0, 1], [5, -1, 10, -2])
    np.testing.assert_array_equal(product.integers[1, 0], [0, 0, 3, 0])
    assert product.square == 15**2 + 3**2 and float(product.unit_squared) == 1 / 234
    table = [[[1, 2], [3, 4]], [[0, 0], [-5, 0]]]
    assert mapped(kind="table", table=table).integers.tolist() == table
    assert mapped(kind="table", table=table, square=100).square == 100


def test_balanced_features_span_the_same_values(mapped):
    table = [[[1, 0], [1, 1]]] * 2
    even = mapped(kind="table", table=table, balanced=True)
    assert mapped(kind="table", table=table).dimension == even.dimension == 2
    assert np.linalg.matrix_rank(even.integers[0]) == 2 and even.integers.tolist() != table


@pytest.mark.parametrize(
    ("features", "told"),
    [
        ({"kind": "table"}, "goes with 'table'"),
        ({"kind": "table", "table": [[[1, 2], [3, 4]], [[0, 0], [-5, 0]]], "square": 24}, r"square = 24.*25"),
        ({"kind": "one_hot", "states": [[1]]}, "no rows of its own"),
        ({"kind": "product", "states": [[1], [1, 2]], "actions": [[1], [1]]}, "same number"),
        ({"kind": "table", "table": [[[1], [1]]]}, "2 lists"),
        ({"kind": "product", "states": [[1]], "actions": [[1], [1]]}, "features.states must be 2 rows"),
        ({"kind": "product", "states": [[0], [0]], "actions": [[1], [1]]}, "every row is zero"),
        ({"kind": "product", "states": [[2], [0]], "actions": [[1], [1]], "square": 3}, "declare the largest"),
        ({"kind": "product", "states": [[2.5], [0]], "actions": [[1], [1]]}, "integer"),
    ],
)
def test_a_card_with_a_wrong_map_says_what_is_wrong(make_card, features, told):
    with pytest.raises(ValidationError, match=told):
        make_card(features=features)


def test_features_are_no_part_of_the_registered_domain(make_card):
    assert make_card().domain_hash() == make_card(features={"kind": "one_hot"}).domain_hash()


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


def test_a_twin_that_does_not_shorten_leaves_it(monkeypatch):
    """The lattice cuts again, so nobody gains from it; psi itself would not be bounded."""
    features = MAPS[0]
    monkeypatch.setattr(ObservedMap, "inside", lambda self, x: np.nan_to_num(x) / self.radius)
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
