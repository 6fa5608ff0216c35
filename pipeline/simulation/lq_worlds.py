"""Linear-quadratic worlds of a trial, its noise, and what the noise is worth.

World ``lq`` with ``instance`` 1 .. 5 (and ``seed`` of the system, 11), or world ``double_integrator``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from pipeline.declaration.toml import CardError
from pipeline.environments.lq_systems import LqSystem, double_integrator, lq_instance
from pipeline.privacy.accounting import gdp_epsilon
from pipeline.privacy.budget import up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.trial import Trial
from pipeline.statistics.ask import Ask

_NOISE = 1


def lq_world(trial: Trial) -> LqSystem:
    """The trial's system.

    Raises
    ------
    CardError
        If there is no such system.
    """
    return _named(trial.world, trial.params)


@cache
def _named(name: str, params: tuple[tuple[str, object], ...]) -> LqSystem:
    chosen = dict(params)
    if name == "double_integrator" and not chosen:
        return double_integrator()
    number, seed = chosen.pop("instance", None), chosen.pop("seed", 11)
    if name != "lq" or chosen or not isinstance(number, int) or not isinstance(seed, int):
        raise CardError(
            f"world {name!r} with {dict(params)} is no linear-quadratic one: use 'lq' with instance = 1 .. 5 (and "
            "seed), or 'double_integrator' alone"
        )
    try:
        return lq_instance(number, seed)
    except ValueError as e:
        raise CardError(f"world lq: {e}") from None


def spent(trial: Trial, rho: Fraction | None) -> dict[str, Any]:
    """What the noise really costs: by the conversion valid for every rho, and as the Gaussian it nearly is."""
    if rho is None or trial.delta is None:
        return {}
    spent = up(rho)
    epsilons = safe_epsilon(spent, trial.delta), gdp_epsilon(spent, trial.delta)
    return {"true_rho": spent, "true_epsilon": epsilons[0], "true_epsilon_gdp": epsilons[1]}


def ask_of(trial: Trial) -> Ask:
    """What a private trial asks for."""
    if trial.epsilon is None or trial.delta is None:
        raise CardError(f"{trial.agent} needs epsilon and delta")
    return Ask(epsilon=trial.epsilon, delta=trial.delta, calibration=trial.calibration or "tight")


def noise_of(trial: Trial) -> SeededNoise:
    """Noise of its own, apart from the world's stream."""
    asked = 0 if trial.epsilon is None or math.isinf(trial.epsilon) else round(trial.epsilon * 10**6)
    return SeededNoise(np.random.SeedSequence((_NOISE, trial.seed, trial.episodes, asked)))
