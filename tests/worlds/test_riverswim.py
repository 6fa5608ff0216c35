"""RiverSwim is the chain its docstring draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import reticent
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.worlds.catalog import riverswim, riverswim_inhomogeneous
from reticent import CardError, LogOptions, Store


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
    ("world", "states", "best"),
    [
        *(("riverswim_homogeneous", states, best) for states, best in ((3, 0.2281), (5, 0.0907), (10, 0.0195))),
        *(("riverswim_inhomogeneous", states, best) for states, best in ((3, 0.5911), (5, 0.4944), (10, 0.4014))),
    ],
)
def test_the_forms_of_paper_001_have_their_reference_optima(tmp_path: Path, world: str, states: int, best: float):
    asked = LogOptions(episodes=2, params=(f"states={states}",), to=tmp_path / "log")
    said = reticent.simulate_logs(world, asked, store=Store(tmp_path / "home"))
    assert said["values"]["optimal"] == pytest.approx(best, abs=5e-5)


def test_each_step_of_the_inhomogeneous_chain_has_its_own_current():
    world = riverswim_inhomogeneous(4, seed=7)
    p = world.transition[:, 1, 1, 2]
    assert ((p >= 0.8) & (p <= 1)).all() and len(set(p)) == 8
    np.testing.assert_allclose(world.transition[:, 1, 1, 0], 1 - p)
    np.testing.assert_array_equal(world.transition[:, :, 0], np.broadcast_to(riverswim(4).transition[:, 0], (8, 4, 4)))
    with pytest.raises(CardError, match="horizon of 8 steps, not 20"):
        world.mdp(20)
