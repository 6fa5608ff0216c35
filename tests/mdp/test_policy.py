"""A policy recommends in some states; elsewhere current practice goes on."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import Policy

HALF = np.array([[True, False]])
ROWS = np.array([[[0.5, 0.5], [0.0, 1.0]]])


def test_where_it_abstains_it_says_nothing_and_practice_goes_on():
    policy = Policy(ROWS, HALF)
    assert policy.probabilities.tolist() == [[[0.0, 0.0], [0.0, 1.0]]]
    assert policy.beside(np.array([0.9, 0.1])).tolist() == [[[0.9, 0.1], [0.0, 1.0]]]
    assert Policy(ROWS, ~HALF & HALF).probabilities is ROWS
    # and it has no value without the practice that goes on
    stay, paid = np.tile(np.eye(2)[:, None], (1, 1, 2, 1)), np.array([[[0.0, 1.0], [0.0, 0.0]]])
    mdp = TabularMDP(stay, paid, np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match="value is that of practice"):
        policy_value(mdp, Policy(ROWS, HALF))
    assert policy_value(mdp, Policy(ROWS, HALF).beside(np.array([0.7, 0.3]))) == pytest.approx(0.3)


def test_a_row_that_speaks_is_a_distribution():
    with pytest.raises(ValueError, match="sum to 1"):
        Policy(0 * ROWS, HALF)
    with pytest.raises(ValueError, match="sum to 1"):
        Policy(np.nan * ROWS, ~HALF & HALF)
    with pytest.raises(ValueError, match="abstains must be"):
        Policy(ROWS, HALF[0])
