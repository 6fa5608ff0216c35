"""What episodes add to the regressions of a linear mixture agent: integers, how far one person moves them.

At step h an episode adds phi phi^T and phi V(s') with phi = phi_V(s, a), V = V_{h+1}, 0 <= V <= v_h; nothing at the
last step, where V = 0.  All entries are at least 0.  Two episodes at one step differ by squared lengths of at most

============  ====================================================  =============================================
what          declared bound of one episode                         replace-one, squared
============  ====================================================  =============================================
``gram``      ||phi phi^T||_F <= L^2 v_h^2 (``unit``: 1)            2 (L^2 v_h^2)^2: both matrices are psd
``target``    ||phi V(s')|| <= L v_h^2 (``unit``: 1)                2 (L v_h^2)^2: both vectors are >= 0
============  ====================================================  =============================================

L is the features' declared stretch, sqrt(S) for one-hot ones: paper 001 takes it as 1, which one-hot features break.
``unit`` features divide a row by the public weight max(||V||_inf, max_(s,a) ||phi_V(s,a)||): theta is the same, and the
whole message moves by 4 (H - 1) in squared length, for any S.

A second message holds paper 000's reward counters, phi_r phi_r^T and phi_r r at every step: 1 and r's declared range.

Entries are cut to their bounds and floored to 2^-26 of them *before* noise, so the moves hold in integers: 2 * 2^52.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.layout import Rates, Relation, Table
from pipeline.statistics.online_sum import Groups, SimulatedLayout, lattice_table

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# lattice points from 0 to a declared bound
LATTICE = 2**26
# largest squared move of one step's Gram matrix, and of its target, in lattice points
MOVE = 2 * LATTICE**2
# of the budget.  A tenth is chosen by us: on RiverSwim, S = 3, the targets need the rest (of 3/4, 1/2, 1/4, 1/10, 1/30
# the last two lose least at epsilon = 1)
GRAM_SHARE = Fraction(1, 10)
PARTS = ("diagonal", "above", "target")
_INSIDE = 1 - 2**-40
# an extreme episode beside the declared bound, squared
_TOO_LONG = 3.0


@dataclass(frozen=True)
class Visits:
    """Distinct regression rows of a batch of episodes that were played by one policy.

    Parameters
    ----------
    step, block
        ``(n,)`` where each row belongs.
    phi, response
        ``(n, d)`` regressor and ``(n,)`` what is regressed on it.
    count
        ``(n,)`` episodes of the batch that met the row.
    episodes
        Of the batch, a person each.
    """

    step: Integers
    block: Integers
    phi: Array
    response: Array
    count: Integers
    episodes: int


@dataclass(frozen=True)
class Message(SimulatedLayout):
    """Shape and bounds of one episode's statistics, all declared.

    Parameters
    ----------
    blocks, dimension
        Of the features.
    stretch
        L, at least ``||phi_V|| / ||V||_inf``; 1 for rewards.
    ranges
        ``(steps,)`` largest response: v_h, value of the *next* step, or reward of this one; reward units.
    value
        Largest value of a whole episode, or reward of one step: the papers' H, or their 1.
    unit
        Whether rows come divided by the public weight.
    of
        What is regressed.
    """

    blocks: int
    dimension: int
    stretch: float
    ranges: tuple[float, ...]
    value: float
    unit: bool
    of: Literal["transitions", "rewards"] = "transitions"

    @property
    def steps(self) -> int:
        """Steps with a regression."""
        return len(self.ranges)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Integers on the diagonals, above them, and in the targets."""
        rows = self.steps * self.blocks
        above = self.dimension * (self.dimension - 1) // 2
        return rows * self.dimension, rows * above, rows * self.dimension

    @property
    def tables(self) -> tuple[Table, ...]:
        """See :class:`~pipeline.statistics.layout.Layout`: diagonals of all steps, entries above them, targets."""
        psd, unit = "both Gram matrices are psd", self.steps
        parts = [("diagonal", MOVE, psd), ("above", MOVE // 2, psd), ("target", MOVE, "both targets are at least 0")]
        return tuple(
            lattice_table(f"{name}_{h}", size // unit, move, rule)
            for (name, move, rule), size in zip(parts, self.sizes, strict=True)
            for h in range(self.steps)
        )

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """See :class:`~pipeline.statistics.layout.Layout`: the worst pair meets every step at its worst.

        A Gram matrix has squared length diagonal^2 + 2 above^2, so its part costs MOVE times the larger of the
        diagonal's rate and half of the rate above it: attained by variances that are isotropic in svec coordinates and
        by unit rows, an upper bound for the papers' equal variances.
        """
        total = Fraction(0)
        for h in range(self.steps):
            diagonal, above, target = (rates.get(f"{name}_{h}", Fraction(0)) for name in PARTS)
            total += max(diagonal, above / 2) + target
        return total * (MOVE if relation == "replace" else MOVE // 2)

    def joint(self) -> dict[str, object]:
        """See :class:`~pipeline.statistics.layout.Layout`."""
        return {"rule": "every step at its worst; a Gram matrix by its Frobenius norm", "steps": self.steps}

    def groups(self, ask: Ask) -> Groups:
        """See :class:`~pipeline.statistics.online_sum.SimulatedLayout`: equal shares a step."""
        share, gram = Fraction(1, self.steps), ask.share("gram", GRAM_SHARE)
        grams = [({f"diagonal_{h}": 2, f"above_{h}": 1}, share * gram) for h in range(self.steps)]
        return [*grams, *(({f"target_{h}": 1}, share * (1 - gram)) for h in range(self.steps))]

    def extremes(self) -> Iterator[Visits]:
        """Two episodes whose rows lie in a block, or on a coordinate, of their own; longer than the bounds allow."""
        d, steps = self.dimension, np.arange(self.steps)
        for which in (0, 1):
            block, row = (which, 0) if self.blocks > 1 else (0, which % d)
            length = np.sqrt(self.gram_bound * _TOO_LONG)
            phi = np.eye(d)[row] * length[:, None]
            response = self.target_bound * _TOO_LONG / length
            yield Visits(steps, np.full_like(steps, block), phi, response, np.ones_like(steps), 1)

    @property
    def horizon(self) -> int:
        """H: transitions are not regressed at the last step."""
        return self.steps + (self.of == "transitions")

    @property
    def row_bound(self) -> Array:
        """Largest norm of a regressor ``(steps,)``."""
        return np.ones(self.steps) if self.unit or self.of == "rewards" else self.stretch * np.array(self.ranges)

    @property
    def gram_bound(self) -> Array:
        """Largest Frobenius norm of one step's Gram matrix ``(steps,)``."""
        return self.row_bound**2

    @property
    def target_bound(self) -> Array:
        """Largest norm of one step's target ``(steps,)``."""
        return np.ones(self.steps) if self.unit else self.row_bound * np.array(self.ranges)

    def integers(self, visits: Visits) -> Integers:
        """Sum of the batch's messages ``(n,)``: diagonals, entries above them, targets, each in points of its bound.

        Whatever leaves the declared bounds is cut to them, row by row.

        Raises
        ------
        ValueError
            If a step has more visits than there are episodes: a person has one row a step.
        """
        if (np.bincount(visits.step, visits.count, self.steps) > visits.episodes).any():
            raise ValueError("more rows at a step than episodes; a person adds one row a step")
        d, times = self.dimension, visits.count[:, None]
        i, j = np.triu_indices(d, 1)
        products = np.concatenate([visits.phi**2, visits.phi[:, i] * visits.phi[:, j]], axis=1)
        weight = np.repeat([1.0, 2.0], [d, len(i)])
        matrix = times * _on_lattice(products, self.gram_bound[visits.step], weight)
        response = visits.response[:, None] * visits.phi
        vector = times * _on_lattice(response, self.target_bound[visits.step], np.ones(d))
        place = visits.step * self.blocks + visits.block
        parts = list[Integers]()
        for rows in (matrix[:, :d], matrix[:, d:], vector):
            total = np.zeros((self.steps * self.blocks, rows.shape[1]), dtype=np.int64)
            np.add.at(total, place, rows)
            parts.append(total.ravel())
        return np.concatenate(parts)

    def sums(self, total: Array) -> tuple[Array, Array]:
        """The inverse on sums ``(n,)``: ``(steps, blocks, d, d)`` symmetric and ``(steps, blocks, d)``, real units."""
        d, rows = self.dimension, (self.steps, self.blocks)
        diagonal, above, target = np.split(total, np.cumsum(self.sizes)[:2])
        gram = np.zeros((*rows, d, d))
        i, j = np.triu_indices(d, 1)
        gram[..., i, j] = gram[..., j, i] = above.reshape(*rows, -1)
        gram[..., np.arange(d), np.arange(d)] = diagonal.reshape(*rows, d)
        gram *= (self.gram_bound / LATTICE)[:, None, None, None]
        return gram, target.reshape(*rows, d) * (self.target_bound / LATTICE)[:, None, None]


def _on_lattice(x: Array, bound: Array, weight: Array) -> Integers:
    """Lattice points of rows ``x (n, m)``, each row's weighted squared length at most LATTICE^2, exactly."""
    # what is no number counts as nothing: it would leave every bound
    points = np.floor(np.clip(np.nan_to_num(x / bound[:, None], nan=0.0), 0.0, 1.0) * LATTICE)
    # sums of squares up to the bound, 2^52, are exact in float64
    square = (points**2 * weight).sum(1, keepdims=True)
    shrink = np.where(square > LATTICE**2, LATTICE / np.sqrt(np.maximum(square, 1.0)) * _INSIDE, 1.0)
    return np.floor(points * shrink).astype(np.int64)


@dataclass(frozen=True)
class Ridge:
    """``Lambda (steps, blocks, d, d)`` positive definite and ``U (steps, blocks, d)``, real units."""

    Lambda: Array
    U: Array


@dataclass(frozen=True)
class Bounds:
    """Paper 000, Assumption 2, a step ``(steps,)`` each.

    Parameters
    ----------
    lambda_min, lambda_max
        The regularizer lies between them.
    nu
        The noise of U is at most so long in the norm of Lambda^-1.
    """

    lambda_min: Array
    lambda_max: Array
    nu: Array


class Regularizer(Protocol):
    """Takes batches of episodes, shows noisy sums."""

    @property
    def seen(self) -> int:
        """Episodes so far."""
        ...

    @property
    def bounds(self) -> Bounds:
        """What the noise may do to the sums that :meth:`ridge` shows now."""
        ...

    def observe(self, visits: Visits) -> None:
        """One batch of episodes, played by one policy; cut to the declared bounds here."""
        ...

    def ridge(self) -> Ridge:
        """The released sums, made positive definite."""
        ...

    def release(self) -> Release:
        """The noisy sums so far, as a run's folder keeps them."""
        ...
