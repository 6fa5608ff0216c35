"""The card's feature map: integers by position, norms checked against what is declared."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.declaration.declared_features import Features
from tests.conftest import card_dict


def test_one_hot_has_a_feature_a_pair():
    m = Features(kind="one_hot").feature_map(2, 3)
    np.testing.assert_array_equal(m.integers.reshape(6, 6), np.eye(6))
    assert m.square == 1 and m.unit == 1


def test_a_product_multiplies_the_states_row_with_the_actions():
    m = Features(kind="product", states=[[1, 2], [0, 3]], actions=[[1, 0], [5, -1]]).feature_map(2, 2)
    np.testing.assert_array_equal(m.integers[0, 1], [5, -1, 10, -2])
    np.testing.assert_array_equal(m.integers[1, 0], [0, 0, 3, 0])
    assert m.square == 15**2 + 3**2 and float(m.unit_squared) == 1 / 234


def test_a_table_is_taken_as_written_and_no_longer_than_declared():
    table = [[[1, 2], [3, 4]], [[0, 0], [-5, 0]]]
    assert Features(kind="table", table=table).feature_map(2, 2).integers.tolist() == table
    assert Features(kind="table", table=table, square=100).feature_map(2, 2).square == 100
    with pytest.raises(ValueError, match=r"square = 24.*25"):
        Features(kind="table", table=table, square=24).feature_map(2, 2)


def test_balanced_features_span_the_same_values():
    plain = Features(kind="table", table=[[[1, 0], [1, 1]]])
    even = Features(kind="table", table=[[[1, 0], [1, 1]]], balanced=True).feature_map(1, 2)
    assert plain.feature_map(1, 2).dimension == even.dimension == 2
    assert np.linalg.matrix_rank(even.integers[0]) == 2


WRONG = [
    ({"kind": "table"}, "goes with 'table'"),
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
    assert "features" not in card_dict()
