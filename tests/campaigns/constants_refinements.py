"""What was tried to beat the presets: refinements of the released counts, and an interval for a whole policy.

Everything here is post-processing of a release; nothing here has a theorem.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.pessimism import privacy_deviation, variance
from pipeline.mdp.model import Task
from pipeline.mdp.policy import Policy
from pipeline.statistics.consistency import consistent_counts
from pipeline.statistics.counts import PrivateCounts

Array = NDArray[np.float64]


def clear_entries(counts: PrivateCounts) -> PrivateCounts:
    """Transitions below two standard deviations of their noise are nobody; visits are the sum of what is left.

    One table, declared rewards.
    """
    kept = np.where(counts.release.tables["n_sas"] >= 2 * counts.sd_sas, counts.n_sas, 0.0)
    noisy = max(float((kept > 0).sum(-1).mean()), 1.0)
    return replace(counts, n_sas=kept, n_sa=kept.sum(-1), sd_sa=counts.sd_sas * math.sqrt(noisy))


def shared_steps(counts: PrivateCounts, bounds: tuple[float, float] = (0.0, 1.0)) -> PrivateCounts:
    """Each step's estimates drawn towards those of all steps, as far as the steps are seen to agree.

    P~_h = w own + (1 - w) pooled with w = N^2 t / (N^2 t + N (1 - sum p^2) + noise / 2): the weight of a normal prior
    around the pooled estimate.  t, the variance between steps beyond sampling and noise, is found by moments over all
    cells, so no stationarity is declared.  Clipping at 0 takes about half of an empty entry's noise.  Estimated rewards
    in ``bounds`` alike, with a t of their own.
    """
    return _towards_pooled(counts, bounds, None)


def pooled_steps(counts: PrivateCounts, bounds: tuple[float, float] = (0.0, 1.0)) -> PrivateCounts:
    """One estimate of the transitions for all steps, as if the dynamics had been declared stationary."""
    return _towards_pooled(counts, bounds, 0.0)


def _towards_pooled(counts: PrivateCounts, bounds: tuple[float, float], between: float | None) -> PrivateCounts:
    S, one = counts.n_sas.shape[-1], counts.visits_summed
    raw = counts.release.tables["n_sas"].astype(np.float64)
    noisy = raw.sum(-1) if one else counts.release.tables["n_sa"].astype(np.float64)
    N, total = np.maximum(noisy, 0.0), np.maximum(noisy.sum(0), 0.0)
    pooled = _rows(consistent_counts(total, np.maximum(raw.sum(0), 0.0), 0.0))
    square = (pooled**2).sum(-1)
    # of the entries of n - N p, whose N carries the noise of n itself or its own
    noise = counts.sd_sas**2 * (S + S * square - 2) if one else counts.sd_sas**2 * S + counts.sd_sa**2 * square
    residual = ((raw - N[..., None] * pooled) ** 2).sum(-1)
    w = _weight(N, residual, 1 - square, noise, between)
    visits = N + (1 - w) * (N.sum(0) - N)
    P = w[..., None] * _rows(counts.n_sas) + (1 - w[..., None]) * pooled
    out = replace(counts, n_sas=P * visits[..., None], n_sa=visits)
    if counts.r_sa is None:
        return out
    low, high = (b - counts.reward_offset for b in bounds)
    mean = np.clip(counts.r_sa.sum(0) / np.maximum(total, 1.0), low, high)
    w = _weight(
        N,
        (counts.r_sa - N * mean) ** 2,
        (mean - low) * (high - mean),
        counts.sd_r**2 + (counts.sd_sa * mean) ** 2,
        None,
    )
    own = np.clip(counts.r_sa / np.maximum(N, 1.0), low, high)
    return replace(out, r_sa=visits * (w * own + (1 - w) * mean))


def _weight(N: Array, residual: Array, sampling: Array, noise: Array | float, between: float | None) -> Array:
    """Weight ``(H, S, A)`` of a step's own estimate, from squared residuals of ``n_h - N_h * pooled``."""
    if between is None:
        others = 1 - N / np.maximum(N.sum(0), 1.0)
        excess = residual - others * (N * sampling + noise)
        between = max(float(excess.sum() / max((others * N**2).sum(), 1.0)), 0.0)
    signal = N**2 * between
    return signal / np.maximum(signal + N * sampling + noise / 2, 1e-9)


def _rows(x: Array) -> Array:
    """Rows that sum to 1, uniform where there is nothing."""
    total = x.sum(-1, keepdims=True)
    return np.where(total > 0, x / np.where(total > 0, total, 1.0), 1 / x.shape[-1])


def whole_policy_interval(
    counts: PrivateCounts, task: Task, policy: Policy, start: Array, failure: float
) -> tuple[float, float]:
    """Value of a fixed policy in the *unclipped* released model, plus and minus z standard deviations of the whole.

    To first order the errors of cells are independent and weighted by how often the policy comes by, so that their
    squares add up instead of the errors themselves.  z = sqrt(2 log(2/failure)).  One table, declared rewards.  It says
    nothing of a policy chosen on the same release: choosing favours the errors that flatter.
    """
    raw = counts.release.tables["n_sas"].astype(np.float64)
    H, S = task.horizon, raw.shape[-1]
    rewards, n = np.broadcast_to(np.asarray(task.rewards), raw.shape[:3]), raw.sum(-1)
    seen = n > counts.sd_sa
    safe, flow = np.where(seen, n, 1.0), _rows(counts.n_sas) * seen[..., None]
    ends: list[float] = []
    for side in (0, 1):
        V, spread = np.zeros((H + 1, S)), np.zeros(raw.shape[:3])
        for h in reversed(range(H)):
            Q = np.where(seen[h], rewards[h] + raw[h] @ V[h + 1] / safe[h], task.value_range(h)[side])
            V[h] = np.clip((policy.probabilities[h] * Q).sum(1), *task.value_range(h))
            sampling = variance(flow[h], V[h + 1]) / safe[h]
            private = (privacy_deviation(counts, flow[h], None, V[h + 1]) / safe[h]) ** 2
            spread[h] = np.where(seen[h], sampling + private, 0.0)
        people, square = start, 0.0
        for h in range(H):
            visits = people[:, None] * policy.probabilities[h]
            square += float((visits**2 * spread[h]).sum())
            people = np.einsum("sa,sat->t", visits, flow[h])
        width = math.sqrt(2 * math.log(2 / failure) * square)
        ends.append(float(np.clip(start @ V[0] + (2 * side - 1) * width, *task.value_range(0))))
    return ends[0], ends[1]
