"""Message paths of online agents, and broken twins of them applied on the release path."""

import math
from dataclasses import astuple, replace
from fractions import Fraction

import numpy as np

from pipeline.audits.attack import WORLD, AuditTarget
from pipeline.audits.message_paths import (
    LEAVES,
    Watch,
    batch_target,
    interactive_target,
    messages_target,
    shuffled_target,
    sums_target,
)
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.continual import RunningSum, Tree, levels
from pipeline.privacy.losses import Trust
from pipeline.privacy.shuffle import Messages, NoiseBits, smallest_total
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive_counts import BatchPrivatizer, GaussianCounts, ShuffledCounts, joint, local
from pipeline.statistics.lq import LqMessage, ResidualMessage
from pipeline.statistics.mixture import LATTICE, MixtureMessage
from pipeline.statistics.online_counts import BatchLayout, OnlineLayout
from pipeline.statistics.private_sum import begin, entry_variances, tight
from pipeline.statistics.regression import Visits
from tests.audits.broken import (
    FOUR_THIRDS,
    THREE,
    THREE_HALVES,
    FewCoins,
    Make,
    Repeating,
    RepeatingCoins,
    Thinner,
    Twin,
    drawing,
)
from tests.audits.offline_twins import OFFLINE

ASK = Ask(epsilon=7.0, delta=1e-5)
MESSAGE = MixtureMessage(2, 1, 1.0, (1.0,), 1.0, unit=False)
LQ = LqMessage(2, 1, 3)
RESIDUAL = ResidualMessage(np.full((2, 3), 0.2), np.eye(3), 0.5, 3)
TABLE = OnlineLayout(3, 2, 1, rewards=True)
TWO = replace(TABLE, episodes=2)
VISITS = OnlineLayout(3, 2, 1)
POOLED = OnlineLayout(4, 2, 1, pooled=True)
EPSILON, DELTA = 6.0, 1e-5
SHUFFLE = BatchPrivatizer(Trust.SHUFFLE, EPSILON, DELTA, "tight", 3)
TWICE = replace(SHUFFLE, episodes=2)
LOCAL = BatchPrivatizer(Trust.LOCAL, 7.0, DELTA)
BATCH = BatchLayout((3, 2, 1), lean=False, rewards=True, ends=True)


def counter(kind, ask: Ask = ASK, message: MixtureMessage = MESSAGE, **broken) -> AuditTarget:
    return drawing(sums_target(message, ask, kind), **broken)


def scaled(kind, gram: float, target: float, ask: Ask = ASK) -> np.ndarray:
    v = tight(MESSAGE, ask, Watch(kind or "once", LEAVES).time.cost)
    less = {name: math.ceil(x * (target if name.startswith("target") else gram)) for name, x in v.items()}
    return entry_variances(MESSAGE, less)


EVEN = replace(ASK, split={"gram": Fraction(1, 2)})


class Redrawn(RunningSum):
    """All noise drawn anew whenever somebody looks."""

    def total(self) -> np.ndarray:
        again = RunningSum(self.time, self.blocks)
        for _ in range(self.seen):
            again.add(np.zeros_like(self._sum))
        return self._sum + again.total()


class Uncut(MixtureMessage):
    """Rows of one coordinate, as long as they come."""

    def integers(self, visits: Visits) -> np.ndarray:
        cells = np.zeros((2, self.blocks))
        cells[0, visits.block] = visits.phi[:, 0] ** 2
        cells[1, visits.block] = visits.phi[:, 0] * visits.response
        return (cells.ravel() * LATTICE).astype(np.int64)


UNCUT = Uncut(2, 1, 1.0, (1.0,), 1.0, unit=False)


def lq(how="bottom-up", message: LqMessage = LQ, **broken) -> AuditTarget:
    return drawing(sums_target(message, ASK, how), **broken)


def lq_scaled(how: str, gram: float, cross: float) -> np.ndarray:
    v = tight(LQ, ASK, 1 if how == "fresh" else levels(LEAVES))
    return entry_variances(LQ, {name: math.ceil(x * (cross if name == "cross" else gram)) for name, x in v.items()})


class WholeRows(LqMessage):
    """Sums of rows that nobody cut."""

    def integers(self, batch: LqBatch) -> np.ndarray:
        z = np.trunc(np.concatenate([batch.states[0, :-1], batch.controls[0]], axis=1) * self.steps)
        following = np.trunc(batch.states[0, 1:] * self.steps)
        gram, cross = z.T @ z, z.T @ following
        return np.concatenate([gram.diagonal(), gram[np.triu_indices(len(gram), 1)], cross.ravel()]).astype(np.int64)


