"""Noise sources of privatizers.

``OsNoise`` (here) and ``OpenDpNoise`` are admitted for data registered as real: exact discrete
samplers fed by the operating system.  ``SeededNoise`` is for simulations; it draws only for a dataset whose own record
says synthetic, whatever the caller intended (privacy.md §9).  They are separate types: no flag turns one into another.

OpenDP's samplers: a second implementation of the same laws, to check ours against.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from pipeline.arrays import Array, Bools, Integers, triangle
from pipeline.privacy.csprng import Law, Words, by_rejection, draw

# largest standard deviation or scale of a plan whose scales are known beforehand
LARGEST_SCALE = 2**40
# the largest that is drawn, where scales follow earlier answers: 2^10 of them still fit below the largest draw
WIDEST_SCALE = 2**50
# entries of the largest table that is made
_LARGEST_TABLE = 2**19
# above this, rounding a float draw changes the law of a simulation by less than one part in 10^9
_ROUNDED = 20_000
# ``sampler = "table"`` lists this slack in delta for each Gaussian draw of at most this variance
LARGEST_VARIANCE = 20_000**2
TV_BOUND = Fraction(1, 2**130)


class RealDataError(Exception):
    """Something other than operating-system noise was about to touch a dataset registered as real."""

    exit_code = 2


class DataHandle(Protocol):
    """The data that a draw will protect, as a value that carries its own manifest's kind (``Counts``, a world)."""

    @property
    def data_kind(self) -> str:
        """``real`` or ``synthetic``, as registered."""
        ...


@dataclass(frozen=True)
class SimulatedWorld:
    """Handle of data made up in this process; there is no way to say ``real`` with it."""

    name: str
    data_kind = "synthetic"


class NoiseSource(Protocol):
    """Integer noise.  ``data`` is a handle of the data that the noise will protect."""

    @property
    def name(self) -> str:
        """``os`` or ``seeded``."""
        ...

    @property
    def sampler(self) -> str:
        """Name and version of the sampler."""
        ...

    def admit(self, data_kind: str) -> None:
        """Raise :class:`RealDataError` where this source may not serve; called before any row is read."""
        ...

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        """Discrete Gaussian draws ``(size,)``: P(x) proportional to exp(-x^2 / (2 variance)) on the integers."""
        ...

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        """Discrete Laplace draws ``(size,)``: P(x) proportional to exp(-|x| / scale) on the integers, always exact."""
        ...

    def tv_bound(self, variance: int) -> Fraction:
        """Bound on the total variation between one Gaussian draw and its exact law."""
        ...


def admit_release(noise: NoiseSource, name: str, kind: str, exact: bool) -> None:
    """Refuse, before any row is read, a release that would not be private on real data (privacy.md §0.1-2).

    Raises RealDataError if the data are real and the noise is not the operating system's, or a table has none.
    """
    noise.admit(kind)
    if kind == "real" and exact:
        raise RealDataError(f"{name} is registered as real: every table needs noise; ask for a finite budget")


