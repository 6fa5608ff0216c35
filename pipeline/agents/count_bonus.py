"""Constants and widths of planning on noisy counts: each function is one displayed formula.

    Gamma = c (sqrt(2 Var_P(V) ι / n) + 7/3 span(V) ι / n)  +  c_noise sd ||V - PV||_2 / n

The first part is the Bernstein bonus; its lower-order term matters, because a cell seen once has no variance.  The
second is what the noise alone does: to first order n (P - P*) V = sum_s' xi_s' (V(s') - PV), and xi has standard
deviation sd in each entry.  Symbols: as in :mod:`pipeline.agents.ucbvi`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Constants:
    """Constants of the bonus; see :func:`practical` and :func:`theory`.

    Parameters
    ----------
    c
        Multiplies the Bernstein bonus.
    noise
        c_noise: standard deviations of the counts' noise in the bonus.
    z
        Standard deviations of the counts' noise by which visits are kept from being too small.
    iota
        ι.
    """

    c: float = 0.4
    noise: float = 1.0
    z: float = 0.5
    iota: float = 1.0

    def __str__(self) -> str:
        return f"c = {self.c:g}, c_noise = {self.noise:.3g}, z = {self.z:.3g}, ι = {self.iota:.3g}"


def practical(episodes: int) -> Constants:
    """Constants chosen by us: no theorem.

    A good action that looked bad by more than the bonus covers is lost for good.  That costs in proportion to K, and
    the bonus itself does not: it grows with K, slowly.  For the noise c_noise = sqrt(3 ln(1 + K / 110 000)), half a
    deviation at K = 10^4, 3.7 at 10^7 and 5.2 at 10^9; for the sampling ι = log10(K) / 2.

    Parameters
    ----------
    episodes
        K, declared.
    """
    noise = math.sqrt(3 * math.log1p(episodes / 110_000))
    return Constants(noise=noise, iota=max(1.0, math.log10(episodes) / 2))


def practical_joint(episodes: int) -> Constants:
    """The same under a counter's noise, which explores too: half the bonus for the sampling.

    Chosen on seeds from 900 and from 3000 on, which report nothing: smaller ones win on average and lock in some
    worlds (docs/lab/tabular.md).

    Parameters
    ----------
    episodes
        K, declared.
    """
    return replace(practical(episodes), c=0.2)


def practical_local(episodes: int) -> Constants:
    """The same where every user's own message is noisy: half the bonus, and four fifths of that for the noise.

    Chosen on four worlds, K = 10^4 to 10^6 and seeds from 1000 on, which report nothing: without a bonus for the noise
    runs lock in, with all of it K = 10^4 is spent on it (docs/lab/tabular.md).

    Parameters
    ----------
    episodes
        K, declared.
    """
    k = practical(episodes)
    return replace(k, c=0.2, noise=0.8 * k.noise)


def cautious(k: Constants) -> Constants:
    """For the policy that is emitted: at least two standard deviations of noise count against an action."""
    return replace(k, noise=max(k.noise, 2.0))


def theory(cells: int, episodes: int) -> Constants:
    """Constants for which values are optimistic with probability 9/10, noise included; H S A ``cells``.

    Parameters
    ----------
    episodes
        K, declared.
    """
    iota = math.log(2 * cells * episodes / 0.1)
    return Constants(1.0, math.sqrt(2 * iota), math.sqrt(2 * iota), iota)


def transition_bonus(P: Array, n: Array, V: Array, sd: Array, k: Constants) -> Array:
    """Gamma ``(S, A)`` for ``P (S, A, S)``, visits ``n (S, A)``, their noise ``sd (S, A)`` and next values ``V (S,)``;
    infinite where n = 0.
    """
    mean = P @ V
    variance = np.maximum(P @ (V * V) - mean * mean, 0.0)
    distance = np.sqrt(np.maximum((V @ V) - 2 * mean * V.sum() + len(V) * mean * mean, 0.0))
    span = float(V.max() - V.min())
    n_ = or_one(n)
    sampling = k.c * (np.sqrt(2 * variance * k.iota / n_) + 7 / 3 * span * k.iota / n_)
    return np.where(n > 0, sampling + k.noise * sd * distance / n_, np.inf)


def reward_estimate(r_sa: Array, n: Array) -> Array:
    """Mean reward ``(G, S, A)`` as a share of its range, from sums in half ranges around the middle of ``n`` visits."""
    return np.clip((1 + r_sa / or_one(n)) / 2, 0.0, 1.0)


def reward_bonus(r: Array, n: Array, sd: Array | float, k: Constants) -> Array:
    """The same bonus for a reward ``r (G, S, A)``, share of its range; one in [0, 1] has variance r (1 - r) at most."""
    n_ = or_one(n)
    sampling = k.c * (np.sqrt(2 * r * (1 - r) * k.iota / n_) + 7 / 3 * k.iota / n_)
    return np.where(n > 0, sampling + k.noise * sd / (2 * n_), np.inf)


def or_one(n: Array) -> Array:
    """``n`` where it is positive, else 1."""
    return np.where(n > 0, n, 1.0)
