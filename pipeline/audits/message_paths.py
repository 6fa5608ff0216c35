"""Audit targets of an online agent, as its registration names them for a trial; nothing is played.

The protocol is attacked at the trial's budget, with the same code that calibrates and adds noise where it is played;
a counter has few leaves here, because one of many works the same and takes longer.  Of the shuffle model the messages
that a shuffler hands over are attacked too: they go through the three functions of :mod:`pipeline.privacy.shuffle` with
the operating system's coins, a counter of its own for each copy.

*Batches of online users*: counters of joint privacy, local messages, shuffled totals.  Noise is independent from action
to action, and its scale depends on the number of steps alone: a mechanism with as many actions as copies *is* so many
mechanisms with one.  So the shipped code serves all copies at once, and the attack reads the entries in which the two
users differ.  The totals of the shuffle model are drawn by their law, on fresh seeds.

*Running sums*: two people differ in the first step alone; the steps after it are empty.  A step moves a column of M
where the running sums are factored as A = W M (:mod:`pipeline.privacy.continual`), and the first column is the longest.
Released rows are M x + z itself.  The sums W (M x + z) after some of the steps are divided by the triangular root of
the noise's covariance W W^T: the quotients have independent noise of one row's variance.

A claim covers all rows, more than the sums of a bottom-up tree show: the bound there stays below it by construction.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Literal, cast

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.audits import attack
from pipeline.audits.attack import AuditTarget, Side
from pipeline.audits.tables import counts_target, lq_target
from pipeline.declaration.card import CardError
from pipeline.online.registry import find
from pipeline.online.trial import BatchTarget, CountsTarget, ShuffledTarget, SumsTarget, Target, Trial
from pipeline.privacy import continual, shuffle
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import LARGEST_SCALE, DataHandle, FastOsNoise, NoiseSource, SeededNoise
from pipeline.statistics import interactive_counts, online_counts
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive_counts import BatchPrivatizer, CountMechanism, InteractiveCounts
from pipeline.statistics.lq import LqMessage, LqSums, ResidualMessage, paper_004
from pipeline.statistics.mixture import MixtureMessage, paper_000, paper_001
from pipeline.statistics.online_counts import BatchLayout, OnlineLayout, Tally
from pipeline.statistics.private_sum import PrivateSum, asked, cost_of, entry_variances, tight

Kind = continual.Mechanism | Literal["once"]
# a counter of 10 000 steps works the same and takes a week
LEAVES = 8
_READINGS = 3
_WORDS: dict[CountMechanism | None, str] = {
    "plain": "plain tree",
    "bottom-up": "bottom-up tree",
    "square-root": "square-root counter",
    "fresh": "one release of a batch",
    None: "local messages",
}


@dataclass(frozen=True)
class Watch:
    """Steps at which an attacker reads a running sum."""

    kind: Kind
    steps: int = LEAVES

    @property
    def time(self) -> continual.Factorisation:
        """The factorisation of the released sums."""
        return continual.Once(1) if self.kind == "once" else continual.continual(self.kind, self.steps)

    @property
    def ends(self) -> tuple[int, ...]:
        """Steps after which the sum is read: each, or those after which it is one node of a tree."""
        last = self.time.steps
        if self.kind == "square-root":
            return tuple(range(1, last + 1))
        return tuple(2**j for j in range(last.bit_length()))

    def read_off(self, sums: list[Array]) -> list[Array]:
        """The sums with their noise made independent, of one row's variance."""
        from scipy.linalg import solve_triangular

        weights = np.zeros((len(sums), self.time.draws))
        for row, t in zip(weights, self.ends, strict=True):
            weight = self.time.weights(t)
            row[: len(weight)] = weight
        flat = np.array(sums).reshape(len(sums), -1)
        whitened = solve_triangular(np.linalg.cholesky(weights @ weights.T), flat, lower=True)
        return list(whitened.reshape(len(sums), *sums[0].shape))


def look(show: Callable[[], Array]) -> Array:
    """Mean of several readings: noise that is drawn anew on every reading averages out."""
    return np.mean([show() for _ in range(_READINGS)], axis=0)


