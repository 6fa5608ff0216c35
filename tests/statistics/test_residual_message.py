"""One matrix an episode, cut as a whole: nobody moves the sum further than charged, two people move it so far."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from pipeline.mdp.rollout import LqBatch
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq import ResidualMessage
from pipeline.statistics.private_sum import cost_of, tight

TINY = ResidualMessage(np.array([[0.5, -0.25]]), np.array([[2.0, 0.3], [0.0, 1.0]]), 0.75, 2, 64)
WIDE = ResidualMessage(np.zeros((3, 5)), np.eye(5), 0.2, 6)


def everybody() -> list[tuple[np.ndarray, np.ndarray]]:
    """Short and far too long episodes, one longer than the horizon, and one that is no number."""
    ends, pushes = (-3.0, -0.5, 0.0, 0.3, 1.0), (-2.0, 0.0, 0.7)
    found = [
        (np.array([[a], [b], [c], [9.0]])[None], np.array([[u], [v], [5.0]])[None])
        for a, b, c in product(ends, repeat=3)
        for u, v in product(pushes, repeat=2)
    ]
    strange = [(np.full((1, 3, 1), bad), np.zeros((1, 2, 1))) for bad in (math.nan, math.inf, 1e200)]
    return [*found, *strange]


def moved(message: ResidualMessage, people) -> int:
    rows = np.concatenate([message.each(*one) for one in people])
    squares = (rows * rows).sum(1)
    return int((squares[:, None] + squares - 2 * rows @ rows.T).max())


def test_no_two_people_are_further_apart_than_charged_and_two_are_nearly():
    declared = TINY.tables[0].replace.l2_squared
    assert declared == 4 * 64**2 == TINY.cost({"residual": Fraction(1)})
    assert 0.9 * declared < moved(TINY, everybody()) <= declared
    longest = max(int((TINY.each(*one) ** 2).sum()) for one in everybody())
    assert longest <= 64**2 <= TINY.tables[0].add_remove.l2_squared


@pytest.mark.parametrize("message", [replace(TINY, steps=2**12), WIDE, replace(WIDE, centre=np.full((3, 5), 0.3))])
def test_the_worst_pair_meets_the_charge(message):
    pair = [message.integers(person) for person in message.extremes()]
    worst = ((pair[0] - pair[1]) ** 2).sum()
    assert 0.99 * message.tables[0].replace.l2_squared < worst <= message.tables[0].replace.l2_squared
    variances = tight(message, Ask(epsilon=1.0, delta=1e-5), 1)
    assert variances is not None
    assert worst / (2 * variances["residual"]) <= float(cost_of(message, variances, 1))


def test_twins_that_do_not_cut_or_cut_rows_break_the_charge(monkeypatch):
    def uncut(self, states, controls):
        H = min(self.horizon, controls.shape[1])
        z = np.concatenate([states[:, :H], controls[:, :H]], axis=2)
        residual = states[:, 1 : H + 1] - z @ self.centre.T
        found = np.einsum("ij,bhj,bhk->bik", self.frame, z, residual).reshape(len(z), -1)
        return np.trunc(np.nan_to_num(found) / self.radius * self.steps).astype(np.int64)

    def rows(self, states, controls):
        H = min(self.horizon, controls.shape[1])
        one = [RIGHT(self, states[:, h : h + 2], controls[:, h : h + 1]) for h in range(H)]
        return np.sum(one, axis=0)

    people = everybody()[:-3]
    for twin in (uncut, rows):
        monkeypatch.setattr(ResidualMessage, "each", twin)
        assert moved(TINY, people) > 2 * TINY.tables[0].replace.l2_squared


RIGHT = ResidualMessage.each


def test_an_episode_is_the_same_whoever_stands_beside_it():
    rng = np.random.default_rng(0)
    states, controls = rng.normal(size=(257, 7, 3)), rng.normal(size=(257, 6, 2))
    message = replace(WIDE, centre=rng.normal(size=(3, 5)), frame=rng.normal(size=(5, 5)), radius=20.0)
    together = message.each(states, controls)
    alone = np.concatenate([message.each(states[i : i + 1], controls[i : i + 1]) for i in range(257)])
    np.testing.assert_array_equal(together, alone)


def test_what_fits_is_the_sum_of_the_loops_and_nothing_else_is_summed():
    rng = np.random.default_rng(1)
    states, controls = rng.normal(size=(4, 3, 1)) * 0.1, rng.normal(size=(4, 2, 1)) * 0.1
    found = np.zeros((2, 1))
    for e in range(4):
        for h in range(2):
            z = np.array([states[e, h, 0], controls[e, h, 0]])
            found[:, 0] += TINY.frame @ z * (states[e, h + 1, 0] - float(TINY.centre[0] @ z))
    fine = replace(TINY, steps=2**20)
    total = fine.matrix(fine.integers(LqBatch(states, controls, 4)).astype(float))
    np.testing.assert_allclose(total, found, atol=1e-5)
    with pytest.raises(ValueError, match="played in full"):
        TINY.integers(LqBatch(states, controls, 9, (np.eye(2), np.ones((2, 1)))))
    with pytest.raises(ValueError, match="positive"):
        replace(TINY, radius=0.0)
