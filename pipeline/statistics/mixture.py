"""Private regressions of linear mixture agents: the sums of episodes, and the noise of each trust model.

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

Regularizers: growing least-squares problems with noisy statistics (paper 000, Assumption 2).

One planner and three of these are three algorithms:

=======  ==============================================  ==========================
trust    where the noise enters                          agent
=======  ==============================================  ==========================
none     nowhere                                         UCRL-VTR, LinOpt-VI
joint    every completed node of a continual counter     Private-LinOpt-VI
local    every episode's own message, before it is kept  LDP-UCRL-VTR
=======  ==============================================  ==========================

They differ in when and with what noise their sum is released only, so a private one without noise is the fixed one, to
the last bit.  An episode is a person.  All three are protocols of a simulation: data registered as real is refused,
because the holder of logs is a central curator, whatever is computed from them (privacy.md §0.1-3).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from pipeline.arrays import Array, Integers, triangle
from pipeline.privacy.continual import Mechanism, Once, continual
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import NoiseSource, SimulatedWorld
from pipeline.statistics import private_sum
from pipeline.statistics.ask import Ask
from pipeline.statistics.layout import Groups, Rates, Relation, Table
from pipeline.statistics.regression import RidgeSums, Visits

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
Shift = Literal["edge", "paper", "floor"]
Leaf = Literal["episode", "batch"]

# of the noise's spectral edge: one block in some hundreds still needs more, and gets it
_BEYOND_EDGE = 1.3
# probability with which the bounds may fail
_FAILURE = 0.01
# in edges; of 0.5, 1, 1.4, 2 and 3 the last two lose least, with a prior of 1
_FLOOR = 2.0


@dataclass(frozen=True)
class MixtureMessage(private_sum.SimulatedLayout):
    """Shape and bounds of one episode's statistics, all declared.

    ``stretch``: L, at least ``||phi_V|| / ||V||_inf``; 1 for rewards.
    ``ranges`` ``(steps,)``: largest response: v_h, value of the *next* step, or reward of this one; reward units.
    ``value``: largest value of a whole episode, or reward of one step: the papers' H, or their 1.
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
        """Diagonals of all steps, entries above them, targets."""
        psd, unit = "both Gram matrices are psd", self.steps
        parts = [("diagonal", MOVE, psd), ("above", MOVE // 2, psd), ("target", MOVE, "both targets are at least 0")]
        return tuple(
            private_sum.lattice_table(f"{name}_{h}", size // unit, move, rule)
            for (name, move, rule), size in zip(parts, self.sizes, strict=True)
            for h in range(self.steps)
        )

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """The worst pair meets every step at its worst.

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
        return {"rule": "every step at its worst; a Gram matrix by its Frobenius norm", "steps": self.steps}

    def groups(self, ask: Ask) -> Groups:
        """Equal shares a step."""
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

        Rows are clipped to the declared bounds, one by one.

        Raises ValueError if a step has more visits than there are episodes: a person has one row a step.
        """
        if (np.bincount(visits.step, visits.count, self.steps) > visits.episodes).any():
            raise ValueError("more rows at a step than episodes; a person adds one row a step")
        d, times = self.dimension, visits.count[:, None]
        i, j = triangle(d, 1)
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
        i, j = triangle(d, 1)
        gram[..., i, j] = gram[..., j, i] = above.reshape(*rows, -1)
        gram[..., np.arange(d), np.arange(d)] = diagonal.reshape(*rows, d)
        gram *= (self.gram_bound / LATTICE)[:, None, None, None]
        return gram, target.reshape(*rows, d) * (self.target_bound / LATTICE)[:, None, None]


def _on_lattice(x: Array, bound: Array, weight: Array) -> Integers:
    """Lattice points of rows ``x (n, m)``, each row's weighted squared length at most LATTICE^2, exactly."""
    # NaN counts as 0: it would exceed every bound
    points = np.floor(np.clip(np.nan_to_num(x / bound[:, None], nan=0.0), 0.0, 1.0) * LATTICE)
    # sums of squares up to the bound, 2^52, are exact in float64
    square = (points**2 * weight).sum(1, keepdims=True)
    shrink = np.where(square > LATTICE**2, LATTICE / np.sqrt(np.maximum(square, 1.0)) * _INSIDE, 1.0)
    return np.floor(points * shrink).astype(np.int64)


class CountedRegularizer(private_sum.Counted[Visits]):
    """A regularizer over any counter; build one with :func:`mixture_regularizer`.

    ``shift``: ``edge``: 1.3 times the spectral edge of the noise in the sum shown is added, no theorem.  ``paper``:
    twice a bound that holds at every sum, step and block with probability 1 - 0.01 / 2.  ``floor``: nothing is added,
    eigenvalues below twice the edge are raised to it, so that well observed directions are not shrunk; no theorem.
    ``prior``: the shift of Lambda is added to U with weights ``prior / d``, d of a block: an unseen (s, a) is
    predicted at ``prior`` times the mean response of its features, instead of 0.  0 is the papers'.
    """

    def __init__(
        self,
        message: MixtureMessage,
        sums: private_sum.OnlineSum,
        lam: float,
        shift: Shift,
        prior: float,
        *,
        each: bool,
    ) -> None:
        super().__init__(message.integers, sums, lam, each=each)
        self.message, self._shift, self._prior = message, shift, prior / message.dimension
        unit = np.array([message.gram_bound, message.target_bound]) / LATTICE
        drawn = np.array([m.variance or 0 for m in sums.private.mechanisms], float)
        diagonal, above, target = drawn.reshape(3, message.steps)
        self._gram_sd = np.sqrt(np.maximum(above, diagonal / 2)) * unit[0]
        self._target_sd = np.sqrt(target) * unit[1]
        self._log = math.log(4 * sums.time.steps * message.steps * message.blocks / _FAILURE)

    def ridge(self) -> RidgeSums[Array]:
        """The released sums, regularized; a block that the shift leaves below ``lambda_min`` is raised to it."""
        gram, target = self.message.sums(self._counter.total())
        norm, times = self._norm()
        least = self._lam + (times - 1) * norm
        noise = math.sqrt(self._counter.error) * self._target_sd
        nu = noise * (math.sqrt(self.message.dimension) + math.sqrt(2 * self._log)) / np.sqrt(least)
        bounds = least, self._lam + (times + 1) * norm, nu
        if self._shift == "floor":
            # well observed directions keep their noise, above and below
            e, v = np.linalg.eigh(gram)
            e = np.maximum(e, (times - 1) * norm[:, None, None]) + self._lam
            full = (v * e[..., None, :]) @ v.swapaxes(-1, -2)
            return RidgeSums(full, target + self._prior * (full - gram).sum(-1), *bounds)
        shift = (self._lam + times * norm)[:, None]
        lowest = np.linalg.eigvalsh(gram)[..., 0] + shift
        raised = shift + np.maximum(least[:, None] - lowest, 0.0)
        full = gram + raised[..., None, None] * np.eye(self.message.dimension)
        return RidgeSums(full, target + self._prior * raised[..., None], *bounds)

    def _norm(self) -> tuple[Array, float]:
        """Bound on the operator norm of the noise in one block ``(H-1,)``, and how many of them the shift is.

        A symmetric Gaussian matrix of standard deviation s above and at most sqrt(2) s on the diagonal has an expected
        largest eigenvalue of at most 2 s sqrt(d), and moves by sqrt(2) s times its standard normal draws.
        """
        sd = math.sqrt(self._counter.error) * self._gram_sd
        edge = 2 * sd * math.sqrt(self.message.dimension)
        if self._shift == "floor":
            return edge, _FLOOR + 1
        return (edge, _BEYOND_EDGE) if self._shift == "edge" else (edge + 2 * sd * math.sqrt(self._log), 2.0)


def mixture_regularizer(
    message: MixtureMessage,
    episodes: int,
    ask: Ask | None,
    lam: float,
    world: SimulatedWorld,
    noise: NoiseSource,
    *,
    mechanism: Mechanism | None = "bottom-up",
    shift: Shift = "edge",
    batches: int | None = None,
    prior: float = 0.0,
) -> CountedRegularizer:
    """A regularizer by its trust model: none without a budget, local without a counter, else joint.

    ``paper`` calibration divides (epsilon, delta) of paper 000 by 4 H counters, and takes the scale of paper 001 for
    local messages; the guarantee is recomputed from the variances.

    ``ask``: the budget; None: the exact sums and Lambda = lam I, and ``noise`` is never drawn from.
    ``mechanism``: the counter of joint privacy; None: each message is noisy before it leaves its person.
    ``batches``: number of steps where each holds a batch of episodes of one policy; None: a step an episode.
    Raises ValueError for ``paper`` scales of another counter than a tree over episodes.
    """
    paper = ask is not None and ask.calibration == "paper"
    if paper and mechanism is not None and (mechanism == "square-root" or batches):
        raise ValueError(
            "paper 000 prints scales for a tree over episodes; use calibration 'tight' with other counters"
        )
    time, trust, variances = Once(episodes), Trust.NONE, None
    if ask is not None and mechanism is None:
        trust, variances = Trust.LOCAL, paper_001(message, ask) if paper else private_sum.tight(message, ask, 1)
    elif ask is not None and mechanism is not None:
        time, trust = continual(mechanism, batches or episodes), Trust.JOINT
        variances = paper_000(message, ask, episodes) if paper else private_sum.tight(message, ask, time.cost)
    sums = private_sum.begin(message, variances, time, trust, world, noise, ask)
    return CountedRegularizer(message, sums, lam, shift, prior, each=not batches)


def paper_000(message: MixtureMessage, ask: Ask, episodes: int) -> private_sum.Variances:
    """Scales of paper 000: (epsilon / H, delta / H) for four counters a step, ceil(log2 K) levels, H as ``value``.

    Returns table -> integer variance, in squared lattice points.
    """
    H, (epsilon, delta) = message.horizon, private_sum.asked(ask)  # noqa: N806
    levels = max(1, (episodes - 1).bit_length())
    sd = math.sqrt(32 * levels * math.log(4 * H / delta)) * H / epsilon
    row = message.stretch * message.value if message.of == "transitions" else 1.0
    return _printed(message, sd * row**2, sd * row * message.value)


def paper_001(message: MixtureMessage, ask: Ask) -> private_sum.Variances:
    """Scale of paper 001, section 6: 4 H^3 sqrt(2 ln(2.5 H / delta)) / epsilon, with H^2 read as ``value^2``.

    Raises ValueError for rewards: the paper knows them.
    """
    if message.of == "rewards":
        raise ValueError("paper 001 knows the rewards and prints no scale for them; use calibration 'tight'")
    H, (epsilon, delta) = message.horizon, private_sum.asked(ask)  # noqa: N806
    sd = 4 * H * message.value**2 * math.sqrt(2 * math.log(2.5 * H / delta)) / epsilon
    return _printed(message, sd, sd)


def _printed(message: MixtureMessage, gram_sd: float, target_sd: float) -> private_sum.Variances:
    """The same standard deviation at every step, on and above the diagonal, in squared reward units: as papers print.

    Raises ValueError if rows are ``unit``: no paper has printed a scale for them.
    """
    if message.unit:
        raise ValueError("the papers' scales are for rows as printed; use calibration 'tight' with unit features")
    gram = [math.ceil((gram_sd * LATTICE / b) ** 2) for b in message.gram_bound]
    target = [math.ceil((target_sd * LATTICE / b) ** 2) for b in message.target_bound]
    parts = zip(PARTS, (gram, gram, target), strict=True)
    return {f"{name}_{h}": v for name, each in parts for h, v in enumerate(each)}
