"""The private sums of a linear release: integers of rows, the tables and extremes of each call, and its cost.

An interactive mechanism takes its sums from counts of a finite world, or from rows that are streamed once a call.  A
step's Gram matrix and targets come from one row a person and episode, so they are bounded together
(:mod:`~pipeline.statistics.gram`): a step costs no more than the sum of its tables.

One-shot linear statistics: released once, whatever the planner; every plan on them afterwards is free.

Per step, the Gram matrix ``sum f f^T`` and the table ``sum f x^T`` with ``x = (tag at the successor, reward)``: for
*any* V the sum of phi V(s') is a combination of columns.  Nothing adapts, so C, lambda, any penalty on unweighted
sums, upper values and the values of other policies cost nothing more.  The price is noise that grows with the number
of successors, ``||V - c||_2`` instead of ``max |V - c|``: good for few states.  Of an observation the columns are its
features, and V is first fitted by a combination of them over the public sample: the misfit is lost.

The interactive mechanism of linear regressions: it answers an adaptive planner with noisy sums, within one budget.

One call per (step, half), from the last step to the first; the budget is charged once, before the first answer; any
call that the plan does not hold is refused.  DP-VAPVI feeds its answers into later queries: C, lambda, D, clips, the
seed of ties and the planner's version are therefore *part of the mechanism*, and another value of any of them is a
new release with its own charge (privacy.md §0.1-4).  Only the one-shot release of
:mod:`~pipeline.statistics.linear_sums` is free to re-plan.
"""

# ruff: noqa: N806  (the letters of the paper)
import itertools

# pyright: reportUnknownVariableType=false
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.mdp.features import FeatureMap
from pipeline.privacy.noise import NoiseSource, RealDataError
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.gram import Extent, counted_sums, exact_sums, largest
from pipeline.statistics.layout import ExactSums, Rates, Relation, Sensitivity, Table
from pipeline.statistics.linear_plan import GRAM_SHARE, Half, LinearPlan, features_digest
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.regression import MechanismClosedError, OneShot, PrivateRegression, Value, Weight, Window

Side = Literal["D", "D'", "both"]


@dataclass(frozen=True)
class Quantiser:
    """Real values to the integers that are summed: clipped, floored on 1/q, shifted by ``offset`` integers.

    ``low`` and ``high`` bound the value in integers; ``reward`` is None where no reward enters (the variance call).
    The sum of a clipped reward and a clipped value lies in the clipped range of both, so the target needs no further
    clip.

    ``lattice``: q: integers of one reward unit.
    ``low``, ``high``: bounds on values, integers.
    ``reward``: bounds on rewards, integers; None where no reward enters.
    ``weight_steps``: W: largest weight.
    """

    lattice: int
    low: int
    high: int
    reward: tuple[int, int] | None
    offset: int
    weight_steps: int

    def values(self, value: Array) -> Integers:
        """V on the lattice."""
        with np.errstate(invalid="ignore"):
            k = np.floor(np.nan_to_num(value, nan=self.low / self.lattice) * self.lattice + 1e-9)
        return np.clip(k, self.low, self.high).astype(np.int64)

    def rewards(self, reward: Array) -> Integers:
        """Rewards on the same lattice; zeros where none enters."""
        if self.reward is None:
            return np.zeros(np.shape(reward), dtype=np.int64)
        k = np.floor(np.nan_to_num(reward, nan=self.reward[0] / self.lattice) * self.lattice + 1e-9)
        return np.clip(k, *self.reward).astype(np.int64)

    def targets(self, y: Integers) -> Integers:
        """``(k, ...)``: the target, and before it its square where the call is for variances."""
        return np.stack([y * y, y]) if self.reward is None else y[None]

    def weights(self, weight: Array) -> Integers:
        """Weights in 1 .. W; NaN weighs 1."""
        steps = np.rint(np.nan_to_num(weight * self.weight_steps, nan=1.0))
        return np.clip(steps, 1, self.weight_steps).astype(np.int64)


