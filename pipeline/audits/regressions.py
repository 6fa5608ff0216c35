"""Audit targets of regressions: linear ones in every variant, interactive or one-shot, and moments of linear control.

The planner on the other side of the interactive mechanism is an adversary: its V is the lowest allowed at one successor
and overdrawn at the others, so that clipping inside the mechanism matters.  A step's results depend on that step's row
alone, so the worst two people are determined step by step.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.audits.attack import WORLD, AuditTarget, Gaussian, Side, Silence, Whole, silence
from pipeline.declaration.card import CardError
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import NoiseSource, symmetric_noise
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics import linear_sums
from pipeline.statistics.linear_plan import Half, LinearPlan
from pipeline.statistics.lq import draw_lq, lq_layout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.regression import Window

# the fast sampler's share of delta is listed at this epsilon: without it nothing is drawn
EPSILON = 20.0
_OVERDRAWN = 3.0

# one row a step, or none: the person is absent then
Person = tuple[linear_sums.PersonRow | None, ...]


def linear_target(plan: LinearPlan) -> AuditTarget:
    """The worst pair of people against a plan.

    Raises CardError if the plan has no budget.
    """
    claimed = linear_sums.true_rho(plan)
    if claimed is None:
        raise CardError(f"{plan.domain.name}: no noise: nothing to attack")
    # no rows are read, so the plan is that of a simulation
    plan = replace(plan, domain=replace(plan.domain, kind="synthetic"))
    shipped = partial(draw_once if plan.terms.variant == "one_shot" else draw_answers, plan)
    rows, H = [None, *linear_sums.extreme_rows(plan)], plan.domain.horizon
    releases = [shipped((row,) * H, Silence()) for row in rows]
    scales = _variances(releases[0])
    worst = [_furthest([_of_step(a, scales, h) for a in releases]) for h in range(H)]
    pair = tuple(rows[i] for i, _ in worst), tuple(rows[j] for _, j in worst)
    words = f"{plan.terms.variant} targets, {plan.terms.ask.calibration} calibration"
    words = f"linear, discrete gaussian, {words}" + (", halves" if plan.terms.halves else "")
    return _target(words, claimed, Whole(shipped, pair))


def lq_target(shipped: PrivateSum) -> AuditTarget:
    """The worst pair of people who repeat one row, as long as their balls allow and longer, against one release.

    Raises CardError if it draws no noise.
    """
    claimed = shipped.rho
    if claimed is None:
        raise CardError(f"{shipped.layout.dataset}: no noise, no claim to attack")
    layout = replace(lq_layout(shipped), data_kind="synthetic")
    summed = replace(shipped, layout=layout)

    def release_of(person: LqBatch, noise: NoiseSource) -> Release:
        return draw_lq(summed, [person], noise, epsilon=EPSILON)

    def sums_of(person: LqBatch) -> Mapping[str, Integers]:
        return layout.add([person])

    words = "lq moments, discrete gaussian, gram and target"
    return _target(words, claimed, Whole(release_of, summed.worst_pair(sums_of)))


def linear_cost(plan: LinearPlan) -> Fraction:
    """Cost of a whole plan without a draw: every call at its widest window, summed over the calls of one person.

    Raises ValueError if the plan draws no noise.
    """
    stated = linear_sums.true_rho(plan)
    if plan.terms.variant == "one_shot":
        return _rho(linear_sums.one_shot_sum(plan))
    if plan.printed and stated is not None:
        return stated
    last = plan.domain.horizon - 1
    cost = {h: _call(plan, h, "D") for h in range(last + 1)}
    first = sum(cost.values(), Fraction(0))
    second = sum((_call(plan, h, "D'") for h in range(last)), Fraction(0)) if plan.terms.variance else Fraction(0)
    # of disjoint halves a person is in one, and both meet the last step
    return max(first, second + cost[last]) if plan.terms.halves else first + second


def _call(plan: LinearPlan, h: int, half: Half) -> Fraction:
    _, bound = linear_sums.call_window(plan, h, half, Window(*plan.domain.value_range(h + 1)))
    alone = not plan.terms.variance or h == plan.domain.horizon - 1
    return _rho(linear_sums.call_sum(linear_sums.CallLayout(plan, h, half, bound), whole=alone))


def _rho(summed: PrivateSum) -> Fraction:
    if summed.rho is None:
        raise ValueError("this plan draws no noise")
    return summed.rho


def _target(mechanism: str, claimed: Fraction, whole: Whole) -> AuditTarget:
    """Target of the shipped sums with listed noise, many copies at once; whole releases are compared with that list."""
    zero, one = (whole.draw(person, Silence()) for person in whole.pair)
    path = _Tiled(zero.mechanisms, (zero.tables, one.tables))
    return AuditTarget(mechanism, Trust.CENTRAL, path, silence(path), Gaussian(_variances(zero)), claimed, whole=whole)


@dataclass(frozen=True)
class _Tiled:
    """Noise of the listed mechanisms, as a release draws it, on the exact tables of two people."""

    mechanisms: tuple[Mechanism, ...]
    sides: tuple[Mapping[str, Integers], Mapping[str, Integers]]

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        tables: list[Array] = []
        for m in self.mechanisms:
            assert m.variance is not None
            if m.table.startswith("gram"):
                matrices = copies * m.cells // m.shape[-1] ** 2
                drawn = symmetric_noise(noise, matrices, m.shape[-1], m.variance, WORLD)
            else:
                drawn = noise.gaussian(copies * m.cells, m.variance, WORLD)
            tables.append((self.sides[side][m.table] + drawn.reshape(copies, *m.shape)).astype(np.float64))
        return tables


def _variances(release: Release) -> list[Array]:
    """Variance of every entry; infinite below the diagonal of a Gram matrix, whose entries are not read twice."""
    variances: list[Array] = []
    for m in release.mechanisms:
        v = np.full(m.shape, float(m.variance or math.inf))
        if m.table.startswith("gram"):
            d = m.shape[-1]
            v = np.broadcast_to(np.where(np.eye(d, dtype=bool), v, v / 2), m.shape).copy()
            v[..., *np.tril_indices(d, -1)] = math.inf
        variances.append(v)
    return variances


def _of_step(release: Release, variances: list[Array], h: int) -> Array:
    """Entries of a release at one step, in units of their noise."""
    entries: list[Array] = []
    for m, v in zip(release.mechanisms, variances, strict=True):
        scaled = release.tables[m.table] / np.sqrt(v)
        if m.table in ("gram", "target"):
            entries.append(scaled[h].ravel())
        elif m.table.endswith(f"_{h}"):
            entries.append(scaled.ravel())
    return np.concatenate(entries)


def _furthest(points: list[Array]) -> tuple[int, int]:
    """Indices of the two points with the largest distance."""
    matrix = np.array(points)
    squares = (matrix**2).sum(1)
    distances = squares[:, None] + squares - 2 * matrix @ matrix.T
    one, other = np.unravel_index(int(distances.argmax()), distances.shape)
    return int(one), int(other)


def draw_answers(plan: LinearPlan, person: Person, noise: NoiseSource) -> Release:
    """All results of an interactive mechanism whose rows are one person's."""
    mechanism = linear_sums.InteractiveRegression(plan, rows_of(plan, person), noise, epsilon=EPSILON)
    ask_all(mechanism)
    return mechanism.release()


