"""What a private release of LQ moments declares, what it costs jointly, and what a planner sees of it.

Both sums of paper 004, G = sum of z z' and X = sum of z x_next' with z = (x, u), leave in one release.  Every vector is
divided by its declared bound and put on a lattice of q steps, so ``|x|, |u|, |x_next| <= q`` and ``|z|^2 <= 2 q^2`` in
integers.  One person adds at most N = m H rows; a replacement moves, for a row pair with <z, z~> = 2 q^2 c,

* G by at most ``sqrt(1 - c^2) sqrt(2) 2 q^2`` (both terms are positive semidefinite),
* X by at most ``sqrt((1 + |c|) / 2) 2 sqrt(2) q^2``,

and N times that by the triangle inequality.  The paper's Delta_2 = H (1 + gamma) is that of adding a person.  The two
largest moves exclude each other: :class:`~pipeline.statistics.linear_sensitivity.BallMoves` bounds them together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.privacy.release import Release
from pipeline.statistics.gram import Extent
from pipeline.statistics.linear_sensitivity import BallMoves

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class LqDomain:
    """Declared before any row is read.

    Parameters
    ----------
    kind
        ``real`` or ``synthetic``, as registered.
    state, control
        Dimensions n and d.
    horizon
        H: steps of an episode that are read; later ones are dropped.
    episodes
        K: public number of people times ``episodes_each``.
    state_bound, control_bound, successor_bound
        Lengths to which x, u and the next x are cut; in their own units.
    episodes_each
        m: episodes of one person.

    Raises
    ------
    ValueError
        If a number is not positive.
    """

    name: str
    kind: str
    state: int
    control: int
    horizon: int
    episodes: int
    state_bound: float = 1.0
    control_bound: float = 1.0
    successor_bound: float = 1.0
    episodes_each: int = 1

    def __post_init__(self) -> None:
        counts = (self.state, self.control, self.horizon, self.episodes, self.episodes_each)
        if min(counts) < 1 or not all(0 < b < math.inf for b in self.bounds):
            raise ValueError(f"{self.name}: sizes must be at least 1 and bounds positive; got {counts}, {self.bounds}")

    @property
    def bounds(self) -> tuple[float, float, float]:
        """Of state, control and successor."""
        return self.state_bound, self.control_bound, self.successor_bound

    @property
    def dimension(self) -> int:
        """Length of z, n + d."""
        return self.state + self.control


@dataclass(frozen=True)
class LqAsk:
    """Budget and lattice: ``rho`` None draws no noise (simulation only); ``gram_share`` of the budget is for G."""

    rho: Fraction | None
    steps: int = 4096
    gram_share: Fraction = Fraction(3, 10)

    def __post_init__(self) -> None:
        if (self.rho is not None and self.rho <= 0) or self.steps < 1 or not 0 < self.gram_share < 1:
            raise ValueError(f"rho and steps must be positive, 0 < gram_share < 1; got {self}")


@dataclass(frozen=True)
class LqPlan:
    """Everything the release depends on but the rows.

    Raises
    ------
    OverflowError
        If sums or noise could leave 64-bit integers.
    """

    domain: LqDomain
    ask: LqAsk

    def __post_init__(self) -> None:
        self.extent()
        if self.ask.rho is not None and max(self.variances) > LARGEST_SCALE**2:
            raise OverflowError(f"{self.domain.name}: noise leaves 64-bit integers; use fewer lattice steps")

    @property
    def square(self) -> int:
        """F^2 = 2 q^2: largest ``|z|^2`` in integers."""
        return 2 * self.ask.steps**2

    @property
    def rows_each(self) -> int:
        """N = m H: rows of one person."""
        return self.domain.episodes_each * self.domain.horizon

    @property
    def gram_l2_squared(self) -> int:
        """Largest squared move of G alone (Frobenius, which is Euclid in svec)."""
        return 2 * (self.rows_each * self.square) ** 2

    @property
    def cross_l2_squared(self) -> int:
        """Largest squared move of X alone."""
        return 4 * self.rows_each**2 * self.square * self.ask.steps**2

    def extent(self) -> Extent:
        """Largest integers of the sums."""
        return Extent(self.domain.episodes * self.domain.horizon, self.square, 1, self.ask.steps)

    @cached_property
    def variances(self) -> tuple[int, int]:
        """Of G's diagonal (off it: half), and of X's entries; the least integers of these shares within ``rho``.

        Raises
        ------
        ValueError
            If the plan has no budget.
        """
        if self.ask.rho is None:
            raise ValueError("this plan draws no noise")
        share = self.ask.gram_share
        gram, cross = self.gram_l2_squared / (2 * share), self.cross_l2_squared / (2 * (1 - share))
        stretch = self._joint(1 / (2 * gram), 1 / (2 * cross)) / self.ask.rho
        return 2 * math.ceil(stretch * gram / 2), math.ceil(stretch * cross)

    def joint(self) -> dict[str, Any]:
        """What the joint bound rests on besides the mechanisms: plain values for release, ledger and certificate."""
        return {
            "rule": "supremum over two people's rows of both tables together",
            "variant": "linear_quadratic",
            "split": False,
            "horizon": self.domain.horizon,
            "episodes": self.domain.episodes_each,
            "square": self.square,
            "features_sha256": None,
            "steps": self.ask.steps,
            "bounds": list(self.domain.bounds),
        }

    @cached_property
    def joint_rho(self) -> Fraction | None:
        """Exact bound on the cost of both tables at these very integers, at most ``ask.rho``; None without noise."""
        if self.ask.rho is None:
            return None
        gram, cross = self.variances
        return self._joint(Fraction(1, 2 * gram), Fraction(1, 2 * cross))

    def _joint(self, gram: Fraction, cross: Fraction) -> Fraction:
        return BallMoves(self.square, self.rows_each).cost(gram, cross * self.ask.steps**2, Fraction(0))


@dataclass(frozen=True)
class LqMoments:
    """What a planner sees: sums of vectors divided by their bounds.

    Parameters
    ----------
    gram, cross
        ``(n+d, n+d)`` symmetric and ``(n+d, n)``.
    gram_sd, cross_sd
        Noise of one entry off G's diagonal, and of one entry of X; 0 without noise.
    bounds
        Of state, control and successor: their units.
    release
        None where no noise was drawn.
    """

    gram: Array
    cross: Array
    gram_sd: float
    cross_sd: float
    bounds: tuple[float, float, float]
    release: Release | None

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.cross.shape[1], len(self.cross) - self.cross.shape[1]


def moments_of(plan: LqPlan, gram: Integers, cross: Integers, release: Release | None) -> LqMoments:
    """Integer sums in units of the bounds, with the noise that the plan puts on them."""
    unit = 1.0 / plan.ask.steps**2
    sds = (0.0, 0.0)
    if plan.ask.rho is not None:
        sds = math.sqrt(plan.variances[0] / 2) * unit, math.sqrt(plan.variances[1]) * unit
    return LqMoments(gram.astype(np.float64) * unit, cross.astype(np.float64) * unit, *sds, plan.domain.bounds, release)


def released_moments(plan: LqPlan, release: Release) -> LqMoments:
    """What a planner sees of a release that this plan priced.

    Raises
    ------
    ValueError
        If the release rests on other terms.
    """
    if release.joint is None or dict(release.joint) != plan.joint():
        raise ValueError(f"{plan.domain.name}: the release was drawn on other terms than this plan's")
    return moments_of(plan, release.tables["gram"], release.tables["target"], release)
