"""Policies that learn nothing, in any tabular world: what an online agent must beat."""

from __future__ import annotations

from functools import cache

import numpy as np

from pipeline.environments.world import World
from pipeline.environments.worlds import builds_horizon
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.mdp.policy import Policy, constant
from pipeline.mdp.policy import uniform as uniformly
from pipeline.simulation.places import RELEASE, typed_place
from pipeline.simulation.rollouts import emitted
from pipeline.simulation.trial import OnlineAgent, Outcome, Trial, staged_curve


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


def best_constant(trial: Trial) -> Outcome:
    """The action that is worth most when it is played everywhere: known only to whoever knows the world."""
    mdp = world_of(trial)
    H, S, A = mdp.shape  # noqa: N806
    worth = [policy_value(mdp, constant(H, S, A, a)) for a in range(A)]
    return _constant(trial, int(np.argmax(worth)))


def behaviour(trial: Trial) -> Outcome:
    """The world's logging policy of option ``of``."""
    return _always(trial, logging_policy(trial, str(trial.knobs.get("of", "uniform"))))


def logging_policy(trial: Trial, name: str) -> Policy:
    """A logging policy of the trial's world, by name.

    Raises
    ------
    CardError
        If the world has no policy of that name.
    """
    H = world_of(trial).horizon  # noqa: N806
    p = typed_place(trial.world, trial.params, World).behaviours(name, H)
    return Policy(p, np.zeros(p.shape[:2], dtype=bool))


def world_of(trial: Trial) -> TabularMDP:
    """The trial's world, cut at its horizon (``horizon`` among its parameters, else the world's own).

    Parameters
    ----------
    trial
        Names the world and its parameters.
    """
    return named_world(trial.world, trial.params)


@cache
def named_world(name: str, params: tuple[tuple[str, object], ...]) -> TabularMDP:
    """The same by name and parameters.

    Raises
    ------
    CardError
        If there is no such world or parameter.
    """
    own = not name.startswith(RELEASE) and builds_horizon(name)
    horizon = None if own else dict(params).get("horizon")
    world = typed_place(name, params, World)
    return world.mdp(world.steps(None if horizon is None else int(str(horizon))))


def optimum(mdp: TabularMDP) -> float:
    """V* from the start distribution, reward units.

    Parameters
    ----------
    mdp
        A known world.
    """
    return float(mdp.start @ optimal_values(mdp)[1][0])


def _constant(trial: Trial, action: int) -> Outcome:
    H, S, A = world_of(trial).shape  # noqa: N806
    return _always(trial, constant(H, S, A, action))


def _always(trial: Trial, policy: Policy) -> Outcome:
    mdp = world_of(trial)
    loss = optimum(mdp) - policy_value(mdp, policy)
    at, summed = staged_curve([trial.episodes], [loss])
    facts = {"trust": "none", "variant": "control", "final_loss": loss, "optimum": optimum(mdp)}
    return Outcome(at, summed, facts, emitted(policy.probabilities))


AGENTS = {
    "uniform": OnlineAgent(uniform),
    "always-first": OnlineAgent(always_first),
    "always-right": OnlineAgent(always_right),
    "best-constant": OnlineAgent(best_constant),
    "behaviour": OnlineAgent(behaviour, defaults={"of": "uniform"}),
}
