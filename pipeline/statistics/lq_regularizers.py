"""Regularizers of LQ control: sums seen through noise, and what Assumption 2 of paper 004 says of them.

================  =======  ======================================================  ====================
made by           trust    where the noise enters                                  agent
================  =======  ======================================================  ====================
:func:`fixed`     none     nowhere                                                 OFU-RL
:func:`tree`      joint    every node of a binary tree over episodes               Private-OFU-RL
:func:`epochs`    joint    once on the sum of every batch, whose people are in no  Private-OFU-RL, extra
                           other
================  =======  ======================================================  ====================

They differ in counter and variances only, so a private one without noise is the fixed one, to the last bit.

V = T_1 + (2 Λ + λ) I with Λ a bound on the noise's operator norm.  The paper has η = 2Λ; λ is what is left without
noise.  So ``lambda_min = Λ + λ`` and ``lambda_max = 3Λ + λ`` wherever the bound holds.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.factorisation import Once
from pipeline.privacy.noise import NoiseBlocks, NoiseSource, SimulatedWorld
from pipeline.privacy.running import LazyTree, RunningSum
from pipeline.statistics.gram import raise_eigenvalues
from pipeline.statistics.lq_calibration import LqVariances, Tails, paper_004, paper_tails, tail_bounds, tight
from pipeline.statistics.lq_message import LqMessage
from pipeline.statistics.mixture_calibration import Ask
from pipeline.statistics.released_ridge import Guarantee

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LqRidge:
    """What may be looked at: ``V (D, D)`` positive definite, ``U (D, n)``, and Assumption 2's numbers at this moment.

    ``raised`` counts eigenvalues of V that the noise pushed below ``lambda_min`` and that were raised to it.
    """

    V: Array
    U: Array
    lambda_min: float
    lambda_max: float
    nu: float
    raised: int


class LqRegularizer(Protocol):
    """Takes a batch of episodes at a time, shows noisy sums."""

    def observe(self, batch: LqBatch) -> None:
        """Add the next batch; its vectors are cut to their balls here."""
        ...

    def ridge(self) -> LqRidge:
        """The released sums, regularized."""
        ...


class CountedLqRegularizer:
    """A regularizer over any counter; build one with :func:`fixed`, :func:`tree` or :func:`epochs`."""

    def __init__(
        self,
        message: LqMessage,
        counter: RunningSum,
        variances: LqVariances,
        guarantee: Guarantee,
        lam: float,
        tails: Tails,
    ) -> None:
        if not lam > 0:
            raise ValueError(f"lam must be positive; got {lam}")
        self.message, self.guarantee = message, guarantee
        self._counter, self._lam, self._tails = counter, lam, tails
        unit = message.steps**2
        self._sds = math.sqrt(max(variances.above, variances.diagonal / 2)) / unit, math.sqrt(variances.cross) / unit

    def observe(self, batch: LqBatch) -> None:
        """See :class:`LqRegularizer`."""
        self._counter.add(self.message.batch(batch))

    def sums(self) -> tuple[Array, Array]:
        """T_1 ``(D, D)`` and T_2 ``(D, n)`` as released, before they are regularized."""
        return self.message.tables(self._counter.total())

    def ridge(self) -> LqRidge:
        """See :class:`LqRegularizer`."""
        T, U = self.sums()
        noise, cross = self._tails(*self._sds, self._counter.error)
        least, most = noise + self._lam, 3 * noise + self._lam
        # without noise the least eigenvalue is lam up to a rounding, and V stays as it is
        V, raised = raise_eigenvalues(T + (2 * noise + self._lam) * np.eye(len(T)), least if noise > 0 else 0.0)
        return LqRidge(V, U, least, most, cross / math.sqrt(least), raised)


def fixed(
    message: LqMessage, ends: Sequence[int], lam: float, world: SimulatedWorld, noise: NoiseSource
) -> CountedLqRegularizer:
    """V = exact sums + λ I: the baseline, without privacy; ``noise`` is never drawn from."""
    none = LqVariances(0, 0, 0)
    counter = RunningSum(Once(len(ends)), _blocks(message, none, noise, world))
    return CountedLqRegularizer(message, counter, none, Guarantee("none", None), lam, tail_bounds(message, 1, 0.05))


def tree(
    message: LqMessage,
    ends: Sequence[int],
    ask: Ask,
    lam: float,
    world: SimulatedWorld,
    noise: NoiseSource,
    failure: float = 0.05,
) -> CountedLqRegularizer:
    """The binary tree over episodes, read at ``ends`` (declared); the last is K.

    ``paper`` prints scales for two counters of half the budget each, and bounds; the guarantee is recomputed from the
    variances.  ``tight`` is one joint release of both, nodes averaged with their halves, bounds by Gaussian tails.
    """
    paper = ask.calibration == "paper"
    time = LazyTree(tuple(ends), "plain" if paper else "bottom-up")
    variances = paper_004(message, ask, ends[-1]) if paper else tight(message, ask, time.cost)
    counter = RunningSum(time, _blocks(message, variances, noise, world))
    tails = paper_tails(message, ends[-1], failure) if paper else tail_bounds(message, len(ends), failure)
    return CountedLqRegularizer(message, counter, variances, _joint(variances, message, time.cost), lam, tails)


def epochs(
    message: LqMessage,
    ends: Sequence[int],
    ask: Ask,
    lam: float,
    world: SimulatedWorld,
    noise: NoiseSource,
    failure: float = 0.05,
) -> CountedLqRegularizer:
    """One release of every batch: each person is in one, so no budget is divided; the noise of all batches adds up."""
    if ask.calibration == "paper":
        raise ValueError("paper 004 prints scales for its tree only; use calibration 'tight' with epochs")
    variances = tight(message, ask, 1)
    counter = RunningSum(Once(len(ends)), _blocks(message, variances, noise, world))
    tails = tail_bounds(message, len(ends), failure)
    return CountedLqRegularizer(message, counter, variances, _joint(variances, message, 1), lam, tails)


def _joint(variances: LqVariances, message: LqMessage, cost: int) -> Guarantee:
    return Guarantee("joint", variances.rho(message, cost))


def _blocks(message: LqMessage, variances: LqVariances, noise: NoiseSource, world: SimulatedWorld) -> NoiseBlocks:
    return NoiseBlocks(message.sizes, (variances.diagonal, variances.above, variances.cross), noise, world)
