"""RiverSwim is the chain its docstring draws."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.environments.riverswim import riverswim
from pipeline.mdp.planning import optimal_values, policy_value


def test_the_optimum_of_six_states_and_twenty_steps_is_the_reference_value():
    mdp = riverswim().mdp(20)
    assert mdp.start @ optimal_values(mdp)[1][0] == pytest.approx(3.397264, abs=5e-7)


def test_always_right_is_optimal_but_for_the_last_steps():
    mdp = riverswim().mdp(20)
    right = np.zeros((20, 6, 2))
    right[..., 1] = 1
    assert policy_value(mdp, right) == pytest.approx(3.396637, abs=5e-7)


def test_rewards_over_h_divide_the_value_by_h():
    scaled = riverswim(left_reward=5 / (1000 * 20), right_reward=1 / 20).mdp(20)
    whole = riverswim().mdp(20)
    assert 20 * optimal_values(scaled)[1][0, 0] == pytest.approx(optimal_values(whole)[1][0, 0], rel=1e-12)


def test_left_moves_one_state_down_for_sure():
    P = riverswim(4).transition
    np.testing.assert_array_equal(P[:, 0].argmax(1), [0, 0, 1, 2])
    np.testing.assert_array_equal(P[:, 0].max(1), 1)


@pytest.mark.parametrize("states", [2, 3, 6])
def test_every_length_of_river_is_a_world(states: int):
    assert riverswim(states).mdp(5).shape == (5, states, 2)


def test_a_river_of_one_state_is_refused():
    with pytest.raises(ValueError, match="states must be at least 2; got 1"):
        riverswim(1)
