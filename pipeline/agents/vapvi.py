"""DP-VAPVI, VAPVI and PEVI: pessimistic value iteration in a linear MDP (paper 003, Algorithm 2).

DP-VAPVI and VAPVI are one function: with an exact mechanism it is VAPVI, to the last bit.

PEVI (Jin, Yang and Wang 2021), the baseline of paper 003's Figure 1, is the same without the variance step: σ² = 1
throughout and Γ = β (φᵀ Λ⁻¹ φ)^½.  With a noisy mechanism it is its private form, at 2H statistics instead of 5H.
β = c d H sqrt(log(2 d H K / δ)) in the theorem (:func:`theory_beta`): on paper 003's bench it pushes every value to 0
and PEVI copies the most visited action, so a comparison must print β.  With β = C √d it *is* VAPVI wherever σ² = 1.

| code | paper | shape | meaning |
|---|---|---|---|
| ``Sigma`` | Σ̃_h | (d, d) | ridge of D', unweighted |
| ``beta``, ``theta`` | β̃_h, θ̃_h | (d,) | regressions of V², V on D' |
| ``sigma2`` | σ̃_h² | (…) | max{1, variance of V at (s, a)} |
| ``backups[h]`` | Λ̃_h, w̃_h, Γ_h, Q̂_h | – | :class:`~pipeline.agents.linear_backup.Backup` |
| ``V`` | Ṽ_h | (H+1, M) | on the reference states, reward units |

0-based: the paper's H-h+1 steps to go are ``H - h``.

The answers of an interactive mechanism depend on every constant here: C, λ, D, the clips, the seed of ties and this
file are part of the *mechanism*; another value is another release at its own price.  The upper value of such a run is
the trivial one.

Departures from the printed page
    * at the last step σ̃² = 1 (V_{H+1} = 0), so there is no query to D' there;
    * ``centred``: Ṽ_{h+1} is already private, so its span over the declared states (with the END, where there is one)
      is free to read: targets are taken less a mid-range, and the noise shrinks with the span instead of H;
    * ``centred``: where (span/2)² ≤ 1 no variance exceeds 1, σ̃² = 1 exactly, and the step's whole budget goes to Λ̃,
      w̃;
    * values are floored on the lattice, and the planner goes on from the floored ones;
    * an eigenvalue that noise pushed below λ is set to λ; ties of Q̂ go to the unclipped value, then to chance.
"""

import math

import numpy as np

from pipeline.agents.linear_backup import (
    Backup,
    LinearConstants,
    LinearResult,
    LinearTask,
    backup_of,
    greedy_step,
    ridge,
)
from pipeline.arrays import Array
from pipeline.mdp.policy import Policy
from pipeline.statistics.regression import InteractiveMechanism, PrivateRegression, Value, Weight, Window


def vapvi(
    mechanism: InteractiveMechanism,
    task: LinearTask,
    c: LinearConstants,
    rng: np.random.Generator,
    *,
    centred: bool = True,
) -> LinearResult:
    """Plan by queries to the mechanism from the last step to the first.

    ``mechanism``: noisy sums on demand; an exact one gives VAPVI.
    ``centred``: as in the mechanism's plan; False queries as Algorithm 2 prints it.
    """
    return backward(mechanism, task, c, rng, c.C * math.sqrt(task.dimension), centred=centred, weigh=True)


def backward(
    mechanism: InteractiveMechanism,
    task: LinearTask,
    c: LinearConstants,
    rng: np.random.Generator,
    multiplier: float,
    *,
    centred: bool,
    weigh: bool,
) -> LinearResult:
    """The loop of VAPVI and PEVI, which differ in ``weigh``."""
    H, (M, A, _) = task.horizon, task.reference.shape
    probabilities, V = np.zeros((H, M, A)), np.zeros((H + 1, M))  # line 2
    tied, weighted = np.zeros((H, M), bool), np.zeros(H, bool)
    backups: list[Backup] = []
    value: Value = nothing
    for h in reversed(range(H)):  # line 3
        window = window_of(V[h + 1], h, task, centred=centred)
        weight: Weight | None = None
        weighted[h] = weigh and h < H - 1 and not (centred and window.half**2 <= 1)
        if weighted[h]:
            weight = inverse_variance(mechanism.variance(h, value, window), h, task, c)  # lines 4-8
        s = mechanism.regression(h, value, window, weight)  # lines 9-10
        backups.insert(0, backup_of(s, h, task, c, multiplier))  # lines 9-13
        probabilities[h], V[h], tied[h] = greedy_step(backups[0], task, rng)  # line 14
        value = backups[0]
    return LinearResult(Policy(probabilities, np.zeros((H, M), bool)), backups, V, tied, weighted)  # line 16


def nothing(features: Array) -> Array:
    """V_{H+1} = 0."""
    return np.zeros(features.shape[:-2])


def window_of(V: Array, h: int, task: LinearTask, *, centred: bool) -> Window:
    """Range of the next values: their span if ``centred`` (END included where declared), else all of [0, H-h]."""
    low, high = task.value_range(h + 1)
    if not centred:
        return Window(low, high)
    ends = [0.0] if task.can_end else []
    return Window(min([float(V.min()), *ends]), max([float(V.max()), *ends]))


def inverse_variance(s: PrivateRegression, h: int, task: LinearTask, c: LinearConstants) -> Weight:
    """1/σ̃² as a function of integer features, from the sums of D' (lines 4-8)."""
    Sigma = ridge(s.gram, s.gram_sd, task.horizon, c)  # line 4
    beta, theta = Sigma.solve(s.targets[0]), Sigma.solve(s.targets[1])  # lines 5-6
    # the paper's clips are those of its uncentred values; s.offset is 0 there
    top = task.value_range(h)[1] if s.offset == 0 else s.bound
    bottom = 0.0 if s.offset == 0 else -s.bound

    def weight(features: Array) -> Array:
        phi = features * task.unit
        # einsum: a BLAS product rounds a row by its place in the batch, and one person's weight by who stands before
        second, first = (np.einsum("...d,d->...", phi, x) for x in (beta, theta))
        variance = np.clip(second, 0.0, top**2) - np.clip(first, bottom, top) ** 2  # line 7
        return 1 / np.maximum(1.0, variance)  # line 8

    return weight


def theory_beta(task: LinearTask, c: float, failure: float = 0.1) -> float:
    """β = c d H sqrt(log(2 d H K / δ)).

    ``c``: the theorem's absolute constant, which the paper leaves open.
    """
    d, H = task.dimension, task.horizon
    return c * d * H * math.sqrt(math.log(2 * d * H * task.episodes / failure))


def pevi(
    mechanism: InteractiveMechanism,
    task: LinearTask,
    c: LinearConstants,
    rng: np.random.Generator,
    beta: float,
    *,
    centred: bool = True,
) -> LinearResult:
    """Plan by unweighted regressions; parameters as :func:`vapvi`, and ``beta``."""
    return backward(mechanism, task, c, rng, beta, centred=centred, weigh=False)
