"""The shuffle model: three parties, three functions (paper 002, Algorithm 4, with one-bit messages).

=======================  ==========================================  ====================================
party                    function                                    sees
=======================  ==========================================  ====================================
a user's device          :func:`randomize`                           this user's values
the shuffler             :func:`shuffle`                             sealed messages, and who sent them
the analyst              :func:`analyze`                             the multiset of messages, no sender
=======================  ==========================================  ====================================

For each counter, zeros included, a user sends their own bit and ``each`` noise bits: messages all alike, each tagged
with its counter.  The analyst learns of a counter only its number of ones: the sum, plus a binomial number.

Departures from the printed page
    * paper 002 sends the *integer* z = y + noise.  That is not private: z = 1 + m can only come from y = 1, and does
      with probability 2^-m (n <= tau) or tau / 2n (n > tau).  Here the 1 + m bits travel separately;
    * a value in [0, 1], such as a reward, is rounded at random to one bit on the device;
    * where one biased coin a user suffices, its chance solves n q (1 - q) = N / 4, not q = N / 2n.

A user's device flips biased coins of the operating system, exactly and without a float.  A coin's chance is
``chance / 2^64``: a uniform 64-bit word falls below ``chance`` with just that probability.
``SeededNoise`` flips them too, for simulations only.

The number of noise bits of a batch follows from exact accounting (``tight``), or from paper 002 (``paper``).

``changes`` is the number of counters that replacing one user can move by 1, half of them up and half down:
6H for three tables of H steps, 4H where visits are the sums of transitions.

The loss is exact, composed by FFT; it errs upwards only.  Replacing one user lowers some counters by 1 and raises
others by 1.  A counter that goes up compares 1 + Q with Q, one that goes down Q with 1 + Q, with Q ~ Bin(trials, q);
their losses are independent and add up.  Losses are moved to a grid so that both laws keep their mass (connecting the
dots: Doroshenko et al. 2022), which only enlarges every divergence.  Fewer changed counters are a marginal: no worse.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.privacy.budget import root
from pipeline.privacy.csprng import Words
from pipeline.privacy.noise import DataHandle, SeededNoise

# chances are integers out of this many
WHOLE = 2**64
FAIR = WHOLE // 2


class OsCoins:
    """Coins of operating-system randomness; takes no seed and no argument.  For a deployment."""

    name = "os"

    def flips(self, size: int, chance: int, data: DataHandle) -> Bools:
        checked_chance(chance)
        # a certain coin: no 64-bit threshold says "every word"
        return Words().take(size) < np.uint64(chance) if chance < WHOLE else np.ones(size, dtype=np.bool_)

    def rounded(self, value: Array, data: DataHandle) -> Bools:
        """One bit ``(n,)`` for each ``value (n,)`` in [0, 1], true with that probability, within 2^-53."""
        return (Words().take(len(value)) >> np.uint64(11)).astype(np.float64) < value * 2.0**53


# flips of one user's device
Coins = OsCoins | SeededNoise


def checked_chance(chance: int) -> None:
    """Refuse a chance outside of 0 to 2^64."""
    if not 0 <= chance <= WHOLE:
        raise ValueError(f"a chance must be between 0 and 2^64; got {chance}")


@dataclass(frozen=True)
class NoiseBits:
    """Noise of each user of a batch in each counter: ``each`` coins of probability ``chance / 2^64``."""

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
        """Expected number of noise ones in one counter, which the analyst subtracts."""
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
    bit: Bools


def randomize(values: Array, noise: NoiseBits, coins: Coins, data: DataHandle) -> Messages:
    """One user's messages: ``1 + each`` of them for every counter, zeros included.

    ``values`` ``(C,)``: addition of this user to each counter, in [0, 1]; clipped here, on the device, because the
    guarantee rests on it.
    Returns ``C (1 + each)`` messages of one bit.
    """
    y = np.clip(np.asarray(values, dtype=np.float64), 0.0, 1.0)
    bits = [coins.rounded(y, data), coins.flips(len(y) * noise.each, noise.chance, data)]
    counter = np.concatenate([np.arange(len(y)), np.repeat(np.arange(len(y)), noise.each)])
    return Messages(counter.astype(np.int64), np.concatenate(bits))


def shuffle(messages: Sequence[Messages]) -> Messages:
    """The messages of all users as a multiset: sorted, so that their order does not depend on their senders."""
    counter = np.concatenate([m.counter for m in messages])
    bit = np.concatenate([m.bit for m in messages])
    order = np.lexsort((bit, counter))
    return Messages(counter[order], bit[order])


def analyze(shuffled: Messages, counters: int, noise: NoiseBits) -> Array:
    """Unbiased sums ``(C,)`` from the multiset alone.

    Raises ValueError if some counter has not ``users * (1 + each)`` messages: a user was silent, and silence is
    information.
    """
    sent = np.bincount(shuffled.counter, minlength=counters)
    if (sent != noise.users * (1 + noise.each)).any():
        raise ValueError(
            f"every user sends {1 + noise.each} messages for each of {counters} counters; some are missing"
        )
    return np.bincount(shuffled.counter[shuffled.bit], minlength=counters).astype(np.float64) - noise.mean


def to_bytes(messages: Messages, counters: int) -> bytes:
    """Messages as they travel: each the number of its counter and its bit, in :func:`message_bytes` bytes."""
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
    """Unbiased noisy ``sums (C,)``, and the bytes that all users sent for them."""

    sums: Array
    sent: int


def exchanged(people: Iterable[Array], counters: int, noise: NoiseBits, coins: Coins, data: DataHandle) -> Exchanged:
    """All three parties: users' devices randomize, the shuffler shuffles the messages as bytes, then the analysis.

    ``people``: additions of each user to the counters ``(C,)``.
    """
    sent = [to_bytes(randomize(values, noise, coins, data), counters) for values in people]
    sums = analyze(shuffle([from_bytes(each, counters) for each in sent]), counters, noise)
    return Exchanged(sums, sum(map(len, sent)))


def analyzed_totals(sums: Integers, noise: NoiseBits, seeded: SeededNoise, data: DataHandle) -> Array:
    """The law of the three functions in one binomial draw a counter: for simulations, at any number of users.

    Returns unbiased noisy sums, of the shape of ``sums``.
    """
    heads = seeded.heads(sums.size, noise.trials, noise.chance, data)
    return (sums + heads.reshape(sums.shape)).astype(np.float64) - noise.mean


# mass cut from each tail of one counter; it is charged as certain loss
_TAIL = 1e-18
# grid points a standard deviation of one counter's loss
_FINENESS = 60
# bound on rounding errors inside the transforms; deltas near it are refused
_ROUNDING = 1e-13
SMALLEST_DELTA = 1e-11


@dataclass(frozen=True)
class LossLaw:
    """Law of the loss in one order of two neighbours: ``mass (L,)`` at ``step * (first + i)``, the rest infinite."""

    first: int
    step: float
    mass: Array
    infinite: float

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence at ``epsilon``, with the bound on rounding errors."""
        low = int(self.loss.searchsorted(epsilon, side="right"))
        return float(self.infinite + _ROUNDING - (self.mass[low:] * np.expm1(epsilon - self.loss[low:])).sum())

    @cached_property
    def loss(self) -> Array:
        """Increasing ``(L,)``."""
        return self.step * (self.first + np.arange(len(self.mass), dtype=np.float64))


