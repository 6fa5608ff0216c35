"""The pre-declared plan of a linear release: its queries, their order, and the most that each call may cost.

Made from declared constants alone.  ``plan`` prints it, the ledger charges it and the interactive mechanism is built
from it; the scales of later calls are adaptive (they follow earlier *noisy* answers), their costs are
fixed here.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.mdp.features import FeatureMap, ObservedMap, observed_map
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram import Extent, Reach, moves, table_moves

Variant = Literal["paper", "centred", "one_shot"]
Half = Literal["D", "D'"]

# weight of the one-shot reward column against a successor's: measured on Appendix F, 1 is worse
_REWARD_WEIGHT = 3
# of a call's budget on its Gram matrix, and of a step's on the variance step where halves are not disjoint
GRAM_SHARE, VARIANCE_SHARE = Fraction(9, 20), Fraction(2, 5)


@dataclass(frozen=True)
class LinearDomain:
    """Declarations of a linear decision problem.

    ``users``, ``episodes``: public number of people and cap on episodes each: never counted (privacy.md §0.1-7).
    ``can_end``: whether an episode may end before H; the value from then on is 0.
    """

    name: str
    kind: Literal["real", "synthetic"]
    horizon: int
    users: int
    bounds: tuple[float, float] = (0.0, 1.0)
    episodes: int = 1
    can_end: bool = False
    teaching: Fraction = Fraction(1)

    @property
    def total(self) -> int:
        """Declared number of episodes, of all people: no sum holds more."""
        return self.users * self.episodes

    @property
    def taught(self) -> int:
        """K: declared number of episodes of the people who learn."""
        return max(1, round(self.total * self.teaching))

    def value_range(self, h: int) -> tuple[float, float]:
        """Least and largest value to go at 0-based step ``h``: the paper's [0, H-h+1] for rewards in [0, 1]."""
        low, high = self.bounds
        if self.can_end:
            low, high = min(low, 0.0), max(high, 0.0)
        return (self.horizon - h) * low, (self.horizon - h) * high


@dataclass(frozen=True)
class LinearTerms:
    """Terms of a linear release.

    ``ask``: zCDP budget, none for a baseline, and calibration.
    ``variant``: ``paper``: Algorithm 2's targets; ``centred``: targets less the mid-range of the private V~;
    ``one_shot``: non-adaptive tables, all planning afterwards free.
    ``variance``: whether there is a variance step (PEVI has none).
    ``value_steps``, ``weight_steps``: q, lattice steps of one reward unit for rewards *and* values; W, steps of a
    weight.
    """

    ask: Ask
    variant: Variant = "centred"
    halves: bool = False
    variance: bool = True
    value_steps: int = 1024
    weight_steps: int = 1024


