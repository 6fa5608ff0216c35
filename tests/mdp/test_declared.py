"""The card's feature map: integers by position, norms checked against what is declared."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError


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


WRONG = [
    ({"kind": "table"}, "goes with 'table'"),
    ({"kind": "table", "table": [[[1, 2], [3, 4]], [[0, 0], [-5, 0]]], "square": 24}, r"square = 24.*25"),
    ({"kind": "one_hot", "states": [[1]]}, "no rows of its own"),
    ({"kind": "product", "states": [[1], [1, 2]], "actions": [[1], [1]]}, "same number"),
    ({"kind": "table", "table": [[[1], [1]]]}, "2 lists"),
    ({"kind": "product", "states": [[1]], "actions": [[1], [1]]}, "features.states must be 2 rows"),
    ({"kind": "product", "states": [[0], [0]], "actions": [[1], [1]]}, "every row is zero"),
    ({"kind": "product", "states": [[2], [0]], "actions": [[1], [1]], "square": 3}, "declare the largest"),
    ({"kind": "product", "states": [[2.5], [0]], "actions": [[1], [1]]}, "integer"),
]


@pytest.mark.parametrize(("features", "told"), WRONG)
def test_a_card_with_a_wrong_map_says_what_is_wrong(make_card, features, told):
    with pytest.raises(ValidationError, match=told):
        make_card(features=features)


def test_features_are_no_part_of_the_registered_domain(make_card):
    assert make_card().domain_hash() == make_card(features={"kind": "one_hot"}).domain_hash()
