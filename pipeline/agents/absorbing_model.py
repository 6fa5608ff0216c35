"""The absorbing model of paper 002: EstimateTransition and EstimateRewards, which it prints nowhere (our reading).

Where a tuple is visited too seldom (W), its probability goes to an absorbing state x† that pays nothing: rows of ``P``
then sum to less than 1.  Shapes: ``P, W (H, S, A, S)``, the rest ``(H, S, A)``; X is S here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.statistics.batch_counts import BatchLayout, NoisyTables, PrivateBatch, consistent

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Model:
    """Estimates of a stage, and reward per step that bounds a policy's value from above and below under ``P``."""

    P: Array
    r: Array
    upper: Array
    lower: Array
    W: Bools


def nothing_known(shape: tuple[int, int, int]) -> Model:
    """All mass at x†."""
    zero, (_, S, _) = np.zeros(shape), shape
    return Model(np.zeros((*shape, S)), zero, zero, zero, np.ones((*shape, S), dtype=bool))


def transition_estimate(n_sas: Array, n_sa: Array, W: Bools) -> Array:
    """N~(x,a,x') / N~(x,a) off W, 0 on it: what a row lacks of 1 goes to x†."""
    return np.where(W, 0.0, n_sas) / np.where(n_sa > 0, n_sa, 1.0)[..., None]


def reward_estimate(r_sa: Array, n_sa: Array) -> Array:
    """R~ / N~(x,a), clipped to [0, 1]."""
    return np.clip(r_sa / np.where(n_sa > 0, n_sa, 1.0), 0.0, 1.0)


def paper_model(counts: PrivateBatch, W: Bools) -> Model:
    """Algorithm 3, lines 7-10."""
    assert counts.r_sa is not None
    P, r = transition_estimate(counts.n_sas, counts.n_sa, W), reward_estimate(counts.r_sa, counts.n_sa)
    return Model(P, r, r, r, W)


def practical_model(noisy: NoisyTables, layout: BatchLayout, log_term: float, scale: float, z: float) -> Model:
    """Estimates from counts without a shift, and what a policy can win more or less than its value says.

    Width of a cell: ``scale * (span (sqrt(l / 2N) + z sd sqrt(X) / 2N) + sqrt(l / 2N) + z sd (1 + r) / N)``, the last
    two for the reward, with ``span`` the steps to go; x† pays 1 a step from above, 0 from below.

    Parameters
    ----------
    log_term
        l = log(4HX²A stages/δ).
    z
        Standard deviations with which noise counts; tuples within them of 0 are in W.
    """
    assert noisy.r_sa is not None
    H, S, _ = layout.shape
    counts = consistent(noisy, layout, slack=0.0 if layout.lean else z * noisy.sd, shift=0.0, error=0.0)
    W = counts.n_sas <= z * noisy.sd
    W[-1] = True
    P, r = transition_estimate(counts.n_sas, counts.n_sa, W), reward_estimate(noisy.r_sa, counts.n_sa)
    N = np.maximum(counts.n_sa, 1.0)
    span = np.arange(H - 1, -1, -1.0)[:, None, None]
    chance = np.sqrt(log_term / (2 * N))
    moves = scale * span * (chance + z * noisy.sd * math.sqrt(S) / (2 * N))
    pays = scale * (chance + z * noisy.sd * (1 + r) / N)
    above = np.minimum(moves + span * (1 - P.sum(-1)), span)
    upper = np.minimum(r + pays, 1.0) + above
    return Model(P, r, upper, np.maximum(r - pays, 0.0) - np.minimum(moves, span), W)
