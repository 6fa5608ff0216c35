"""RiverSwim is the chain its docstring draws."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.worlds.catalog import riverswim, riverswim_homogeneous, riverswim_inhomogeneous
from pipeline.worlds.world import World
from reticent import CardError


def test_values_of_six_states_and_twenty_steps_are_the_reference_values():
    mdp, right = riverswim().mdp(20), np.zeros((20, 6, 2))
    right[..., 1] = 1
    assert mdp.start @ optimal_values(mdp)[1][0] == pytest.approx(3.397264, abs=5e-7)
    # always right is optimal but for the last steps
    assert policy_value(mdp, right) == pytest.approx(3.396637, abs=5e-7)
    scaled = riverswim(left_reward=5 / (1000 * 20), right_reward=1 / 20).mdp(20)
    assert 20 * optimal_values(scaled)[1][0, 0] == pytest.approx(optimal_values(mdp)[1][0, 0], rel=1e-12)


def test_left_moves_one_state_down_for_sure_in_every_length_of_river():
    assert [riverswim(n).mdp(5).shape for n in (2, 3, 6)] == [(5, n, 2) for n in (2, 3, 6)]
    with pytest.raises(ValueError, match="states must be at least 2; got 1"):
        riverswim(1)
    P = riverswim(4).transition
    np.testing.assert_array_equal(P[:, 0].argmax(1), [0, 0, 1, 2])
    np.testing.assert_array_equal(P[:, 0].max(1), 1)


@pytest.mark.parametrize(
    ("world", "best"),
    [
        (riverswim_homogeneous(3), 0.2281),
        (riverswim_homogeneous(5), 0.0907),
        (riverswim_homogeneous(10), 0.0195),
        (riverswim_inhomogeneous(3), 0.5911),
        (riverswim_inhomogeneous(5), 0.4944),
        (riverswim_inhomogeneous(10), 0.4014),
    ],
)
def test_the_forms_of_paper_001_have_their_reference_optima(world: World, best: float):
    H, S = 2 * world.shape[0], world.shape[0]
    value = np.zeros(S)
    for h in reversed(range(H)):
        P = world.transition if world.transition.ndim == 3 else world.transition[h]
        value = np.array([
            max(world.visit_reward[s, a] + sum(P[s, a, x] * value[x] for x in range(S)) for a in (0, 1))
            for s in range(S)
        ])  # fmt: skip
    assert value[0] == pytest.approx(best, abs=5e-5)
    assert optimal_values(world.mdp(H))[1][0, 0] == pytest.approx(value[0], abs=1e-12)


def test_each_step_of_the_inhomogeneous_chain_has_its_own_current():
    world = riverswim_inhomogeneous(4, seed=7)
    p = world.transition[:, 1, 1, 2]
    assert ((p >= 0.8) & (p <= 1)).all() and len(set(p)) == 8
    np.testing.assert_allclose(world.transition[:, 1, 1, 0], 1 - p)
    np.testing.assert_array_equal(world.transition[:, :, 0], np.broadcast_to(riverswim(4).transition[:, 0], (8, 4, 4)))
    with pytest.raises(CardError, match="horizon of 8 steps, not 20"):
        world.mdp(20)
