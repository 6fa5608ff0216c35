"""How many noise bits a batch needs: by exact accounting (``tight``), or as paper 002 prints it (``paper``).

``changes`` is the number of counters that replacing one user can move by 1, half of them up and half down:
6H for three tables of H steps, 4H where visits are the sums of transitions.
"""

from __future__ import annotations

import math
from functools import cache

from pipeline.privacy.accounting import gdp_epsilon
from pipeline.privacy.bernoulli import FAIR, WHOLE
from pipeline.privacy.shuffle import NoiseBits
from pipeline.privacy.shuffle_loss import checked_delta, shuffle_delta, shuffle_epsilon

# a skew coin is narrowed down to this share of its chance
_NARROW = 1e-5


@cache
def smallest_total(changes: int, epsilon: float, delta: float) -> int:
    """Fewest fair noise bits of honest users, in one counter, for an ``(epsilon, delta)`` batch.

    Raises
    ------
    ValueError
        If ``changes`` is odd or below 2, ``epsilon`` is not positive, or ``delta`` is out of reach.
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
    high = max(2, math.ceil(4 * changes / (2 * _gaussian_rho(epsilon, delta))))
    low, stride = high - 1, max(1, high // 500)
    while not enough(high):
        low, high = high, high + stride
    while low > 0 and enough(low):
        low, high = max(0, low - stride), low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@cache
def tight_bits(users: int, changes: int, epsilon: float, delta: float, honest: int | None = None) -> NoiseBits:
    """The least noise for an ``(epsilon, delta)`` batch: ``ceil(N / n)`` fair coins, or one skew coin a user.

    Parameters
    ----------
    users
        n, of the batch.
    changes
        Counters that one replaced user moves by 1: even.
    epsilon, delta
        Of one user.
    honest
        Declared minimum of users who do flip their coins, those of the others count for nothing; None: all.

    Raises
    ------
    ValueError
        If ``honest`` is not in 1 .. n; or see :func:`smallest_total`.
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
    while high - low > _NARROW * high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return NoiseBits(users, 1, high)


def paper_bits(users: int, horizon: int, epsilon: float, beta: float) -> NoiseBits:
    """Paper 002, Algorithm 4 with epsilon' = epsilon / 3H: tau = 96 ln(2/beta) / epsilon'^2.

    Parameters
    ----------
    users, horizon
        n and H.
    epsilon, beta
        Of one user; beta is the paper's delta.
    """
    tau = paper_total(horizon, epsilon, beta)
    if users <= tau:
        return NoiseBits(users, math.ceil(tau / users))
    return NoiseBits(users, 1, math.ceil(tau / (2 * users) * WHOLE))


def paper_total(horizon: int, epsilon: float, beta: float) -> float:
    """Threshold tau = 864 H^2 ln(2 / beta) / epsilon^2."""
    return 864 * horizon**2 * math.log(2 / beta) / epsilon**2


@cache
def delivered_epsilon(bits: NoiseBits, changes: int, delta: float, honest: int | None = None) -> float:
    """Epsilon at ``delta`` that the coins of the honest users really give, replace-one.

    Parameters
    ----------
    bits
        Of the batch.
    changes, honest
        As of :func:`tight_bits`.
    delta
        At least 1e-11.
    """
    n, half = bits.users if honest is None else honest, changes // 2
    return shuffle_epsilon(n * bits.each, bits.probability, half, half, delta)


def _skew(total: float, n: int) -> int:
    """Chance of one coin with ``n q (1 - q) = total / 4``, q at most a half."""
    share = min(1.0, total / n)
    # (1 - sqrt(1 - x)) / 2 without its cancellation at small x
    return min(FAIR, math.ceil(share / (2 * (1 + math.sqrt(1 - share))) * WHOLE))


@cache
def _gaussian_rho(epsilon: float, delta: float) -> float:
    """Largest rho whose Gaussian is ``(epsilon, delta)``."""
    low, high = 1e-12, 1.0
    while gdp_epsilon(high, delta) < epsilon:
        high *= 2
    while high - low > 1e-6 * high:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if gdp_epsilon(middle, delta) < epsilon else (low, middle)
    return low
