"""Sums over LQ episodes: the moments that paper 004 releases, once or as running sums, and the residuals of ours.

With z = (x, u) an episode adds G = sum_h z z' and X = sum_h z x_next'.  x, u and x_next are cut to declared balls
*before* they are multiplied, and put on a lattice of q steps: the guarantee rests on that alone, never on the plant
(privacy.md §7).  A row that is too long in x or u is shortened *as a whole*, so that x_next = A x + B u + w still holds
for the shortened row; then x_next alone is projected onto its ball.

One person adds at most N = m H rows.  Where ``|z|^2 <= F^2`` and ``|x_next|^2 <= f^2`` in integers, a replacement
moves, for a row pair with <z, z~> = F^2 c,

* G by at most ``sqrt(1 - c^2) sqrt(2) F^2`` (both terms are positive semidefinite),
* X by at most ``sqrt((1 + |c|) / 2) 2 F f``,

and N times that by the triangle inequality.  The two largest moves exclude each other:
:class:`~pipeline.statistics.gram.BallMoves` bounds them together.

======================  ==============================  ===================================  =================
sum of one episode      declared                        replace-one, here                    paper 004 prints
======================  ==============================  ===================================  =================
``gram``, Frobenius     ``||z||^2 <= 1 + gamma^2``      sqrt(2) H (1 + gamma^2)              H (1 + gamma)^2
``cross``               ``||z x_next'||``               2 H sqrt(1 + gamma^2)                H (1 + gamma)
======================  ==============================  ===================================  =================

The paper's are norms of one episode, not of a difference of two.
"""

# ruff: noqa: N806  (the letters of the paper)
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import Array, Integers
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.continual import LazyTree, Once
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import LARGEST_SCALE, NoiseSource, SimulatedWorld
from pipeline.privacy.release import Release
from pipeline.statistics import private_sum
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram import BallMoves, Extent, exact_sums, raise_eigenvalues
from pipeline.statistics.layout import ExactSums, Groups, Rates, Relation, Sensitivity, Table, Tables
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.regression import LqMoments, RidgeSums

# length of extreme rows in multiples of their bounds, so that a release without clipping is detected
_TOO_LONG = 3.0
# angles that an audit tries between two states, and between two controls
_ANGLES = 25
# of the two shares the one that makes sqrt(lambda_max) + nu least is between .6 and .8 for n + d = 3 .. 6
_ONLINE_SHARE = Fraction(2, 3)
# keeps a matrix of length exactly 1 inside the ball after its length is rounded
_INSIDE = 1 - 1e-12
# each state of an extreme residual is so much longer than the one before: the centre hardly counts
_GROWTH = 1e3
# probability with which the bounds on the noise may fail
_FAILURE = 0.05


@dataclass(frozen=True)
class Transitions:
    """Raw single rows behind the privacy wall: ``x (R, n)``, ``u (R, d)`` and next x ``(R, n)``.

    At most H rows an episode and m episodes a person, which the caller ensures.
    """

    x: Array
    u: Array
    following: Array


@dataclass(frozen=True)
class SummedRows:
    """Rows of a log that are summed in place; ``sums`` is called once, after all checks.

    ``sums``: gives ``gram (n+d, n+d)`` and ``target (n+d, n)``, lattice steps squared.
    """

    data_kind: str
    sums: Callable[[], Tables]


