"""Noise of a linear mixture agent's messages: from what was asked to integer variances, and back to what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.budget import down, fraction_of, rho_from_epsilon
from pipeline.statistics.mixture_message import LATTICE, MOVE, Message

Calibration = Literal["tight", "paper"]


@dataclass(frozen=True)
class Variances:
    """Integer variance of every lane of every step, in squared lattice points: ``(H-1,)`` each; 0 draws nothing."""

    diagonal: tuple[int, ...]
    above: tuple[int, ...]
    target: tuple[int, ...]

    def rho(self, message: Message, cost: int) -> Fraction | None:
        """Cost in zCDP of one message in a counter of this ``cost``; None where a lane draws no noise.

        The worst pair meets every step at its worst.  A Gram matrix has squared length diagonal^2 + 2 above^2, so a
        move of MOVE costs at most MOVE / 2 over the smaller of the diagonal's variance and twice the one above it:
        attained by ``tight`` and by unit rows, an upper bound for the papers' equal variances.
        """
        if message.steps != len(self.diagonal):
            raise ValueError("these variances belong to a message of another number of steps")
        if 0 in (*self.diagonal, *self.above, *self.target):
            return None
        each = (
            Fraction(MOVE, 2 * min(d, 2 * a)) + Fraction(MOVE, 2 * t)
            for d, a, t in zip(self.diagonal, self.above, self.target, strict=True)
        )
        return cost * sum(each, Fraction(0))

    def entries(self, message: Message) -> NDArray[np.float64]:
        """Variance of every integer of a message ``(n,)``, in squared lattice points.

        Parameters
        ----------
        message
            Of as many steps as these variances.
        """
        parts = zip((self.diagonal, self.above, self.target), message.sizes, strict=True)
        return np.concatenate([np.repeat(np.array(v, dtype=float), n // message.steps) for v, n in parts])


@dataclass(frozen=True)
class Ask:
    """Privacy asked for, replace-one; an infinite ``epsilon`` asks for no noise at all.

    ``gram_share`` of a tight budget goes to the Gram matrices.  A tenth is chosen by us: on RiverSwim, S = 3, the
    targets need the rest (of 3/4, 1/2, 1/4, 1/10, 1/30 the last two lose least at epsilon = 1).

    ``share`` of it is this message's where two are released from one budget.
    """

    epsilon: float
    delta: float
    calibration: Calibration = "tight"
    gram_share: Fraction = Fraction(1, 10)
    share: Fraction = Fraction(1)

    def rho(self) -> Fraction:
        """The message's part of the zCDP budget (official conversion, privacy.md §1.1), rounded down."""
        whole = down(Fraction(rho_from_epsilon(self.epsilon, self.delta)) * (1 - Fraction(1, 10**12)))
        return fraction_of(whole) * self.share


def tight(message: Message, ask: Ask, cost: int) -> Variances:
    """One joint release over all steps: equal shares a step, isotropic in svec coordinates, integers rounded up."""
    if math.isinf(ask.epsilon):
        return silent(message)
    each = ask.rho() / message.steps
    diagonal = 2 * math.ceil(cost * MOVE / (2 * each * ask.gram_share) / 2)
    target = math.ceil(cost * MOVE / (2 * each * (1 - ask.gram_share)))
    n = message.steps
    return Variances((diagonal,) * n, (diagonal // 2,) * n, (target,) * n)


def silent(message: Message) -> Variances:
    """No noise: the baseline."""
    none = (0,) * message.steps
    return Variances(none, none, none)


def printed(message: Message, gram_sd: float, target_sd: float) -> Variances:
    """The same standard deviation at every step, on and above the diagonal, in squared reward units: as papers print.

    Raises
    ------
    ValueError
        If rows are ``unit``: no paper has printed a scale for them.
    """
    if message.unit:
        raise ValueError("the papers' scales are for rows as printed; use calibration 'tight' with unit features")
    gram = tuple(math.ceil((gram_sd * LATTICE / b) ** 2) for b in message.gram_bound)
    return Variances(gram, gram, tuple(math.ceil((target_sd * LATTICE / b) ** 2) for b in message.target_bound))


def paper_000(message: Message, ask: Ask, episodes: int) -> Variances:
    """Scales of paper 000: (epsilon / H, delta / H) for four counters a step, ceil(log2 K) levels, H as ``value``."""
    H = message.horizon  # noqa: N806
    levels = max(1, (episodes - 1).bit_length())
    sd = math.sqrt(32 * levels * math.log(4 * H / ask.delta)) * H / ask.epsilon
    row = message.stretch * message.value if message.of == "transitions" else 1.0
    return printed(message, sd * row**2, sd * row * message.value)


def paper_001(message: Message, ask: Ask) -> Variances:
    """Scale of paper 001, section 6: 4 H^3 sqrt(2 ln(2.5 H / delta)) / epsilon, with H^2 read as ``value^2``.

    Raises
    ------
    ValueError
        For rewards: the paper knows them.
    """
    if message.of == "rewards":
        raise ValueError("paper 001 knows the rewards and prints no scale for them; use calibration 'tight'")
    H = message.horizon  # noqa: N806
    sd = 4 * H * message.value**2 * math.sqrt(2 * math.log(2.5 * H / ask.delta)) / ask.epsilon
    return printed(message, sd, sd)