def shuffle_delta(trials: int, q: float, up: int, down: int, epsilon: float, by: int = 1) -> float:
    """Smallest delta at ``epsilon`` of noise Bin(``trials``, ``q``) where ``up`` counters rise and ``down`` fall."""
    return max(law.delta(epsilon) for law in loss_laws(trials, q, up, down, by))


def shuffle_epsilon(trials: int, q: float, up: int, down: int, delta: float, by: int = 1) -> float:
    """Smallest epsilon at ``delta``; infinity where no epsilon will do.

    ``delta``: at least 1e-11.
    Raises ValueError if ``delta`` is below what the transforms resolve.
    """
    checked_delta(delta)
    laws = loss_laws(trials, q, up, down, by)
    if max(law.infinite for law in laws) + _ROUNDING >= delta:
        return math.inf
    if max(law.delta(0.0) for law in laws) <= delta:
        return 0.0

    def excess(epsilon: float) -> float:
        return max(law.delta(epsilon) for law in laws) - delta

    top = max(law.step * (law.first + len(law.mass)) for law in laws)
    return root(excess, 0.0, top, 1e-9) + 2e-9


def checked_delta(delta: float) -> None:
    """Refuse a delta that the transforms do not resolve."""
    if not SMALLEST_DELTA <= delta < 1:
        raise ValueError(f"delta must be in [{SMALLEST_DELTA:g}, 1) here; got {delta}")


def loss_laws(trials: int, q: float, up: int, down: int, by: int = 1) -> list[LossLaw]:
    """The loss in each order of the neighbours; one law where as many rise as fall, since both orders share it."""
    return [_composed(trials, q, up, down, by)] + ([_composed(trials, q, down, up, by)] if up != down else [])