@dataclass(frozen=True)
class LqSums:
    """G and X of all people, released once as two matrices; every vector is divided by its bound first.

    ``bounds``: lengths to which x, u and the next x are cut; in their own units.
    ``steps``: q: lattice steps from the middle of a ball to its edge.
    Raises ValueError if a number is not positive, or the share is none.
    Raises OverflowError if the sums could leave 64-bit integers.
    """

    state: int
    control: int
    horizon: int
    bounds: tuple[float, float, float] = (1.0, 1.0, 1.0)
    steps: int = 4096
    episodes: int = 1
    episodes_each: int = 1
    gram_share: Fraction = Fraction(3, 10)
    dataset: str = "simulated world"
    data_kind: str = "synthetic"
    dynamics = "linear_quadratic"

    def __post_init__(self) -> None:
        counts = self.state, self.control, self.horizon, self.steps, self.episodes, self.episodes_each
        if min(counts) < 1 or not all(0 < b < math.inf for b in self.bounds) or not 0 < self.gram_share < 1:
            raise ValueError(
                f"{self.dataset}: sizes and steps must be at least 1, bounds positive and 0 < gram_share < 1; "
                f"got {counts}, {self.bounds}, {self.gram_share}"
            )
        _ = self.extent

    @property
    def reach(self) -> tuple[float, float, float]:
        """Lengths of x, u and the next x on the lattice, in multiples of q."""
        return 1.0, 1.0, 1.0

    @property
    def dimension(self) -> int:
        """D = n + d, length of z."""
        return self.state + self.control

    @cached_property
    def squares(self) -> tuple[int, int, int]:
        """Largest squared lengths of x, u and the next x in integers."""
        x, u, following = (math.floor((Fraction(r) * self.steps) ** 2) for r in self.reach)
        return x, u, following

    @property
    def square(self) -> int:
        """F^2: largest ``|z|^2`` in integers."""
        return sum(self.squares[:2])

    @property
    def rows_each(self) -> int:
        """N = m H: rows of one person."""
        return self.episodes_each * self.horizon

    @property
    def extent(self) -> Extent:
        """Largest integers of the sums."""
        return Extent(self.episodes * self.horizon, self.square, 1, self.steps)

    @property
    def tables(self) -> tuple[Table, ...]:
        """G (Frobenius, which is Euclid in svec) and X, each with the largest squared move that it has alone."""
        D, n, unit_rate = self.dimension, self.state, Fraction(1)
        note = "both tables together cost less than their sum"
        gram = ("gram", (D, D), f"svec: half the variance off the diagonal; {note}")
        tables: list[Table] = []
        for name, shape, rule in (gram, ("target", (D, n), f"rows cut to their balls; {note}")):
            squares = (math.ceil(self.cost({name: unit_rate}, relation)) for relation in ("replace", "add_remove"))
            sensitivities = (Sensitivity(s, math.isqrt(s * math.prod(shape)) + 1, rule) for s in squares)
            tables.append(Table(name, shape, "lattice steps squared", *sensitivities, symmetric=name == "gram"))
        return tuple(tables)

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        gram, cross = (rates.get(name, Fraction(0)) for name in ("gram", "target"))
        moves = BallMoves(self.square, self.rows_each)
        return moves.cost(gram, cross * self.squares[2], Fraction(0), relation)

    def groups(self, ask: Ask) -> Groups:
        """Weights of the variances of each group of tables, and the group's share of the budget."""
        return [({"gram": 2}, self.gram_share), ({"target": 1}, 1 - self.gram_share)]

    def joint(self) -> dict[str, object]:
        return {
            "rule": "supremum over two people's rows of both tables together",
            "variant": "linear_quadratic",
            "split": False,
            "horizon": self.horizon,
            "episodes": self.episodes_each,
            "square": self.square,
            "features_sha256": None,
            "steps": self.steps,
            "bounds": list(self.bounds),
        }

    def extremes(self) -> Iterator[LqBatch]:
        """One person stands still; the others flip their sign at every step, turned by two angles.

        Rows are longer than their balls, so that a release without clipping is detected.
        """
        # the growth at which both x and the next x reach their balls after clipping
        growth = max(1.0, self.bounds[2] / self.bounds[0])
        turns = itertools.product(np.linspace(0, math.pi, _ANGLES), repeat=2)
        for angles, flip in (((0.0, 0.0), 1.0), *((turn, -1.0) for turn in turns)):
            sizes, m = (self.state, self.control), self.episodes_each
            states, controls = _stretched(self.horizon, sizes, self.bounds[:2], angles, flip * growth)
            yield LqBatch(np.tile(states, (m, 1, 1)), np.tile(controls, (m, 1, 1)), m)

    def rows(self, batch: LqBatch | Transitions) -> tuple[Array, Array]:
        """Integers held as float64: z ``(rows, D)`` and next states ``(rows, n)``, cut and truncated toward zero.

        A row that is NaN, or longer than its ball after truncation, counts as absent, and is zeros.
        """
        if isinstance(batch, Transitions):
            raw = batch.x, batch.u, batch.following
        else:
            H = min(self.horizon, batch.controls.shape[1])
            of_episodes = batch.states[:, :H], batch.controls[:, :H], batch.states[:, 1 : H + 1]
            raw = tuple(v.reshape(-1, v.shape[2]) for v in of_episodes)
        # a number near the largest float may overflow on its way; its row does not count
        with np.errstate(over="ignore", invalid="ignore"):
            units = [v / b for v, b in zip(raw, self.bounds, strict=True)]
            finite = np.logical_and.reduce([np.isfinite(v).all(1) for v in units])[:, None]
            x, u, following = (np.where(finite, v, 0.0) for v in units)
            factor = np.minimum(_shortening(x), _shortening(u))
            following = following * factor
            parts = x * factor, u * factor, following * _shortening(following)
            integers = [np.trunc(v * (self.steps * r)) for v, r in zip(parts, self.reach, strict=True)]
            in_ball = [(v * v).sum(1) <= square for v, square in zip(integers, self.squares, strict=True)]
            within = np.logical_and.reduce(in_ball)[:, None]
        x, u, following = (np.where(within, v, 0.0) for v in integers)
        return np.hstack([x, u]), following

    def add(self, batches: Iterable[LqBatch | Transitions]) -> dict[str, Integers]:
        """Exact ``gram (D, D)`` and ``target (D, n)`` of whole people, lattice steps squared.

        Raises ValueError if there are more episodes than declared, or they have other dimensions.
        """
        D, n, episodes = self.dimension, self.state, 0
        gram, cross = np.zeros((D, D), dtype=np.int64), np.zeros((D, n), dtype=np.int64)
        for batch in batches:
            logged = isinstance(batch, Transitions)
            sizes = (batch.x, batch.u) if logged else (batch.states, batch.controls)
            # rows of a log are never counted: they must not decide whether a release is made
            episodes += 0 if logged else len(batch.states)
            if episodes > self.episodes or tuple(v.shape[-1] for v in sizes) != (n, self.control):
                raise ValueError(f"{self.dataset}: more episodes than declared, or other dimensions")
            z, following = self.rows(batch)
            part = exact_sums(self.extent, z, following.T)
            gram, cross = gram + part[0], cross + part[1].T
        return {"gram": gram, "target": cross}