@dataclass(frozen=True)
class Tallies:
    """Sums of rows over declared states and actions.

    ``visits`` ``(H, S, A, S')``: S' is S, or S + 1 where the last is the END.
    ``rewards`` ``(H, S, A)``: each reward clipped and floored on the lattice, then summed.
    ``first`` ``(S,)``: first states.
    """

    visits: Integers
    rewards: Integers
    first: Integers


@dataclass(frozen=True)
class TalliedRows:
    """Rows of a log over declared states: read once, at the first call, and only their sums are kept.

    ``tally`` gives D and D', or ``both`` where nothing is split; rewards may differ from row to row.
    """

    features: FeatureMap
    tally: Callable[[], Mapping[Side, Tallies]]
    data_kind: str

    @cached_property
    def tallies(self) -> Mapping[Side, Tallies]:
        """The sums of each side, ``both`` included."""
        tallies = dict(self.tally())
        if "both" not in tallies:
            d, d_prime = tallies["D"], tallies["D'"]
            tallies["both"] = Tallies(d.visits + d_prime.visits, d.rewards + d_prime.rewards, d.first + d_prime.first)
        return tallies

    def sums(
        self, h: int, side: Side, value: Value, quantiser: Quantiser, weight: Weight | None, extent: Extent
    ) -> tuple[Integers, Integers]:
        t, (S, A, d) = self.tallies[side], self.features.integers.shape
        n, real = t.visits[h], self.features.integers.astype(np.float64)
        y = quantiser.values(np.append(value(real), 0.0)[: n.shape[-1]]) - quantiser.offset
        targets = np.einsum("kt,sat->ksa", quantiser.targets(y), n)
        if quantiser.reward is not None:
            targets = targets + t.rewards[h]
        w = None if weight is None else quantiser.weights(weight(real)).reshape(-1)
        f = self.features.integers.reshape(-1, d)
        return counted_sums(f, n.sum(-1).reshape(-1), targets.reshape(-1, S * A), w)


def count_rows(
    plan: LinearPlan, visits: Mapping[Side, Integers], rewards: Array, data_kind: str = "synthetic"
) -> TalliedRows:
    """Counts of a finite world, where (h, s, a) fixes the reward of a step: F^T diag(n) F instead of a pass over rows.

    ``plan``: its features, and the lattice and bounds of its rewards.
    ``visits``: half -> ``(H, S, A, S')`` transitions; S' is S, or S + 1 where the last is the END.  ``both`` alone
    where nothing is split.
    ``rewards``: ``(H, S, A)``.
    """
    steps = np.clip(np.floor(rewards * plan.terms.value_steps + 1e-9), *plan.reward_steps).astype(np.int64)
    sums: dict[Side, Tallies] = {side: Tallies(n, steps * n.sum(-1), n[0].sum((1, 2))) for side, n in visits.items()}
    return TalliedRows(plan.features, lambda: sums, data_kind)


@dataclass(frozen=True)
class StepRows:
    """Rows of one step: integer ``features (n, d)``, ``reward (n,)``, and where they led.

    ``successors (n, A, d)`` integer features of the next state's actions; ``ended (n,)`` where the episode was over
    (value 0).
    """

    features: Array
    reward: Array
    successors: Array
    ended: Bools


@dataclass(frozen=True)
class StreamRows:
    """Rows in batches, read anew at each call; memory does not depend on their number.

    ``batches(h, side)`` must yield whole people's rows of that step, at most the declared episodes a person.

    ``dimension``: d: length of a feature.
    """

    batches: Callable[[int, Side], Iterator[StepRows]]
    dimension: int
    data_kind: str = "real"

    def sums(
        self, h: int, side: Side, value: Value, quantiser: Quantiser, weight: Weight | None, extent: Extent
    ) -> tuple[Integers, Integers]:
        d = self.dimension
        gram = np.zeros((d, d), dtype=np.int64)
        sums = np.zeros((1 if quantiser.reward else 2, d), dtype=np.int64)
        for batch in self.batches(h, side):
            V = np.where(batch.ended, 0.0, value(batch.successors))
            y = quantiser.rewards(batch.reward) + quantiser.values(V) - quantiser.offset
            w = None if weight is None else quantiser.weights(weight(batch.features)).astype(np.float64)
            batch_sums = exact_sums(extent, batch.features, quantiser.targets(y).astype(np.float64), w)
            gram += batch_sums[0]
            sums += batch_sums[1]
        return gram, sums