@lru_cache(maxsize=16)
def _composed(trials: int, q: float, up: int, down: int, by: int) -> LossLaw:
    low, mass = binomial_window(trials, q)
    k = low + np.arange(len(mass))
    # log of P(Q = k - 1) / P(Q = k), and so of P(Q = k - by) / P(Q = k), for every k in reach of either law
    with np.errstate(divide="ignore"):
        single = np.log(k * (1 - q)) - np.log((trials - k + 1.0) * q)
    ratio = np.sum([single[by - i : len(single) - i] for i in range(by)], axis=0)
    step = float(np.sqrt((mass[by:] * ratio**2).sum() / mass[by:].sum())) / _FINENESS
    rise = _on_grid(ratio, mass[:-by], step)
    fall = _on_grid(-ratio, mass[by:], step)
    first = up * rise[0] + down * fall[0]
    length = up * (len(rise[1]) - 1) + down * (len(fall[1]) - 1) + 1
    size = 1 << (length - 1).bit_length()
    spectrum = np.fft.rfft(rise[1], size) ** up * np.fft.rfft(fall[1], size) ** down
    composed = np.maximum(np.fft.irfft(spectrum, size)[:length], 0.0)
    certain = (mass[-by:].sum() + 2 * _TAIL) * up + (mass[:by].sum() + 2 * _TAIL) * down
    return LossLaw(first, step, composed, float(certain))


def _on_grid(loss: Array, mass: Array, step: float) -> tuple[int, Array]:
    """First grid point, and masses: each is shared between its two neighbours so that both laws keep it."""
    cell = np.floor(loss / step).astype(np.int64)
    upper = mass * np.expm1(cell * step - loss) / math.expm1(-step)
    first = int(cell.min())
    out = np.zeros(int(cell.max()) - first + 2)
    np.add.at(out, cell - first, mass - upper)
    np.add.at(out, cell - first + 1, upper)
    return first, out


def binomial_window(trials: int, q: float) -> tuple[int, Array]:
    """First value and probabilities of Bin(trials, q) on the window that leaves at most 1e-18 on either side.

    Made from the exact ratios of neighbouring probabilities, so that 10^12 trials lose no digits.
    """
    mean, variance = trials * q, trials * q * (1 - q)
    # Bernstein: P(|Q - mean| > w) <= 2 exp(-w^2 / (2 (variance + w / 3)))
    need = -math.log(_TAIL / 2)
    reach = need / 3 + math.sqrt((need / 3) ** 2 + 2 * need * variance)
    low, high = max(0, math.floor(mean - reach)), min(trials, math.ceil(mean + reach))
    k = np.arange(low, high, dtype=np.float64)
    steps = np.log((trials - k) * q) - np.log((k + 1) * (1 - q))
    logs = np.append(0.0, np.cumsum(steps))
    mass = np.exp(logs - logs.max())
    return low, mass / mass.sum()


# a skew coin is narrowed down to this share of its chance
_NARROW = 1e-5


