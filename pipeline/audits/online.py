"""Attacks on the message path of an online agent: its registration names the targets; nobody plays, no world moves.

The protocol is attacked at the trial's budget, with the same code that calibrates and adds noise where it is played;
a counter has few leaves here, because one of many works the same and takes longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pipeline.audits.attack import Attack
from pipeline.audits.counters import LEAVES, sums_attack
from pipeline.audits.lq import lq_attack
from pipeline.audits.plans import WholePlan
from pipeline.audits.releases import counts_attack
from pipeline.audits.users import batch_attack, crowd, interactive_attack, messages_attack, shuffled_attack
from pipeline.declaration.toml import CardError
from pipeline.privacy.fast_noise import FastOsNoise
from pipeline.simulation.registry import find
from pipeline.simulation.targets import (
    BatchTarget,
    CountsTarget,
    ShuffledTarget,
    SumsTarget,
    Target,
)
from pipeline.simulation.trial import Trial
from pipeline.statistics.batch_privatizers import ShuffleBinary
from pipeline.statistics.lq_layout import LqPlan
from pipeline.statistics.mixture_message import Message
from pipeline.statistics.online_sum import asked
from pipeline.statistics.private_sum import PrivateSum

_LAST_STEPS = 2
# messages of all draws together: beyond, they take minutes and gigabytes
_MESSAGES = 400_000_000

Say = Callable[[str], None]


def attacks_on(trial: Trial, draws: int, say: Say) -> list[Attack]:
    """An attack for each thing that a trial's agent releases.

    Parameters
    ----------
    draws
        Releases of each neighbour that will be drawn: shuffled messages are left out where that would be too many bits.
    say
        Hears what is attacked in the place of something larger.

    Raises
    ------
    CardError
        If the agent names nothing to attack, or its options are wrong.
    """
    agent = find(trial.agent)
    if agent.targets is None:
        raise CardError(
            f"{trial.agent} registers no targets, so there is nothing to attack: name them in its OnlineAgent "
            "(docs/extend.md)"
        )
    targets = agent.targets(trial)
    return [*(_attack(trial, t, say) for t in targets), *_messages(trial, targets, draws, say)]


def whole_plan(trial: Trial) -> WholePlan | None:
    """What a trial's own counters cost, where :func:`attacks_on` attacks smaller ones that claim its budget.

    The papers' scales claim what they cost, nothing else: there is nothing to hold them against.
    """
    agent = find(trial.agent)
    if trial.calibration != "tight" or agent.cost is None:
        return None
    cost, claimed = agent.cost(trial)
    if cost is None:
        return None
    return WholePlan(f"A plan of at most {LEAVES} leaves, for {trial.episodes:,} episodes,", cost, claimed)


def _attack(trial: Trial, target: Target, say: Say) -> Attack:
    match target:
        case CountsTarget(layout, ask, mechanism):
            return interactive_attack(layout, ask, mechanism)
        case ShuffledTarget(layout, ask, users, honest):
            return shuffled_attack(layout, *asked(ask), users, honest)
        case BatchTarget(layout, users, privatizer):
            return batch_attack(layout, users, privatizer)
        case SumsTarget(message, ask, mechanism):
            if isinstance(message, Message) and message.steps > _LAST_STEPS:
                # every step has sums of its own, calibrated alike
                say(f"{message.of}: an episode of {_LAST_STEPS} steps with sums stands for one of {message.steps}")
                message = replace(message, ranges=message.ranges[-_LAST_STEPS:])
            return sums_attack(message, ask, mechanism)
        case PrivateSum():
            # what the sampler adds to delta has to be listed, or nothing is drawn
            return counts_attack(target.with_slack(FastOsNoise(), trial.epsilon or 0.0))
        case LqPlan():
            return lq_attack(target)


def _messages(trial: Trial, targets: Sequence[Target], draws: int, say: Say) -> list[Attack]:
    """Of the shuffle model what the shuffler hands over is attacked too, unless it is too many bits."""
    if not any(isinstance(t, ShuffledTarget) or _binary(t) for t in targets):
        return []
    if trial.epsilon is None or trial.delta is None:
        raise CardError(f"{trial.agent} needs epsilon and delta")
    calibration = trial.calibration or "tight"
    bits = crowd(trial.epsilon, trial.delta, calibration)
    if 4 * draws * (bits.users + bits.trials) > _MESSAGES:
        say(
            f"messages are left out: {draws:,} releases of a batch of {bits.users} users are "
            f"{4 * draws * (bits.users + bits.trials):,} bits; the totals are attacked"
        )
        return []
    return [messages_attack(trial.epsilon, trial.delta, calibration)]


def _binary(target: Target) -> bool:
    return isinstance(target, BatchTarget) and isinstance(target.privatizer, ShuffleBinary)