# raw data behind the privacy wall: exact sums of a step over D, D' or both; a weight of None is 1, not W
LinearRows = TalliedRows | StreamRows

# feature vectors that an audit tries: the longest, and those most opposed to them
_FEATURES = 24


@dataclass(frozen=True)
class PersonRow:
    """A made-up person's row of one step: state, action, reward and successor; END comes after the last state."""

    state: int
    action: int
    reward: float
    successor: int


@dataclass(frozen=True)
class Target:
    """Range of one regression's integer targets after centring: ``|y| <= bound``, or ``0 <= y <= bound``."""

    bound: int
    signed: bool


class _LinearLayout:
    """Common part of the layouts of one plan."""

    plan: LinearPlan
    dynamics = "per_step"

    @property
    def dataset(self) -> str:
        """Name of the lineage."""
        return self.plan.domain.name

    @property
    def data_kind(self) -> str:
        """``real`` or ``synthetic``, as registered."""
        return self.plan.domain.kind

    def joint(self) -> dict[str, object]:
        return joint_facts(self.plan)

    def extremes(self) -> Iterator[PersonRow | None]:
        """The absent person (None) and :func:`extreme_rows`: the worst pair may be a person against no row."""
        yield None
        yield from extreme_rows(self.plan)

    def _table(self, name: str, shape: tuple[int, ...], moved: tuple[int, int], rule: str, *, gram: bool) -> Table:
        """A table with its largest squared moves, of a replacement and of an added or removed person."""
        each = (Sensitivity(x, math.isqrt(x * math.prod(shape)) + 1, rule) for x in moved)
        return Table(name, shape, "lattice steps", *each, symmetric=gram)


