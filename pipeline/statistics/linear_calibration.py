"""The private sums of a linear release: what each call of a plan draws, and what all calls cost together.

One-shot linear statistics: released once, whatever the planner; every plan on them afterwards is free.

Per step, the Gram matrix ``sum f f^T`` and the table ``sum f x^T`` with ``x = (tag at the successor, reward)``: for
*any* V the sum of phi V(s') is a combination of columns.  Nothing adapts, so C, lambda, any penalty on unweighted
sums, upper values and the values of other policies cost nothing more.  The price is noise that grows with the number
of successors, ``||V - c||_2`` instead of ``max |V - c|``: good for few states.  Of an observation the columns are its
features, and V is first fitted by a combination of them over the public sample: what they cannot say is lost.
"""

# ruff: noqa: N806  (the letters of the paper)
from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.gram import counted_sums, exact_sums
from pipeline.statistics.layout import ExactSums, Relation
from pipeline.statistics.linear_layout import CallLayout, OneShotLayout, call_tables
from pipeline.statistics.linear_plan import Half, LinearPlan
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.regression import OneShot
from pipeline.statistics.regression_rows import Quantiser, StreamRows, TalliedRows

_RULE = "sup over two people's rows of |move of svec Gram|²/2σ² + |move of targets|²/2σ², jointly"


def call_sum(layout: CallLayout, *, whole: bool = False) -> PrivateSum:
    """The private sum of one call: integer variances whose joint cost stays within what the plan allows.

    The variance of a Gram matrix is that on its diagonal, twice that off the diagonal: isotropic in svec coordinates.

    Parameters
    ----------
    layout
        What is summed.  Without a budget nothing is drawn (simulation only).
    whole
        Whether the call may take the step's whole budget, because the other half of the people is not asked.
    """
    plan, half = layout.plan, layout.half
    rho = plan.call_rho(layout.h, half, whole=whole)
    if rho is None:
        return PrivateSum(layout, tuple(t.mechanism() for t in layout.tables))
    weight, targets = plan.weight(half), layout.targets
    if plan.printed:
        gram, variances = _printed(plan, half, weight)
    else:
        F2, share = plan.features.square, plan.terms.gram_share
        each = (1 - share) / len(targets)
        stretch = _unit_cost(layout) / rho
        gram = 2 * math.ceil(stretch * F2 * F2 * weight**2 / share / 2)
        variances = tuple(math.ceil(stretch * F2 * weight**2 * t.bound**2 / each) for t in targets)
    drawn = zip(layout.tables, (gram, *variances), strict=True)
    return PrivateSum(layout, tuple(t.mechanism(variance=v) for t, v in drawn))


def _unit_cost(layout: CallLayout, relation: Relation = "replace") -> Fraction:
    """Cost of a call at unit variances, whatever its bounds; then all variances are stretched to the price."""
    F2, share, targets = layout.plan.features.square, layout.plan.terms.gram_share, layout.targets
    each = (1 - share) / len(targets) / (2 * F2)
    signed = sum(t.signed for t in targets)
    return layout.plan.reach.cost(share / (2 * F2 * F2), each * signed, each * (len(targets) - signed), relation)


def _printed(plan: LinearPlan, half: Half, weight: int) -> tuple[int, tuple[int, ...]]:
    """Variances of Algorithm 2, line 2, in integer units: of the Gram's diagonal, and of phi_1, phi_2 or of phi_3."""
    assert plan.rho is not None
    H, q, unit2 = plan.domain.horizon, plan.terms.value_steps, plan.features.unit_squared
    rho_0 = plan.rho / (5 * H)
    gram = 2 * math.ceil(weight**2 / (4 * rho_0) / unit2**2)
    powers = (4, 2) if half == "D'" else (2,)
    return gram, tuple(math.ceil(2 * Fraction(H * q) ** p * weight**2 / rho_0 / unit2) for p in powers)


def true_rho(plan: LinearPlan) -> Fraction | None:
    """Exact loss of the whole plan; None without noise.

    One person may meet the worst pair at every step, so steps add; halves of the same people add too, disjoint ones
    take the larger; the people of D' join the regression of every step that asks nothing of D' (the last one does).
    With tight calibration this is at most what was asked; with the paper's it is recomputed from the printed scales,
    the declared features and the value ranges [0, H-h-1] and [0, H-h] that the clip enforces.

    Parameters
    ----------
    plan
        What is declared.
    """
    return plan.rho if plan.rho is None or not plan.printed else _printed_cost(plan, "replace")