@cache
def smallest_total(changes: int, epsilon: float, delta: float) -> int:
    """Fewest fair noise bits of honest users, in one counter, for an ``(epsilon, delta)`` batch.

    Raises ValueError if ``changes`` is odd or below 2, ``epsilon`` is not positive, or ``delta`` is out of reach.
    """
    if changes < 2 or changes % 2:
        raise ValueError(f"a replaced user moves as many counters up as down; got {changes} changes")
    if not epsilon > 0:
        raise ValueError(f"epsilon must be positive; got {epsilon}")
    checked_delta(delta)
    half = changes // 2

    def enough(total: int) -> bool:
        return shuffle_delta(total, 0.5, half, half, epsilon) <= delta

    # a Gaussian of the same variance is within a few parts in a thousand
    rho = root(lambda rho: gaussian_delta(rho, epsilon) - delta, 1e-12, 2 * epsilon + 100, 1e-12)
    high = max(2, math.ceil(4 * changes / (2 * rho)))
    low, stride = high - 1, max(1, high // 500)
    while not enough(high):
        low, high = high, high + stride
    while low > 0 and enough(low):
        low, high = max(0, low - stride), low
    return _narrowed(low, high, enough)


@cache
def tight_bits(users: int, changes: int, epsilon: float, delta: float, honest: int | None = None) -> NoiseBits:
    """The least noise for an ``(epsilon, delta)`` batch: ``ceil(N / n)`` fair coins, or one skew coin a user.

    ``changes``: counters that one replaced user moves by 1: even.
    ``honest``: declared minimum of users who do flip their coins, those of the others count for nothing; None: all.
    Raises ValueError if ``honest`` is not in 1 .. n; or see :func:`smallest_total`.
    """
    n = users if honest is None else honest
    if not 1 <= n <= users:
        raise ValueError(f"the honest users must be between 1 and {users}; got {n}")
    total, half = smallest_total(changes, epsilon, delta), changes // 2
    if n <= total:
        return NoiseBits(users, -(-total // n))

    def enough(chance: int) -> bool:
        return shuffle_delta(n, chance / WHOLE, half, half, epsilon) <= delta

    # privacy.md §0.1-9: n q (1 - q) = N / 4 with N from fair coins; the true one is about 1 % larger
    low = _skew(total, n)
    high = min(FAIR, _skew(total * 1.015, n))
    while not enough(high):
        low, high = high, min(FAIR, math.ceil(high * 1.02))
    return NoiseBits(users, 1, _narrowed(low, high, enough, _NARROW))


def _narrowed(low: int, high: int, enough: Callable[[int], bool], share: float = 0.0) -> int:
    """Bisect between too little and enough: the result is enough, and within ``share`` of the least, or the least."""
    while high - low > max(1, share * high):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def paper_bits(users: int, horizon: int, epsilon: float, beta: float) -> NoiseBits:
    """Paper 002, Algorithm 4 with epsilon' = epsilon / 3H: tau = 96 ln(2/beta) / epsilon'^2."""
    tau = paper_total(horizon, epsilon, beta)
    if users <= tau:
        return NoiseBits(users, math.ceil(tau / users))
    return NoiseBits(users, 1, math.ceil(tau / (2 * users) * WHOLE))


def paper_total(horizon: int, epsilon: float, beta: float) -> float:
    """Threshold tau = 864 H^2 ln(2 / beta) / epsilon^2."""
    return 864 * horizon**2 * math.log(2 / beta) / epsilon**2


def of_one_episode(episodes: int, epsilon: float, delta: float) -> tuple[float, float]:
    """Cost of one of a user's episodes so that all ``episodes`` cost ``(epsilon, delta)``: group privacy.

    Replacing a user replaces their episodes one after the other, in whichever batches they are: with e = epsilon / m
    and d for each, P(S) <= e^e P'(S) + d applied m times gives m e and d (1 + e^e + ... + e^((m-1) e)).
    """
    each = epsilon / episodes
    return each, delta / sum(math.exp(i * each) for i in range(episodes))


@cache
def delivered_epsilon(
    bits: NoiseBits, changes: int, delta: float, honest: int | None = None, episodes: int = 1, least: float = 0.0
) -> float:
    """Epsilon at ``delta`` from the coins of the honest users, replace-one; ``least`` where one episode loses less."""
    law = (bits.users if honest is None else honest) * bits.each, bits.probability, changes // 2, changes // 2
    if episodes == 1:
        # one value below the least, by more than a search errs, says as much as the search
        less = least > 0 and shuffle_delta(*law, least - 4e-9) < delta
        return least if less else shuffle_epsilon(*law, delta)

    def excess(epsilon: float) -> float:
        each, share = of_one_episode(episodes, epsilon, delta)
        return shuffle_delta(*law, each) / share - 1

    # the share shrinks with epsilon, and some loss is never hidden: the excess falls, then it rises
    grid, best = np.geomspace(0.01, 200.0, 60), 0.0
    for _ in range(3):
        nearest = int(np.argmin([excess(e) for e in grid.tolist()]))
        best, grid = (
            float(grid[nearest]),
            np.linspace(grid[max(0, nearest - 1)], grid[min(len(grid) - 1, nearest + 1)], 60),
        )
    if excess(best) > 0:
        return math.inf
    return root(excess, 0.0, best, 1e-9) + 2e-9 if excess(0.0) > 0 else 0.0


def _skew(total: float, n: int) -> int:
    """Chance of one coin with ``n q (1 - q) = total / 4``, q at most a half."""
    share = min(1.0, total / n)
    # (1 - sqrt(1 - x)) / 2 without its cancellation at small x
    return min(FAIR, math.ceil(share / (2 * (1 + math.sqrt(1 - share))) * WHOLE))


def gaussian_delta(rho: float, epsilon: float) -> float:
    """Delta at ``epsilon`` of a continuous Gaussian, ``mu = sqrt(2 rho)``: the start of a search, and never a promise.

    The noise that is drawn is discrete.

    ``rho``: zCDP cost, above 0.
    """
    from scipy.special import log_ndtr

    mu = math.sqrt(2 * rho)
    first, second = float(log_ndtr(-epsilon / mu + mu / 2)), epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return -math.exp(first) * math.expm1(second - first)