@dataclass(frozen=True)
class CallLayout(_LinearLayout):
    """Sums of one call of the interactive mechanism.

    ``h``: step, from 0.
    ``half``: D' is queried for variances (squared targets, then targets), D for the regression.
    ``bound``: largest centred or uncentred value, in lattice steps.
    """

    plan: LinearPlan
    h: int
    half: Half
    bound: int

    @property
    def targets(self) -> tuple[Target, ...]:
        """The D' call has targets V^2 and V, the D call has r + V."""
        if self.half == "D'":
            return Target(self.bound**2, signed=False), Target(self.bound, signed=self.plan.centred)
        return (Target(self.bound, signed=self.plan.centred),)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The Gram matrix, then the targets; each with the moves it would have alone."""
        return self._tables

    # each answer asks several times; a protocol takes no cached property
    @cached_property
    def _tables(self) -> tuple[Table, ...]:
        plan, W, d = self.plan, self.plan.weight(self.half), self.plan.features.dimension
        rule = "{}, joint with the other sums of the step: the step costs no more than their sum"
        gram, *names = call_tables(self.h, self.half)

        def squared_moves(which: int, square: int) -> tuple[int, int]:
            return square * largest(plan.reach, which), square * largest(plan.reach, which, "add_remove")

        of_gram = rule.format("svec: half the variance off the diagonal")
        tables = [self._table(gram, (d, d), squared_moves(0, W**2), of_gram, gram=True)]
        for name, t in zip(names, self.targets, strict=True):
            squares = squared_moves(1 if t.signed else 2, (W * t.bound) ** 2)
            tables.append(self._table(name, (d,), squares, rule.format("targets at their bound"), gram=False))
        return tuple(tables)

    def moves(self, rates: Rates) -> tuple[Fraction, Fraction, Fraction]:
        """Weights of the moves of one row: Gram matrix, signed targets, unsigned ones."""
        W, (gram, *names) = self.plan.weight(self.half), call_tables(self.h, self.half)
        weights = {True: Fraction(0), False: Fraction(0)}
        for name, t in zip(names, self.targets, strict=True):
            weights[t.signed] += rates.get(name, 0) * (W * t.bound) ** 2
        return rates.get(gram, Fraction(0)) * W**2, weights[True], weights[False]

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        return self.plan.reach.cost(*self.moves(rates), relation)


@dataclass(frozen=True)
class OneShotLayout(_LinearLayout):
    """Sums of the one-shot release."""

    plan: LinearPlan

    @property
    def tables(self) -> tuple[Table, ...]:
        """Gram matrices ``(H, d, d)`` and tables ``(H, columns, d)``: the worst pair may meet at every step.

        There is a column a successor (of an observation: a feature of it), one for END where episodes end, and one for
        the reward.
        """
        H, d, k = self.plan.domain.horizon, self.plan.features.dimension, self.plan.successors
        shapes = {"gram": (H, d, d), "target": (H, k + self.plan.domain.can_end + 1, d)}
        rule = "every step at its worst pair, joint with the other table"
        tables: list[Table] = []
        for i, (name, shape) in enumerate(shapes.items()):
            reach = self.plan.table_reach
            replaced, added = (H * largest(reach, i, relation) for relation in ("replace", "add_remove"))
            tables.append(self._table(name, shape, (replaced, added), rule, gram=name == "gram"))
        return tuple(tables)

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        gram, target = (rates.get(name, Fraction(0)) for name in ("gram", "target"))
        return self.plan.domain.horizon * self.plan.table_reach.cost(gram, target, Fraction(0), relation)


def call_tables(h: int, half: Half) -> tuple[str, ...]:
    """Names of what one call releases: the Gram matrix, then its targets.

    ``h``: step, from 0.
    """
    names = ("gram", "target_squared", "target") if half == "D'" else ("gram", "target")
    return tuple(f"{name}_{half}_{h}" for name in names)


def joint_facts(plan: LinearPlan) -> dict[str, object]:
    """Grounds of the bound besides the mechanisms: plain values for ``release.json`` and the ledger."""
    terms, f = plan.terms, plan.features
    facts: dict[str, object] = {
        "rule": "supremum over two people's rows of all tables of a step together",
        "variant": terms.variant,
        "split": terms.halves,
        "horizon": plan.domain.horizon,
        "episodes": plan.domain.episodes,
        "square": f.square,
        "weights": {"D": plan.weight("D"), "D'": plan.weight("D'")},
        "features_sha256": features_digest(f),
    }
    if terms.variant == "one_shot":
        tag, reward = plan.one_shot_steps
        facts |= {"tag": tag, "reward": reward}
    return facts


def extreme_rows(plan: LinearPlan) -> Iterator[PersonRow]:
    """Rows of extreme features, rewards and successors; with the absent person they hold the worst pair of a step."""
    S, A, d = plan.features.integers.shape
    f = plan.features.integers.reshape(-1, d)
    order = np.argsort(-(f * f).sum(1), kind="stable")
    _, first = np.unique(f[order], axis=0, return_index=True)
    longest = order[np.sort(first)][: _FEATURES // 2]
    inner = f @ f[longest].T
    most = {*longest.tolist(), *inner.argmin(0).tolist(), *np.abs(inner).argmin(0).tolist()}
    ends = {0, S - 1, S} if plan.domain.can_end else {0, S - 1}
    for cell, reward, s2 in itertools.product(sorted(most), plan.domain.bounds, ends):
        yield PersonRow(cell // A, cell % A, reward, s2)


_RULE = "sup over two people's rows of |move of svec Gram|²/2σ² + |move of targets|²/2σ², jointly"


def call_sum(layout: CallLayout, *, whole: bool = False) -> PrivateSum:
    """The private sum of one call: integer variances whose joint cost stays within the plan.

    The variance of a Gram matrix is that on its diagonal, twice that off the diagonal: isotropic in svec coordinates.

    ``layout``: its sums.  Without a budget nothing is drawn (simulation only).
    """
    plan, half = layout.plan, layout.half
    rho = plan.call_rho(layout.h, half, whole=whole)
    if rho is None:
        return PrivateSum(layout, tuple(t.mechanism() for t in layout.tables))
    weight, targets = plan.weight(half), layout.targets
    if plan.printed:
        gram, variances = _printed(plan, half, weight)
    else:
        F2, share = plan.features.square, GRAM_SHARE
        target_share = (1 - share) / len(targets)
        stretch = _unit_cost(layout) / rho
        gram = 2 * math.ceil(stretch * F2 * F2 * weight**2 / share / 2)
        variances = tuple(math.ceil(stretch * F2 * weight**2 * t.bound**2 / target_share) for t in targets)
    tables_with_variance = zip(layout.tables, (gram, *variances), strict=True)
    return PrivateSum(layout, tuple(t.mechanism(variance=v) for t, v in tables_with_variance))


def _unit_cost(layout: CallLayout, relation: Relation = "replace") -> Fraction:
    """Cost of a call at unit variances, whatever its bounds; then all variances are stretched to the budget."""
    F2, share, targets = layout.plan.features.square, GRAM_SHARE, layout.targets
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


def widest_variance(plan: LinearPlan) -> int:
    """Largest variance of noise that a call of the plan may need: of the first step, which has the widest values."""
    if plan.terms.variant == "one_shot":
        return max(m.variance or 0 for m in one_shot_sum(plan).mechanisms)
    window, twice = Window(*plan.domain.value_range(1)), plan.terms.variance and plan.domain.horizon > 1
    halves: tuple[Half, ...] = ("D'", "D") if twice else ("D",)
    calls = (CallLayout(plan, 0, half, call_window(plan, 0, half, window)[1]) for half in halves)
    return max(m.variance or 0 for call in calls for m in call_sum(call, whole=not twice).mechanisms)


def true_rho(plan: LinearPlan) -> Fraction | None:
    """Exact loss of the whole plan; None without noise.

    One person may meet the worst pair at every step, so steps add; halves of the same people add too, disjoint ones
    take the larger; the people of D' join the regression of every step without a query to D' (as the last one).
    With tight calibration this is at most the budget; with the paper's it is recomputed from the printed scales,
    the declared features and the value ranges [0, H-h-1] and [0, H-h] that the clip enforces.
    """
    return plan.rho if plan.rho is None or not plan.printed else _paper_cost(plan, "replace")


def joining_rho(plan: LinearPlan) -> Fraction | None:
    """Exact bound on the cost of the whole plan to a person who is added or removed; None without noise.

    A call's variances follow earlier answers, its cost does not: the cost of joining is a fixed part of it, the larger
    one of the two kinds of call (:func:`_unit_cost`).
    """
    if plan.rho is None or plan.printed:
        return None if plan.rho is None else _paper_cost(plan, "add_remove")
    halves: tuple[Half, ...] = ("D", "D'") if plan.terms.variance else ("D",)
    calls = [CallLayout(plan, 0, half, 1) for half in halves]
    return plan.rho * max(_unit_cost(c, "add_remove") / _unit_cost(c) for c in calls)


def _paper_cost(plan: LinearPlan, relation: Relation) -> Fraction:
    """Cost of all calls of the plan at the paper's scales."""
    of_d = of_d_prime = joint = Fraction(0)
    for h in range(plan.domain.horizon):
        moves = _printed_moves(plan, h, "D")
        regression_cost = plan.reach.cost(*moves, relation)
        if h == plan.domain.horizon - 1 or not plan.terms.variance:
            of_d, of_d_prime, joint = of_d + regression_cost, of_d_prime + regression_cost, joint + regression_cost
            continue
        variance_moves = _printed_moves(plan, h, "D'")
        of_d += regression_cost
        # without a query for variances, the people of D' join the regression
        of_d_prime += max(regression_cost, plan.reach.cost(*variance_moves, relation))
        gram, signed, unsigned = (a + b for a, b in zip(moves, variance_moves, strict=True))
        joint += plan.reach.cost(gram, signed, unsigned, relation)
    return max(of_d, of_d_prime) if plan.terms.halves else joint