@dataclass(frozen=True)
class Sums:
    """A running sum itself, on the integers in which two first steps differ, many copies at once.

    ``pair``: the two first steps ``(cells,)``.
    ``variances`` ``(cells,)``: of the noise of a row.
    """

    watch: Watch
    pair: tuple[Integers, Integers]
    variances: Array
    time: continual.Time
    build: Callable[[continual.Time, continual.NoiseBlocks], continual.RunningSum] = continual.RunningSum

    @property
    def moved(self) -> Bools:
        """``(cells,)`` where the two steps differ."""
        return self.pair[0] != self.pair[1]

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        # a counter's noise so wide is drawn in simulations only, by seeds
        variances, ends = self.variances[self.moved], self.watch.ends
        n, wide = len(variances), float(variances.max()) > LARGEST_SCALE**2 and not isinstance(noise, attack.Silence)
        source = attack.Pooled(attack.fresh()) if wide else noise
        blocks = continual.NoiseBlocks((copies,) * n, tuple(int(v) for v in variances), source, attack.WORLD)
        counter, first = self.build(self.time, blocks), np.repeat(self.pair[side][self.moved], copies)
        sums: list[Array] = []
        steps = range(1, self.watch.time.steps + 1) if self.time.steps == self.watch.time.steps else ends
        for t in steps:
            counter.add(first if t == 1 else np.zeros_like(first))
            if t in ends:
                sums.append(look(counter.total).reshape(n, copies).T)
        return self.watch.read_off(sums)


def sums_target(
    layout: MixtureMessage | LqMessage | ResidualMessage, ask: Ask, how: CountMechanism | None
) -> AuditTarget:
    """The worst pair of first episodes against the sums of a linear mixture agent, or of an agent of linear plants.

    The tree of Private-OFU-RL is the shipped one that draws what is read.

    ``how``: counter of joint privacy (``fresh``: each batch is one release); None: every user sends a message.
    Raises CardError if no noise is asked for.
    """
    kind = "once" if how in (None, "fresh") else how
    watch = Watch(kind)
    time: continual.Time = watch.time
    words = f"discrete gaussian, {ask.calibration}"
    if isinstance(layout, LqMessage):
        words = f"lq sums, {_WORDS[how]}, {words}"
        if kind != "once":
            time = continual.LazyTree(watch.ends, "plain" if kind == "plain" else "bottom-up")
        paper_noise = partial(paper_004, layout, ask, watch.time.steps)
    elif isinstance(layout, ResidualMessage):
        words, paper_noise = f"{layout.of}, {_WORDS[how]}, {words}", partial(tight, layout, ask, time.cost)
    else:
        words = f"{_WORDS[how]}, {layout.of}, {words}" + (", unit rows" if layout.unit else "")
        paper_noise = partial(paper_001, layout, ask) if how is None else partial(paper_000, layout, ask, watch.steps)
    noise = tight(layout, ask, time.cost) if ask.calibration == "tight" else paper_noise()
    claimed = cost_of(layout, noise, time.cost)
    if noise is None or claimed is None:
        raise CardError("an audit needs noise: epsilon is infinite")
    entries, integers = entry_variances(layout, noise), cast("Callable[[object], Integers]", layout.integers)
    one, *others = (integers(person) for person in layout.extremes())
    path = Sums(watch, (one, max(others, key=lambda x: float(((one - x) ** 2 / entries).sum()))), entries, time)
    return _watched(words, how, path, entries[path.moved], claimed)


def _watched(
    words: str, how: CountMechanism | None, path: "Sums | _Batches", variances: Array, claimed: Fraction
) -> AuditTarget:
    """Target of a running sum, on the entries ``(n,)`` in which two first steps differ."""
    law, trust = attack.Gaussian([variances] * len(path.watch.ends)), Trust.LOCAL if how is None else Trust.JOINT
    return AuditTarget(words, trust, path, attack.silence(path), law, claimed)


Tabled = Array | Integers


def interactive_target(layout: OnlineLayout, ask: Ask, how: CountMechanism | None) -> AuditTarget:
    """The worst pair of users of the first batch against a counter of a few batches, or against local messages.

    ``how``: counter of joint privacy; None: local.
    Raises CardError if no noise is asked for.
    """
    layout = replace(layout, states=2, actions=1)
    watch = Watch("once" if how in (None, "fresh") else how)
    cost, leaves = watch.time.cost, watch.time.steps
    scales = tight(layout, ask, cost)
    rho = cost_of(layout, scales, cost)
    if scales is None or rho is None:
        raise CardError("an audit needs noise: epsilon is infinite")

    def shipped(wide: OnlineLayout, noise: NoiseSource) -> InteractiveCounts:
        if how is None:
            return interactive_counts.local(wide, leaves, ask, attack.WORLD, noise)
        return interactive_counts.joint(wide, leaves, leaves, ask, attack.WORLD, noise, mechanism=how)

    path = _Batches(layout, OnlineLayout.extremes, watch, shipped)
    variances = np.repeat(np.array(list(scales.values()), dtype=np.float64), [int(m.sum()) for m in path.moved])
    words = "local messages" if how is None else "one release of a batch" if how == "fresh" else f"{how} counter"
    words = f"online counts, {words}, discrete gaussian" + (", rewards learnt" if layout.rewards else "")
    return _watched(words, how, path, variances, rho)


