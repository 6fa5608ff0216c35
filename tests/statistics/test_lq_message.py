"""What one LQ episode adds to running sums: exact on the lattice, batches of many, and a regularizer that cuts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq import CountedLqRegularizer, LqMessage, lq_regularizer

WORLD = SimulatedWorld("tests")


def test_a_batch_of_many_has_the_mean_and_the_spread_of_its_sum():
    rng, message = np.random.default_rng(0), LqMessage(1, 1, 3)
    states, controls = rng.uniform(-1, 1, (4000, 4, 1)), rng.uniform(-1, 1, (4000, 3, 1))
    z = np.concatenate([states[:, :-1], controls], axis=2)
    mean = (np.diag([1.0, 1.0]), np.zeros((2, 1)))
    sums = [
        message.integers(LqBatch(states[i : i + 200], controls[i : i + 200], 5000, mean)) / message.steps**2
        for i in range(0, 4000, 200)
    ]
    # 5 000 episodes of three steps with E z z' = I / 3 each: E of the diagonal is one an episode
    np.testing.assert_allclose(np.mean(sums, axis=0)[:2], 5000, rtol=0.01)
    own = np.var((z**2).sum(1)[:, 0])
    assert np.var([s[0] for s in sums]) == pytest.approx(5000 * own, rel=0.9)


def test_a_regularizer_cuts_what_it_observes():
    """The door itself: an unbounded state moves the released sums no further than a bounded one."""
    message = LqMessage(1, 1, 2)
    shown = []
    for scale in (1.0, 50.0):
        r: CountedLqRegularizer = lq_regularizer(
            message, (1,), Ask(epsilon=math.inf, delta=1e-5), 1.0, WORLD, SeededNoise(0)
        )
        r.observe(LqBatch(np.full((1, 3, 1), scale), np.zeros((1, 2, 1)), 1))
        shown.append(r.ridge().V)
    np.testing.assert_allclose(shown[1], shown[0], atol=1e-12)