def residual(message: ResidualMessage = RESIDUAL, **broken) -> AuditTarget:
    return drawing(sums_target(message, ASK, "fresh"), **broken)


class EachRowCut(ResidualMessage):
    """Every row of an episode cut to the ball that the episode has."""

    def integers(self, batch: LqBatch) -> np.ndarray:
        rows = (self.each(batch.states[:, h : h + 2], batch.controls[:, h : h + 1]) for h in range(self.horizon))
        return np.sum([row.sum(axis=0) for row in rows], axis=0)


def online(how, layout: OnlineLayout = TABLE, **broken) -> AuditTarget:
    return drawing(interactive_target(layout, ASK, how), **broken)


def thin(how):
    def made(wide, noise):
        thinner = Thinner(noise, 0.5)
        if how is None:
            return local(wide, 1, ASK, WORLD, thinner)
        return joint(wide, LEAVES, LEAVES, ASK, WORLD, thinner, mechanism=how)

    return made


def counted(charged: int, build=RunningSum, steps: OnlineLayout | None = None):
    """Counts over a tree of LEAVES leaves, with scales as if a leaf cost ``charged``, or were of other ``steps``."""

    def made(wide, noise):
        scales = tight(steps or wide, ASK, charged)
        counts = GaussianCounts(wide, begin(wide, scales, Tree(LEAVES, "plain"), Trust.JOINT, WORLD, noise, ASK))
        counts.sums = build(counts.sums.time, counts.sums.blocks)
        return counts

    return made


def batch(shipped: BatchPrivatizer = SHUFFLE, **broken) -> AuditTarget:
    return drawing(batch_target(BATCH, 64, shipped), **broken)


def shuffled(layout: OnlineLayout = TABLE) -> AuditTarget:
    return shuffled_target(layout, EPSILON, DELTA, 64)


def few_coins(wide, noise) -> ShuffledCounts:
    return ShuffledCounts(wide, EPSILON, DELTA, WORLD, FewCoins())


class OneCounter(BatchPrivatizer):
    """Coins for one counter that goes up and one that goes down, whatever the number of tables and steps."""

    def bits(self, users: int, layout: BatchLayout) -> NoiseBits:
        return super().bits(users, BatchLayout((1, 2, 1), lean=True, rewards=False))


def integers(values, bits: NoiseBits, coins, data) -> Messages:
    """Paper 002 as printed: one integer a counter, the user's bit and its noise added up."""
    own = coins.rounded(np.clip(values, 0, 1), data).astype(np.int64)
    noise = coins.flips(len(values) * bits.each, bits.chance, data).reshape(len(values), bits.each)
    return Messages(np.arange(len(values)), own + noise.sum(1))


def messages(**broken) -> AuditTarget:
    # as many users as coins: a coin each, as tau = n has it
    return drawing(messages_target(2.0, DELTA, "tight", users=smallest_total(2, 2.0, DELTA)), **broken)


