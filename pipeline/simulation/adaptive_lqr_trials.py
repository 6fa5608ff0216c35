"""Trials of private adaptive LQR, ours, in the worlds of :mod:`pipeline.simulation.lq_rollouts`.

Every epoch's people are in that epoch only, so each of its releases may cost what one person may lose.  Knobs:
``first`` (length of the first epoch, in roots of K) and ``certainty``; see
:class:`~pipeline.agents.adaptive_lqr.AdaptiveConstants`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipeline.agents.adaptive_lqr import AdaptiveConstants, Epoch, adaptive_lqr
from pipeline.agents.lq_belief import Question, prior
from pipeline.agents.ofu_rl import LqControl
from pipeline.declaration.toml import CardError
from pipeline.environments.lq_systems import LqSystem
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.factorisation import Once
from pipeline.privacy.guarantee import Trust
from pipeline.privacy.noise import SimulatedWorld
from pipeline.privacy.release import Release
from pipeline.simulation.lq_rollouts import Array, ask_of, lost_by, lq_world, noise_of, play_lq, spent
from pipeline.simulation.targets import SumsTarget
from pipeline.simulation.trial import NOTHING_CONTROLLED, OnlineAgent, Outcome, Plain, Trial, staged_curve
from pipeline.statistics.online_sum import asked, cost_of, gaussian_sum, release_of, stacked, start, tight
from pipeline.statistics.residual_message import ResidualMessage

_PLANNER = 5
_OPTIONS: dict[str, Plain] = {"first": AdaptiveConstants().first, "certainty": AdaptiveConstants().certainty}


def play(trial: Trial) -> Outcome:
    """Play K episodes; without epsilon the releases are exact, the baseline."""
    world, chosen = lq_world(trial), trial.over(_OPTIONS)
    c = AdaptiveConstants(first=float(chosen["first"]), certainty=float(chosen["certainty"]))
    noise, handle = noise_of(trial), SimulatedWorld(trial.place)
    message = _message(world, trial, Question(prior(_control(world), c.norm).mean, np.eye(sum(world.shape)), 1.0))
    variances = None if trial.epsilon is None else tight(message, ask_of(trial), 1)
    epsilon = math.inf if trial.epsilon is None else asked(ask_of(trial))[0]

    def release(question: Question, batches: Sequence[LqBatch]) -> Array:
        one = _message(world, trial, question)
        private = gaussian_sum(one, variances, Once(1), Trust.JOINT, noise, epsilon)
        counter = start(private, noise, handle)
        counter.add(np.sum([one.integers(batch) for batch in batches], axis=0))
        left.append(release_of(private, counter, noise))
        return one.matrix(counter.total())

    left: list[Release] = []
    spread = 0.0 if variances is None else math.sqrt(variances["residual"]) / message.steps
    agent = adaptive_lqr(_control(world), trial.episodes, release, spread, c, trial.stream(_PLANNER))
    played = play_lq(world, agent, trial.stream(0))
    at, summed = staged_curve(played.ends, played.losses)
    epochs: list[Epoch] = played.result
    gains = played.gains[-1]
    facts = {
        "final_loss": lost_by(world, gains),
        "trust": "none" if trial.epsilon is None else "joint",
        "variant": "extra: one release an epoch",
        "constants": f"first epoch {c.first:g} √K, doubling; gains better than none by {c.certainty:g} deviations",
        "left_zero_at": next((e.first for e in epochs if e.rollout.gains.any()), None),
        "explored": [e.rollout.explore for e in epochs],
    }
    facts |= spent(trial, cost_of(message, variances, 1))
    return Outcome(at, summed, facts, gains.tolist(), stacked(left))


def targets_of(trial: Trial) -> list[SumsTarget]:
    """What an audit attacks: the first epoch's one release; later ones differ in public numbers only."""
    if trial.calibration == "paper":
        raise CardError(f"no paper prints scales for {trial.agent}; use calibration = 'tight'")
    world = lq_world(trial)
    centre = prior(_control(world), AdaptiveConstants().norm).mean
    message = _message(world, trial, Question(centre, np.eye(sum(world.shape)), 1.0))
    return [SumsTarget(message, ask_of(trial), "fresh")]


def _message(world: LqSystem, trial: Trial, question: Question) -> ResidualMessage:
    if trial.calibration == "paper":
        raise CardError(f"no paper prints scales for {trial.agent}; use calibration = 'tight'")
    return ResidualMessage(question.centre, question.frame, question.radius, world.horizon)


def _control(world: LqSystem) -> LqControl:
    return LqControl(world.cost, world.gamma, world.noise.bound, world.start, world.covariance)


AGENTS = {
    "adaptive-lqr": OnlineAgent(play, "none", controls=NOTHING_CONTROLLED, defaults=_OPTIONS),
    "private-adaptive-lqr": OnlineAgent(
        play, "joint", "adaptive-lqr", controls=NOTHING_CONTROLLED, defaults=_OPTIONS, targets=targets_of
    ),
}
