"""A release: an immutable value of the numbers that left the privacy wall, with their mechanisms and cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.arrays import Integers
from pipeline.privacy.budget import rho_of_pure

if TYPE_CHECKING:
    from pipeline.privacy.noise import NoiseSource


# words of a release that the ledger reads: the variant of its joint cost where people are held out, the gate's table,
# and the table of a counter that is of each night alone
HELD_OUT, SET_ASIDE, PLAYED = "held_out", "set_aside", "played"


@dataclass(frozen=True)
class Running:
    """Facts of a table that is a running sum of a continual counter (continual.py).

    ``cost``: sum of squared weights of one leaf in all that the counter ever releases; ``draws``: noisy integers a
    cell over its life; ``error``: variance of one published integer in units of a row's variance.
    """

    cost: int
    draws: int
    error: float


@dataclass(frozen=True)
class ShuffledBits:
    """Facts of a table that is made of the shuffled one-bit messages of a batch (shuffle.py).

    Each of ``users`` adds ``each`` coins of probability ``chance / 2^64`` to every counter; a replaced episode moves
    ``changes`` counters by 1, a user has ``episodes`` at most, and ``honest`` users do add their coins.
    """

    users: int
    each: int
    chance: int
    changes: int
    honest: int
    episodes: int = 1


@dataclass(frozen=True)
class Mechanism:
    """One noisy table: fixed before any row is read.

    ``l2_squared`` and ``l1`` are replace-one sensitivities in integer units; ``variance`` (Gaussian) or ``scale``
    (Laplace) is that of the noise; both None means no noise at all (simulation only).  ``delta_slack`` is the sampler's
    share of delta, because its draws are not quite of that law: 0 for exact samplers.  With ``running`` the
    sensitivities are those of one leaf, ``variance`` is that of one released row, and cost and slack are those of all
    rows ever.  With ``shuffled`` the analyst draws nothing: the noise is in the messages, and their loss is no rho.

    ``table``, ``shape``, ``unit``: name and shape of the noisy table, as in ``release.parquet``; unit of one integer.
    Raises ValueError if a variance or a scale is not positive: it would be drawn as no noise and priced as nothing.
    """

    table: str
    shape: tuple[int, ...]
    unit: str
    l2_squared: int
    l1: int
    rule: str
    variance: int | None = None
    scale: Fraction | None = None
    delta_slack: Fraction = Fraction(0)
    running: Running | None = None
    shuffled: ShuffledBits | None = None

    def __post_init__(self) -> None:
        if (self.variance is not None and self.variance < 1) or (self.scale is not None and self.scale <= 0):
            raise ValueError(f"table {self.table}: noise needs a positive variance or scale; without noise it has none")

    @property
    def name(self) -> str:
        """Field's name of the mechanism."""
        if self.variance is not None:
            return "discrete gaussian"
        if self.shuffled is not None:
            return "shuffled bits"
        return "discrete laplace" if self.scale is not None else "none"

    @property
    def cells(self) -> int:
        """Number of noisy integers."""
        return int(np.prod(self.shape))

    @property
    def drawn(self) -> int:
        """Number of noisy integers drawn in all."""
        return self.cells * (1 if self.running is None else self.running.draws)

    @property
    def epsilon(self) -> Fraction | None:
        """Pure loss ``l1 / scale`` of a Laplace table; None otherwise."""
        return None if self.scale is None else self.l1 / self.scale

    @property
    def rho(self) -> Fraction | None:
        """Exact zCDP cost: ``cost * l2_squared / (2 variance)``, or ``epsilon^2 / 2``; None without noise."""
        if self.variance is not None:
            return Fraction(self.l2_squared * (1 if self.running is None else self.running.cost), 2 * self.variance)
        return None if self.epsilon is None else rho_of_pure(self.epsilon)

    @property
    def standard_deviation(self) -> float:
        """Of one published integer, in integer units (a discrete Laplace of scale b has about ``sqrt(2) b``)."""
        if self.variance is not None:
            return math.sqrt(self.variance * (1.0 if self.running is None else self.running.error))
        if self.shuffled is not None:
            q = self.shuffled.chance / 2**64
            return math.sqrt(self.shuffled.users * self.shuffled.each * q * (1 - q))
        return 0.0 if self.scale is None else math.sqrt(2) * float(self.scale)


def total_rho(mechanisms: tuple[Mechanism, ...]) -> Fraction | None:
    """Exact zCDP cost of the whole list; pure losses add as epsilons first.  None where a table has no noise."""
    if any(m.rho is None for m in mechanisms):
        return None
    pure = sum((m.epsilon for m in mechanisms if m.epsilon is not None), Fraction(0))
    return rho_of_pure(pure) + sum((m.rho for m in mechanisms if m.epsilon is None and m.rho is not None), Fraction(0))


def total_epsilon(mechanisms: tuple[Mechanism, ...]) -> Fraction | None:
    """Pure epsilon of the list; None unless every table is Laplace."""
    parts = [m.epsilon for m in mechanisms]
    return None if None in parts else sum((p for p in parts if p is not None), Fraction(0))


