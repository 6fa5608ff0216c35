"""Online counts in the shuffle model: each batch is one release of one-bit messages (paper 002, section V).

| made by | trust | where the noise enters | agent |
|---|---|---|---|
| :func:`shuffled` | shuffle | every user's own coins, hidden in those of their batch | counts-shuffle |

A user is in one batch, so their loss is that of one batch, however many there are; the analyst adds the batches up, and
their noise with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.privacy.shuffle import NoiseBits, analyzed_totals
from pipeline.privacy.shuffle_calibration import delivered_epsilon, tight_bits
from pipeline.statistics.interactive_counts import CountedDesk, FreshSums
from pipeline.statistics.online_counts import OnlineLayout

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class ShufflePromise:
    """``(epsilon, delta)`` of the shuffled messages of one batch, by an exact accountant."""

    bits: list[NoiseBits]
    changes: int
    honest: float
    trust: str = "shuffle"
    rho: Fraction | None = None

    def epsilon(self, delta: float) -> float | None:
        """Largest over the batches so far; None before the first."""
        each = (delivered_epsilon(b, self.changes, delta, _honest(b.users, self.honest)) for b in self.bits)
        return max(each, default=None)


def shuffled(
    layout: OnlineLayout,
    epsilon: float,
    delta: float,
    world: SimulatedWorld,
    noise: SeededNoise,
    honest: float = 1.0,
) -> CountedDesk:
    """Shuffle privacy: whoever sees the shuffled messages of a batch learns little of any one of its users.

    Parameters
    ----------
    honest
        Declared share of a batch's users whose coins may be counted on.

    Raises
    ------
    ValueError
        If one table serves all steps: a message is one bit, and a user may be in one cell at several steps.
    """
    if layout.pooled:
        raise ValueError("in the shuffle model every step needs counters of its own; leave out pooled")
    changes, promise = sum(layout.bits), ShufflePromise([], sum(layout.bits), honest)

    def release(leaf: Integers, users: int) -> tuple[Array, tuple[float, ...]]:
        few = _coarse(users)
        # calibrated for no more users than there are: the coins of the others can only hide more
        bits = replace(tight_bits(few, changes, epsilon, delta, _honest(few, honest)), users=users)
        promise.bits.append(bits)
        visits, signs = leaf[: layout.sizes[0]], leaf[layout.sizes[0] :]
        n = visits.reshape(-1, layout.states).sum(-1)
        # of -1 and +1 a visit only the ups are sent, as bits
        ups = (signs + n) // 2 if layout.rewards else signs
        noisy = analyzed_totals(np.concatenate([visits, ups]), bits, noise, world)
        variance = bits.standard_deviation**2
        if not layout.rewards:
            return noisy, (variance,)
        seen = noisy[: layout.sizes[0]].reshape(-1, layout.states).sum(-1)
        noisy[layout.sizes[0] :] = 2 * noisy[layout.sizes[0] :] - seen
        return noisy, (variance, (4 + layout.states) * variance)

    return CountedDesk(layout, FreshSums(release, sum(layout.sizes)), promise)


def _coarse(users: int) -> int:
    """The largest number of at most four binary digits within ``users``: an accountant run for each of few sizes."""
    low = max(0, users.bit_length() - 4)
    return users >> low << low


def _honest(users: int, share: float) -> int:
    return max(1, int(share * users))