def joining_rho(plan: LinearPlan) -> Fraction | None:
    """Exact bound on what the whole plan costs somebody who joins or leaves; None without noise.

    A call's variances follow earlier answers, its price does not: what joining costs is a fixed part of it, the larger
    one of the two kinds of call (:func:`_unit_cost`).

    Parameters
    ----------
    plan
        What is declared.
    """
    if plan.rho is None or plan.printed:
        return None if plan.rho is None else _printed_cost(plan, "add_remove")
    halves: tuple[Half, ...] = ("D", "D'") if plan.terms.variance else ("D",)
    calls = [CallLayout(plan, 0, half, 1) for half in halves]
    return plan.rho * max(_unit_cost(c, "add_remove") / _unit_cost(c) for c in calls)


def _printed_cost(plan: LinearPlan, relation: Relation) -> Fraction:
    """What the paper's scales cost, by all calls of the plan."""
    first = second = joint = Fraction(0)
    for h in range(plan.domain.horizon):
        moves = _printed_moves(plan, h, "D")
        alone = plan.reach.cost(*moves, relation)
        if h == plan.domain.horizon - 1 or not plan.terms.variance:
            first, second, joint = first + alone, second + alone, joint + alone
            continue
        more = _printed_moves(plan, h, "D'")
        first += alone
        # where D' is not asked for variances, its people join the regression
        second += max(alone, plan.reach.cost(*more, relation))
        joint += plan.reach.cost(moves[0] + more[0], moves[1] + more[1], moves[2] + more[2], relation)
    return max(first, second) if plan.terms.halves else joint


def _printed_moves(plan: LinearPlan, h: int, half: Half) -> tuple[Fraction, Fraction, Fraction]:
    """Costs of a unit move of Gram matrix, signed and unsigned targets in one call of the paper's variant."""
    q, high = plan.terms.value_steps, plan.domain.bounds[1]
    bound = math.floor(plan.domain.value_range(h + 1)[1] * q + 1e-9)
    # its largest integer target
    layout = CallLayout(plan, h, half, bound + (math.floor(high * q + 1e-9) if half == "D" else 0))
    return layout.moves(call_sum(layout).rates)


@dataclass(frozen=True)
class PlannedCall:
    """One call of a plan, as it is known before a row is read.

    Parameters
    ----------
    h, half
        Step, from 0, and whose rows are summed.
    adaptive
        Whether its scales follow earlier answers.
    rho
        What it costs alone, exactly; None without noise.
    """

    h: int
    half: Half
    adaptive: bool
    rho: Fraction | None

    def describe(self) -> dict[str, object]:
        """The call as ``plan`` prints it and the ledger keeps it: its exact cost as text, and its tables."""
        return {
            "name": f"step {self.h}, {self.half}",
            "sensitivity": _RULE,
            "adaptive": self.adaptive,
            "rho": None if self.rho is None else str(self.rho),
            "tables": list(call_tables(self.h, self.half)),
        }


def planned_calls(plan: LinearPlan) -> list[PlannedCall]:
    """All calls, in order.

    The paper's scales are charged what each call truly costs alone; :func:`true_rho` is what they cost together.

    Parameters
    ----------
    plan
        What is declared.
    """
    last, adaptive = plan.domain.horizon - 1, plan.terms.variant == "centred"
    found: list[PlannedCall] = []
    for h in range(last, -1, -1):
        twice = plan.terms.variance and plan.terms.variant != "one_shot" and h < last
        halves: tuple[Half, ...] = ("D'", "D") if twice else ("D",)
        for half in halves:
            rho = plan.call_rho(h, half, whole=not twice)
            if rho is not None and plan.printed:
                rho = plan.reach.cost(*_printed_moves(plan, h, half))
            found.append(PlannedCall(h, half, adaptive, rho))
    return found


def one_shot_sum(plan: LinearPlan) -> PrivateSum:
    """The private sum of the one-shot release: nothing adapts, so its cost is known before a row is read.

    Parameters
    ----------
    plan
        What is declared; without a budget nothing is drawn (simulation only).
    """
    layout, rho, (tag, reward) = OneShotLayout(plan), plan.step_rho(0), plan.one_shot_steps
    if rho is None:
        return PrivateSum(layout, tuple(t.mechanism() for t in layout.tables))
    F2, share, N = plan.features.square, plan.terms.gram_share, tag**2 + reward**2
    stretch = layout.reach.cost(share / (2 * F2 * F2), (1 - share) / (2 * F2 * N), Fraction(0)) / rho
    gram, table = layout.tables
    variances = 2 * math.ceil(stretch * F2 * F2 / share / 2), math.ceil(stretch * F2 * N / (1 - share))
    return PrivateSum(layout, (gram.mechanism(variance=variances[0]), table.mechanism(variance=variances[1])))