def total_delta_slack(mechanisms: tuple[Mechanism, ...]) -> Fraction:
    """The samplers' exact share of delta, over the whole list."""
    return sum((m.delta_slack for m in mechanisms), Fraction(0))


def _tv_bound(m: Mechanism, noise: NoiseSource, symmetric: frozenset[str]) -> Fraction:
    """Total-variation bound of one draw of a table; a symmetric table is drawn at half its variance too."""
    if m.variance is None:
        return Fraction(0)
    variances = {m.variance, m.variance // 2} if m.table in symmetric else {m.variance}
    return max(noise.tv_bound(v) for v in variances)


def with_sampler_slack(
    mechanisms: tuple[Mechanism, ...], noise: NoiseSource, epsilon: float, symmetric: frozenset[str] = frozenset()
) -> tuple[Mechanism, ...]:
    """The list with the ``delta_slack`` that ``noise`` will cause: ``(1 + e^epsilon) * drawn * tv_bound`` a table.

    ``symmetric``: names of tables that hold symmetric matrices: off their diagonals half the variance is drawn.
    Raises ValueError if ``epsilon`` is infinite and the sampler is not exact.
    """
    if not any(_tv_bound(m, noise, symmetric) for m in mechanisms):
        # an exact sampler adds nothing, however large epsilon is
        return tuple(replace(m, delta_slack=Fraction(0)) for m in mechanisms)
    if math.isinf(epsilon):
        raise ValueError("the slack of a sampler is counted for a finite epsilon")
    # a float exponential errs by less than one part in 10^12
    factor = 1 + Fraction(math.exp(epsilon)) * (1 + Fraction(1, 10**12))
    return tuple(
        m if m.variance is None else replace(m, delta_slack=factor * m.drawn * _tv_bound(m, noise, symmetric))
        for m in mechanisms
    )


def check_slack(mechanisms: Iterable[Mechanism], noise: NoiseSource, symmetric: frozenset[str] = frozenset()) -> None:
    """Refuse a sampler whose share of delta the mechanisms do not count.

    Raises ValueError if a table's ``delta_slack`` is less than twice the total variation of its draws.
    """
    for m in mechanisms:
        if m.delta_slack < 2 * m.drawn * _tv_bound(m, noise, symmetric):
            raise ValueError(f"table {m.table}: this sampler's share of delta is not counted; see with_sampler_slack")


@dataclass(frozen=True)
class Release:
    """Noisy integers of one snapshot under one list of mechanisms.

    ``mechanisms``, ``tables``: one mechanism a table, in order; name -> int64 array of its shape, read-only.
    ``noise``, ``sampler``: ``os`` | ``seeded`` | ``none``, only ``os`` is private; name and version of the sampler.
    ``joint_rho``: cost of all tables together where it was bounded jointly; None: the sum of their costs.
    ``derived``: integers that were computed from these tables alone, without noise of their own, and that the query of
    a later table rests on.
    ``look``: number of its evaluation in the lineage, from 1; None where it holds none.
    Raises ValueError if real data carry other noise than the operating system's, or a table has not the shape of its
    mechanism.
    """

    dataset: str
    data_kind: str
    dynamics: str
    mechanisms: tuple[Mechanism, ...]
    tables: Mapping[str, Integers]
    noise: str
    sampler: str
    trust_model: str = "central"
    relation: str = "replace"
    joint_rho: Fraction | None = None
    joint: Mapping[str, object] | None = None
    counter: Mapping[str, Any] | None = None
    derived: Mapping[str, Integers] = field(default_factory=dict[str, Integers])
    look: int | None = None

    def __post_init__(self) -> None:
        if self.data_kind == "real" and self.noise != "os":
            raise ValueError(f"a release of real data must carry operating-system noise; got {self.noise!r}")
        for m in self.mechanisms:
            if self.tables[m.table].shape != m.shape or self.tables[m.table].dtype != np.int64:
                raise ValueError(f"table {m.table} must be int64 {m.shape}; got {self.tables[m.table].shape}")
        for part in ("tables", "derived"):
            frozen = {name: table.copy() for name, table in getattr(self, part).items()}
            for table in frozen.values():
                table.setflags(write=False)
            object.__setattr__(self, part, MappingProxyType(frozen))

    @property
    def rho(self) -> Fraction | None:
        """Exact zCDP cost; None where there is no noise."""
        return total_rho(self.mechanisms) if self.joint_rho is None else self.joint_rho

    def beside(self, other: Release, prefix: str) -> Release:
        """Join two releases of the same people into one: costs add up."""
        joint = self.joint if self.joint_rho is not None else other.joint
        costs = [r.rho for r in (self, other)]
        return replace(
            self,
            mechanisms=(*self.mechanisms, *(replace(m, table=prefix + m.table) for m in other.mechanisms)),
            tables={**self.tables, **{prefix + name: table for name, table in other.tables.items()}},
            joint=joint,
            joint_rho=None if joint is None or None in costs else sum((c for c in costs if c is not None), Fraction(0)),
        )

    @property
    def delta_slack(self) -> Fraction:
        """The sampler's share of delta; 0 where it is exact."""
        return total_delta_slack(self.mechanisms)