def _printed_moves(plan: LinearPlan, h: int, half: Half) -> tuple[Fraction, Fraction, Fraction]:
    """Costs of a unit move of Gram matrix, signed and unsigned targets in one call of the paper's variant."""
    q, high = plan.terms.value_steps, plan.domain.bounds[1]
    bound = math.floor(plan.domain.value_range(h + 1)[1] * q + 1e-9)
    # its largest integer target
    layout = CallLayout(plan, h, half, bound + (math.floor(high * q + 1e-9) if half == "D" else 0))
    return layout.moves(call_sum(layout).rates)


def planned_calls(plan: LinearPlan) -> Iterator[dict[str, object]]:
    """All calls, in order, as ``plan`` prints them and the ledger keeps them: exact cost as text, None without noise.

    The paper's scales are charged the true cost of each call alone; :func:`true_rho` is their joint cost.
    """
    last, adaptive = plan.domain.horizon - 1, plan.terms.variant == "centred"
    for h in range(last, -1, -1):
        twice = plan.terms.variance and plan.terms.variant != "one_shot" and h < last
        halves: tuple[Half, ...] = ("D'", "D") if twice else ("D",)
        for half in halves:
            rho = plan.call_rho(h, half, whole=not twice)
            if rho is not None and plan.printed:
                rho = plan.reach.cost(*_printed_moves(plan, h, half))
            yield {
                "name": f"step {h}, {half}",
                "sensitivity": _RULE,
                "adaptive": adaptive,
                "rho": None if rho is None else str(rho),
                "tables": list(call_tables(h, half)),
            }


