"""Audit targets of an online agent: what its registration names for a trial; nobody plays, no world moves.

The protocol is attacked at the trial's budget, with the same code that calibrates and adds noise where it is played;
a counter has few leaves here, because one of many works the same and takes longer.  Of the shuffle model the messages
that a shuffler hands over are attacked too: they go through the three functions of :mod:`pipeline.privacy.shuffle` with
the operating system's coins, a counter of its own for each copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.audits.attack import Array, AuditTarget, Side, WholePlan
from pipeline.audits.laws import Binomial
from pipeline.audits.regressions import lq_target
from pipeline.audits.sampling import WORLD
from pipeline.audits.sums import LEAVES, sums_target
from pipeline.audits.tables import counts_target
from pipeline.audits.users import batch_target, bit_sides, interactive_target, shuffled_target
from pipeline.declaration.toml import CardError
from pipeline.privacy.fast_noise import FastOsNoise
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import DataHandle, NoiseSource
from pipeline.privacy.shuffle import Coins, Messages, NoiseBits, OsCoins, randomize, shuffle
from pipeline.privacy.shuffle_calibration import (
    delivered_epsilon,
    of_one_episode,
    paper_bits,
    smallest_total,
    tight_bits,
)
from pipeline.simulation.registry import find
from pipeline.simulation.targets import BatchTarget, CountsTarget, ShuffledTarget, SumsTarget, Target
from pipeline.simulation.trial import Trial
from pipeline.statistics.lq_layout import LqPlan
from pipeline.statistics.mixture_message import Message
from pipeline.statistics.online_sum import asked
from pipeline.statistics.private_sum import PrivateSum

_LAST_STEPS = 2
# messages of all draws together: beyond, they take minutes and gigabytes
_MESSAGES = 400_000_000
# messages made at once
_AT_ONCE = 2_000_000
# counters of one user that differ, where messages are attacked: a visit is there, or in the other cell
_CHANGES = 2
_CROWD = 16

Say = Callable[[str], None]
Send = Callable[[Array, NoiseBits, Coins, DataHandle], Messages]


def targets_of(trial: Trial, draws: int, say: Say) -> list[AuditTarget]:
    """One for each thing that a trial's agent releases.

    Parameters
    ----------
    trial
        Whose agent, options and budget are attacked.
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
    return [*(_target(trial, t, say) for t in targets), *_messages(trial, targets, draws, say)]


def whole_plan(trial: Trial) -> WholePlan | None:
    """What a trial's own counters cost, where :func:`targets_of` attacks smaller ones that claim its budget.

    The papers' scales claim what they cost, nothing else: there is nothing to hold them against.
    """
    agent = find(trial.agent)
    if trial.calibration != "tight" or agent.cost is None:
        return None
    cost, claimed = agent.cost(trial)
    if cost is None:
        return None
    return WholePlan(f"A plan of at most {LEAVES} leaves, for {trial.episodes:,} episodes,", cost, claimed)


def _target(trial: Trial, target: Target, say: Say) -> AuditTarget:
    match target:
        case CountsTarget(layout, ask, mechanism):
            return interactive_target(layout, ask, mechanism)
        case ShuffledTarget(layout, ask, users, honest):
            return shuffled_target(layout, *asked(ask), users, honest)
        case BatchTarget(layout, users, privatizer):
            return batch_target(layout, users, privatizer)
        case SumsTarget(message, ask, mechanism):
            if isinstance(message, Message) and message.steps > _LAST_STEPS:
                # every step has sums of its own, calibrated alike
                say(f"{message.of}: an episode of {_LAST_STEPS} steps with sums stands for one of {message.steps}")
                message = replace(message, ranges=message.ranges[-_LAST_STEPS:])
            return sums_target(message, ask, mechanism)
        case PrivateSum():
            # what the sampler adds to delta has to be listed, or nothing is drawn
            return counts_target(target.with_slack(FastOsNoise(), trial.epsilon or 0.0))
        case LqPlan():
            return lq_target(target)


def _messages(trial: Trial, targets: Sequence[Target], draws: int, say: Say) -> list[AuditTarget]:
    """Of the shuffle model what the shuffler hands over is attacked too, unless it is too many bits."""
    if not any(isinstance(t, ShuffledTarget) or _binary(t) for t in targets):
        return []
    # of a user with several episodes the messages of one are attacked, at its share
    loss = of_one_episode(trial.episodes_per_user, *trial.need_budget())
    calibration = trial.calibration or "tight"
    bits = crowd(*loss, calibration)
    if 4 * draws * (bits.users + bits.trials) > _MESSAGES:
        say(
            f"messages are left out: {draws:,} releases of a batch of {bits.users} users are "
            f"{4 * draws * (bits.users + bits.trials):,} bits; the totals are attacked"
        )
        return []
    return [messages_target(*loss, calibration)]


def _binary(target: Target) -> bool:
    return isinstance(target, BatchTarget) and target.privatizer.trust == Trust.SHUFFLE


def messages_target(epsilon: float, delta: float, calibration: str, *, users: int = _CROWD) -> AuditTarget:
    """Everything that the shuffler hands over of one batch: a user's bit is in one counter, or in another.

    Parameters
    ----------
    epsilon, delta, calibration
        What is claimed, and by whose count of coins: ``tight`` or ``paper``.
    users
        Of the batch; fewer where so many would need less than a coin each.
    """
    bits, means, none = crowd(epsilon, delta, calibration, users), bit_sides(_CHANGES), [np.zeros(_CHANGES)]
    law = Binomial(bits.trials, bits.probability, _CHANGES, delta)
    return AuditTarget(
        mechanism=f"shuffled messages of one bit, {bits.users} users, {calibration}",
        trust=Trust.SHUFFLE,
        path=_Messages(bits),
        means=(means[0] + none, means[1] + none),
        law=law,
        claimed_rho=law.loss(means),
        claimed_epsilon=delivered_epsilon(bits, _CHANGES, delta),
    )


def crowd(epsilon: float, delta: float, calibration: str, users: int = _CROWD) -> NoiseBits:
    """Coins of a small batch whose users have a bit in one of two counters."""
    if calibration == "paper":
        return paper_bits(users, 1, epsilon, delta)
    return tight_bits(min(users, smallest_total(_CHANGES, epsilon, delta)), _CHANGES, epsilon, delta)


@dataclass(frozen=True)
class _Messages:
    bits: NoiseBits
    send: Send = randomize

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        """See :class:`~pipeline.audits.attack.ReleasePath`; drawn by coins of its own."""
        each = max(1, _AT_ONCE // (_CHANGES * (self.bits.users + self.bits.trials)))
        parts = [self._crowds(side, min(each, copies - i)) for i in range(0, copies, each)]
        return [np.concatenate(of) for of in zip(*parts, strict=True)]

    def _crowds(self, side: Side, copies: int) -> tuple[Array, Array]:
        """Ones in each counter, and messages that are no bit, of batches that have counters of their own."""
        mine, coins = np.zeros((copies, _CHANGES)), OsCoins()
        mine[:, side] = 1.0
        values = [mine.ravel(), *[np.zeros(mine.size)] * (self.bits.users - 1)]
        seen = shuffle([self.send(v, self.bits, coins, WORLD) for v in values])
        ones = np.bincount(seen.counter, weights=seen.bit, minlength=mine.size)
        strange = np.bincount(seen.counter[seen.bit > 1], minlength=mine.size)
        return ones.reshape(mine.shape).astype(np.float64), strange.reshape(mine.shape).astype(np.float64)