def shuffled_target(layout: OnlineLayout, epsilon: float, delta: float, users: int, honest: float = 1.0) -> AuditTarget:
    """The worst pair of users of one batch, whose episodes are all alike, against the mechanism of counts-shuffle.

    ``honest``: declared share of the users whose coins are counted on, in (0, 1].
    """
    layout, m = replace(layout, states=2, actions=1), layout.episodes
    users = max(users, m)

    def shipped(wide: OnlineLayout, source: NoiseSource) -> InteractiveCounts:
        return interactive_counts.ShuffledCounts(wide, epsilon, delta, attack.WORLD, attack.fresh(), honest)

    def extremes(wide: OnlineLayout) -> Iterator[Tally]:
        for batch in BatchLayout((wide.horizon, wide.states, wide.actions)).extremes():
            yield Tally(users, m * batch.n_sas, m * batch.r_sa if wide.rewards else None)

    once = shipped(layout, attack.fresh())
    once.add(next(extremes(layout)))
    promise = once.guarantee
    assert isinstance(promise, interactive_counts.ShuffledCounts)
    bits, changes = promise.bits[0], sum(layout.bits)
    law, means = attack.Binomial(bits.trials, bits.probability, changes, delta, m), bit_sides(changes, m)
    words = f"shuffled counts, binomial, {users:,} users" + (", rewards learnt" if layout.rewards else "")
    path = _Batches(layout, extremes, Watch("once"), shipped, bits.mean)
    return AuditTarget(words, Trust.SHUFFLE, path, means, law, law.loss(means), promise.epsilon(delta))


def batch_target(layout: BatchLayout, users: int, shipped: BatchPrivatizer) -> AuditTarget:
    """The worst pair of users of one batch against SDP-PE's privatizer (paper 002)."""
    layout = replace(layout, shape=(layout.shape[0], 2, 1))
    m = shipped.episodes
    means, what = bit_sides(layout.changes, m), "every step" if layout.rewards else "one step"
    if shipped.trust != Trust.SHUFFLE:
        # a curator, or a user, draws once; of a batch of local messages one is attacked
        users = 1 if shipped.trust == Trust.LOCAL else users
        law, epsilon = attack.Gaussian([np.full(layout.changes, float(shipped.variance(layout)))]), None
        words, mean = "discrete gaussian", 0.0
    else:
        bits = shipped.bits(users, layout)
        law = attack.Binomial(bits.trials, bits.probability, layout.changes, shipped.delta, m)
        epsilon, mean = shipped.delivered(users, layout), bits.mean
        words = f"binomial, {shipped.calibration}, {users:,} users"
    words, path = f"batch counts of {what}, {words}", _OneBatch(layout, users, m, shipped, mean)
    return AuditTarget(words, shipped.trust, path, means, law, law.loss(means), epsilon)


