"""Scales of one call of a linear release: integer variances whose joint cost stays within what the plan allows."""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipeline.mdp.features import FeatureMap
from pipeline.statistics.linear_plan import Half, LinearPlan
from pipeline.statistics.linear_sensitivity import table_moves


@dataclass(frozen=True)
class Target:
    """Range of one regression's integer targets after centring: ``|y| <= bound``, or ``0 <= y <= bound``."""

    bound: int
    signed: bool


@dataclass(frozen=True)
class Scales:
    """Noise of one call, in squared integers.

    ``gram`` is the variance on the diagonal, twice that off the diagonal: isotropic in svec coordinates.  ``rho`` is
    the exact joint cost of these very integers.
    """

    gram: int
    targets: tuple[int, ...]
    rho: Fraction


def call_scales(plan: LinearPlan, h: int, half: Half, targets: tuple[Target, ...], *, whole: bool = False) -> Scales:
    """Variances of one call: the D' call has targets V^2 and V, the D call has r + V.

    Raises
    ------
    ValueError
        If the plan has no budget: an exact plan draws nothing.
    """
    rho = plan.call_rho(h, half, whole=whole)
    if rho is None:
        raise ValueError("this plan draws no noise")
    weight = plan.weight(half)
    if plan.ask.calibration == "paper":
        gram, variances = _printed(plan, half, weight)
        return Scales(gram, variances, _cost(plan, gram, variances, targets, weight))
    F2, share = plan.features.square, plan.ask.gram_share
    each = (1 - share) / len(targets)
    # at these variances the cost does not depend on the bounds; then all are stretched to the price
    base = plan.reach.cost(
        share / (2 * F2 * F2),
        sum((each / (2 * F2) for t in targets if t.signed), Fraction(0)),
        sum((each / (2 * F2) for t in targets if not t.signed), Fraction(0)),
    )
    stretch = base / rho
    gram = 2 * math.ceil(stretch * F2 * F2 * weight**2 / share / 2)
    variances = tuple(math.ceil(stretch * F2 * weight**2 * t.bound**2 / each) for t in targets)
    return Scales(gram, variances, _cost(plan, gram, variances, targets, weight))


def _cost(
    plan: LinearPlan, gram: int, variances: tuple[int, ...], targets: tuple[Target, ...], weight: int
) -> Fraction:
    rates = [Fraction(weight**2 * t.bound**2, 2 * v) for t, v in zip(targets, variances, strict=True)]
    signed = sum((r for r, t in zip(rates, targets, strict=True) if t.signed), Fraction(0))
    return plan.reach.cost(Fraction(weight**2, 2 * gram), signed, sum(rates, Fraction(0)) - signed)


def _printed(plan: LinearPlan, half: Half, weight: int) -> tuple[int, tuple[int, ...]]:
    """Variances of Algorithm 2, line 2, in integer units: of the Gram's diagonal, and of phi_1, phi_2 or of phi_3."""
    assert plan.ask.rho is not None
    H, q, unit2 = plan.domain.horizon, plan.ask.value_steps, plan.features.unit_squared
    rho_0 = plan.ask.rho / (5 * H)
    gram = 2 * math.ceil(weight**2 / (4 * rho_0) / unit2**2)
    powers = (4, 2) if half == "D'" else (2,)
    return gram, tuple(math.ceil(2 * Fraction(H * q) ** p * weight**2 / rho_0 / unit2) for p in powers)


def targets_of(plan: LinearPlan, half: Half, bound: int) -> tuple[Target, ...]:
    """Targets of a call whose centred or uncentred values reach ``bound``."""
    if half == "D'":
        return Target(bound**2, signed=False), Target(bound, signed=plan.centred)
    return (Target(bound, signed=plan.centred),)


