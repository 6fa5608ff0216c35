"""Attacks on the shuffle model: on the totals that an analyst gets, and on the messages that a shuffler hands over.

Totals go through the shipped mechanism or privatizer, with as many actions as copies (see
:mod:`pipeline.audits.interactive`); they are drawn by their law, on fresh seeds.  Messages go through the three
functions of :mod:`pipeline.privacy.shuffle`
with the operating system's coins, a counter of its own for each copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pipeline.audits.attack import Array, Attack, Side
from pipeline.audits.laws import Binomial, Gaussian
from pipeline.audits.pooled import fresh
from pipeline.audits.streams import WORLD
from pipeline.privacy.bernoulli import Coins, OsCoins
from pipeline.privacy.noise import DataHandle, NoiseSource, SeededNoise
from pipeline.privacy.shuffle import Messages, NoiseBits, randomize, shuffle
from pipeline.privacy.shuffle_calibration import delivered_epsilon, paper_bits, smallest_total, tight_bits
from pipeline.statistics.batch_counts import BatchLayout
from pipeline.statistics.batch_privatizers import GaussianBatch, ShuffleBinary
from pipeline.statistics.interactive_counts import ShuffledSums, shuffled
from pipeline.statistics.online_counts import InteractiveCounts, OnlineLayout, Tally

Send = Callable[[Array, NoiseBits, Coins, DataHandle], Messages]
Fresh = Callable[[], SeededNoise]
Made = Callable[[OnlineLayout, SeededNoise], InteractiveCounts]
# counters of one user that differ, where messages are attacked: a visit is there, or in the other cell
_CHANGES = 2
_CROWD = 16
# messages made at once
_AT_ONCE = 2_000_000


def shuffled_attack(
    layout: OnlineLayout,
    epsilon: float,
    delta: float,
    users: int,
    honest: float = 1.0,
    *,
    made: Made | None = None,
    noise: Fresh = fresh,
) -> Attack:
    """The worst pair of users of one batch against the counts of counts-shuffle.

    Parameters
    ----------
    made, noise
        What really adds up and draws, where a test breaks it.
    """
    layout = replace(layout, states=2, actions=1)

    def shipped(wide: OnlineLayout, source: SeededNoise) -> InteractiveCounts:
        return shuffled(wide, epsilon, delta, WORLD, source, honest)

    honestly = shipped(layout, fresh())
    honestly.add(_batch(layout, 0, users))
    promise = honestly.guarantee
    assert isinstance(promise, ShuffledSums)
    law = _law(promise.bits[0], sum(layout.bits), delta)
    path = _CountTotals(layout, users, made or shipped, noise, promise.bits[0].mean)
    return Attack(
        mechanism=f"shuffled counts, binomial, {users:,} users" + (", rewards learnt" if layout.rewards else ""),
        trust="shuffle",
        path=path,
        means=_sides(sum(layout.bits)),
        law=law,
        claimed_rho=law.loss(_sides(sum(layout.bits))),
        claimed_epsilon=promise.epsilon(delta),
    )


def batch_attack(
    layout: BatchLayout,
    users: int,
    shipped: ShuffleBinary | GaussianBatch,
    *,
    drawn: ShuffleBinary | GaussianBatch | None = None,
    noise: Fresh = fresh,
) -> Attack:
    """The worst pair of users of one batch against SDP-PE's privatizer; ``drawn`` really adds noise, broken or not."""
    layout = replace(layout, shape=(layout.shape[0], 2, 1))
    means, what = _sides(layout.changes), "every step" if layout.rewards else "one step"
    if isinstance(shipped, GaussianBatch):
        # a curator, or a user, draws once; of a batch of local messages one is attacked
        users = 1 if shipped.trust == "local" else users
        variance = float(shipped.variance(layout))
        law, epsilon, trust = Gaussian([np.full(layout.changes, variance)]), None, shipped.trust
        rho, words, mean = law.loss(means), "discrete gaussian", 0.0
    else:
        bits = shipped.bits(users, layout)
        law = _law(bits, layout.changes, shipped.delta)
        epsilon, trust, mean = shipped.delivered(users, layout), "shuffle", bits.mean
        rho, words = law.loss(means), f"binomial, {shipped.calibration}, {users:,} users"
    return Attack(
        mechanism=f"batch counts of {what}, {words}",
        trust=trust,
        path=_BatchTotals(layout, users, drawn or shipped, noise, mean),
        means=means,
        law=law,
        claimed_rho=rho,
        claimed_epsilon=epsilon,
    )