def draw_once(plan: LinearPlan, person: Person, noise: NoiseSource) -> Release:
    """The one-shot release of one person's rows."""
    return linear_sums.draw_one_shot(plan, counts_of(plan, person), noise, epsilon=EPSILON)


def ask_all(mechanism: linear_sums.InteractiveRegression) -> None:
    """Every call the plan allows, from the last step to the first, by an adversarial planner."""
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


def rows_of(plan: LinearPlan, person: Person) -> linear_sums.LinearRows:
    """One person, in both halves where nothing is split, else in the first."""
    f = plan.features.integers.astype(np.float64)
    padded = np.concatenate([f, np.zeros((1, *f.shape[1:]))])

    def batches(h: int, side: linear_sums.Side) -> Iterator[linear_sums.StepRows]:
        row = person[h]
        if row is not None and (side != "D'" or not plan.terms.halves):
            reward, ended = np.array([row.reward]), np.array([row.successor == len(f)])
            yield linear_sums.StepRows(f[row.state, row.action][None], reward, padded[row.successor][None], ended)

    return linear_sums.StreamRows(batches, plan.features.dimension, "synthetic")


def counts_of(plan: LinearPlan, person: Person) -> linear_sums.TalliedRows:
    """The same person as counts."""
    S, A, _ = plan.features.integers.shape
    visits = np.zeros((plan.domain.horizon, S, A, S + plan.domain.can_end), dtype=np.int64)
    rewards = np.full((plan.domain.horizon, S, A), plan.domain.bounds[0])
    for h, row in enumerate(person):
        if row is not None:
            visits[h, row.state, row.action, row.successor] = 1
            rewards[h, row.state, row.action] = row.reward
    return linear_sums.count_rows(plan, {"both": visits}, rewards)
