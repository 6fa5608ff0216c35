"""A private sum, a noisy sum over people, is one value: *layout × trust × time*.

==========  ===================================================================================================
part        defines
==========  ===================================================================================================
layout      the tables of integers, their sensitivity to one person (each alone, and jointly), and the extreme people
            whom an audit compares
trust       who adds the noise, and to what: a curator to the sums, or every person to their own message
time        released once, or again and again as a running sum (:mod:`pipeline.privacy.continual`)
==========  ===================================================================================================

:class:`PrivateSum` puts the three together.  It knows its cost, adds its noise, lists its
mechanisms for the certificate, and names the two people who are easiest to distinguish.  Noise is added to the sums of
a log only here, so the conditions of every release (source of noise, kind of data, the sampler's share of delta) are
checked here.

An online agent's sum is one of a simulated world (:class:`OnlineSum`), from a budget and a layout to variances:

=========  =============================  =============================================================================
trust      time                           privacy loss of a user
=========  =============================  =============================================================================
none       ``Once``                       everything: the baseline
joint      a tree, the square root, lazy  the cost of one step of all that is ever released
local      ``Once`` over the users        their own message
=========  =============================  =============================================================================

All are protocols of a simulation: the holder of logs is a central curator (privacy.md §0.1-3).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Generic, TypeVar

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.budget import down, fraction_of, rho_from_epsilon, rho_of_pure
from pipeline.privacy.continual import NoiseBlocks, Row, RunningSum, Time, draw_rows
from pipeline.privacy.losses import GaussianGuarantee, Trust
from pipeline.privacy.noise import DataHandle, NoiseSource, RealDataError, admit_release, symmetric_noise
from pipeline.privacy.release import Mechanism, Release, Running, check_slack, total_rho, with_sampler_slack
from pipeline.statistics.ask import Ask
from pipeline.statistics.layout import ExactSums, Groups, Layout, Sensitivity, SharedLayout, Table, Tables
from pipeline.statistics.regression import Visits

Person = TypeVar("Person")


@dataclass(frozen=True)
class PrivateSum:
    """Sums over people, seen through noise.

    ``time``: when sums are released; None: once.
    """

    layout: Layout
    mechanisms: tuple[Mechanism, ...]
    time: Time | None = None
    trust: Trust = Trust.CENTRAL

    @property
    def exact(self) -> bool:
        """True where no table has noise: a baseline, simulation only."""
        return all(m.variance is None and m.scale is None for m in self.mechanisms)

    @property
    def rates(self) -> dict[str, Fraction]:
        """Table -> zCDP cost of moving it by length 1, for every table of Gaussian noise."""
        return {m.table: Fraction(1, 2 * m.variance) for m in self.mechanisms if m.variance}

    @property
    def rho(self) -> Fraction | None:
        """Exact zCDP cost of all that is ever released, tables bounded together; None where a table has no noise."""
        if any(m.variance is None for m in self.mechanisms):
            return total_rho(self.mechanisms)
        return self.layout.cost(self.rates) * (1 if self.time is None else self.time.cost)

    @property
    def joining_cost(self) -> Fraction | None:
        """Exact zCDP cost to an added or removed person: the cost to a person who is in one of two disjoint lineages.

        At most the cost of replacing one, which may be by an absent person; None where a table has no noise.
        """
        scales = {m.table: m.scale for m in self.mechanisms if m.scale}
        if len(scales) + len(self.rates) < len(self.mechanisms):
            return None
        pure = sum((t.add_remove.l1 / scales[t.name] for t in self.layout.tables if t.name in scales), Fraction(0))
        gaussian = self.layout.cost(self.rates, "add_remove") * (1 if self.time is None else self.time.cost)
        return rho_of_pure(pure) + gaussian

    @property
    def guarantee(self) -> GaussianGuarantee:
        """Guarantee of the noise to one user, under *replace one*."""
        return GaussianGuarantee(self.trust, self.rho)

    def at(self, t: int) -> tuple[Mechanism, ...]:
        """The mechanisms with the noise of the ``t``-th running sum, ``t`` from 1; unchanged for a one-off release."""
        if self.time is None:
            return self.mechanisms
        error = self.time.error(t)
        return tuple(
            m if m.running is None else replace(m, running=replace(m.running, error=error)) for m in self.mechanisms
        )

    def with_slack(self, noise: NoiseSource, epsilon: float) -> "PrivateSum":
        """The same with the sampler's share of delta listed; see
        :func:`~pipeline.privacy.release.with_sampler_slack`.
        """
        return replace(self, mechanisms=with_sampler_slack(self.mechanisms, noise, epsilon, self._symmetric))

    def admit(self, noise: NoiseSource, data_kind: str | None = None) -> None:
        """Refuse, before any row is read, a draw that would not be private on real data (privacy.md §0.1-2).

        ``data_kind``: kind recorded with the data; None: not known yet.
        Raises RealDataError if the data are real and the noise is not the operating system's, a table has none, the
        trust model is not central; or if the data are of another kind than declared.
        Raises ValueError if the sampler's share of delta is not listed.
        """
        layout, without_noise = self.layout, any(m.variance is None and m.scale is None for m in self.mechanisms)
        admit_release(noise, layout.dataset, layout.data_kind, without_noise)
        if layout.data_kind == "real" and self.trust != Trust.CENTRAL:
            raise RealDataError(f"{layout.dataset} is registered as real: whoever holds a log is a central curator")
        if data_kind is not None and data_kind != layout.data_kind:
            noise.admit(data_kind)
            raise RealDataError(
                f"{layout.dataset}: the data say {data_kind!r}, declared is {layout.data_kind!r}; nothing was drawn"
            )
        # every draw passes here first, so a sampler's share is always counted
        check_slack(self.mechanisms, noise, self._symmetric)

    def perturb(self, sums: Tables, noise: NoiseSource, data: DataHandle) -> dict[str, Integers]:
        """Noisy tables, each with noise of its own drawn once, in the order of the mechanisms.

        Raises RealDataError see :meth:`admit`.
        Raises ValueError as well, if the mechanisms are those of a counter's rows, or a table has another shape.
        """
        self.admit(noise, data.data_kind)
        if any(m.running is not None for m in self.mechanisms):
            raise ValueError("these are scales of a counter's rows: its nights are drawn one by one, never at once")
        tables: dict[str, Integers] = {}
        for m in self.mechanisms:
            if sums[m.table].shape != m.shape:
                raise ValueError(f"table {m.table} must be {m.shape}; got {sums[m.table].shape}")
            tables[m.table] = sums[m.table] + _noise(m, m.table in self._symmetric, noise, data)
        return tables

    def draw(self, sums: ExactSums, noise: NoiseSource) -> Release:
        """Add noise to every table; never-visited cells get noise like all others.

        Raises RealDataError, ValueError see :meth:`perturb`.
        """
        tables, joint = self.perturb(sums.tables, noise, sums), self.layout.joint()
        what = "counts" if joint is None else "sums"
        return Release(
            dataset=sums.dataset,
            data_kind=sums.data_kind,
            dynamics=sums.dynamics,
            mechanisms=self.mechanisms,
            tables=tables,
            noise="none" if self.exact else noise.name,
            sampler=f"none: exact {what}, simulation, not private" if self.exact else noise.sampler,
            trust_model=self.trust.value,
            joint_rho=None if joint is None else self.rho,
            joint=joint,
        )

    def draw_rows(
        self, rows: Sequence[Row], leaf: Callable[[int], Integers | None], noise: NoiseSource, data: DataHandle
    ) -> Integers:
        """Rows of a counter as they are released: each with noise of its own, drawn here and once.

        ``leaf``: from the number of a step, counted from 1, to its exact tables, flat and one after the other ``(n,)``,
        or None.
        Returns ``(len(rows), n)``.
        Raises RealDataError, ValueError see :meth:`admit`.
        """
        self.admit(noise, data.data_kind)
        sizes, variances = tuple(m.cells for m in self.mechanisms), tuple(m.variance or 0 for m in self.mechanisms)
        return draw_rows(rows, leaf, NoiseBlocks(sizes, variances, noise, data))

    def worst_pair(self, sum_of: Callable[[Person], Tables]) -> tuple[Person, Person]:
        """The two extreme people of the layout whom this noise hides least; an audit attacks this pair.

        ``sum_of``: from a person of the layout's ``extremes`` to that person's exact tables, by the shipped code that
        sums.
        """
        people: list[Person] = list(self.layout.extremes())
        points = np.array([self._whiten(sum_of(person)) for person in people])
        pure, worst, pair = all(m.scale is not None for m in self.mechanisms), -1.0, (0, 0)
        for i in range(len(points) - 1):
            moves = np.abs(points[i + 1 :] - points[i])
            losses = moves.sum(1) if pure else (moves**2).sum(1)
            if (most := float(losses.max())) > worst:
                worst, pair = most, (i, i + 1 + int(losses.argmax()))
        return people[pair[0]], people[pair[1]]

    def farthest(self, sum_of: Callable[[Person], Tables], people: Iterable[Person]) -> Tables:
        """Tables of the person whom noise hides least when added or removed; ``sum_of`` as in :meth:`worst_pair`."""
        return max(map(sum_of, people), key=lambda tables: float((self._whiten(tables) ** 2).sum()))

    @cached_property
    def _symmetric(self) -> frozenset[str]:
        return frozenset(t.name for t in self.layout.tables if t.symmetric)

    def _whiten(self, sums: Tables) -> Array:
        """All entries in units of their noise: a mirrored pair, drawn once at half the variance, counts as two."""
        units = (math.sqrt(2 * m.variance) if m.variance else float(m.scale or 1) for m in self.mechanisms)
        return np.concatenate([sums[m.table].ravel() / u for m, u in zip(self.mechanisms, units, strict=True)])


def joining_facts(data_kind: str, costs: Iterable[Fraction | None]) -> dict[str, str]:
    """Field of an INTENT of real people: the cost to an added or removed person.

    ``costs``: of all draws, under *add or remove one*; None of one without noise.
    """
    listed = list(costs)
    if data_kind != "real" or None in listed:
        return {}
    return {"rho_add_remove": str(sum((c for c in listed if c is not None), Fraction(0)))}


def _noise(m: Mechanism, symmetric: bool, noise: NoiseSource, data: DataHandle) -> Integers:
    """Noise of one table, of its shape."""
    if m.variance is not None and symmetric:
        each = [symmetric_noise(noise, 1, m.shape[-1], m.variance, data) for _ in range(math.prod(m.shape[:-2]))]
        return np.concatenate(each).reshape(m.shape)
    drawn = np.zeros(m.cells, dtype=np.int64)
    if m.variance is not None:
        drawn = noise.gaussian(m.cells, m.variance, data)
    elif m.scale is not None:
        drawn = noise.laplace(m.cells, m.scale, data)
    return drawn.reshape(m.shape)


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