def one_shot_sum(plan: LinearPlan) -> PrivateSum:
    """The private sum of the one-shot release: nothing adapts, so its cost is known before a row is read.

    Without a budget nothing is drawn (simulation only).
    """
    layout, rho, (tag, reward) = OneShotLayout(plan), plan.step_rho(0), plan.one_shot_steps
    if rho is None:
        return PrivateSum(layout, tuple(t.mechanism() for t in layout.tables))
    F2, share, N = plan.features.square, GRAM_SHARE, tag**2 + reward**2
    stretch = plan.table_reach.cost(share / (2 * F2 * F2), (1 - share) / (2 * F2 * N), Fraction(0)) / rho
    gram, table = layout.tables
    variances = 2 * math.ceil(stretch * F2 * F2 / share / 2), math.ceil(stretch * F2 * N / (1 - share))
    return PrivateSum(layout, (gram.mechanism(variance=variances[0]), table.mechanism(variance=variances[1])))


def draw_one_shot(
    plan: LinearPlan, rows: TalliedRows | StreamRows, noise: NoiseSource, *, epsilon: float | None = None
) -> Release:
    """Draw the release, or the exact statistics where the plan has no budget (simulation only).

    ``epsilon``: the stated epsilon, where a sampler's share of delta has to be listed; None: the sampler is exact.
    Raises RealDataError if the data is real and the noise is not the operating system's, or there is none.
    Raises ValueError if the plan is of another variant, or the sampler's share of delta is not listed.
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

    ``release``: with tables ``gram (H, d, d)`` and ``target (H, columns + 1, d)``, in lattice steps.
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
    successors = [n[..., :M] @ plan.landings, plan.one_shot_steps[0] * n[..., M:]]
    x = np.concatenate([*successors, y[..., None]], axis=-1).reshape(len(n), len(f), -1)
    step_sums = [counted_sums(f, n_h.sum(-1).reshape(-1), x_h.T) for n_h, x_h in zip(n, x, strict=True)]
    return np.stack([g for g, _ in step_sums]), np.stack([t for _, t in step_sums])


def _streamed(plan: LinearPlan, rows: StreamRows) -> tuple[Integers, Integers]:
    """The same of streamed rows: of each the features of its successor, or a tag in END's column."""
    extent, (tag, _), (least, most) = plan.extent(), plan.one_shot_steps, plan.reward_steps
    lattice = Quantiser(plan.terms.value_steps, 0, 0, (least, most), 0, 1)
    gram, table = (np.zeros(t.shape, dtype=np.int64) for t in OneShotLayout(plan).tables)
    for h in range(plan.domain.horizon):
        for batch in rows.batches(h, "both"):
            ended = batch.ended[:, None]
            y = 2 * lattice.rewards(batch.reward)[:, None] - (least + most)
            successors = [batch.successors[:, 0] * ~ended, *([tag * ended] if plan.domain.can_end else [])]
            x = np.concatenate([*successors, y], axis=1).T.astype(np.float64)
            batch_gram, batch_table = exact_sums(extent, batch.features, x)
            gram[h], table[h] = gram[h] + batch_gram, table[h] + batch_table
    return gram, table