def lq_sum(layout: LqSums, rho: Fraction | None) -> PrivateSum:
    """Both sums with the least integer variances within a zCDP budget: no noise where there is none (simulation only).

    Raises ValueError if the budget is not positive.
    Raises OverflowError if the noise could leave 64-bit integers.
    """
    if rho is None:
        return PrivateSum(layout, tuple(t.mechanism() for t in layout.tables))
    if rho <= 0:
        raise ValueError(f"{layout.dataset}: rho must be positive; got {rho}")
    variances = private_sum.least_variances(layout, layout.groups(Ask(rho)), rho)
    if max(variances.values()) > LARGEST_SCALE**2:
        raise OverflowError(f"{layout.dataset}: noise leaves 64-bit integers; use fewer lattice steps")
    return PrivateSum(layout, tuple(t.mechanism(variances[t.name]) for t in layout.tables))


def draw_lq(
    summed: PrivateSum, rows: Sequence[LqBatch] | SummedRows, noise: NoiseSource, *, epsilon: float | None = None
) -> Release:
    """Draw the one release; without a budget its tables are exact and marked so (simulation only).

    ``epsilon``: the stated epsilon, where a sampler's share of delta has to be listed; None: the sampler is exact.
    Raises RealDataError if the data is real and the noise is not the operating system's, or there is none; before a row
    is read.
    Raises ValueError if there are more episodes than declared, or they have other dimensions.
    """
    summed = summed if epsilon is None else summed.with_slack(noise, epsilon)
    layout = lq_layout(summed)
    if not isinstance(rows, SummedRows):
        rows = SummedRows("synthetic", partial(layout.add, rows))
    summed.admit(noise, rows.data_kind)
    return summed.draw(ExactSums(layout.dataset, rows.data_kind, layout.dynamics, rows.sums()), noise)


