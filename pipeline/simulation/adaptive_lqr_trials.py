"""Trials of private adaptive LQR, ours, in the worlds of :mod:`pipeline.simulation.lq_rollouts`.

Every epoch's people are in that epoch only, so each of its releases may cost what one person may lose.  Knobs:
``first`` (length of the first epoch, in roots of K) and ``certainty``; see
:class:`~pipeline.agents.adaptive_lqr.AdaptiveConstants`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipeline.agents.adaptive_lqr import AdaptiveConstants, Epoch, adaptive_lqr, recentred_lqr
from pipeline.agents.lq_belief import Question, prior
from pipeline.declaration.toml import CardError
from pipeline.environments.lq_systems import LqSystem
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.factorisation import Once
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import SimulatedWorld
from pipeline.privacy.release import Release
from pipeline.simulation.lq_rollouts import (
    Array,
    ask_of,
    control_of,
    controlled,
    lq_world,
    noise_of,
    play_lq,
    spent,
)
from pipeline.simulation.targets import SumsTarget
from pipeline.simulation.trial import NOTHING_CONTROLLED, OnlineAgent, Outcome, Plain, Trial
from pipeline.statistics.lq_message import ResidualMessage
from pipeline.statistics.online_sum import begin, cost_of, stacked, tight

_PLANNER, _LOGS = 5, 4
_OPTIONS: dict[str, Plain] = {"first": AdaptiveConstants().first, "certainty": AdaptiveConstants().certainty}


def play(trial: Trial) -> Outcome:
    """Play K episodes; without epsilon the releases are exact, the baseline."""
    world, c, sums = lq_world(trial), _constants(trial), _Sums(trial)
    agent = adaptive_lqr(control_of(world), trial.episodes, sums, sums.spread, c, trial.stream(_PLANNER))
    played = play_lq(world, agent, trial.stream(0))
    epochs: list[Epoch] = played.result
    facts = {
        "trust": "none" if trial.epsilon is None else "joint",
        "variant": "extra: one release an epoch",
        "constants": f"first epoch {c.first:g} √K, doubling; gains better than none by {c.certainty:g} deviations",
        "left_zero_at": next((e.first for e in epochs if e.rollout.gains.any()), None),
        "explored": [e.rollout.explore for e in epochs],
    }
    return controlled(world, played.gains[-1], facts | sums.cost, played.ends, played.losses, stacked(sums.drawn))


def learn_from_logs(trial: Trial) -> Outcome:
    """Offline: as many exploring episodes were logged before, of other people, and cost nothing here."""
    world, c, sums = lq_world(trial), _constants(trial), _Sums(trial)
    parts = [trial.episodes // 10, trial.episodes // 5]
    parts.append(trial.episodes - sum(parts))
    agent = recentred_lqr(control_of(world), parts, world.gamma, sums, sums.spread, c, trial.stream(_PLANNER))
    gains = play_lq(world, agent, trial.stream(_LOGS)).result
    facts = {
        "trust": "central",
        "variant": f"offline: {trial.episodes:,} exploring episodes were logged before",
        "constants": f"logs at no regret, controls on the sphere of {world.gamma:g}, declared; three parts",
        "left_zero_at": 1 if gains.any() else None,
    }
    return controlled(world, gains, facts | sums.cost, [trial.episodes], release=stacked(sums.drawn))


class _Sums:
    """Draws the sums of each part of the people, once; each part has the whole budget."""

    def __init__(self, trial: Trial) -> None:
        self._trial, self._world = trial, lq_world(trial)
        self._noise, self._handle = noise_of(trial), SimulatedWorld(trial.place)
        first = Question(prior(control_of(self._world), 1.0).mean, np.eye(sum(self._world.shape)), 1.0)
        message = _message(self._world, trial, first)
        self._ask = None if trial.epsilon is None else ask_of(trial)
        self._variances = None if self._ask is None else tight(message, self._ask, 1)
        self.spread = 0.0 if self._variances is None else math.sqrt(self._variances["residual"]) / message.steps
        self.drawn: list[Release] = []
        self.cost = spent(trial, cost_of(message, self._variances, 1))

    def __call__(self, question: Question, batches: Sequence[LqBatch]) -> Array:
        one = _message(self._world, self._trial, question)
        counter = begin(one, self._variances, Once(1), Trust.JOINT, self._handle, self._noise, self._ask)
        counter.add(np.sum([one.integers(batch) for batch in batches], axis=0))
        self.drawn.append(counter.release())
        return one.matrix(counter.total())


def _constants(trial: Trial) -> AdaptiveConstants:
    chosen = trial.over(_OPTIONS)
    return AdaptiveConstants(first=float(chosen["first"]), certainty=float(chosen["certainty"]))


def targets_of(trial: Trial) -> list[SumsTarget]:
    """What an audit attacks: the first epoch's one release; later ones differ in public numbers only."""
    world = lq_world(trial)
    centre = prior(control_of(world), AdaptiveConstants().norm).mean
    message = _message(world, trial, Question(centre, np.eye(sum(world.shape)), 1.0))
    return [SumsTarget(message, ask_of(trial), "fresh")]


def _message(world: LqSystem, trial: Trial, question: Question) -> ResidualMessage:
    if trial.calibration == "paper":
        raise CardError(f"no paper prints scales for {trial.agent}; use calibration = 'tight'")
    return ResidualMessage(question.centre, question.frame, question.radius, world.horizon)


AGENTS = {
    "adaptive-lqr": OnlineAgent(play, "none", controls=NOTHING_CONTROLLED, defaults=_OPTIONS),
    "private-adaptive-lqr": OnlineAgent(
        play, "joint", "adaptive-lqr", controls=NOTHING_CONTROLLED, defaults=_OPTIONS, targets=targets_of
    ),
    "dp-residual-lqr": OnlineAgent(
        learn_from_logs,
        "central",
        "certainty-equivalence",
        controls=NOTHING_CONTROLLED,
        defaults=_OPTIONS,
        targets=targets_of,
        from_logs=True,
    ),
}
