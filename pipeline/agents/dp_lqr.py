"""Certainty equivalence for LQ control: regularised least squares on moments, then the Riccati gains of the estimate.

On exact moments this is the non-private baseline; on one private release it is dp-lqr.  The same function serves both
and reads declared constants and (released) moments only, so repeated calls cost nothing more.

:func:`explore_then_commit` is our extra, dp-lqr online: K_0 episodes are played with controls drawn from a sphere; one
release of their moments; from then on the gains that are optimal for the estimate.  No person is in two sums, so no
budget is divided over a tree.  K_0 and the sphere are fixed in advance.

| code | paper 004 | shape | meaning |
|---|---|---|---|
| ``V`` | V_k | (n+d, n+d) | T_1, its small eigenvalues raised, + ridge I |
| ``moments.cross`` | U_k = T_2 | (n+d, n) | sums of z x_next' |
| ``theta``, ``A``, ``B`` | Θ̂' = (V⁻¹U)' = [A, B] | (n, n+d) | the estimate, cut to the declared norm |
| ``gains`` | K_h | (H, d, n) | u = K_h x, cut to ``||K_h|| <= gamma`` |

Departures from the paper
    * V is T_1 + 2Λ I there, which shifts every direction by a bound on the noise; here only eigenvalues below a
      multiple of the noise's spectral norm are raised to it, so well explored directions are not biased;
    * the paper needs |u| <= gamma |x| of every gain it plays and nothing ensures it; here gains are cut;
    * its set S also asks for a controllable pair, which is not closed; the norm alone is kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.arrays import Array
from pipeline.mdp.riccati import QuadraticCost, clip_norm, riccati
from pipeline.mdp.rollout import LinearRollout, LqAgent, LqBatch, play_every
from pipeline.statistics.gram import raise_eigenvalues
from pipeline.statistics.regression import LqMoments


@dataclass(frozen=True)
class LqTask:
    """Declared: the cost, the bound gamma on ``||K_h||``, and the largest ``||[A, B]||_F`` (Assumption 1(a): 1)."""

    cost: QuadraticCost
    gamma: float
    theta_norm: float = 1.0


@dataclass(frozen=True)
class LqConstants:
    """Constants of the estimate; post-processing, not part of the mechanism.

    ``ridge``: λ > 0, in rows of the longest z.
    """

    ridge: float = 1.0
    floor: float = 3.0


@dataclass(frozen=True)
class LqResult:
    """Gains ``(H, d, n)``, the estimate they are optimal for, and the number of directions too noisy to be used.

    ``gains`` ``(H, d, n)``: u = K_h x.
    ``A``, ``B`` ``(n, n)``: and ``(n, d)``, the estimated plant in real units.
    """

    gains: Array
    A: Array
    B: Array
    raised: int


def certainty_equivalence(moments: LqMoments, task: LqTask, c: LqConstants) -> LqResult:
    """Gains that are optimal for the least-squares estimate as if it were the truth.

    ``moments``: exact or released; without noise (``gram_sd`` 0) no eigenvalue is raised.
    """
    theta, raised = estimate(moments, c)
    size = float(np.linalg.norm(theta))
    if size > task.theta_norm:
        theta = theta * (task.theta_norm / size)
    n = moments.shape[0]
    A, B = theta[:, :n], theta[:, n:]
    gains = riccati(A, B, task.cost)[0]
    if np.linalg.norm(gains, 2, axis=(1, 2)).max() > task.gamma:
        gains = clip_norm(gains, task.gamma)
    return LqResult(gains, A, B, raised)


def estimate(moments: LqMoments, c: LqConstants) -> tuple[Array, int]:
    """``[A, B] (n, n+d)`` in real units, and the number of eigenvalues raised."""
    n, d = moments.shape
    V, raised = raise_eigenvalues(moments.gram, c.floor * moments.gram_sd * math.sqrt(n + d))
    of_state, of_control, of_next = moments.bounds
    unit = np.repeat([of_next / of_state, of_next / of_control], (n, d))
    theta = np.linalg.solve(V + c.ridge * np.eye(n + d), moments.cross).T * unit
    return theta.astype(np.float64), raised


# privatizes the moments of the exploring episodes; called once
Release = Callable[[Sequence[LqBatch]], LqMoments]


def explore_then_commit(
    task: LqTask, episodes: int, exploration: LinearRollout, release: Release, c: LqConstants
) -> LqAgent:
    """Play ``episodes`` episodes and return the :class:`LqResult` of the one release.

    ``exploration``: the first K_0 of them, at least 1; no gains, and controls on a sphere of at most gamma.
    """
    result = certainty_equivalence(release((yield from play_every(exploration))), task, c)
    yield LinearRollout(result.gains, episodes - exploration.episodes)
    return result