def symmetric_noise(noise: NoiseSource, copies: int, dimension: int, variance: int, data: DataHandle) -> Integers:
    """Independent symmetric integer matrices ``(copies, d, d)``: isotropic in svec coordinates."""
    out = np.zeros((copies, dimension, dimension), dtype=np.int64)
    rows, columns = triangle(dimension, 1)
    above = noise.gaussian(copies * len(rows), variance // 2, data).reshape(copies, -1)
    out[:, rows, columns] = out[:, columns, rows] = above
    diagonal = np.arange(dimension)
    out[:, diagonal, diagonal] = noise.gaussian(copies * dimension, variance, data).reshape(copies, -1)
    return out


class _Exact:
    """What exact samplers on operating-system randomness share."""

    name = "os"

    def admit(self, data_kind: str) -> None:
        """Serves data of every kind."""

    def tv_bound(self, variance: int) -> Fraction:
        """Zero: the samplers are exact."""
        return Fraction(0)


class OsNoise(_Exact):
    """Exact discrete samplers of our own on operating-system randomness; takes no seed and no argument.

    By inversion where there are enough draws to pay for a table, by rejection else: both are exactly the same law.
    """

    sampler = (
        "exact discrete gaussian and laplace by inversion with lazy bits or by rejection, operating-system randomness "
        "through SHAKE-256"
    )

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        if variance <= 0 or int(variance) != variance:
            raise ValueError(f"variance must be a positive integer; got {variance}")
        return _drawn(size, Law("gaussian", Fraction(variance)), WIDEST_SCALE**2)

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        if scale <= 0:
            raise ValueError(f"scale must be positive; got {scale}")
        return _drawn(size, Law("laplace", Fraction(scale)), WIDEST_SCALE)


class FastOsNoise(OsNoise):
    """Exact, and listed with the slack :data:`TV_BOUND` a Gaussian draw, as an earlier sampler needed it.

    A release is identified by its mechanisms, slack included: without it, recipes that list it would draw their
    committed releases again.
    """

    def tv_bound(self, variance: int) -> Fraction:
        """2^-130 where a table served; 0 where rejection did."""
        return TV_BOUND if variance <= LARGEST_VARIANCE else Fraction(0)


def _drawn(size: int, law: Law, most: int) -> Integers:
    """Exact draws of a law, whose scale is at most ``most``: by a table where so many draws are worth one.

    The choice is public: it depends on numbers that a card declares.
    """
    if law.scale > most:
        raise OverflowError("noise beyond 2^50 does not fit 64-bit integers; nothing was released")
    pays = 2 * law.reach(64) <= min(size, _LARGEST_TABLE)
    return draw(Words(), size, law) if pays else by_rejection(Words(), size, law)


@dataclass
class RelayedNoise:
    """A source around another one, with its name, sampler, admission and bound."""

    source: NoiseSource

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def sampler(self) -> str:
        return self.source.sampler

    def admit(self, data_kind: str) -> None:
        self.source.admit(data_kind)

    def tv_bound(self, variance: int) -> Fraction:
        return self.source.tv_bound(variance)


@dataclass
class AnnouncedNoise(RelayedNoise):
    """A source that calls ``announce`` before every draw; if that raises, nothing is drawn."""

    announce: Callable[[], object]

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        self.announce()
        return self.source.gaussian(size, variance, data)

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        self.announce()
        return self.source.laplace(size, scale, data)


class SeededNoise:
    """Reproducible noise of a ``seed`` for simulations only: same laws (up to float), never private, no real data."""

    name = "seeded"
    sampler = "numpy, seeded: simulation, not private"

    def __init__(self, seed: int | np.random.SeedSequence) -> None:
        self._rng = np.random.default_rng(seed)

    def admit(self, data_kind: str) -> None:
        """Serves synthetic data only."""
        if data_kind != "synthetic":
            raise RealDataError(
                "seeded noise is for simulations: it draws only for a dataset whose manifest says synthetic; "
                "this dataset is registered as real"
            )

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        self._admit_handle(data)
        sd = math.sqrt(variance)
        if sd > _ROUNDED:
            return np.rint(self._rng.normal(0.0, sd, size)).astype(np.int64)
        return self._draw(size, Law("gaussian", Fraction(variance)))

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        self._admit_handle(data)
        if scale > _ROUNDED:
            return np.rint(self._rng.laplace(0.0, float(scale), size)).astype(np.int64)
        return self._draw(size, Law("laplace", scale))

    def flips(self, size: int, chance: int, data: DataHandle) -> Bools:
        """Independent coins ``(size,)``, each true with probability ``chance / 2^64``."""
        self._admit_handle(data)
        return self._rng.random(size) < chance / 2**64

    def rounded(self, value: Array, data: DataHandle) -> Bools:
        """One bit for each value in [0, 1], true with that probability."""
        self._admit_handle(data)
        return self._rng.random(len(value)) < value

    def heads(self, size: int, trials: int, chance: int, data: DataHandle) -> Integers:
        """Numbers of heads ``(size,)`` among ``trials`` such coins: binomial totals, at any number of coins."""
        self._admit_handle(data)
        return self._rng.binomial(trials, chance / 2**64, size).astype(np.int64)

    def tv_bound(self, variance: int) -> Fraction:
        """Zero, as of the exact samplers that it simulates; nothing is claimed for it."""
        return Fraction(0)

    def _admit_handle(self, data: DataHandle) -> None:
        # a caller's word is no manifest: only a handle that carries its kind is admitted
        self.admit(getattr(data, "data_kind", "real"))

    def _draw(self, size: int, law: Law) -> Integers:
        least, cdf = _float_table(law)
        index = np.searchsorted(cdf, self._rng.random(size), side="right")
        return least + np.minimum(index, len(cdf) - 1)


# kept, since a release draws from few laws, and again and again: a table takes longer than the draws from it
@lru_cache(maxsize=16)
def _float_table(law: Law) -> tuple[int, Array]:
    """Least value, and distribution function from it on, of a law in floating point."""
    gaussian, scale = law.kind == "gaussian", float(law.scale)
    reach = math.ceil(12 * math.sqrt(scale) if gaussian else 40 * law.scale) + 1
    support = np.arange(-reach, reach + 1)
    weight = np.exp(-(support**2) / (2 * scale) if gaussian else -np.abs(support) / scale)
    return -reach, np.cumsum(weight / weight.sum())


# far below the ends of int64, so that count + draw cannot wrap
_LARGEST_DRAW = 2**61


@cache
def _opendp() -> Any:
    import opendp.prelude as dp
    from opendp.mod import enable_features

    enable_features("contrib")
    return dp


class OpenDpNoise(_Exact):
    """OpenDP's exact discrete samplers on operating-system randomness; takes no seed and no argument."""

    @property
    def sampler(self) -> str:
        """Name and version of the sampler, for release and report."""
        return f"opendp {version('opendp')}, exact discrete, operating-system randomness"

    def gaussian(self, size: int, variance: int, data: DataHandle) -> Integers:
        """See :class:`NoiseSource`; the scale is rounded up to the next float (privacy.md §0.1-17)."""
        dp = _opendp()
        # i64, never int: OpenDP's int is 32 bits wide and saturates
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float)
        return self._draw(dp.m.make_gaussian(*space, scale=gaussian_scale(variance)), size)

    def laplace(self, size: int, scale: Fraction, data: DataHandle) -> Integers:
        """See :class:`NoiseSource`; the scale is rounded up to the next float."""
        dp = _opendp()
        space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
        return self._draw(dp.m.make_laplace(*space, scale=math.nextafter(float(scale), math.inf)), size)

    @staticmethod
    def _draw(measurement: Any, size: int) -> Integers:
        drawn = np.asarray(measurement([0] * size), dtype=np.int64)
        # OpenDP saturates at the ends of i64, and a saturated draw hides nothing once the count is added to it
        if size and max(int(drawn.max()), -int(drawn.min())) >= _LARGEST_DRAW:
            raise OverflowError("a noise draw left the safe range of 64-bit integers; nothing was released")
        return drawn


def gaussian_scale(variance: int) -> float:
    """A float at least ``sqrt(variance)``, for OpenDP."""
    if variance <= 0 or int(variance) != variance:
        raise ValueError(f"variance must be a positive integer; got {variance}")
    return math.nextafter(math.sqrt(variance), math.inf)
