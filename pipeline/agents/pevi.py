"""PEVI: pessimistic value iteration in a linear MDP (Jin, Yang and Wang 2021), the baseline of paper 003's Figure 1.

Algorithm 2 of paper 003 without the variance step: σ² = 1 throughout and Γ = β (φᵀ Λ⁻¹ φ)^½.  With an exact
mechanism it is PEVI; with a noisy one it is its private form, at 2H statistics instead of 5H.

β = c d H sqrt(log(2 d H K / δ)) in the theorem (:func:`theory_beta`): on paper 003's bench it pushes every value to 0
and PEVI copies the most visited action, so a comparison must print β.  With β = C √d it *is* VAPVI wherever σ² = 1.
"""

from __future__ import annotations

import math

import numpy as np

from pipeline.agents.linear_backup import LinearConstants, LinearResult, LinearTask
from pipeline.agents.vapvi import backward
from pipeline.statistics.regression import InteractiveMechanism


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
    """Plan by unweighted regressions; parameters as :func:`pipeline.agents.vapvi.vapvi`, and ``beta``."""
    return backward(mechanism, task, c, rng, beta, centred=centred, weigh=False)
