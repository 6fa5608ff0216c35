"""Exact privacy loss of binomial noise on several counters, composed by FFT; errs upwards only.

Replacing one user lowers some counters by 1 and raises others by 1.  A counter that goes up compares 1 + Q with Q, one
that goes down Q with 1 + Q, with Q ~ Bin(trials, q); their losses are independent and add up.  Losses are moved to a
grid so that both laws keep their mass (connecting the dots: Doroshenko et al. 2022), which can only enlarge the
hockey-stick divergence at every epsilon.  Fewer changed counters are a marginal, hence never worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.brent import root

Array = NDArray[np.float64]

# mass cut from each tail of one counter; it is charged as certain loss
_TAIL = 1e-18
# grid points a standard deviation of one counter's loss
_FINENESS = 60
# what rounding inside the transforms may hide; deltas near it are refused
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
        """Hockey-stick divergence at ``epsilon``, with what rounding may hide."""
        loss = self.step * (self.first + np.arange(len(self.mass)))
        above = loss > epsilon
        return float(self.infinite + _ROUNDING - (self.mass[above] * np.expm1(epsilon - loss[above])).sum())


def shuffle_delta(trials: int, q: float, up: int, down: int, epsilon: float) -> float:
    """Smallest delta at ``epsilon`` of noise Bin(``trials``, ``q``) where ``up`` counters rise and ``down`` fall."""
    return max(law.delta(epsilon) for law in loss_laws(trials, q, up, down))


def shuffle_epsilon(trials: int, q: float, up: int, down: int, delta: float) -> float:
    """Smallest epsilon at ``delta``; infinity where no epsilon will do.

    Parameters
    ----------
    trials, q
        Honest noise bits in one counter, and the chance of each to be one.
    up, down
        Counters that rise, and that fall, when one user is replaced.
    delta
        At least 1e-11.

    Raises
    ------
    ValueError
        If ``delta`` is below what the transforms resolve.
    """
    checked_delta(delta)
    laws = loss_laws(trials, q, up, down)
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


def loss_laws(trials: int, q: float, up: int, down: int) -> list[LossLaw]:
    """The loss in each order of the neighbours; one law where as many rise as fall, since both orders share it."""
    return [_composed(trials, q, up, down)] + ([_composed(trials, q, down, up)] if up != down else [])


@lru_cache(maxsize=16)
def _composed(trials: int, q: float, up: int, down: int) -> LossLaw:
    low, mass = binomial_window(trials, q)
    k = low + np.arange(len(mass))
    # log of P(Q = k - 1) / P(Q = k), for every k in reach of either law
    with np.errstate(divide="ignore"):
        ratio = np.log(k * (1 - q)) - np.log((trials - k + 1.0) * q)
    step = float(np.sqrt((mass[1:] * ratio[1:] ** 2).sum() / mass[1:].sum())) / _FINENESS
    rise = _on_grid(ratio[1:], mass[:-1], step)
    fall = _on_grid(-ratio[1:], mass[1:], step)
    first = up * rise[0] + down * fall[0]
    length = up * (len(rise[1]) - 1) + down * (len(fall[1]) - 1) + 1
    size = 1 << (length - 1).bit_length()
    spectrum = np.fft.rfft(rise[1], size) ** up * np.fft.rfft(fall[1], size) ** down
    composed = np.maximum(np.fft.irfft(spectrum, size)[:length], 0.0)
    certain = (mass[-1] + 2 * _TAIL) * up + (mass[0] + 2 * _TAIL) * down
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