def true_rho(plan: LinearPlan) -> Fraction | None:
    """Exact loss of the whole plan; None without noise.

    One person may meet the worst pair at every step, so steps add; halves of the same people add too, disjoint ones
    take the larger.  With tight calibration this is at most what was asked; with the paper's it is recomputed from the
    printed scales, the declared features and the value ranges [0, H-h-1] and [0, H-h] that the clip enforces.
    """
    if plan.ask.rho is None:
        return None
    if plan.ask.calibration == "tight":
        return plan.ask.rho
    sides: dict[Half, Fraction] = {"D": Fraction(0), "D'": Fraction(0)}
    joint = Fraction(0)
    for h in range(plan.domain.horizon):
        gram = vectors = alone = Fraction(0)
        twice = plan.ask.variance and h < plan.domain.horizon - 1
        halves: tuple[Half, ...] = ("D", "D'") if twice else ("D",)
        for half in halves:
            rates = _rates(plan, half, _printed_bound(plan, h, half))
            alone = plan.reach.cost(rates[0], Fraction(0), rates[1])
            sides[half] += alone
            gram, vectors = gram + rates[0], vectors + rates[1]
        # where nothing is asked of D' its people join the regression
        sides["D'"] += Fraction(0) if twice else alone
        joint += plan.reach.cost(gram, Fraction(0), vectors)
    return max(sides.values()) if plan.ask.split else joint


def _printed_bound(plan: LinearPlan, h: int, half: Half) -> int:
    """Largest integer target of a call in the paper's variant."""
    q, high = plan.ask.value_steps, plan.domain.bounds[1]
    value = math.floor(plan.domain.value_range(h + 1)[1] * q + 1e-9)
    return value + (math.floor(high * q + 1e-9) if half == "D" else 0)


def _rates(plan: LinearPlan, half: Half, bound: int) -> tuple[Fraction, Fraction]:
    """Costs of a unit move of the Gram matrix and of the (never negative) vectors at the printed scales."""
    weight = plan.weight(half)
    gram, variances = _printed(plan, half, weight)
    targets = targets_of(plan, half, bound)
    each = (Fraction(weight**2 * t.bound**2, 2 * v) for t, v in zip(targets, variances, strict=True))
    return Fraction(weight**2, 2 * gram), sum(each, Fraction(0))


def planned_calls(plan: LinearPlan) -> list[dict[str, Any]]:
    """One row a call, in order: name, sensitivity rule, whether its scale is adaptive, and its rho (None: no noise).

    The paper's scales are charged what each call truly costs alone; :func:`true_rho` is what they cost together.
    """
    last = plan.domain.horizon - 1
    rule = "sup over two people's rows of |move of svec Gram|²/2σ² + |move of targets|²/2σ², jointly"
    rows: list[dict[str, Any]] = []
    for h in range(last, -1, -1):
        twice = plan.ask.variance and plan.ask.variant != "one_shot" and h < last
        halves: tuple[Half, ...] = ("D'", "D") if twice else ("D",)
        for half in halves:
            rho = plan.call_rho(h, half, whole=not twice)
            if rho is not None and plan.ask.calibration == "paper":
                rates = _rates(plan, half, _printed_bound(plan, h, half))
                rho = plan.reach.cost(rates[0], Fraction(0), rates[1])
            adaptive = plan.ask.variant == "centred"
            rows.append({"name": f"step {h}, {half}", "sensitivity": rule, "adaptive": adaptive, "rho": rho})
    return rows


def one_shot_scales(plan: LinearPlan, tag: int, reward: int) -> Scales:
    """Variances of one step of the one-shot release: Gram, then every entry of the table."""
    rho = plan.step_rho(0)
    if rho is None:
        raise ValueError("this plan draws no noise")
    if not isinstance(plan.features, FeatureMap):
        raise ValueError("a one-shot release needs a finite feature map: it has one column a successor")
    reach = table_moves(plan.features, tag, reward, plan.domain.episodes)
    F2, share, N = plan.features.square, plan.ask.gram_share, tag**2 + reward**2
    stretch = reach.cost(share / (2 * F2 * F2), (1 - share) / (2 * F2 * N), Fraction(0)) / rho
    gram = 2 * math.ceil(stretch * F2 * F2 / share / 2)
    table = math.ceil(stretch * F2 * N / (1 - share))
    return Scales(gram, (table,), reach.cost(Fraction(1, 2 * gram), Fraction(1, 2 * table), Fraction(0)))
