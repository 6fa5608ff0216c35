"""The layout of LQ moments: what a private release of them declares, and what both tables cost jointly.

Both sums of paper 004, G = sum of z z' and X = sum of z x_next' with z = (x, u), leave in one release.  Every vector is
divided by its declared bound and put on a lattice of q steps, so ``|x|, |u|, |x_next| <= q`` and ``|z|^2 <= 2 q^2`` in
integers.  One person adds at most N = m H rows; a replacement moves, for a row pair with <z, z~> = 2 q^2 c,

* G by at most ``sqrt(1 - c^2) sqrt(2) 2 q^2`` (both terms are positive semidefinite),
* X by at most ``sqrt((1 + |c|) / 2) 2 sqrt(2) q^2``,

and N times that by the triangle inequality.  The paper's Delta_2 = H (1 + gamma) is that of adding a person.  The two
largest moves exclude each other: :class:`~pipeline.statistics.gram_moves.BallMoves` bounds them together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram import Extent
from pipeline.statistics.gram_moves import BallMoves
from pipeline.statistics.layout import Rates, Relation, Sensitivity, Table
from pipeline.statistics.lq_rows import Episodes, stretched
from pipeline.statistics.private_sum import PrivateSum

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# angles that an audit tries between two states, and between two controls
ANGLES = 25


@dataclass(frozen=True)
class LqDomain:
    """Declared before any row is read.

    Parameters
    ----------
    name
        Of the lineage.
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
class LqPlan:
    """Everything the release depends on but the rows; see :class:`~pipeline.statistics.layout.Layout`.

    Parameters
    ----------
    domain
        What is declared.
    ask
        zCDP budget, none for a baseline; ``gram`` in its ``split`` is the share for G, the rest is for X.
    steps
        q: lattice steps from the middle of a ball to its edge.

    Raises
    ------
    OverflowError
        If sums or noise could leave 64-bit integers.
    """

    domain: LqDomain
    ask: Ask
    steps: int = 4096

    def __post_init__(self) -> None:
        if (self.rho is not None and self.rho <= 0) or self.steps < 1 or not 0 < self.gram_share < 1:
            raise ValueError(f"rho and steps must be positive, 0 < gram_share < 1; got {self.ask}, steps={self.steps}")
        self.extent()
        if self.rho is not None and max(self.variances) > LARGEST_SCALE**2:
            raise OverflowError(f"{self.domain.name}: noise leaves 64-bit integers; use fewer lattice steps")

    @property
    def rho(self) -> Fraction | None:
        """ZCDP budget, exactly; None: no noise (a baseline, simulation only)."""
        return self.ask.zcdp()

    @property
    def gram_share(self) -> Fraction:
        """Share of the budget on sums of z z'."""
        return self.ask.share("gram", Fraction(3, 10))

    def without_noise(self) -> LqPlan:
        """The same sums, exact: a baseline, simulation only."""
        return replace(self, ask=replace(self.ask, rho=None, epsilon=None))

    @property
    def square(self) -> int:
        """F^2 = 2 q^2: largest ``|z|^2`` in integers."""
        return 2 * self.steps**2

    @property
    def rows_each(self) -> int:
        """N = m H: rows of one person."""
        return self.domain.episodes_each * self.domain.horizon

    @property
    def dataset(self) -> str:
        """Name of the lineage."""
        return self.domain.name

    @property
    def data_kind(self) -> str:
        """``real`` or ``synthetic``, as registered."""
        return self.domain.kind

    @property
    def dynamics(self) -> str:
        """Pooled over all steps."""
        return "linear_quadratic"

    @property
    def tables(self) -> tuple[Table, ...]:
        """G (Frobenius, which is Euclid in svec) and X, each with the largest squared move that it has alone."""
        d, n, rows, q = self.domain.dimension, self.domain.state, self.rows_each, self.steps
        gram = ("gram", (d, d), "svec: half the variance off the diagonal", (rows * self.square) ** 2, 2)
        cross = ("target", (d, n), "rows cut to their balls", rows**2 * self.square * q**2, 4)

        def sensitivity(square: int, shape: tuple[int, int], words: str) -> Sensitivity:
            rule = f"{words}; both tables together cost less than their sum"
            return Sensitivity(square, math.isqrt(square * shape[0] * shape[1]) + 1, rule)

        return tuple(
            Table(
                name,
                shape,
                "lattice steps squared",
                sensitivity(times * alone, shape, words),
                sensitivity(alone, shape, words),
                symmetric=name == "gram",
            )
            for name, shape, words, alone, times in (gram, cross)
        )

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """See :class:`~pipeline.statistics.layout.Layout`."""
        gram, cross = (rates.get(name, Fraction(0)) for name in ("gram", "target"))
        moves = BallMoves(self.square, self.rows_each)
        return moves.cost(gram, cross * self.steps**2, Fraction(0), relation)

    def extremes(self) -> Iterator[Episodes]:
        """One person stands still; the others flip their sign at every step, turned by two angles.

        Rows are longer than their balls allow, so that a release which does not cut gives itself away.
        """
        yield self._person((0.0, 0.0), 1.0)
        for angles in itertools.product(np.linspace(0, math.pi, ANGLES), repeat=2):
            yield self._person((float(angles[0]), float(angles[1])), -1.0)

    def _person(self, angles: tuple[float, float], flip: float) -> Episodes:
        D, m = self.domain, self.domain.episodes_each  # noqa: N806
        # each state just so much longer than the one before that, cut as rows are, both reach their balls
        growth = max(1.0, D.successor_bound / D.state_bound)
        bounds = D.state_bound, D.control_bound
        states, controls = stretched(D.horizon, (D.state, D.control), bounds, angles, flip * growth)
        return Episodes(np.tile(states, (m, 1, 1)), np.tile(controls, (m, 1, 1)), np.full(m, D.horizon))

    def extent(self) -> Extent:
        """Largest integers of the sums."""
        return Extent(self.domain.episodes * self.domain.horizon, self.square, 1, self.steps)

    @cached_property
    def variances(self) -> tuple[int, int]:
        """Of G's diagonal (off it: half), and of X's entries; the least integers of these shares within ``rho``.

        Raises
        ------
        ValueError
            If the plan has no budget.
        """
        if self.rho is None:
            raise ValueError("this plan draws no noise")
        share, alone = self.gram_share, {t.name: t.replace.l2_squared for t in self.tables}
        gram, cross = alone["gram"] / (2 * share), alone["target"] / (2 * (1 - share))
        stretch = self.cost({"gram": 1 / (2 * gram), "target": 1 / (2 * cross)}) / self.rho
        return 2 * math.ceil(stretch * gram / 2), math.ceil(stretch * cross)

    @cached_property
    def summed(self) -> PrivateSum:
        """Both sums with their noise: none where there is no budget (simulation only)."""
        variances = (None, None) if self.rho is None else self.variances
        return PrivateSum(self, tuple(t.mechanism(v) for t, v in zip(self.tables, variances, strict=True)))

    def joint(self) -> dict[str, object]:
        """What the joint bound rests on besides the mechanisms: plain values for release, ledger and certificate."""
        return {
            "rule": "supremum over two people's rows of both tables together",
            "variant": "linear_quadratic",
            "split": False,
            "horizon": self.domain.horizon,
            "episodes": self.domain.episodes_each,
            "square": self.square,
            "features_sha256": None,
            "steps": self.steps,
            "bounds": list(self.domain.bounds),
        }
