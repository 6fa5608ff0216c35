"""Where an interactive mechanism finds its sums: counts of a finite world, or rows that pass by once a call."""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.features import FeatureMap
from pipeline.statistics.gram import Extent, counted_sums, exact_sums
from pipeline.statistics.linear_plan import LinearPlan
from pipeline.statistics.regression import Value, Weight

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Side = Literal["D", "D'", "both"]


@dataclass(frozen=True)
class Quantiser:
    """Real values to the integers that are summed: clipped, floored on 1/q, shifted by ``offset`` integers.

    ``low`` and ``high`` bound the value in integers; ``reward`` is None where no reward enters (the variance call).
    The sum of a clipped reward and a clipped value lies in the clipped range of both, so the target needs no further
    clip.

    Parameters
    ----------
    lattice
        q: integers of one reward unit.
    low, high
        Bounds on values, integers.
    reward
        Bounds on rewards, integers; None where no reward enters.
    offset
        Subtracted from every target.
    weight_steps
        W: largest weight.
    """

    lattice: int
    low: int
    high: int
    reward: tuple[int, int] | None
    offset: int
    weight_steps: int

    def values(self, value: Array) -> Integers:
        """V on the lattice."""
        with np.errstate(invalid="ignore"):
            k = np.floor(np.nan_to_num(value, nan=self.low / self.lattice) * self.lattice + 1e-9)
        return np.clip(k, self.low, self.high).astype(np.int64)

    def rewards(self, reward: Array) -> Integers:
        """Rewards on the same lattice; zeros where none enters."""
        if self.reward is None:
            return np.zeros(np.shape(reward), dtype=np.int64)
        k = np.floor(np.nan_to_num(reward, nan=self.reward[0] / self.lattice) * self.lattice + 1e-9)
        return np.clip(k, *self.reward).astype(np.int64)

    def targets(self, y: Integers) -> Integers:
        """``(k, ...)``: the target, and before it its square where the call is for variances."""
        return np.stack([y * y, y]) if self.reward is None else y[None]

    def weights(self, weight: Array) -> Integers:
        """Weights in 1 .. W; what is not a number weighs 1."""
        steps = np.rint(np.nan_to_num(weight * self.weight_steps, nan=1.0))
        return np.clip(steps, 1, self.weight_steps).astype(np.int64)


class Rows(Protocol):
    """Raw data behind the privacy wall.  ``side`` names the people: D, D' or both."""

    @property
    def data_kind(self) -> str:
        """Registered kind of the data: real | synthetic."""
        ...

    def sums(
        self, h: int, side: Side, value: Value, quantiser: Quantiser, weight: Weight | None, extent: Extent
    ) -> tuple[Integers, Integers]:
        """Exact Gram matrix ``(d, d)`` and target sums ``(k, d)`` of step ``h``; a weight of None counts 1, not W."""
        ...


@dataclass(frozen=True)
class Tallies:
    """What rows over declared states and actions add up to.

    Parameters
    ----------
    visits
        ``(H, S, A, S')``; S' is S, or S + 1 where the last is the END.
    rewards
        ``(H, S, A)``: each reward clipped and floored on the lattice, then summed.
    first
        ``(S,)``: first states.
    """

    visits: Integers
    rewards: Integers
    first: Integers


@dataclass(frozen=True)
class TalliedRows:
    """Rows of a log over declared states: read once, at the first call, and only their sums are kept.

    ``tally`` gives D and D', or ``both`` where nothing is split; rewards may differ from row to row.

    Parameters
    ----------
    features
        The declared map.
    tally
        Reads the rows and gives their sums, a half of the people each.
    data_kind
        ``real`` or ``synthetic``, as registered.
    """

    features: FeatureMap
    tally: Callable[[], Mapping[Side, Tallies]]
    data_kind: str

    @cached_property
    def tallies(self) -> Mapping[Side, Tallies]:
        """The sums of each side, ``both`` included."""
        found = dict(self.tally())
        if "both" not in found:
            one, two = found["D"], found["D'"]
            found["both"] = Tallies(one.visits + two.visits, one.rewards + two.rewards, one.first + two.first)
        return found

    def sums(
        self, h: int, side: Side, value: Value, quantiser: Quantiser, weight: Weight | None, extent: Extent
    ) -> tuple[Integers, Integers]:
        """See :class:`Rows`."""
        t, (S, A, d) = self.tallies[side], self.features.integers.shape
        n, real = t.visits[h], self.features.integers.astype(np.float64)
        y = quantiser.values(np.append(value(real), 0.0)[: n.shape[-1]]) - quantiser.offset
        targets = np.einsum("kt,sat->ksa", quantiser.targets(y), n)
        if quantiser.reward is not None:
            targets = targets + t.rewards[h]
        w = None if weight is None else quantiser.weights(weight(real)).reshape(-1)
        f = self.features.integers.reshape(-1, d)
        return counted_sums(f, n.sum(-1).reshape(-1), targets.reshape(-1, S * A), w)


def count_rows(
    plan: LinearPlan, visits: Mapping[Side, Integers], rewards: Array, data_kind: str = "synthetic"
) -> TalliedRows:
    """Counts of a finite world, where (h, s, a) fixes the reward of a step: F^T diag(n) F instead of a pass over rows.

    Parameters
    ----------
    plan
        Its features, and the lattice and bounds of its rewards.
    visits
        Half -> ``(H, S, A, S')`` transitions; S' is S, or S + 1 where the last is the END.  ``both`` alone where
        nothing is split.
    rewards
        ``(H, S, A)``.
    data_kind
        ``real`` or ``synthetic``, as registered.
    """
    steps = np.clip(np.floor(rewards * plan.terms.value_steps + 1e-9), *plan.reward_steps).astype(np.int64)
    sums: dict[Side, Tallies] = {side: Tallies(n, steps * n.sum(-1), n[0].sum((1, 2))) for side, n in visits.items()}
    return TalliedRows(plan.features, lambda: sums, data_kind)


@dataclass(frozen=True)
class Batch:
    """Rows of one step: integer ``features (n, d)``, ``reward (n,)``, and where they led.

    ``successors (n, A, d)`` integer features of the next state's actions; ``ended (n,)`` where the episode was over
    (value 0).
    """

    features: Array
    reward: Array
    successors: Array
    ended: NDArray[np.bool_]


@dataclass(frozen=True)
class StreamRows:
    """Rows in batches, read anew at each call; memory does not depend on their number.

    ``batches(h, side)`` must yield whole people's rows of that step, at most the declared episodes a person.

    Parameters
    ----------
    batches
        Step and half -> batches of that step's rows.
    dimension
        d: length of a feature.
    data_kind
        ``real`` or ``synthetic``, as registered.
    """

    batches: Callable[[int, Side], Iterator[Batch]]
    dimension: int
    data_kind: str = "real"

    def sums(
        self, h: int, side: Side, value: Value, quantiser: Quantiser, weight: Weight | None, extent: Extent
    ) -> tuple[Integers, Integers]:
        """See :class:`Rows`."""
        d = self.dimension
        gram = np.zeros((d, d), dtype=np.int64)
        sums = np.zeros((1 if quantiser.reward else 2, d), dtype=np.int64)
        for batch in self.batches(h, side):
            V = np.where(batch.ended, 0.0, value(batch.successors))
            y = quantiser.rewards(batch.reward) + quantiser.values(V) - quantiser.offset
            w = None if weight is None else quantiser.weights(weight(batch.features)).astype(np.float64)
            more = exact_sums(extent, batch.features, quantiser.targets(y).astype(np.float64), w)
            gram += more[0]
            sums += more[1]
        return gram, sums
