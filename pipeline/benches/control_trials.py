"""Policies that learn nothing, in any tabular world: what an online agent must beat."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from pipeline.benches.trial import Outcome, Trial, staged_curve
from pipeline.environments.registry import builds_horizon, load_world
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.mdp.policy import Policy, constant
from pipeline.mdp.policy import uniform as uniformly


def uniform(trial: Trial) -> Outcome:
    """Every action equally likely."""
    H, S, A = world_of(trial).shape  # noqa: N806
    return _always(trial, uniformly(H, S, A))


def always_first(trial: Trial) -> Outcome:
    """Action 0 everywhere: what a tie broken by index would copy."""
    return _constant(trial, 0)


def always_right(trial: Trial) -> Outcome:
    """The last action everywhere: nearly optimal in RiverSwim without any learning."""
    return _constant(trial, world_of(trial).shape[2] - 1)


def world_of(trial: Trial) -> TabularMDP:
    """The trial's world, cut at its horizon (``horizon`` among its parameters, else the world's own)."""
    return named_world(trial.world, trial.params)


@cache
def named_world(name: str, params: tuple[tuple[str, object], ...]) -> TabularMDP:
    """The same by name and parameters.

    Raises
    ------
    CardError
        If there is no such world or parameter.
    """
    chosen = dict(params)
    horizon = None if builds_horizon(name) else chosen.pop("horizon", None)
    world = load_world(name, Path(name), **chosen)
    return world.mdp(world.steps(None if horizon is None else int(str(horizon))))


def optimum(mdp: TabularMDP) -> float:
    """V* from the start distribution, reward units."""
    return float(mdp.start @ optimal_values(mdp)[1][0])


def _constant(trial: Trial, action: int) -> Outcome:
    H, S, A = world_of(trial).shape  # noqa: N806
    return _always(trial, constant(H, S, A, action))


def _always(trial: Trial, policy: Policy) -> Outcome:
    mdp = world_of(trial)
    at, summed = staged_curve([trial.episodes], [optimum(mdp) - policy_value(mdp, policy)])
    table = policy.probabilities.argmax(-1).tolist() if np.isin(policy.probabilities, (0, 1)).all() else None
    return Outcome(at, summed, {"trust": "none", "variant": "control"}, table)
