"""Regularizers of LQ control: sums seen through noise, and what Assumption 2 of paper 004 says of them.

=============  =======  ======================================================  ====================
counter        trust    where the noise enters                                  agent
=============  =======  ======================================================  ====================
none           none     nowhere                                                 OFU-RL
``tree``       joint    every node of a binary tree over episodes               Private-OFU-RL
``epochs``     joint    once on the sum of every batch, whose people are in no  Private-OFU-RL, extra
                        other
=============  =======  ======================================================  ====================

They differ in when and with what noise their sums are released only, so a private one without noise is the fixed one,
to the last bit.

V = T_1 + (2 Λ + λ) I with Λ a bound on the noise's operator norm.  The paper has η = 2Λ; λ is what is left without
noise.  So ``lambda_min = Λ + λ`` and ``lambda_max = 3Λ + λ`` wherever the bound holds.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.factorisation import Once
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import NoiseSource, SimulatedWorld
from pipeline.privacy.running import LazyTree
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram import raise_eigenvalues
from pipeline.statistics.lq_message import LqMessage, LqRidge
from pipeline.statistics.online_sum import OnlineSum, Variances, asked, begin, tight

Array = NDArray[np.float64]
LqCounter = Literal["tree", "epochs"]
# probability with which the bounds may fail
_FAILURE = 0.05
# (sd above the Gram matrix's diagonal, sd of a cross entry, error of the sum) -> bounds on both norms
Tails = Callable[[float, float, float], tuple[float, float]]


class CountedLqRegularizer:
    """A regularizer over any private sum; build one with :func:`lq_regularizer`.

    Parameters
    ----------
    message
        What an episode adds.
    sums
        All of it, as it is released.
    lam
        λ, in units squared.
    tails
        Bounds on the norms of the noise in both sums, from its standard deviations and the error of a sum.
    """

    def __init__(self, message: LqMessage, sums: OnlineSum, lam: float, tails: Tails) -> None:
        if not lam > 0:
            raise ValueError(f"lam must be positive; got {lam}")
        self.message, self.guarantee, self.release = message, sums.guarantee, sums.release
        self._counter, self._lam, self._tails = sums, lam, tails
        unit = message.steps**2
        diagonal, above, cross = (m.variance or 0 for m in sums.private.mechanisms)
        self._sds = math.sqrt(max(above, diagonal / 2)) / unit, math.sqrt(cross) / unit

    def observe(self, batch: LqBatch) -> None:
        """See :class:`~pipeline.statistics.lq_message.LqRegularizer`."""
        self._counter.add(self.message.integers(batch))

    def sums(self) -> tuple[Array, Array]:
        """T_1 ``(D, D)`` and T_2 ``(D, n)`` as released, before they are regularized."""
        return self.message.sums(self._counter.total())

    def ridge(self) -> LqRidge:
        """See :class:`~pipeline.statistics.lq_message.LqRegularizer`."""
        T, U = self.sums()
        noise, cross = self._tails(*self._sds, self._counter.error)
        least, most = noise + self._lam, 3 * noise + self._lam
        # without noise the least eigenvalue is lam up to a rounding, and V stays as it is
        V, raised = raise_eigenvalues(T + (2 * noise + self._lam) * np.eye(len(T)), least if noise > 0 else 0.0)
        return LqRidge(V, U, least, most, cross / math.sqrt(least), raised)


def lq_regularizer(
    message: LqMessage,
    ends: Sequence[int],
    ask: Ask | None,
    lam: float,
    world: SimulatedWorld,
    noise: NoiseSource,
    counter: LqCounter = "tree",
) -> CountedLqRegularizer:
    """A regularizer whose sums are read after each batch of episodes.

    ``paper`` prints scales for two trees of half the budget each, and bounds; the guarantee is recomputed from the
    variances.  ``tight`` is one joint release of both, nodes averaged with their halves, bounds by Gaussian tails.

    Parameters
    ----------
    message
        What an episode adds.
    ends
        Episodes seen after each batch, declared; the last is K.
    ask
        The budget; None: exact sums, without privacy, and ``noise`` is never drawn from.
    lam
        See :class:`CountedLqRegularizer`.
    world, noise
        Handle of the simulated world, and what draws the noise.
    counter
        Where the noise enters.

    Raises
    ------
    ValueError
        If ``paper`` scales are asked of a counter for which there are none.
    """
    paper = ask is not None and ask.calibration == "paper"
    if paper and counter != "tree":
        raise ValueError("paper 004 prints scales for its tree only; use calibration 'tight' with epochs")
    time, variances = Once(len(ends)), None
    if ask is not None:
        if counter == "tree":
            time = LazyTree(tuple(ends), "plain" if paper else "bottom-up")
        variances = paper_004(message, ask, ends[-1]) if paper else tight(message, ask, time.cost)
    tails = paper_tails(message, ends[-1], _FAILURE) if paper else tail_bounds(message, len(ends), _FAILURE)
    trust = Trust.NONE if ask is None else Trust.JOINT
    return CountedLqRegularizer(message, begin(message, variances, time, trust, world, noise, ask), lam, tails)


def paper_004(message: LqMessage, ask: Ask, episodes: int) -> Variances | None:
    """The printed scales: ``sigma_i^2 = 8 m Delta_i^2 ln(2/delta) / epsilon^2`` with m = ceil(log2 K).

    Delta_1 = H (1 + gamma)^2 and Delta_2 = H (1 + gamma), a counter each at half the budget; the Gram matrix has the
    same scale on and above its diagonal.

    Parameters
    ----------
    message, ask
        What an episode adds, and the (epsilon, delta) asked for both sums.
    episodes
        K.

    Returns
    -------
    Table -> integer variance, in lattice steps to the 4th; None for an infinite epsilon.
    """
    epsilon, delta = asked(ask)
    if math.isinf(epsilon):
        return None
    H, gamma = message.horizon, message.gamma
    factor = 8 * _printed_levels(episodes) * math.log(2 / delta) / epsilon**2 * message.steps**4
    gram, cross = (math.ceil(factor * (H * (1 + gamma) ** power) ** 2) for power in (2, 1))
    return {"diagonal": gram, "above": gram, "cross": cross}


def paper_tails(message: LqMessage, episodes: int, failure: float) -> Tails:
    """Λ and the bound on L_k of the proof of Theorem 3: the worst sum's noise at every episode."""
    D, n, m = message.dimension, message.state, _printed_levels(episodes)
    of_gram = 4 * math.sqrt(D) + math.sqrt(8 * math.log(4 * episodes / failure))
    of_cross = math.sqrt(2 * n * D) + math.sqrt(4 * math.log(2 * episodes / failure))

    def tails(above: float, cross: float, _: float) -> tuple[float, float]:
        # equal variances: the one handed over is that above the diagonal, which is the printed one
        return above * math.sqrt(m) * of_gram, cross * math.sqrt(m) * of_cross

    return tails


def tail_bounds(message: LqMessage, reads: int, failure: float) -> Tails:
    """Bounds that hold at all ``reads`` at once but for a probability of ``failure / 2``, at the error of each read.

    A symmetric Gaussian matrix of standard deviation s above and at most sqrt(2) s on the diagonal has an expected
    largest eigenvalue of at most 2 s sqrt(D), and moves by sqrt(2) s times its standard normal draws; a Gaussian D x n
    matrix has an expected Frobenius norm of at most s sqrt(n D), and moves by s times them.
    """
    D, n = message.dimension, message.state
    of_gram = 2 * math.sqrt(D) + 2 * math.sqrt(math.log(8 * reads / failure))
    of_cross = math.sqrt(n * D) + math.sqrt(2 * math.log(4 * reads / failure))

    def tails(above: float, cross: float, error: float) -> tuple[float, float]:
        return math.sqrt(error) * above * of_gram, math.sqrt(error) * cross * of_cross

    return tails


def _printed_levels(episodes: int) -> int:
    return max(1, (episodes - 1).bit_length())
