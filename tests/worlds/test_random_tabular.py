"""Random tabular worlds are what their parameters say, and one seed is one world."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.worlds.catalog import icu_like, random_tabular
from reticent import CardError


def test_a_seed_is_a_world_of_the_asked_successors_that_differs_by_step_unless_stationary():
    first, again, other = (random_tabular(seed=s).transition for s in (1, 1, 2))
    assert (first == again).all() and not (first == other).all()
    world = random_tabular(12, 3, 6, seed=4, successors=5)
    assert world.transition.shape == (6, 12, 3, 12)
    np.testing.assert_array_equal((world.transition > 0).sum(-1), 5)
    assert not (world.transition[0] == world.transition[1]).all()
    same = random_tabular(12, 3, 6, seed=4, stationary=True)
    assert same.transition.shape == (12, 3, 12) and same.stationary and same.mdp(9).horizon == 9


def test_rewards_lie_on_hundredths_and_may_be_paid_at_the_last_step_only():
    last = random_tabular(5, 2, 4, seed=1, reward="last")
    assert (last.visit_reward[:3] == 0).all() and (last.visit_reward[3] > 0).any()
    kept = random_tabular(5, 2, 4, seed=1, reward="last", stationary=True)
    assert not kept.stationary and kept.horizon == 4 and kept.transition.ndim == 3
    everywhere = random_tabular(5, 2, 4, seed=1).visit_reward
    np.testing.assert_allclose(100 * everywhere, np.round(100 * everywhere), atol=1e-12)
    assert (everywhere[:3] > 0).any()


def test_the_icu_like_instance_has_its_size_and_its_clinician_like_policy():
    world = icu_like()
    assert world.transition.shape == (10, 50, 5, 50) and (world.visit_reward[:9] == 0).all()
    np.testing.assert_array_equal((world.transition > 0).sum(-1), 8)
    np.testing.assert_allclose(np.sort(world.policies["preferred"], axis=1), [[0.1] * 4 + [0.6]] * 50)


def test_what_does_not_fit_is_refused():
    for wrong in ({"successors": 11}, {"states": 0}, {"reward": "first"}):
        with pytest.raises(ValueError, match="must be"):
            random_tabular(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CardError, match="defined for a horizon of 10 steps, not 20"):
        icu_like().mdp(20)
