"""Attack on linear releases: DP-VAPVI's interactive mechanism in every variant, and the one-shot release.

The planner on the other side of the mechanism is an adversary: its V is the lowest allowed at one successor and
overdrawn at the others, so that clipping inside the mechanism matters.  A step's answers depend on that step's row
alone, so the worst two people are found step by step.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.audits.attack import Array, Attack, ReleasePath, Side
from pipeline.audits.laws import Gaussian
from pipeline.audits.sampling import WORLD, Pooled, Silence
from pipeline.declaration.card import CardError
from pipeline.mdp.features import FeatureMap
from pipeline.privacy.guarantee import Trust
from pipeline.privacy.noise import NoiseSource, symmetric_noise
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.interactive import InteractiveRegression
from pipeline.statistics.linear_calibration import true_rho
from pipeline.statistics.linear_layout import Row, extreme_rows
from pipeline.statistics.linear_plan import LinearPlan
from pipeline.statistics.one_shot import release_one_shot
from pipeline.statistics.regression import Window
from pipeline.statistics.rows import Batch, CountRows, Rows, StreamRows
from pipeline.statistics.rows import Side as Half

# at which the fast sampler's share of delta is listed: without it nothing is drawn
EPSILON = 20.0
_OVERDRAWN = 3.0


# one row a step, or none: the person is absent then
Person = tuple[Row | None, ...]
Drawn = Callable[[LinearPlan, Person, NoiseSource], Release]


def linear_attack(plan: LinearPlan, drawn: Drawn | None = None) -> Attack:
    """The worst pair of people against a plan.

    Parameters
    ----------
    drawn
        A whole release from a person's rows, one copy at a time: the shipped one, or a broken one.  None: the shipped
        sums once a side, with the listed noise drawn for many copies at once (the attacker's V does not look at it),
        after whole releases were held against that list.

    Raises
    ------
    CardError
        If the plan has no budget, or its features are not a finite map.
    """
    claimed = true_rho(plan)
    if claimed is None or not isinstance(plan.features, FeatureMap):
        raise CardError(f"{plan.domain.name}: no noise, or no declared features: nothing to attack")
    # nobody's rows are read, so the plan is that of a simulation
    plan = replace(plan, domain=replace(plan.domain, kind="synthetic"))
    honest = one_shot_of if plan.terms.variant == "one_shot" else desk_of
    rows = [None, *extreme_rows(plan)]
    H = plan.domain.horizon
    scales = _variances(honest(plan, (None,) * H, Silence()))
    answers = [honest(plan, (row,) * H, Silence()) for row in rows]
    worst = [_furthest([_of_step(a, scales, h) for a in answers]) for h in range(H)]
    pair = tuple(rows[i] for i, _ in worst), tuple(rows[j] for _, j in worst)
    path = tiled(honest(plan, pair[0], Silence()), honest(plan, pair[1], Silence()))
    if drawn is not None:
        path = _Path(plan, pair, drawn)
    words = f"{plan.terms.variant} targets, {plan.terms.ask.calibration} calibration" + (
        ", halves" if plan.terms.halves else ""
    )
    return Attack(
        mechanism=f"linear, discrete gaussian, {words}",
        trust=Trust.CENTRAL,
        path=path,
        means=([t[0] for t in path(0, Silence(), 1)], [t[0] for t in path(1, Silence(), 1)]),
        law=Gaussian(scales),
        claimed_rho=claimed,
        whole=_Path(plan, pair, honest) if drawn is None else None,
    )


@dataclass(frozen=True)
class _Path:
    """One whole release a copy: an interactive mechanism answers once, so nothing can be tiled."""

    plan: LinearPlan
    pair: tuple[Person, Person]
    release: Drawn

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        source = noise if isinstance(noise, Silence | Pooled) else Pooled(noise)
        return _tables([self.release(self.plan, self.pair[side], source) for _ in range(copies)])


@dataclass(frozen=True)
class Tiled:
    """Noise of the listed mechanisms, as a release draws it, on the exact tables of two people."""

    mechanisms: tuple[Mechanism, ...]
    sides: tuple[Mapping[str, NDArray[np.int64]], Mapping[str, NDArray[np.int64]]]

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        """See :class:`~pipeline.audits.attack.ReleasePath`."""
        source = noise if isinstance(noise, Silence | Pooled) else Pooled(noise)
        found: list[Array] = []
        for m in self.mechanisms:
            assert m.variance is not None
            if m.table.startswith("gram"):
                each = copies * m.cells // m.shape[-1] ** 2
                drawn = symmetric_noise(source, each, m.shape[-1], m.variance, WORLD)
            else:
                drawn = source.gaussian(copies * m.cells, m.variance, WORLD)
            found.append((self.sides[side][m.table] + drawn.reshape(copies, *m.shape)).astype(np.float64))
        return found


def tiled(zero: Release, one: Release) -> ReleasePath:
    """The path of two silent releases of one plan."""
    return Tiled(zero.mechanisms, (zero.tables, one.tables))


def desk_of(plan: LinearPlan, person: Person, noise: NoiseSource) -> Release:
    """All answers of a mechanism whose rows are one person's."""
    mechanism = InteractiveRegression(plan, rows_of(plan, person), noise, epsilon=EPSILON)
    ask_all(mechanism)
    return mechanism.release()


def one_shot_of(plan: LinearPlan, person: Person, noise: NoiseSource) -> Release:
    """The one-shot release of one person's rows."""
    found = release_one_shot(plan, counts_of(plan, person), noise, epsilon=EPSILON).release
    assert found is not None
    return found


def ask_all(mechanism: InteractiveRegression) -> None:
    """Every call the plan allows, from the last step to the first, by a planner that wants to tell people apart."""
    plan = mechanism.plan
    low, high = plan.domain.value_range(1)
    for h in reversed(range(plan.domain.horizon)):
        least, most = plan.domain.value_range(h + 1)
        window = Window(least, most) if h < plan.domain.horizon - 1 else Window(0.0, 0.0)
        if plan.terms.variance and h < plan.domain.horizon - 1:
            mechanism.variance(h, lambda f: _value(f, low, high), window)
        mechanism.regression(h, lambda f: _value(f, low, high), window)


def _value(features: Array, low: float, high: float) -> Array:
    """Lowest where a state's first features are all 0 or below, overdrawn elsewhere."""
    return np.where(features.sum((-1, -2)) > 0, high + _OVERDRAWN, low - _OVERDRAWN)


def rows_of(plan: LinearPlan, person: Person) -> Rows:
    """One person, in both halves where nothing is split, else in the first."""
    assert isinstance(plan.features, FeatureMap)
    f = plan.features.integers.astype(np.float64)
    padded = np.concatenate([f, np.zeros((1, *f.shape[1:]))])

    def batches(h: int, side: Half) -> Iterator[Batch]:
        row = person[h]
        if row is not None and (side != "D'" or not plan.terms.halves):
            reward, ended = np.array([row.reward]), np.array([row.successor == len(f)])
            yield Batch(f[row.state, row.action][None], reward, padded[row.successor][None], ended)

    return StreamRows(batches, plan.features.dimension, "synthetic")


def counts_of(plan: LinearPlan, person: Person) -> CountRows:
    """The same person as counts."""
    assert isinstance(plan.features, FeatureMap)
    S, A, _ = plan.features.integers.shape
    visits = np.zeros((plan.domain.horizon, S, A, S + plan.domain.can_end), dtype=np.int64)
    rewards = np.full((plan.domain.horizon, S, A), plan.domain.bounds[0])
    for h, row in enumerate(person):
        if row is not None:
            visits[h, row.state, row.action, row.successor] = 1
            rewards[h, row.state, row.action] = row.reward
    return CountRows(plan.features, {"both": visits}, rewards)


def _tables(releases: list[Release]) -> list[Array]:
    names = [m.table for m in releases[0].mechanisms]
    return [np.stack([r.tables[name] for r in releases]).astype(np.float64) for name in names]


def _variances(release: Release) -> list[Array]:
    """Of every entry: a Gram matrix is symmetric, so half of its entries say nothing new and are not read."""
    found: list[Array] = []
    for m in release.mechanisms:
        v = np.full(m.shape, float(m.variance or math.inf))
        if m.table.startswith("gram"):
            d = m.shape[-1]
            v = np.broadcast_to(np.where(np.eye(d, dtype=bool), v, v / 2), m.shape).copy()
            v[..., *np.tril_indices(d, -1)] = math.inf
        found.append(v)
    return found


def _of_step(release: Release, variances: list[Array], h: int) -> Array:
    """What a release says of one step, in units of its noise."""
    found: list[Array] = []
    for m, v in zip(release.mechanisms, variances, strict=True):
        each = release.tables[m.table] / np.sqrt(v)
        if m.table in ("gram", "target"):
            found.append(each[h].ravel())
        elif m.table.endswith(f"_{h}"):
            found.append(each.ravel())
    return np.concatenate(found)


def _furthest(points: list[Array]) -> tuple[int, int]:
    at = np.array(points)
    squares = (at**2).sum(1)
    apart = squares[:, None] + squares - 2 * at @ at.T
    one, other = np.unravel_index(int(apart.argmax()), apart.shape)
    return int(one), int(other)
