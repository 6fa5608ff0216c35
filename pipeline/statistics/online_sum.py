"""Private sums of online agents: from a budget and a layout to variances, in every trust model.

An online agent's sum is a :class:`~pipeline.statistics.private_sum.PrivateSum` of a simulated world:

=========  =============================  =============================================================================
trust      time                           privacy loss of a user
=========  =============================  =============================================================================
none       ``Once``                       everything: the baseline
joint      a tree, the square root, lazy  the cost of one step of all that is ever released
local      ``Once`` over the users        their own message
=========  =============================  =============================================================================

All are protocols of a simulation: the holder of logs is a central curator (privacy.md §0.1-3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Generic, TypeVar

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.budget import down, fraction_of, rho_from_epsilon
from pipeline.privacy.continual import NoiseBlocks, RunningSum, Time
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import DataHandle, NoiseSource
from pipeline.privacy.release import Release, Running, total_rho
from pipeline.statistics.ask import Ask
from pipeline.statistics.layout import Groups, Layout, Sensitivity, SharedLayout, Table
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.regression import Visits

SIMULATED = "simulation, not private"
# the joint bound of an online agent's tables: recomputed from its recipe
ONLINE = "online"
Variances = Mapping[str, int]


class SimulatedLayout(SharedLayout):
    """Layout of an online agent's sums over users of a simulated world; tables are flat."""

    @property
    def dataset(self) -> str:
        return "simulated world"

    @property
    def data_kind(self) -> str:
        return "synthetic"

    @property
    def dynamics(self) -> str:
        return "per_step"


