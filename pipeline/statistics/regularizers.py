"""Regularizers: growing least-squares problems whose statistics are seen only through noise (paper 000, Assumption 2).

One planner and three of these are three algorithms:

================  =======  ==============================================  ==========================
made by           trust    where the noise enters                          agent
================  =======  ==============================================  ==========================
:func:`fixed`     none     nowhere                                         UCRL-VTR, LinOpt-VI
:func:`tree`      joint    every completed node of a continual counter     Private-LinOpt-VI
:func:`local`     local    every episode's own message, before it is kept  LDP-UCRL-VTR
================  =======  ==============================================  ==========================

They differ in when and with what noise their sum is released only, so a private one without noise is the fixed one, to
the last bit.  An episode is a person.  All three are protocols of a simulation: data registered as real is refused,
because whoever holds logs is a central curator, whatever is computed from them (privacy.md §0.1-3).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.continual import Mechanism, continual
from pipeline.privacy.factorisation import Once
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import NoiseSource, SimulatedWorld
from pipeline.statistics.ask import Ask
from pipeline.statistics.mixture_message import LATTICE, PARTS, Bounds, Message, Ridge, Visits
from pipeline.statistics.online_sum import OnlineSum, Variances, asked, begin, tight

Array = NDArray[np.float64]
Shift = Literal["edge", "paper", "floor"]
Leaf = Literal["episode", "batch"]

# of the noise's spectral edge: one block in some hundreds still needs more, and gets it
_BEYOND_EDGE = 1.3
# probability with which the bounds may fail
_FAILURE = 0.01
# in edges; of 0.5, 1, 1.4, 2 and 3 the last two lose least, with a prior of 1
_FLOOR = 2.0


class CountedRegularizer:
    """A regularizer over any counter; build one with :func:`fixed`, :func:`tree` or :func:`local`.

    Parameters
    ----------
    message
        What an episode adds.
    sums
        All of it, as it is released.
    lam
        lambda, what is added to every Gram matrix beyond the noise's shift, squared reward units (``unit``: none).
    shift
        ``edge``: 1.3 times the spectral edge of the noise in the sum shown is added, no theorem.  ``paper``: twice a
        bound that holds at every sum, step and block with probability 1 - 0.01 / 2.  ``floor``: nothing is
        added, eigenvalues below twice the edge are raised to it, so that well observed directions are not shrunk; no
        theorem.
    leaf
        ``episode``: each is a leaf of its own.  ``batch``: all episodes of one policy are one leaf, in which a person
        still moves one message.
    prior
        What is added to Lambda is added to U with weights ``prior / d``, d of a block: an unseen (s, a) is predicted at
        ``prior`` times the mean of what its features offer, instead of nothing.  0 is the papers'.
    """

    def __init__(
        self,
        message: Message,
        sums: OnlineSum,
        lam: float,
        shift: Shift = "edge",
        leaf: Leaf = "episode",
        prior: float = 0.0,
    ) -> None:
        if not lam > 0:
            raise ValueError(f"lam must be positive; got {lam}")
        self.message, self.guarantee, self.release = message, sums.guarantee, sums.release
        self._counter = sums
        self._lam, self._shift, self._leaf = lam, shift, leaf
        self.seen, self._prior = 0, prior / message.dimension
        unit = np.array([message.gram_bound, message.target_bound]) / LATTICE
        drawn = np.array([m.variance or 0 for m in sums.private.mechanisms], float)
        diagonal, above, target = drawn.reshape(3, message.steps)
        self._gram_sd = np.sqrt(np.maximum(above, diagonal / 2)) * unit[0]
        self._target_sd = np.sqrt(target) * unit[1]
        self._log = math.log(4 * sums.time.steps * message.steps * message.blocks / _FAILURE)

    @property
    def bounds(self) -> Bounds:
        """See :class:`Regularizer`."""
        norm, times = self._norm()
        least = self._lam + (times - 1) * norm
        noise = math.sqrt(self._counter.error) * self._target_sd
        nu = noise * (math.sqrt(self.message.dimension) + math.sqrt(2 * self._log)) / np.sqrt(least)
        return Bounds(least, self._lam + (times + 1) * norm, nu)

    def observe(self, visits: Visits) -> None:
        """See :class:`Regularizer`."""
        leaves = 1 if self._leaf == "batch" else visits.episodes
        self._counter.add(self.message.integers(visits), leaves)
        self.seen += visits.episodes

    def ridge(self) -> Ridge:
        """See :class:`Regularizer`; a block that the shift leaves below ``lambda_min`` is raised to it."""
        gram, target = self.message.sums(self._counter.total())
        norm, times = self._norm()
        if self._shift == "floor":
            # the noise's part of a well observed direction is left as it is, above and below
            e, v = np.linalg.eigh(gram)
            e = np.maximum(e, (times - 1) * norm[:, None, None]) + self._lam
            full = (v * e[..., None, :]) @ v.swapaxes(-1, -2)
            return Ridge(full, target + self._prior * (full - gram).sum(-1))
        shift = (self._lam + times * norm)[:, None]
        least = (self._lam + (times - 1) * norm)[:, None]
        lowest = np.linalg.eigvalsh(gram)[..., 0] + shift
        raised = shift + np.maximum(least - lowest, 0.0)
        full = gram + raised[..., None, None] * np.eye(self.message.dimension)
        return Ridge(full, target + self._prior * raised[..., None])

    def _norm(self) -> tuple[Array, float]:
        """Bound on the operator norm of the noise in one block ``(H-1,)``, and how many of them the shift is.

        A symmetric Gaussian matrix of standard deviation s above and at most sqrt(2) s on the diagonal has an expected
        largest eigenvalue of at most 2 s sqrt(d), and moves by sqrt(2) s times its standard normal draws.
        """
        sd = math.sqrt(self._counter.error) * self._gram_sd
        edge = 2 * sd * math.sqrt(self.message.dimension)
        if self._shift == "floor":
            return edge, _FLOOR + 1
        return (edge, _BEYOND_EDGE) if self._shift == "edge" else (edge + 2 * sd * math.sqrt(self._log), 2.0)


def fixed(message: Message, episodes: int, lam: float, world: SimulatedWorld, noise: NoiseSource) -> CountedRegularizer:
    """Lambda = lam I plus the exact sums: the baseline, without privacy; ``noise`` is never drawn from."""
    return CountedRegularizer(message, begin(message, None, Once(episodes), Trust.NONE, world, noise), lam)


def tree(
    message: Message,
    episodes: int,
    ask: Ask,
    lam: float,
    world: SimulatedWorld,
    noise: NoiseSource,
    *,
    mechanism: Mechanism = "bottom-up",
    shift: Shift = "edge",
    batches: int | None = None,
    prior: float = 0.0,
) -> CountedRegularizer:
    """Joint privacy: policies are a private function of all other episodes (paper 000).

    ``paper`` calibration divides (epsilon, delta) by 4 H counters; the guarantee is recomputed from its variances.

    Parameters
    ----------
    message
        What an episode adds.
    episodes
        K, declared.
    ask
        The budget.
    lam, world, noise, shift, prior
        See :class:`CountedRegularizer`.
    mechanism
        The factorisation of the continual release.
    batches
        Its steps where each holds a batch of episodes of one policy; None: a step an episode.

    Raises
    ------
    ValueError
        If ``paper`` scales are asked for something else than a tree over episodes.
    """
    paper = ask.calibration == "paper"
    if paper and (mechanism == "square-root" or batches):
        raise ValueError(
            "paper 000 prints scales for a tree over episodes; use calibration 'tight' with other counters"
        )
    time = continual(mechanism, batches or episodes)
    variances = paper_000(message, ask, episodes) if paper else tight(message, ask, time.cost)
    sums = begin(message, variances, time, Trust.JOINT, world, noise, ask)
    return CountedRegularizer(message, sums, lam, shift, "batch" if batches else "episode", prior)


def local(
    message: Message,
    episodes: int,
    ask: Ask,
    lam: float,
    world: SimulatedWorld,
    noise: NoiseSource,
    *,
    shift: Shift = "edge",
    prior: float = 0.0,
) -> CountedRegularizer:
    """Local privacy: each message is noisy before it leaves its person (paper 001)."""
    variances = paper_001(message, ask) if ask.calibration == "paper" else tight(message, ask, 1)
    sums = begin(message, variances, Once(episodes), Trust.LOCAL, world, noise, ask)
    return CountedRegularizer(message, sums, lam, shift, prior=prior)


def paper_000(message: Message, ask: Ask, episodes: int) -> Variances:
    """Scales of paper 000: (epsilon / H, delta / H) for four counters a step, ceil(log2 K) levels, H as ``value``.

    Parameters
    ----------
    message, ask
        What an episode adds, and the (epsilon, delta) asked for all of it.
    episodes
        K.

    Returns
    -------
    Table -> integer variance, in squared lattice points.
    """
    H, (epsilon, delta) = message.horizon, asked(ask)  # noqa: N806
    levels = max(1, (episodes - 1).bit_length())
    sd = math.sqrt(32 * levels * math.log(4 * H / delta)) * H / epsilon
    row = message.stretch * message.value if message.of == "transitions" else 1.0
    return _printed(message, sd * row**2, sd * row * message.value)


def paper_001(message: Message, ask: Ask) -> Variances:
    """Scale of paper 001, section 6: 4 H^3 sqrt(2 ln(2.5 H / delta)) / epsilon, with H^2 read as ``value^2``.

    Parameters
    ----------
    message, ask
        As of :func:`paper_000`.

    Raises
    ------
    ValueError
        For rewards: the paper knows them.
    """
    if message.of == "rewards":
        raise ValueError("paper 001 knows the rewards and prints no scale for them; use calibration 'tight'")
    H, (epsilon, delta) = message.horizon, asked(ask)  # noqa: N806
    sd = 4 * H * message.value**2 * math.sqrt(2 * math.log(2.5 * H / delta)) / epsilon
    return _printed(message, sd, sd)


def _printed(message: Message, gram_sd: float, target_sd: float) -> Variances:
    """The same standard deviation at every step, on and above the diagonal, in squared reward units: as papers print.

    Raises
    ------
    ValueError
        If rows are ``unit``: no paper has printed a scale for them.
    """
    if message.unit:
        raise ValueError("the papers' scales are for rows as printed; use calibration 'tight' with unit features")
    gram = [math.ceil((gram_sd * LATTICE / b) ** 2) for b in message.gram_bound]
    target = [math.ceil((target_sd * LATTICE / b) ** 2) for b in message.target_bound]
    parts = zip(PARTS, (gram, gram, target), strict=True)
    return {f"{name}_{h}": v for name, each in parts for h, v in enumerate(each)}