ONLINE: dict[str, tuple[Make, dict[str, Twin]]] = {
    "mixture, plain tree": (
        lambda: counter("plain"),
        {
            "half the variance": Twin(lambda: counter("plain", variances=scaled("plain", 0.5, 0.5))),
            "natural-log levels": Twin(lambda: counter("plain", variances=scaled("plain", 0.75, 0.75)), FOUR_THIRDS),
            "add/remove Gram": Twin(
                lambda: counter("plain", EVEN, variances=scaled("plain", 0.5, 1, EVEN)), FOUR_THIRDS
            ),
            "redrawn node noise": Twin(lambda: counter("plain", build=Redrawn), THREE),
            "messages not clipped": Twin(lambda: counter("plain", message=UNCUT)),
            "seeded noise": Twin(lambda: counter("plain"), noise=Repeating),
        },
    ),
    "mixture, bottom-up tree": (
        lambda: counter("bottom-up"),
        {
            "half the variance": Twin(
                lambda: counter("bottom-up", variances=scaled("bottom-up", 0.5, 0.5)), THREE_HALVES
            )
        },
    ),
    "mixture, square-root counter": (
        lambda: counter("square-root"),
        {
            "half the variance": Twin(lambda: counter("square-root", variances=scaled("square-root", 0.5, 0.5))),
            "redrawn noise": Twin(lambda: counter("square-root", build=Redrawn)),
        },
    ),
    "mixture, local messages": (
        lambda: counter(None),
        {
            "half the variance": Twin(lambda: counter(None, variances=scaled(None, 0.5, 0.5))),
            "messages not clipped": Twin(lambda: counter(None, message=UNCUT)),
            "seeded noise": Twin(lambda: counter(None), noise=Repeating),
        },
    ),
    "online counts, plain tree": (
        lambda: online("plain"),
        {
            "half the variance": Twin(lambda: online("plain", made=thin("plain"))),
            "a level too few": Twin(lambda: online("plain", made=counted(levels(LEAVES) - 1)), FOUR_THIRDS),
            "redrawn node noise": Twin(lambda: online("plain", made=counted(levels(LEAVES), Redrawn))),
            "seeded noise": Twin(lambda: online("plain", VISITS), noise=Repeating),
        },
    ),
    "online counts, bottom-up tree": (
        lambda: online("bottom-up"),
        {"half the variance": Twin(lambda: online("bottom-up", made=thin("bottom-up")), THREE_HALVES)},
    ),
    "online counts, square-root counter": (
        lambda: online("square-root"),
        {"half the variance": Twin(lambda: online("square-root", made=thin("square-root")))},
    ),
    "online counts, pooled steps": (
        lambda: online("plain", POOLED),
        {
            "N instead of N²": Twin(
                lambda: online("plain", POOLED, made=counted(levels(LEAVES), steps=replace(POOLED, pooled=False)))
            )
        },
    ),
    "online counts, local messages": (
        lambda: online(None),
        {"half the variance": Twin(lambda: online(None, made=thin(None)))},
    ),
    "batch counts, Gaussian": (
        lambda: batch(LOCAL),
        {"twice the epsilon": Twin(lambda: batch(LOCAL, privatizer=replace(LOCAL, epsilon=14.0)))},
    ),
    "shuffled counts, a batch's totals": (
        shuffled,
        {"half the coins": Twin(lambda: drawing(shuffled(), made=few_coins), 20_000)},
    ),
    "SDP-PE, a batch's totals": (
        batch,
        {
            "half the coins": Twin(lambda: batch(noise=FewCoins), 20_000),
            # a loss of 1.1 of the claim: of 20,000 draws one run in 200 would miss it
            "each counter charged alone": Twin(
                lambda: batch(privatizer=OneCounter(Trust.SHUFFLE, EPSILON, DELTA, "tight", 3)), 50_000
            ),
            "seeded coins": Twin(lambda: batch(noise=RepeatingCoins)),
        },
    ),
    "shuffled counts, a user's two episodes": (
        lambda: shuffled(TWO),
        {"half the coins": Twin(lambda: drawing(shuffled(TWO), made=few_coins))},
    ),
    "SDP-PE, a user's two episodes": (
        lambda: batch(TWICE),
        {"priced as one": Twin(lambda: batch(TWICE, privatizer=replace(TWICE, episodes=1)), 20_000)},
    ),
    "shuffled messages": (messages, {"integer messages": Twin(lambda: messages(send=integers))}),
    "LQ sums, bottom-up tree": (
        lq,
        {
            "half the variance": Twin(lambda: lq(variances=lq_scaled("bottom-up", 0.5, 0.5)), THREE_HALVES),
            "redrawn node noise": Twin(lambda: lq(build=Redrawn), THREE),
            "states not clipped": Twin(lambda: lq(message=WholeRows(2, 1, 3))),
            "seeded noise": Twin(lq, noise=Repeating),
        },
    ),
    "LQ sums, one release of a batch": (
        lambda: lq("fresh"),
        {
            "half the variance": Twin(lambda: lq("fresh", variances=lq_scaled("fresh", 0.5, 0.5))),
            "add/remove Gram": Twin(lambda: lq("fresh", variances=lq_scaled("fresh", 0.5, 1)), THREE_HALVES),
        },
    ),
    "residual sums, one release of an epoch": (
        residual,
        {
            "half the variance": Twin(
                lambda: residual(variances=np.full(6, tight(RESIDUAL, ASK, 1)["residual"] // 2)), THREE_HALVES
            ),
            "rows cut, not episodes": Twin(lambda: residual(EachRowCut(*astuple(RESIDUAL)))),
            "seeded noise": Twin(residual, noise=Repeating),
        },
    ),
}

# mechanism -> (as shipped, {mutant: broken}): what audits must tell apart (docs/operate.md lists them)
MECHANISMS: dict[str, tuple[Make, dict[str, Twin]]] = {**OFFLINE, **ONLINE}