@dataclass
class InteractiveRegression:
    """The mechanism that holds the rows: exact (``rho`` None, simulation only), tight or with the paper's scales.

    ``epsilon``: the stated epsilon, where a sampler's share of delta has to be listed; None: the sampler is exact.
    Raises RealDataError if rows and plan are of different kinds, or the noise is too small for real people.
    """

    plan: LinearPlan
    rows: LinearRows
    noise: NoiseSource
    epsilon: float | None = None
    _done: list[tuple[int, Half]] = field(default_factory=list, init=False)
    _mechanisms: list[Mechanism] = field(default_factory=list, init=False)
    _tables: dict[str, Integers] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Refuse a mechanism that would not be private before a row is read."""
        self.noise.admit(self.plan.domain.kind)
        if self.rows.data_kind != self.plan.domain.kind:
            raise RealDataError(f"rows say {self.rows.data_kind!r}, the plan {self.plan.domain.kind!r}")
        if self.plan.domain.kind != "real":
            return
        budget, cost = self.plan.rho, true_rho(self.plan)
        if budget is None or cost is None or cost > budget:
            raise RealDataError(
                f"{self.plan.domain.name} is registered as real: the plan's noise does not give what it asks"
            )

    @property
    def lattice(self) -> int:
        """Lattice steps q of one reward unit."""
        return self.plan.terms.value_steps

    def variance(self, h: int, value: Value, window: Window) -> PrivateRegression:
        if not self.plan.terms.variance or h == self.plan.domain.horizon - 1:
            raise MechanismClosedError(f"the plan has no variance call at step {h}")
        self._admit(h, "D'")
        return self._answer(h, "D'", value, window, None)

    def regression(self, h: int, value: Value, window: Window, weight: Weight | None = None) -> PrivateRegression:
        """See :class:`~pipeline.statistics.regression.InteractiveMechanism`; the only call takes the step's budget."""
        self._admit(h, "D")
        return self._answer(h, "D", value, window, weight)

    def _admit(self, h: int, half: Half) -> None:
        last = self._done[-1] if self._done else (self.plan.domain.horizon, "D")
        follows = {(last[0] - 1, "D'"), (last[0] - 1, "D")} if last[1] == "D" else {(last[0], "D")}
        if (h, half) not in follows or h < 0:
            raise MechanismClosedError(
                f"step {h}, {half} was answered, skipped or is not next; a desk never answers twice"
            )
        self._done.append((h, half))

    def _answer(self, h: int, half: Half, value: Value, window: Window, weight: Weight | None) -> PrivateRegression:
        plan, (quantiser, bound) = self.plan, call_window(self.plan, h, half, window)
        only_call = half == "D" and (h, "D'") not in self._done
        side: Side = "both" if not plan.terms.halves or only_call else half
        layout = CallLayout(plan, h, half, bound)
        summed = call_sum(layout, whole=only_call)
        if self.epsilon is not None:
            summed = summed.with_slack(self.noise, self.epsilon)
        gram, sums = self.rows.sums(h, side, value, quantiser, weight, plan.extent())
        if weight is None:
            gram, sums = gram * plan.weight(half), sums * plan.weight(half)
        exact = dict(zip((m.table for m in summed.mechanisms), (gram, *sums), strict=True))
        tables = summed.perturb(exact, self.noise, self.rows)
        self._mechanisms += summed.mechanisms
        self._tables |= tables
        return answer(layout, quantiser.offset, summed.mechanisms, tables)

    def release(self) -> Release:
        """All answers so far, at the joint cost of their calls; without noise it is marked so (simulation)."""
        exact = self.plan.rho is None
        return Release(
            dataset=self.plan.domain.name,
            data_kind=self.plan.domain.kind,
            dynamics="per_step",
            mechanisms=tuple(self._mechanisms),
            tables=self._tables,
            noise="none" if exact else self.noise.name,
            sampler="none: exact sums, simulation, not private" if exact else self.noise.sampler,
            joint_rho=true_rho(self.plan),
            joint=joint_facts(self.plan),
        )