Integers = NDArray[np.int64]


def draw_one_shot(
    plan: LinearPlan, rows: TalliedRows | StreamRows, noise: NoiseSource, *, epsilon: float | None = None
) -> Release:
    """Draw the release, or the exact statistics where the plan has no budget (simulation only).

    Parameters
    ----------
    plan
        With variant ``one_shot``.
    rows
        What is summed; not read before everything else is in order.
    noise
        The operating system's where the data are real.
    epsilon
        The epsilon that will be stated, where a sampler's share of delta has to be listed; None: it is exact.

    Raises
    ------
    RealDataError
        If the data is real and the noise is not the operating system's, or there is none.
    ValueError
        If the plan is of another variant, or the sampler's share of delta is not listed.
    """
    if plan.terms.variant != "one_shot":
        raise ValueError("a one-shot release needs variant 'one_shot'")
    summed = one_shot_sum(plan)
    if epsilon is not None:
        summed = summed.with_slack(noise, epsilon)
    summed.admit(noise, rows.data_kind)
    gram, table = _streamed(plan, rows) if isinstance(rows, StreamRows) else _counted(plan, rows)
    sums = ExactSums(plan.domain.name, rows.data_kind, "per_step", {"gram": gram, "target": table})
    return summed.draw(sums, noise)


def released_statistics(plan: LinearPlan, release: Release) -> OneShot:
    """Statistics in real units from the integers of a release.

    Parameters
    ----------
    plan
        That priced the release.
    release
        With tables ``gram (H, d, d)`` and ``target (H, columns + 1, d)``, in lattice steps.
    """
    q, (least, most), (tag, _) = plan.terms.value_steps, plan.reward_steps, plan.one_shot_steps
    gram, table, unit = release.tables["gram"], release.tables["target"], plan.features.unit
    sds = {m.table: 0.0 if m.variance is None else math.sqrt(m.variance) for m in release.mechanisms}
    return OneShot(
        gram=(gram * unit**2).astype(np.float64),
        successors=(table[:, :-1] * (unit / tag)).astype(np.float64),
        onto=plan.fit,
        rewards=(table[:, -1] * (unit / (2 * q))).astype(np.float64),
        middle=(least + most) / (2 * q),
        gram_sd=sds["gram"] / math.sqrt(2) * unit**2,
        successor_sd=sds["target"] * unit / tag,
        reward_sd=sds["target"] * unit / (2 * q),
    )


def _counted(plan: LinearPlan, rows: TalliedRows) -> tuple[Integers, Integers]:
    """Exact Gram matrices ``(H, d, d)`` and tables ``(H, columns + 1, d)`` of rows over declared successors."""
    f, M = rows.features.integers.reshape(-1, rows.features.dimension), len(plan.landings)
    n, r = rows.tallies["both"].visits, rows.tallies["both"].rewards
    y = 2 * r - sum(plan.reward_steps) * n.sum(-1)
    led = [n[..., :M] @ plan.landings, plan.one_shot_steps[0] * n[..., M:]]
    x = np.concatenate([*led, y[..., None]], axis=-1).reshape(len(n), len(f), -1)
    each = [counted_sums(f, n_h.sum(-1).reshape(-1), x_h.T) for n_h, x_h in zip(n, x, strict=True)]
    return np.stack([g for g, _ in each]), np.stack([t for _, t in each])


def _streamed(plan: LinearPlan, rows: StreamRows) -> tuple[Integers, Integers]:
    """The same of rows that pass by: of each the features of where it led, or a tag in END's column."""
    extent, (tag, _), (least, most) = plan.extent(), plan.one_shot_steps, plan.reward_steps
    lattice = Quantiser(plan.terms.value_steps, 0, 0, (least, most), 0, 1)
    gram, table = (np.zeros(t.shape, dtype=np.int64) for t in OneShotLayout(plan).tables)
    for h in range(plan.domain.horizon):
        for batch in rows.batches(h, "both"):
            ended = batch.ended[:, None]
            y = 2 * lattice.rewards(batch.reward)[:, None] - (least + most)
            led = [batch.successors[:, 0] * ~ended, *([tag * ended] if plan.domain.can_end else [])]
            more = exact_sums(extent, batch.features, np.concatenate([*led, y], axis=1).T.astype(np.float64))
            gram[h], table[h] = gram[h] + more[0], table[h] + more[1]
    return gram, table