def bit_sides(changes: int, episodes: int = 1) -> attack.Means:
    """Bits of the counters that differ: the first user's, then the other's, and so on."""
    one = np.tile([1.0, 0.0], changes // 2)
    return [episodes * one], [episodes * (1 - one)]


def _moved(one: Sequence[Tabled], other: Sequence[Tabled]) -> list[Bools]:
    """Masks where tables ``(G, S, 1[, S])`` of two users differ."""
    return [(a != b)[:, :, 0] for a, b in zip(one, other, strict=True)]


def _entries(tables: Sequence[Tabled], moved: list[Bools]) -> Array:
    """The masked entries of tables ``(G, S, copies[, S])``: ``(copies, n)``."""
    parts = [np.moveaxis(t, 2, 0)[:, where].astype(np.float64) for t, where in zip(tables, moved, strict=True)]
    return np.concatenate(parts, axis=1)


def _own_counters(tables: online_counts.NoisyTables | online_counts.BatchTables, layout: BatchLayout) -> list[Tabled]:
    """The tables that have counters of their own."""
    rewards: list[Tabled] = [tables.r_sa] if tables.r_sa is not None and layout.rewards else []
    return [tables.n_sas[: layout.moving], tables.n_sa[layout.visits], *rewards]


@dataclass(frozen=True)
class _OneBatch:
    """The shipped privatizer on a batch in which one user has so many episodes; with a ``mean`` of coins, totals."""

    layout: BatchLayout
    users: int
    episodes: int
    privatizer: BatchPrivatizer
    mean: float
    noise: Callable[[], SeededNoise] = attack.fresh

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        layout, m = self.layout, self.episodes
        moved = _moved(*(_own_counters(tables, layout) for tables in layout.extremes()))
        wide = replace(layout, shape=(*layout.shape[:2], copies))
        one = [*wide.extremes()][side]
        batch = replace(one, users=self.users, n_sas=m * one.n_sas, r_sa=m * one.r_sa)
        tables = self.privatizer.release(batch, wide, self.noise()).noisy
        return [np.rint(_entries(_own_counters(tables, layout), moved) + self.mean)]


@dataclass(frozen=True)
class _Batches:
    """The shipped mechanism over batches of which the first has a user; with a ``mean`` of coins, shuffled totals."""

    layout: OnlineLayout
    extremes: Callable[[OnlineLayout], Iterator[Tally]]
    watch: Watch
    made: Callable[[OnlineLayout, NoiseSource], InteractiveCounts]
    mean: float | None = None

    @property
    def moved(self) -> list[Bools]:
        """Masks where the tables of the two users differ."""
        sums = (self.layout.sums(self.layout.integers(user).astype(np.float64)) for user in self.extremes(self.layout))
        return _moved(*([table for table in tables if table is not None] for tables in sums))

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        wide = replace(self.layout, actions=copies)
        counts, moved, user = self.made(wide, noise), self.moved, [*self.extremes(wide)][side]
        empty = Tally(1, 0 * user.transitions, None if user.rewards is None else 0 * user.rewards)
        sums: list[Array] = []
        for t in range(1, self.watch.time.steps + 1):
            counts.add(user if t == 1 else empty)
            if t in self.watch.ends:
                sums.append(look(lambda: self._show(counts.counts(), moved)))
        return self.watch.read_off(sums)

    def _show(self, counts: online_counts.OnlineCounts, moved: list[Bools]) -> Array:
        rewards = [] if counts.r_sa is None else [counts.r_sa]
        if self.mean is None:
            return _entries([counts.n_sas, *rewards], moved)
        # the bit that was sent stands for -1 or +1 of each visit
        bits = [(r + counts.n_sas.sum(-1)) / 2 for r in rewards]
        return np.rint(_entries([counts.n_sas, *bits], moved) + self.mean)


_LAST_STEPS = 2
# messages of all draws together: beyond, they take minutes and gigabytes
_MESSAGES = 400_000_000
# messages made at once
_AT_ONCE = 2_000_000
# number of counters in which two users differ, where messages are attacked: a visit is in one cell or the other
_CHANGES = 2
_CROWD = 16

Say = Callable[[str], None]
Send = Callable[[Array, shuffle.NoiseBits, shuffle.Coins, DataHandle], shuffle.Messages]


def targets_of(trial: Trial, draws: int, say: Say) -> list[AuditTarget]:
    """Audit targets of all releases of a trial's agent.

    Raises CardError if the agent names nothing to attack, or its options are wrong.
    """
    agent = find(trial.agent)
    if agent.targets is None:
        raise CardError(
            f"{trial.agent} registers no targets, so there is nothing to attack: name them in its OnlineAgent "
            "(docs/extend.md)"
        )
    targets = agent.targets(trial)
    return [*(_target(trial, t, say) for t in targets), *_messages(trial, targets, draws, say)]


def whole_plan(trial: Trial) -> attack.WholePlan | None:
    """Cost of a trial's own counters, where :func:`targets_of` attacks smaller ones that claim its budget.

    The papers' scales claim their own cost: there is no other claim to compare it with.
    """
    agent = find(trial.agent)
    if trial.calibration != "tight" or agent.cost is None:
        return None
    cost, claimed = agent.cost(trial)
    if cost is None:
        return None
    return attack.WholePlan(f"A plan of at most {LEAVES} leaves, for {trial.episodes:,} episodes,", cost, claimed)


def _target(trial: Trial, target: Target, say: Say) -> AuditTarget:
    match target:
        case CountsTarget(layout, ask, mechanism):
            return interactive_target(layout, ask, mechanism)
        case ShuffledTarget(layout, ask, users, honest):
            return shuffled_target(layout, *asked(ask), users, honest)
        case BatchTarget(layout, users, privatizer):
            return batch_target(layout, users, privatizer)
        case SumsTarget(message, ask, mechanism):
            if isinstance(message, MixtureMessage) and message.steps > _LAST_STEPS:
                # every step has sums of its own, calibrated alike
                say(f"{message.of}: an episode of {_LAST_STEPS} steps with sums stands for one of {message.steps}")
                message = replace(message, ranges=message.ranges[-_LAST_STEPS:])
            return sums_target(message, ask, mechanism)
        case PrivateSum(layout=LqSums()):
            return lq_target(target)
        case PrivateSum():
            # the sampler's share of delta has to be listed, or nothing is drawn
            return counts_target(target.with_slack(FastOsNoise(), trial.epsilon or 0.0))


def _messages(trial: Trial, targets: Sequence[Target], draws: int, say: Say) -> list[AuditTarget]:
    """The target of the messages that the shuffler hands over, unless they are too many bits; else none."""
    batches = (isinstance(t, BatchTarget) and t.privatizer.trust == Trust.SHUFFLE for t in targets)
    if not any(batches) and not any(isinstance(t, ShuffledTarget) for t in targets):
        return []
    # the messages of one episode of a user are attacked, at its share of the loss
    loss = shuffle.of_one_episode(trial.episodes_per_user, *asked(trial.ask()))
    calibration = trial.calibration or "tight"
    bits = crowd(*loss, calibration)
    if 4 * draws * (bits.users + bits.trials) > _MESSAGES:
        say(
            f"messages are left out: {draws:,} releases of a batch of {bits.users} users are "
            f"{4 * draws * (bits.users + bits.trials):,} bits; the totals are attacked"
        )
        return []
    return [messages_target(*loss, calibration)]


def messages_target(epsilon: float, delta: float, calibration: str, *, users: int = _CROWD) -> AuditTarget:
    """Everything that the shuffler hands over of one batch: a user's bit is in one counter, or in another."""
    bits, none = crowd(epsilon, delta, calibration, users), [np.zeros(_CHANGES)]
    one, other = bit_sides(_CHANGES)
    law, means = attack.Binomial(bits.trials, bits.probability, _CHANGES, delta), (one + none, other + none)
    words = f"shuffled messages of one bit, {bits.users} users, {calibration}"
    claimed = shuffle.delivered_epsilon(bits, _CHANGES, delta)
    return AuditTarget(words, Trust.SHUFFLE, _Messages(bits), means, law, law.loss(means), claimed)


def crowd(epsilon: float, delta: float, calibration: str, users: int = _CROWD) -> shuffle.NoiseBits:
    """Coins of a small batch whose users have a bit in one of two counters."""
    if calibration == "paper":
        return shuffle.paper_bits(users, 1, epsilon, delta)
    return shuffle.tight_bits(min(users, shuffle.smallest_total(_CHANGES, epsilon, delta)), _CHANGES, epsilon, delta)


@dataclass(frozen=True)
class _Messages:
    bits: shuffle.NoiseBits
    send: Send = shuffle.randomize

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        """The messages of so many batches; drawn by coins of its own."""
        at_once = max(1, _AT_ONCE // (_CHANGES * (self.bits.users + self.bits.trials)))
        parts = [self._crowds(side, min(at_once, copies - i)) for i in range(0, copies, at_once)]
        return [np.concatenate(tables) for tables in zip(*parts, strict=True)]

    def _crowds(self, side: Side, copies: int) -> list[Array]:
        """Numbers of ones in each counter, and of messages that are no bit, of batches with separate counters."""
        bits_of_user, coins = np.zeros((copies, _CHANGES)), shuffle.OsCoins()
        bits_of_user[:, side] = 1.0
        values = [bits_of_user.ravel(), *[np.zeros(bits_of_user.size)] * (self.bits.users - 1)]
        messages = shuffle.shuffle([self.send(v, self.bits, coins, attack.WORLD) for v in values])
        weights = (messages.bit, messages.bit > 1)
        counted = (np.bincount(messages.counter, weights=w, minlength=bits_of_user.size) for w in weights)
        return [numbers.reshape(bits_of_user.shape).astype(np.float64) for numbers in counted]
