"""The shuffle model: three parties, three functions (paper 002, Algorithm 4, with one-bit messages).

=======================  ==========================================  ====================================
party                    function                                    sees
=======================  ==========================================  ====================================
a user's device          :func:`randomize`                           this user's values
the shuffler             :func:`shuffle`                             sealed messages, and who sent them
the analyst              :func:`analyze`                             the multiset of messages, no sender
=======================  ==========================================  ====================================

For each counter, zeros included, a user sends their own bit and ``each`` noise bits: messages all alike, each tagged
with its counter.  What the analyst learns of a counter is then its number of ones: the sum, plus a binomial number.

Departures from the printed page
    * paper 002 sends the *integer* z = y + noise.  That is not private: z = 1 + m can only come from y = 1, and does
      with probability 2^-m (n <= tau) or tau / 2n (n > tau).  Here the 1 + m bits travel separately;
    * a value in [0, 1], such as a reward, is rounded at random to one bit on the device;
    * where one biased coin a user suffices, its chance solves n q (1 - q) = N / 4, not q = N / 2n.

Biased coins of the operating system: what a user's device flips in the shuffle model, exactly and without a float.

A coin's chance is ``chance / 2^64``: a uniform 64-bit word falls below ``chance`` with just that probability.
``SeededNoise`` flips them too, for simulations only.
"""

# pyright: reportUnknownMemberType=false
from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.csprng import Words
from pipeline.privacy.noise import DataHandle, SeededNoise

# chances are integers out of this many
WHOLE = 2**64
FAIR = WHOLE // 2


class Coins(Protocol):
    """Flips of one user's device.  ``data`` is a handle of what they will hide."""

    @property
    def name(self) -> str:
        """``os`` or ``seeded``."""
        ...

    def flips(self, size: int, chance: int, data: DataHandle) -> Bits:
        """Independent flips ``(size,)``, each true with probability ``chance / 2^64``."""
        ...

    def rounded(self, value: NDArray[np.float64], data: DataHandle) -> Bits:
        """One bit ``(n,)`` for each ``value (n,)`` in [0, 1], true with that probability."""
        ...


class OsCoins:
    """Operating-system randomness; takes no seed and no argument.  For a deployment."""

    name = "os"

    def flips(self, size: int, chance: int, data: DataHandle) -> Bits:
        """See :class:`Coins`."""
        checked_chance(chance)
        # a certain coin: no 64-bit threshold says "every word"
        return Words().take(size) < np.uint64(chance) if chance < WHOLE else np.ones(size, dtype=np.bool_)

    def rounded(self, value: NDArray[np.float64], data: DataHandle) -> Bits:
        """See :class:`Coins`; exact for multiples of 2^-53, within 2^-53 for smaller floats."""
        return (Words().take(len(value)) >> np.uint64(11)).astype(np.float64) < value * 2.0**53


def checked_chance(chance: int) -> None:
    """Refuse what is no probability."""
    if not 0 <= chance <= WHOLE:
        raise ValueError(f"a chance must be between 0 and 2^64; got {chance}")


Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Bits = NDArray[np.bool_]


@dataclass(frozen=True)
class NoiseBits:
    """What each user of a batch adds to each counter: ``each`` coins of probability ``chance / 2^64``.

    Parameters
    ----------
    users
        n, the users of the batch: public.
    """

    users: int
    each: int
    chance: int = FAIR

    def __post_init__(self) -> None:
        if self.users < 1 or self.each < 0:
            raise ValueError(f"a batch needs users and coins; got {self.users} users with {self.each} coins each")
        checked_chance(self.chance)

    @property
    def probability(self) -> float:
        """Chance of one coin, q."""
        return self.chance / WHOLE

    @property
    def trials(self) -> int:
        """Noise bits of the whole batch in one counter."""
        return self.users * self.each

    @property
    def mean(self) -> float:
        """Expected number of noise ones in one counter: what the analyst subtracts."""
        return self.trials * self.probability

    @property
    def standard_deviation(self) -> float:
        """Of one noisy counter."""
        return math.sqrt(self.trials * self.probability * (1 - self.probability))

    def bound(self, failure: float, counters: int = 1) -> float:
        """Smallest b that the summed noise of ``counters`` counters misses by more with at most ``failure``.

        The binomial tails themselves, no approximation of them.
        """
        from scipy.stats import binom

        trials, mean = self.trials * counters, self.mean * counters
        if self.standard_deviation == 0:
            return 0.0
        above = float(binom.isf(failure / 2, trials, self.probability)) - mean
        below = mean - float(binom.ppf(failure / 2, trials, self.probability))
        return max(above, below)