def call_window(plan: LinearPlan, h: int, half: Half, window: Window) -> tuple[Quantiser, int]:
    """Integer window of a call with its centre, clipped to the declared range, and the bound on its targets.

    ``h``, ``half``: step, from 0, and the half whose rows are summed.
    Returns the quantiser of values, and the largest absolute target in lattice steps.
    """
    q, domain = plan.terms.value_steps, plan.domain
    low, high = (math.floor(v * q + 1e-9) for v in domain.value_range(h + 1))
    if plan.centred:
        low, high = (min(max(math.floor(v * q + 1e-9), low), high) for v in (window.low, window.high))
    reward = None if half == "D'" else plan.reward_steps
    least, most = low + (reward[0] if reward else 0), high + (reward[1] if reward else 0)
    offset = (least + most) // 2 if plan.centred else 0
    bound = max(most - offset, offset - least, 1)
    return Quantiser(q, low, high, reward, offset, plan.terms.weight_steps), bound


def answer(
    layout: CallLayout, offset: int, mechanisms: Sequence[Mechanism], tables: Mapping[str, Integers]
) -> PrivateRegression:
    """Noisy integers of one call in real units.

    ``offset``: subtracted from every target, lattice steps.
    ``tables``: noisy integers of each: ``(d, d)`` the Gram matrix, ``(d,)`` the targets.
    """
    plan, W, q = layout.plan, layout.plan.weight(layout.half), layout.plan.terms.value_steps
    unit2, powers = float(plan.features.unit_squared), (2, 1) if layout.half == "D'" else (1,)
    steps = [plan.features.unit / (W * q**p) for p in powers]
    gram, *targets = mechanisms
    return PrivateRegression(
        gram=tables[gram.table].astype(np.float64) * (unit2 / W),
        targets=np.stack([tables[m.table] for m in targets]).astype(np.float64) * np.array(steps)[:, None],
        offset=offset / q,
        bound=layout.bound / q,
        gram_sd=math.sqrt((gram.variance or 0) / 2) * unit2 / W,
    )


@dataclass(frozen=True)
class RecordedRegression:
    """Answers the calls that a release recorded, and no other."""

    plan: LinearPlan
    release: Release

    @property
    def lattice(self) -> int:
        """Lattice steps of one reward unit."""
        return self.plan.terms.value_steps

    def variance(self, h: int, value: Value, window: Window) -> PrivateRegression:
        return self._answer(h, "D'", window)

    def regression(self, h: int, value: Value, window: Window, weight: Weight | None = None) -> PrivateRegression:
        return self._answer(h, "D", window)

    def _answer(self, h: int, half: Half, window: Window) -> PrivateRegression:
        quantiser, bound = call_window(self.plan, h, half, window)
        layout, mechanisms = CallLayout(self.plan, h, half, bound), {m.table: m for m in self.release.mechanisms}
        if any(t.name not in mechanisms for t in layout.tables):
            raise ValueError(f"this release holds no answer at step {h}, {half}: it was made by another planner")
        if any(mechanisms[t.name].l2_squared != t.replace.l2_squared for t in layout.tables):
            raise ValueError(f"step {h}, {half} was asked with other targets: another planner made this release")
        return answer(layout, quantiser.offset, [mechanisms[t.name] for t in layout.tables], self.release.tables)