def lq_layout(summed: PrivateSum) -> LqSums:
    """The layout of a sum of :func:`lq_sum`."""
    assert isinstance(summed.layout, LqSums)
    return summed.layout


def gram_deviation(summed: PrivateSum) -> float:
    """Standard deviation of the noise on an entry of G off its diagonal, balls of radius 1; 0 without noise."""
    return math.sqrt((summed.mechanisms[0].variance or 0) / 2) * (1.0 / lq_layout(summed).steps ** 2)


def released_moments(summed: PrivateSum, release: Release) -> LqMoments:
    """Moments of a release for a planner: integer sums in units of the bounds.

    Raises ValueError if the release was drawn on other terms.
    """
    layout = lq_layout(summed)
    if release.joint is None or dict(release.joint) != layout.joint():
        raise ValueError(f"{layout.dataset}: the release was drawn on other terms than this plan's")
    unit = 1.0 / layout.steps**2
    gram, cross = (release.tables[name].astype(np.float64) * unit for name in ("gram", "target"))
    return LqMoments(gram, cross, gram_deviation(summed), layout.bounds)


@dataclass(frozen=True)
class LqMessage(LqSums):
    """The same sums of one simulated episode, flat, as an online agent adds them up: diagonal, entries above it, X.

    ``bounds`` are (1, gamma, 1): controls keep their own length on the lattice.
    """

    dynamics = "per_step"

    @property
    def reach(self) -> tuple[float, float, float]:
        return self.bounds

    @property
    def gamma(self) -> float:
        """Bound on ``||u||``; those on x and x_next are 1, the unit."""
        return self.bounds[1]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Integers on the diagonal of the Gram matrix, above it, and in the cross sums."""
        D = self.dimension
        return D, D * (D - 1) // 2, D * self.state

    @property
    def tables(self) -> tuple[Table, ...]:
        parts = zip(("diagonal", "above", "cross"), self.sizes, strict=True)
        unit_rate = Fraction(1)
        return tuple(
            private_sum.lattice_table(t, n, math.ceil(self.cost({t: unit_rate})), "rows cut to balls") for t, n in parts
        )

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """Largest summed ``rate |move|^2`` of one person, lattice steps to the 4th, all tables together.

        A Gram matrix has squared Frobenius norm diagonal^2 + 2 above^2, so it counts with the larger of the diagonal's
        rate and half of the rate above it: attained by isotropic variances, an upper bound for the paper's equal ones.
        """
        diagonal, above, cross = (rates.get(name, Fraction(0)) for name in ("diagonal", "above", "cross"))
        return super().cost({"gram": max(diagonal, above / 2), "target": cross}, relation)

    def joint(self) -> dict[str, object]:
        return {"rule": "both sums together, rows cut to balls", "steps": self.steps, "horizon": self.horizon}

    def groups(self, ask: Ask) -> Groups:
        """Isotropic in svec coordinates."""
        return [({"diagonal": 2, "above": 1}, _ONLINE_SHARE), ({"cross": 1}, 1 - _ONLINE_SHARE)]

    def integers(self, batch: LqBatch) -> Integers:
        """The message of all episodes that a batch stands for ``(L,)``, in lattice steps squared: the sum of theirs."""
        z, following = self.rows(batch)
        gram, cross = exact_sums(self.extent, z, following.T)
        message, episodes = _flat(gram, cross.T), len(batch.states)
        if batch.means is not None:
            mean = _flat(*batch.means) * self.steps**2
            deviation = message - episodes * mean
            message = np.rint(batch.episodes * mean + math.sqrt(batch.episodes / episodes) * deviation)
        return message.astype(np.int64)

    def sums(self, total: Array) -> tuple[Array, Array]:
        """The inverse of :meth:`integers` on noisy sums: ``(D, D)`` symmetric and ``(D, n)``, in units."""
        D, n = self.dimension, self.state
        diagonal, above, cross = np.split(total / self.steps**2, np.cumsum(self.sizes)[:2])
        gram = np.zeros((D, D))
        gram[np.triu_indices(D, 1)] = above
        return gram + gram.T + np.diag(diagonal), cross.reshape(D, n)


@dataclass(frozen=True)
class ResidualMessage(private_sum.SimulatedLayout):
    """One matrix of an episode, sum_h F z_h (x_{h+1} - [A, B] z_h)', cut as a whole; all here is public before it.

    The sum is cut to ``|.| <= radius`` (Frobenius), not each of its H rows: its length grows with the root of H, and
    with the noise of the plant instead of the length of its states.  Then it is truncated toward zero on the lattice of
    ``radius / steps``, which keeps its length.  So replacing a person moves the sum by at most ``2 steps`` lattice
    points, whatever the plant, the frame and the centre are.

    ``centre`` ``(n, D)``: [A, B] whose prediction is subtracted.
    ``frame`` ``(D, D)``: F.
    ``radius``: length to which an episode's matrix is cut.
    """

    centre: Array
    frame: Array
    radius: float
    horizon: int
    steps: int = 2**20
    of = "residual sums"

    def __post_init__(self) -> None:
        if not 0 < self.radius < np.inf or self.horizon < 1 or self.steps < 1:
            raise ValueError(f"radius, horizon and steps must be positive; got {self.radius}, {self.horizon}")

    @property
    def tables(self) -> tuple[Table, ...]:
        rule = "each episode's matrix cut to its ball"
        return (private_sum.lattice_table("residual", self.centre.size, 4 * self.steps**2, rule),)

    def integers(self, batch: LqBatch) -> Integers:
        """Sum of the matrices of a batch ``(D n,)``, lattice steps; an episode that is not finite counts as absent.

        Raises ValueError if the batch stands for more episodes than it holds: a cut sum has no exact mean.
        """
        if batch.episodes != len(batch.states):
            raise ValueError("residual sums are cut episode by episode: ask for batches that are played in full")
        return self.each(batch.states, batch.controls).sum(axis=0)

    def each(self, states: Array, controls: Array) -> Integers:
        """One flat matrix an episode ``(B, D n)``, cut, truncated toward zero; it depends on that episode alone.

        ``states``, ``controls`` ``(B, T+1, n)``: and ``(B, T, d)``; steps beyond H are not read.
        """
        H = min(self.horizon, controls.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            z = np.concatenate([states[:, :H], controls[:, :H]], axis=2)
            # einsum: a BLAS product rounds an episode by its place in the batch
            errors = states[:, 1 : H + 1] - np.einsum("ij,bhj->bhi", self.centre, z)
            residuals = np.einsum("ij,bhj,bhk->bik", self.frame, z, errors).reshape(len(z), -1) / self.radius
            largest = np.maximum(np.abs(residuals).max(axis=1, keepdims=True), 1.0)
            length = largest * np.sqrt(np.einsum("bi,bi->b", residuals / largest, residuals / largest))[:, None]
            cut = np.trunc(residuals / np.maximum(length, 1.0) * (self.steps * _INSIDE))
        cut = np.where(np.isfinite(cut).all(axis=1, keepdims=True), cut, 0.0)
        return np.where(np.einsum("bi,bi->b", cut, cut)[:, None] <= self.steps**2, cut, 0.0).astype(np.int64)

    def matrix(self, total: Array) -> Array:
        """The inverse of :meth:`integers` on noisy sums ``(D n,)``: ``(D, n)`` in real units."""
        return (total * (self.radius / self.steps)).reshape(self.centre.shape[::-1])

    def extremes(self) -> Iterator[LqBatch]:
        """Two episodes whose matrices are far too long and opposite: one grows, the other also flips its sign."""
        n, D = self.centre.shape
        for ratio in (_GROWTH, -_GROWTH):
            states, controls = _stretched(min(self.horizon, 10), (n, D - n), (1.0, 1.0), (0.0, 0.0), ratio)
            yield LqBatch(states[None], controls[None], 1)


def _flat(gram: NDArray[np.number], cross: NDArray[np.number]) -> NDArray[np.number]:
    return np.concatenate([gram.diagonal(), gram[np.triu_indices(len(gram), 1)], cross.ravel()])


def _shortening(v: Array) -> Array:
    """``(rows, 1)``: the factor that brings a vector onto the unit ball, 1 inside it."""
    return 1.0 / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1.0)


def _stretched(
    horizon: int, sizes: tuple[int, int], bounds: Sequence[float], angles: tuple[float, float], ratio: float
) -> tuple[Array, Array]:
    """An episode of one direction for states and one for controls, all too long, for an attack.

    ``sizes``, ``bounds``: dimensions n and d, and declared lengths, of states and controls.
    Returns states ``(H+1, n)`` and controls ``(H, d)``.
    """
    sign = ratio ** np.arange(horizon + 1)[:, None] * _TOO_LONG
    state, control = (_turned(n, angle) for n, angle in zip(sizes, angles, strict=True))
    return sign * state * bounds[0], sign[:-1] * control * bounds[1]


def _turned(dimension: int, angle: float) -> Array:
    """Unit vector turned away from the first axis by ``angle``; in one dimension, the first axis."""
    v = np.zeros(dimension)
    v[0] = 1.0
    if dimension > 1:
        v[:2] = math.cos(angle), math.sin(angle)
    return v


# Regularizers: V = T_1 + (2 Λ + λ) I with Λ a bound on the noise's operator norm.  The paper has η = 2Λ; λ is the
# part without noise.  So lambda_min = Λ + λ and lambda_max = 3Λ + λ wherever the bound holds.

LqCounter = Literal["tree", "epochs"]
# (sd above the Gram matrix's diagonal, sd of a cross entry, error of the sum) -> bounds on both norms
Tails = Callable[[float, float, float], tuple[float, float]]


class CountedLqRegularizer(private_sum.Counted[LqBatch]):
    """A regularizer over any private sum; build one with :func:`lq_regularizer`."""

    def __init__(self, message: LqMessage, sums: private_sum.OnlineSum, lam: float, tails: Tails) -> None:
        super().__init__(message.integers, sums, lam)
        self.message, self._tails = message, tails
        unit = message.steps**2
        diagonal, above, cross = (m.variance or 0 for m in sums.private.mechanisms)
        self._sds = math.sqrt(max(above, diagonal / 2)) / unit, math.sqrt(cross) / unit

    def sums(self) -> tuple[Array, Array]:
        """T_1 ``(D, D)`` and T_2 ``(D, n)`` as released, before they are regularized."""
        return self.message.sums(self._counter.total())

    def ridge(self) -> RidgeSums[float]:
        T, U = self.sums()
        noise, cross = self._tails(*self._sds, self._counter.error)
        least, most = noise + self._lam, 3 * noise + self._lam
        # without noise the least eigenvalue is lam up to a rounding, and V stays as it is
        V, raised = raise_eigenvalues(T + (2 * noise + self._lam) * np.eye(len(T)), least if noise > 0 else 0.0)
        return RidgeSums(V, U, least, most, cross / math.sqrt(least), raised)


def lq_regularizer(
    message: LqMessage,
    ends: Sequence[int],
    ask: Ask | None,
    lam: float,
    world: SimulatedWorld,
    noise: NoiseSource,
    counter: LqCounter = "tree",
) -> CountedLqRegularizer:
    """A regularizer whose sums are read after each batch of episodes: of OFU-RL without a budget, else Private-OFU-RL.

    ``tree`` has noise in every node of a binary tree over episodes; ``epochs``, an extra, once on the sum of every
    batch, whose people are in no other.  They differ in when and with what noise their sums are released only, so a
    private one without noise is the fixed one, to the last bit.  ``paper`` prints scales for two trees of half the
    budget each, and bounds; the guarantee is recomputed from the variances.  ``tight`` is one joint release of both,
    nodes averaged with their halves, bounds by Gaussian tails.

    ``ask``: the budget; None: exact sums, without privacy, and ``noise`` is never drawn from.
    Raises ValueError for ``paper`` scales of a counter for which there are none.
    """
    paper = ask is not None and ask.calibration == "paper"
    if paper and counter != "tree":
        raise ValueError("paper 004 prints scales for its tree only; use calibration 'tight' with epochs")
    time, variances = Once(len(ends)), None
    if ask is not None:
        if counter == "tree":
            time = LazyTree(tuple(ends), "plain" if paper else "bottom-up")
        variances = paper_004(message, ask, ends[-1]) if paper else private_sum.tight(message, ask, time.cost)
    tails = paper_tails(message, ends[-1], _FAILURE) if paper else tail_bounds(message, len(ends), _FAILURE)
    trust = Trust.NONE if ask is None else Trust.JOINT
    return CountedLqRegularizer(
        message, private_sum.begin(message, variances, time, trust, world, noise, ask), lam, tails
    )


def paper_004(message: LqMessage, ask: Ask, episodes: int) -> private_sum.Variances | None:
    """The printed scales: ``sigma_i^2 = 8 m Delta_i^2 ln(2/delta) / epsilon^2`` with m = ceil(log2 K).

    Delta_1 = H (1 + gamma)^2 and Delta_2 = H (1 + gamma), a counter each at half the budget; the Gram matrix has the
    same scale on and above its diagonal.

    Returns table -> integer variance, in lattice steps to the 4th; None for an infinite epsilon.
    """
    epsilon, delta = private_sum.asked(ask)
    if math.isinf(epsilon):
        return None
    H, gamma = message.horizon, message.gamma
    factor = 8 * _printed_levels(episodes) * math.log(2 / delta) / epsilon**2 * message.steps**4
    gram, cross = (math.ceil(factor * (H * (1 + gamma) ** power) ** 2) for power in (2, 1))
    return {"diagonal": gram, "above": gram, "cross": cross}


def paper_tails(message: LqMessage, episodes: int, failure: float) -> Tails:
    """Λ and the bound on L_k of the proof of Theorem 3: the worst sum's noise at every episode."""
    D, n, m = message.dimension, message.state, _printed_levels(episodes)
    of_gram = 4 * math.sqrt(D) + math.sqrt(8 * math.log(4 * episodes / failure))
    of_cross = math.sqrt(2 * n * D) + math.sqrt(4 * math.log(2 * episodes / failure))

    def tails(above: float, cross: float, _: float) -> tuple[float, float]:
        # equal variances: the one handed over is that above the diagonal, which is the printed one
        return above * math.sqrt(m) * of_gram, cross * math.sqrt(m) * of_cross

    return tails


def tail_bounds(message: LqMessage, reads: int, failure: float) -> Tails:
    """Bounds that hold at all ``reads`` at once but for a probability of ``failure / 2``, at the error of each read.

    A symmetric Gaussian matrix of standard deviation s above and at most sqrt(2) s on the diagonal has an expected
    largest eigenvalue of at most 2 s sqrt(D), and moves by sqrt(2) s times its standard normal draws; a Gaussian D x n
    matrix has an expected Frobenius norm of at most s sqrt(n D), and moves by s times them.
    """
    D, n = message.dimension, message.state
    of_gram = 2 * math.sqrt(D) + 2 * math.sqrt(math.log(8 * reads / failure))
    of_cross = math.sqrt(n * D) + math.sqrt(2 * math.log(4 * reads / failure))

    def tails(above: float, cross: float, error: float) -> tuple[float, float]:
        return math.sqrt(error) * above * of_gram, math.sqrt(error) * cross * of_cross

    return tails


def _printed_levels(episodes: int) -> int:
    return max(1, (episodes - 1).bit_length())