def messages_attack(
    epsilon: float, delta: float, calibration: str, *, users: int = _CROWD, send: Send = randomize
) -> Attack:
    """Everything that the shuffler hands over of one batch: a user's bit is in one counter, or in another.

    Parameters
    ----------
    users
        Of the batch; fewer where so many would need less than a coin each.
    send
        What a device really sends, where a test breaks it.
    """
    bits = crowd(epsilon, delta, calibration, users)
    law, means = _law(bits, _CHANGES, delta), _sides(_CHANGES)
    none = [np.zeros(_CHANGES)]
    return Attack(
        mechanism=f"shuffled messages of one bit, {bits.users} users, {calibration}",
        trust="shuffle",
        path=_MessagePath(bits, send),
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


def _law(bits: NoiseBits, changes: int, delta: float) -> Binomial:
    return Binomial(bits.trials, bits.probability, changes, delta)


def _sides(changes: int) -> tuple[list[Array], list[Array]]:
    """Bits of the counters that differ: the first user's, then the other's, and so on."""
    one = np.tile([1.0, 0.0], changes // 2)
    return [one], [1 - one]


def _batch(layout: OnlineLayout, side: Side, users: int) -> Tally:
    """A user of every copy who stays in a state and always has the reward; of the others nothing is counted."""
    H, S, A = layout.horizon, layout.states, layout.actions  # noqa: N806
    moved, rewards = np.zeros((H, S, A, S), dtype=np.int64), np.zeros((H, S, A), dtype=np.int64)
    moved[:, side, :, side] = 1
    rewards[:, side] = 1
    return Tally(users, moved, rewards if layout.rewards else None)


def _diagonal(n_sas: Array) -> Array:
    """``(copies, 2 G)`` of ``(G, 2, copies, 2)``: who stayed where."""
    return np.stack([n_sas[:, s, :, s] for s in (0, 1)], axis=-1).swapaxes(0, 1).reshape(n_sas.shape[2], -1)


def _of_cells(table: Array) -> Array:
    """``(copies, 2 G)`` of ``(G, 2, copies)``."""
    return np.moveaxis(table, 2, 0).reshape(table.shape[2], -1)


@dataclass(frozen=True)
class _CountTotals:
    layout: OnlineLayout
    users: int
    made: Made
    noise: Fresh
    mean: float

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        wide = replace(self.layout, actions=copies)
        counts = self.made(wide, self.noise())
        counts.add(_batch(wide, side, self.users))
        seen = counts.counts()
        parts = [_diagonal(seen.n_sas)]
        if seen.r_sa is not None:
            # of each visit's -1 or +1 the bit that was sent
            parts.append(_of_cells((seen.r_sa + seen.n_sas.sum(-1)) / 2))
        return [np.rint(np.concatenate(parts, axis=1) + self.mean)]


@dataclass(frozen=True)
class _BatchTotals:
    layout: BatchLayout
    users: int
    privatizer: ShuffleBinary | GaussianBatch
    noise: Fresh
    mean: float

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        layout = replace(self.layout, shape=(*self.layout.shape[:2], copies))
        batch = replace([*layout.extremes()][side], users=self.users)
        seen = self.privatizer.release(batch, layout, self.noise()).noisy
        parts = [_diagonal(seen.n_sas[: layout.moving]), _of_cells(seen.n_sa[layout.visits])]
        if seen.r_sa is not None:
            parts.append(_of_cells(seen.r_sa))
        return [np.rint(np.concatenate(parts, axis=1) + self.mean)]


@dataclass(frozen=True)
class _MessagePath:
    bits: NoiseBits
    send: Send

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
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