@dataclass(frozen=True)
class LinearPlan:
    """The queries of a linear release, with their costs.

    ``terms``: budget, targets and lattice.
    Raises ValueError if the paper's calibration meets another variant than the paper's, or the paper's targets could be
    negative.
    Raises OverflowError if a sum could leave 64-bit integers.
    """

    domain: LinearDomain
    terms: LinearTerms
    features: FeatureMap

    def __post_init__(self) -> None:
        if self.rho is not None and self.rho <= 0:
            raise ValueError(f"rho must be positive; got {self.rho}")
        if self.printed and self.terms.variant != "paper":
            raise ValueError(f"the paper prints scales for its own variant only; got variant {self.terms.variant!r}")
        if self.terms.variant == "paper" and self.domain.bounds[0] < 0:
            raise ValueError(f"the paper's targets are never negative; got rewards from {self.domain.bounds[0]:g}")
        self.extent()

    @property
    def rho(self) -> Fraction | None:
        """ZCDP budget, exactly; None: no noise (a baseline, simulation only)."""
        return self.terms.ask.zcdp()

    @property
    def printed(self) -> bool:
        """True where scales are those that the paper prints."""
        return self.terms.ask.calibration == "paper"

    def without_noise(self) -> "LinearPlan":
        """The same queries with exact answers: a baseline, simulation only."""
        return replace(self, terms=replace(self.terms, ask=replace(self.terms.ask, rho=None, epsilon=None)))

    @cached_property
    def reach(self) -> Reach:
        """Moves of one person at one step."""
        return moves(self.features, self.domain.episodes)

    @cached_property
    def table_reach(self) -> Reach:
        """The same of a one-shot table."""
        return table_moves(self.features, *self.one_shot_steps, self.domain.episodes)

    def weight(self, half: Half) -> int:
        """W of a half's sums: only the regression after a variance step is weighted."""
        return self.terms.weight_steps if half == "D" and self.terms.variance else 1

    @property
    def reward_steps(self) -> tuple[int, int]:
        """Least and largest reward of a step on the lattice."""
        low, high = self.domain.bounds
        return math.floor(low * self.terms.value_steps), math.floor(high * self.terms.value_steps + 1e-9)

    @property
    def one_shot_steps(self) -> tuple[int, int]:
        """Integers of a row of the one-shot table: at its successor, and the largest of its reward."""
        least, most = self.reward_steps
        # rewards are summed in half steps round the middle, so that both ends are equally far
        return round(2 * self.terms.value_steps / _REWARD_WEIGHT), most - least

    @cached_property
    def onto(self) -> ObservedMap | None:
        """Features of an observation that a row led to, a column each; None: a column a declared state."""
        source = self.features.sample_of
        return None if source is None else observed_map(source).onto(self.one_shot_steps[0])

    @property
    def successors(self) -> int:
        """Columns of the one-shot table for successors, without END."""
        return len(self.features.integers) if self.onto is None else self.onto.dimension

    @cached_property
    def landings(self) -> Integers:
        """``(S', successors)`` integers that a row adds to those columns, by the declared successor it led to."""
        tag, points = self.one_shot_steps[0], self.features.points
        if self.onto is None or points is None:
            return tag * np.eye(self.successors, dtype=np.int64)
        return self.onto.of_actions(*points)[:, 0].astype(np.int64)

    @cached_property
    def fit(self) -> Array:
        """``(columns, S')``: values of the declared successors, END last, to the columns that stand for them best."""
        (P, k), e = self.landings.shape, self.domain.can_end  # noqa: N806
        fit = np.zeros((k + e, P + e))
        fit[:k, :P] = np.eye(k) if self.onto is None else np.linalg.pinv(self.landings / self.one_shot_steps[0])
        fit[k:, P:] = 1.0
        return fit

    @property
    def centred(self) -> bool:
        """True where a mid-range is subtracted from targets, so they have both signs."""
        return self.terms.variant != "paper"

    def extent(self) -> Extent:
        """Largest integers of any sum, over all windows an adaptive call may use."""
        low, high = self.domain.value_range(0)
        # uncentred targets keep their distance from 0
        reach = int((high - low if self.centred else high) * self.terms.value_steps) + 2
        target = -(-reach // 2) if self.centred else reach
        if self.terms.variant == "one_shot":
            return Extent(self.domain.total, self.features.square, 1, max(target, *self.one_shot_steps))
        if not self.terms.variance:
            return Extent(self.domain.total, self.features.square, 1, target)
        # squared targets carry no weight, weighted ones no square
        weight = self.terms.weight_steps
        return Extent(self.domain.total, self.features.square, weight, max(-(-(target**2) // weight), target))

    def step_rho(self, h: int) -> Fraction | None:
        """Most that all calls at step ``h`` together may cost one person."""
        return None if self.rho is None else self.rho / self.domain.horizon

    def call_rho(self, h: int, half: Half, *, whole: bool = False) -> Fraction | None:
        """Most that one call may cost: all of the step where halves are disjoint, or for the only call (``whole``)."""
        rho = self.step_rho(h)
        if rho is None or self.terms.halves or whole or not self.terms.variance or h == self.domain.horizon - 1:
            return rho
        return rho * (VARIANCE_SHARE if half == "D'" else 1 - VARIANCE_SHARE)


def features_digest(features: FeatureMap) -> str:
    """Sha256 of the integers of a map, row by row, with their shape and bound."""
    head = f"{features.integers.shape} {features.square} {features.sample_of or ''}".encode()
    return hashlib.sha256(head + features.integers.astype("<i8").tobytes()).hexdigest()


def declared_map(features: Mapping[str, Any]) -> FeatureMap:
    """The map that the ``features`` of ``policy.json`` declare.

    ``features``: ``integers (S, A, d)``, the bound ``square``, and the exact square of their unit as text; optionally
    ``sample_of``, the map of observations of which the integers are a public sample.
    """
    integers = np.array(features["integers"], dtype=np.int64)
    return FeatureMap(integers, int(features["square"]), Fraction(features["unit_squared"]), features.get("sample_of"))