def lattice_table(name: str, size: int, square: int, rule: str) -> Table:
    """A flat table of lattice points: ``square`` is its squared sensitivity, half of it for an added person."""
    replaced, added = (Sensitivity(s, math.isqrt(s * max(size, 1)) + 1, rule) for s in (square, square // 2))
    return Table(name, (size,), "lattice points", replaced, added)


def asked(ask: Ask) -> tuple[float, float]:
    """Epsilon and delta of all contributions of one user; an infinite epsilon means no noise.

    Raises ValueError if one of them is missing: an online agent's budget has both.
    """
    if ask.epsilon is None or ask.delta is None:
        raise ValueError("an online agent's budget is an epsilon with a delta")
    return float(ask.epsilon), ask.delta


def asked_rho(ask: Ask) -> Fraction:
    """The sum's ``part`` of the zCDP budget of ``ask`` (official conversion, privacy.md §1.1), rounded down."""
    rho = down(Fraction(rho_from_epsilon(*asked(ask))) * (1 - Fraction(1, 10**12)))
    return fraction_of(rho) * ask.part


def tight(layout: SharedLayout, ask: Ask, cost: int) -> Variances | None:
    """:func:`least_variances` within the budget of ``ask``; None where epsilon is infinite."""
    if math.isinf(asked(ask)[0]):
        return None
    return least_variances(layout, layout.groups(ask), asked_rho(ask), cost)


def least_variances(layout: Layout, groups: Groups, rho: Fraction, cost: int = 1) -> Variances:
    """The least variances within ``rho``: one joint release of all tables and steps, integers rounded up.

    Each group alone would take its share; then all are stretched alike until their *joint* cost is ``rho``.

    ``cost``: of the time: squared sensitivity to a user in one step.
    Returns table -> integer variance in squared lattice points.
    """
    unit: dict[str, Fraction] = {}
    parts: list[tuple[Mapping[str, int], Fraction]] = []
    for weights, share in groups:
        alone = layout.cost({name: Fraction(1, 2 * w) for name, w in weights.items()}) / share
        parts.append((weights, alone))
        unit |= {name: w * alone for name, w in weights.items()}
    stretch = cost * layout.cost({name: 1 / (2 * v) for name, v in unit.items()}) / rho
    return {name: w * math.ceil(stretch * alone) for weights, alone in parts for name, w in weights.items()}


def cost_of(layout: Layout, variances: Variances | None, cost: int) -> Fraction | None:
    """Exact zCDP cost of the whole release to one user; None without noise.

    ``variances``: table -> integer variance of one row's noise.
    """
    if variances is None:
        return None
    return cost * layout.cost({name: Fraction(1, 2 * v) for name, v in variances.items()})


def entry_variances(layout: Layout, variances: Variances) -> Array:
    """Variance of every integer of one row ``(n,)``, table after table."""
    return np.concatenate([np.full(math.prod(t.shape), float(variances[t.name])) for t in layout.tables])


def stacked(releases: Sequence[Release]) -> Release:
    """Releases of the same tables, each of other people, as one: a person lies in one row of each table."""
    last = releases[-1]
    once = Running(1, len(releases), 1.0)
    return replace(
        last,
        mechanisms=tuple(
            replace(m, shape=(len(releases), *m.shape), running=None if m.variance is None else once)
            for m in last.mechanisms
        ),
        tables={name: np.stack([r.tables[name] for r in releases]) for name in last.tables},
    )


class OnlineSum(RunningSum):
    """A running sum of all tables of an online agent, flat and one after the other ``(n,)``.

    ``noise``: its source; never drawn from where there is no noise.
    Raises RealDataError if the data are registered as real.
    Raises ValueError if the sampler's share of delta is not listed, or the sum is released once.
    """

    def __init__(self, private: PrivateSum, noise: NoiseSource, world: DataHandle) -> None:
        private.admit(noise, world.data_kind)
        if private.time is None:
            raise ValueError("this sum is released once; a running sum needs its times")
        # neighbours of one variance are drawn in one call
        runs = groupby(((m.variance or 0, m.cells) for m in private.mechanisms), key=itemgetter(0))
        merged = [(variance, sum(cells for _, cells in run)) for variance, run in runs]
        blocks = NoiseBlocks(tuple(n for _, n in merged), tuple(v for v, _ in merged), noise, world)
        super().__init__(private.time, blocks)
        self.private, self.guarantee = private, private.guarantee

    def release(self) -> Release:
        """The release so far: the last integers, and the mechanisms of all that is ever released."""
        private, mechanisms = self.private, self.private.at(self.seen)
        ends = np.cumsum([m.cells for m in mechanisms])[:-1]
        tables = np.split(np.rint(self.total()).astype(np.int64), ends)
        rho, joint = private.rho, private.layout.joint()
        # the joint bound is listed where the tables together cost less than each alone
        jointly_bounded = rho is not None and joint is not None and rho != total_rho(mechanisms)
        return Release(
            dataset=private.layout.dataset,
            data_kind=private.layout.data_kind,
            dynamics=private.layout.dynamics,
            # tables without entries are left out: nothing is above the diagonal of one number
            mechanisms=tuple(m for m in mechanisms if m.cells),
            tables={m.table: x.reshape(m.shape) for m, x in zip(mechanisms, tables, strict=True) if m.cells},
            noise="none" if private.exact else self.blocks.noise.name,
            sampler=f"none: exact sums, {SIMULATED}" if private.exact else self.blocks.noise.sampler,
            trust_model=private.trust.value,
            joint_rho=rho if jointly_bounded else None,
            joint={"variant": ONLINE, "rule": joint["rule"]} if jointly_bounded and joint is not None else None,
        )


# a batch of episodes, each a person
Batch = TypeVar("Batch", LqBatch, Visits)


class Counted(Generic[Batch]):
    """The sums of a regularizer, as they are released.

    ``integers``: contribution of a batch ``(n,)``: summed over its episodes, each clipped to its declared bounds.
    ``reads``: False: episodes are counted, and their integers dropped.
    """

    reads = True

    def __init__(
        self, integers: Callable[[Batch], Integers], sums: OnlineSum, lam: float, *, each: bool = False
    ) -> None:
        if not lam > 0:
            raise ValueError(f"lam must be positive; got {lam}")
        self.guarantee, self.release, self._integers = sums.guarantee, sums.release, integers
        self._counter, self._lam, self._each, self.seen = sums, lam, each, 0

    def observe(self, batch: Batch) -> None:
        """Add the next batch; it is cut to its bounds here."""
        self._counter.add(self.reads * self._integers(batch), batch.episodes if self._each else 1)
        self.seen += batch.episodes


def begin(
    layout: Layout,
    variances: Variances | None,
    time: Time,
    trust: Trust,
    world: DataHandle,
    noise: NoiseSource,
    ask: Ask | None = None,
) -> OnlineSum:
    """A sum of these variances at its beginning, with the sampler's share of delta listed; see :class:`OnlineSum`.

    ``variances``: table -> integer variance of one row's noise; None: no noise.
    ``ask``: the stated budget; None: none.
    """
    private = PrivateSum(layout, tuple(t.mechanism() for t in layout.tables), time, trust)
    if variances is not None:
        running = Running(time.cost, time.draws, time.error(time.steps))
        drawn = (replace(t.mechanism(variances[t.name]), running=running) for t in layout.tables)
        private = replace(private, mechanisms=tuple(drawn))
        private = private.with_slack(noise, math.inf if ask is None else asked(ask)[0])
    return OnlineSum(private, noise, world)
