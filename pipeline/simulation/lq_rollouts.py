"""Linear-quadratic worlds: the runner, exact costs, long batches from their moments; the world and noise of a trial.

:mod:`pipeline.simulation.places` lists the worlds.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.ofu_rl import LqControl
from pipeline.environments.lq_systems import Controller, LqSystem, simulate
from pipeline.mdp.riccati import gain_matrices
from pipeline.mdp.rollout import LinearRollout, LqAgent, LqBatch
from pipeline.privacy.budget import up
from pipeline.privacy.losses import gdp_epsilon, safe_epsilon
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from pipeline.simulation.places import typed_place
from pipeline.simulation.rollouts import drive
from pipeline.simulation.trial import Outcome, Trial, staged_curve
from pipeline.statistics.ask import Ask

Array = NDArray[np.float64]
_NOISE = 1

# longer batches are this many episodes and exact means
SIMULATED = 4096


@dataclass(frozen=True)
class LqPlayed:
    """Regret of each rollout's episodes, exactly, and what the agent returned.

    Parameters
    ----------
    ends
        Last episode of each rollout.
    losses
        J - J* of one of its episodes.
    gains
        Of each rollout ``(H, d, n)``.
    gram
        ``(n+d, n+d)`` sum of z z' over all episodes: raw, for the reader of a simulation only.
    """

    ends: list[int]
    losses: list[float]
    gains: list[Array]
    gram: Array
    result: Any


def play_lq(world: LqSystem, agent: LqAgent, rng: np.random.Generator) -> LqPlayed:
    """Run an agent until it returns; ``rng`` belongs to the world alone, so that agents can share worlds.

    Raises
    ------
    ValueError
        If gains and exploration could ask for a longer control than gamma: a cut one has no exact cost.
    """
    best = world.expected_cost(world.optimal_gains())
    ends, losses, gains = list[int](), list[float](), list[Array]()
    gram = np.zeros((sum(world.shape),) * 2)

    def answer(ask: LinearRollout) -> LqBatch:
        batch = rolled_out(world, ask, rng)
        ends.append(ask.episodes + (ends[-1] if ends else 0))
        losses.append(rollout_cost(world, ask) - best)
        gains.append(ask.gains)
        np.add(gram, moments(world, ask)[0] * ask.episodes, out=gram)
        return batch

    result = drive(agent, answer)
    return LqPlayed(ends, losses, gains, gram, result)


def rolled_out(world: LqSystem, ask: LinearRollout, rng: np.random.Generator) -> LqBatch:
    """Episodes of a rollout; of a long one the first :data:`SIMULATED`, with the exact means of the others."""
    if np.linalg.norm(ask.gains, 2, axis=(1, 2)).max() > world.gamma * (1 + 1e-9):
        raise ValueError(f"gains must have a norm of at most gamma = {world.gamma}; cut them")
    if np.linalg.norm(ask.gains, 2, axis=(1, 2)).max() + ask.explore > world.gamma * (1 + 1e-9):
        raise ValueError("gains and the radius of exploration must be at most gamma together")
    states, controls = simulate(world, Controller(ask.gains, ask.explore), min(ask.episodes, SIMULATED), rng)
    means = moments(world, ask) if ask.episodes > SIMULATED else None
    return LqBatch(states, controls, ask.episodes, means)


def rollout_cost(world: LqSystem, ask: LinearRollout) -> float:
    """Exact expected cost of one episode, exploration included."""
    B, R = world.B, world.cost.R
    P = gain_matrices(world.A, B, world.cost, ask.gains)
    pushed = np.sum(R + B.T @ P[1:] @ B, axis=0).trace() * ask.explore**2 / len(R)
    return world.expected_cost(ask.gains) + float(pushed)


def lost_by(world: LqSystem, gains: Array) -> float:
    """J - J* of gains ``(H, d, n)``, exactly."""
    return world.expected_cost(gains) - world.expected_cost(world.optimal_gains())


def moments(world: LqSystem, ask: LinearRollout) -> tuple[Array, Array]:
    """Exact means of one episode's sums of z z' ``(D, D)`` and z x_next' ``(D, n)``."""
    n, d = world.shape
    AB = np.hstack([world.A, world.B])
    push = np.zeros((n + d, n + d))
    push[n:, n:] = np.eye(d) * ask.explore**2 / d
    second, gram = np.outer(world.start, world.start), np.zeros((n + d, n + d))
    for K in ask.gains:
        lift = np.vstack([np.eye(n), K])
        z = lift @ second @ lift.T + push
        gram += z
        second = AB @ z @ AB.T + world.covariance
    return gram, gram @ AB.T


def controlled(
    world: LqSystem,
    gains: Array,
    facts: Mapping[str, Any],
    ends: Sequence[int],
    losses: Sequence[float] | None = None,
    release: Release | None = None,
) -> Outcome:
    """The outcome of a run that ends with gains ``(H, d, n)``.

    Parameters
    ----------
    world, gains, facts, release
        Where it was, what it learnt, what the agent says of it, and what left its private sums.
    ends, losses
        As of :class:`LqPlayed`; no losses: the gains are used from the first episode on.
    """
    lost = lost_by(world, gains)
    at, summed = staged_curve(ends, [lost] if losses is None else losses)
    return Outcome(at, summed, {**facts, "final_loss": lost}, gains.tolist(), release, sum(world.shape))


def lq_world(trial: Trial) -> LqSystem:
    """The trial's system.

    Raises
    ------
    CardError
        If there is no such system.
    """
    return typed_place(trial.world, trial.params, LqSystem)


def spent(trial: Trial, rho: Fraction | None) -> dict[str, Any]:
    """What the noise really costs: by the conversion valid for every rho, and as the Gaussian it nearly is."""
    if rho is None or trial.delta is None:
        return {}
    spent = up(rho)
    epsilons = safe_epsilon(spent, trial.delta), gdp_epsilon(spent, trial.delta)
    return {"true_rho": spent, "true_epsilon": epsilons[0], "true_epsilon_gdp": epsilons[1]}


def control_of(world: LqSystem) -> LqControl:
    """What is public about a system."""
    return LqControl(world.cost, world.gamma, world.noise.bound, world.start, world.covariance)


def ask_of(trial: Trial) -> Ask:
    """What a private trial asks for."""
    epsilon, delta = trial.need_budget()
    return Ask(epsilon=epsilon, delta=delta, calibration=trial.calibration or "tight")


def noise_of(trial: Trial) -> SeededNoise:
    """Noise of its own, apart from the world's stream."""
    asked = 0 if trial.epsilon is None or math.isinf(trial.epsilon) else round(trial.epsilon * 10**6)
    return SeededNoise(np.random.SeedSequence((_NOISE, trial.seed, trial.episodes, asked)))