@dataclass(frozen=True)
class Messages:
    """One-bit messages: counter ``counter (M,)`` and ``bit (M,)``."""

    counter: Integers
    bit: Bits


def randomize(values: Array, noise: NoiseBits, coins: Coins, data: DataHandle) -> Messages:
    """One user's messages: ``1 + each`` of them for every counter, zeros included.

    Parameters
    ----------
    values
        ``(C,)`` what this user adds to each counter, in [0, 1]; clipped here, on the device, because the guarantee
        rests on it.
    noise
        What every user of the batch adds: public.
    coins
        Exact coins of the device; seeded ones in simulations.
    data
        Handle of what the coins protect.

    Returns
    -------
    Messages
        ``C (1 + each)`` of one bit.
    """
    y = np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0)
    bits = [coins.rounded(y, data), coins.flips(len(y) * noise.each, noise.chance, data)]
    counter = np.concatenate([np.arange(len(y)), np.repeat(np.arange(len(y)), noise.each)])
    return Messages(counter.astype(np.int64), np.concatenate(bits))


def shuffle(messages: Sequence[Messages]) -> Messages:
    """The messages of all users as a multiset: sorted, so that nothing of who sent what is left in their order."""
    counter = np.concatenate([m.counter for m in messages])
    bit = np.concatenate([m.bit for m in messages])
    order = np.lexsort((bit, counter))
    return Messages(counter[order], bit[order])


def analyze(shuffled: Messages, counters: int, noise: NoiseBits) -> Array:
    """Unbiased sums ``(C,)`` from the multiset alone.

    Raises
    ------
    ValueError
        If some counter has not ``users * (1 + each)`` messages: somebody was silent, and silence says something.
    """
    sent = np.bincount(shuffled.counter, minlength=counters)
    if (sent != noise.users * (1 + noise.each)).any():
        raise ValueError(
            f"every user sends {1 + noise.each} messages for each of {counters} counters; some are missing"
        )
    return np.bincount(shuffled.counter[shuffled.bit], minlength=counters).astype(np.float64) - noise.mean


def to_bytes(messages: Messages, counters: int) -> bytes:
    """Messages as they travel: each the number of its counter and its bit, in :func:`message_bytes` bytes.

    Parameters
    ----------
    messages
        Of one user.
    counters
        C, how many there are.
    """
    code = (messages.counter << 1) | messages.bit
    return code.astype("<u8").view(np.uint8).reshape(-1, 8)[:, : message_bytes(counters)].tobytes()


def from_bytes(sent: bytes, counters: int) -> Messages:
    """The inverse of :func:`to_bytes`."""
    width = message_bytes(counters)
    code = np.zeros((len(sent) // width, 8), dtype=np.uint8)
    code[:, :width] = np.frombuffer(sent, dtype=np.uint8).reshape(-1, width)
    number = code.view("<u8")[:, 0].astype(np.int64)
    return Messages(number >> 1, (number & 1).astype(bool))


def message_bytes(counters: int) -> int:
    """Bytes of one message: the number of one of so many counters, and a bit."""
    return ((2 * counters - 1).bit_length() + 7) // 8


@dataclass(frozen=True)
class Exchanged:
    """Unbiased noisy ``sums (C,)``, and the bytes that all users sent for them.

    Parameters
    ----------
    sent
        Of all messages together.
    """

    sums: Array
    sent: int


def exchanged(people: Iterable[Array], counters: int, noise: NoiseBits, coins: Coins, data: DataHandle) -> Exchanged:
    """All three parties: every user's device randomizes, the shuffler shuffles what it got as bytes, then the analysis.

    Parameters
    ----------
    people
        Of each user what they add to each counter ``(C,)``.
    counters
        C.
    noise, coins, data
        As of :func:`randomize`.
    """
    sent = [to_bytes(randomize(values, noise, coins, data), counters) for values in people]
    sums = analyze(shuffle([from_bytes(each, counters) for each in sent]), counters, noise)
    return Exchanged(sums, sum(map(len, sent)))


def analyzed_totals(sums: Integers, noise: NoiseBits, seeded: SeededNoise, data: DataHandle) -> Array:
    """The law of the three functions in one binomial draw a counter: for simulations, at any number of users.

    Parameters
    ----------
    sums
        Exact sums of the users' bits, any shape.
    noise
        What every user of the batch adds.
    seeded, data
        Draws one binomial a counter, and the handle of the simulated world.

    Returns
    -------
    Array
        Unbiased noisy sums, of the shape of ``sums``.
    """
    heads = seeded.heads(sums.size, noise.trials, noise.chance, data)
    return (sums + heads.reshape(sums.shape)).astype(np.float64) - noise.mean
