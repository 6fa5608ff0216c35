"""Audit targets of tables that are summed over people: counts at once or by night, stages of one step, regressions.

Each target goes from two people to the tables that are drawn of them, many copies at once, and to the claimed law.

*Regressions*, in every variant, interactive or one-shot, and moments of linear control.  The planner on the other side
of the interactive mechanism is an adversary: its V is the lowest allowed at one successor and overdrawn at the others,
so that clipping inside the mechanism matters.  A step's results depend on that step's row alone, so the worst two
people are determined step by step.
"""

# ruff: noqa: N806  (the letters of the paper)
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.audits.attack import WORLD, AuditTarget, Gaussian, Laplace, Side, Silence, Whole, silence
from pipeline.declaration.card import CardError
from pipeline.logs.aggregate import count_person
from pipeline.logs.one_step_sums import RETURN_STEPS, FeatureQuestion, FollowQuestion, ask_person
from pipeline.logs.target_sums import person_sums
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.continual import Factorisation
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import NoiseSource, symmetric_noise
from pipeline.privacy.release import Mechanism, Release, total_epsilon, total_rho
from pipeline.statistics import linear_sums
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.layout import ExactSums, GateLayout, Tables
from pipeline.statistics.linear_plan import Half, LinearPlan
from pipeline.statistics.lq import draw_lq, lq_layout
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.one_step_layout import FEATURES, STEPS, WEIGHT, FeatureLayout, FollowLayout
from pipeline.statistics.played import PlayedLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.regression import Window
from pipeline.statistics.target_plan import VALUE_STEPS, Stage, TargetPlan, TargetQuestion

L = TypeVar("L", CountLayout, PlayedLayout, FollowLayout, FeatureLayout, MomentLayout, GateLayout)


def counts_target(shipped: PrivateSum) -> AuditTarget:
    """The worst pair of people against count tables, or all rows of a counter that hold its first night.

    The sums of a night are post-processing of its rows, and the ledger charges for these.

    Raises CardError if a table has no noise, or one of a counter no Gaussian noise: there is nothing to claim.
    """
    made_up, layout = _made_up(shipped, CountLayout)
    mechanisms, time = shipped.mechanisms, shipped.time
    assert time is None or isinstance(time, Factorisation)
    words = f"counts, {' and '.join(dict.fromkeys(m.name for m in mechanisms))}"
    if time is not None:
        words = f"nightly {time.kind}, {time.steps} nights, discrete gaussian"
    return tables_target(words, shipped, made_up, partial(count_person, layout.card), total_rho(mechanisms))


def played_target(shipped: PrivateSum) -> AuditTarget:
    """The worst pair of people against every night's returns.

    Raises CardError if there is no noise: there is nothing to claim.
    """
    made_up, layout = _made_up(shipped, PlayedLayout)
    assert shipped.time is not None
    words = f"returns of {shipped.time.steps} nights, discrete gaussian"
    return tables_target(words, shipped, made_up, layout.one, shipped.rho)


def gate_target(shipped: PrivateSum) -> AuditTarget:
    """A person who breaks no rule against one who breaks most rules, in the counts of a gate.

    Raises CardError if there is no noise: there is nothing to claim.
    """
    made_up, layout = _made_up(shipped, GateLayout)
    words = f"the gate, {shipped.mechanisms[0].name}"
    return tables_target(words, shipped, made_up, layout.count, total_rho(shipped.mechanisms))


def stage_target(plan: TargetPlan, stage: Stage) -> AuditTarget:
    """The worst pair of people against one stage of one-step improvement, for a query that the auditor chooses.

    Raises CardError if there is no noise: there is nothing to claim.
    """
    card, shipped = plan.card.model_copy(update={"kind": "synthetic"}), plan.stages[stage]
    made_up = replace(plan, card=card)
    query = None if stage == "v" else _extreme_question(made_up)
    if query is not None and stage == "c":
        query = replace(query, group=np.arange(len(card.domain.live_states)) % plan.groups)
    draws = replace(shipped, layout=made_up.layout(stage))
    words = {"v": "values of practice", "c": "gains of actions by group", "q": "gains of actions"}[stage]
    return tables_target(
        f"{words}, discrete gaussian", shipped, draws, partial(person_sums, made_up, query), shipped.rho
    )


def rows_target(shipped: PrivateSum, span: float) -> AuditTarget:
    """The worst pair of people against a stage that evaluates a one-step policy, for a query that the auditor chooses.

    Raises CardError if there is no noise: there is nothing to claim.
    """
    if isinstance(shipped.layout, FollowLayout):
        made_up, layout = _made_up(shipped, FollowLayout)
        # people who take the first action follow
        words, query = "rows that follow", FollowQuestion(layout, np.zeros(math.prod(layout.cells), dtype=np.int64))
    else:
        made_up, layout = _made_up(shipped, FeatureLayout)
        words, query = "moments of features", _longest_features(layout, span)
    return tables_target(f"{words}, discrete gaussian", shipped, made_up, partial(ask_person, query), shipped.rho)


def _longest_features(layout: FeatureLayout, span: float) -> FeatureQuestion:
    """Rows of full weight; those of the last state are as far as any from those of the first."""
    cells, states = math.prod(FollowLayout(layout.card).cells), len(layout.card.domain.live_states)
    first, last = (np.arange(cells) % states == s for s in (0, states - 1))
    features, zero = np.zeros((cells, FEATURES), dtype=np.int64), np.zeros(cells, dtype=np.int64)
    features[:, 0] = np.where(last, -STEPS, STEPS)
    values = RETURN_STEPS * (first.astype(np.int64) - last)
    return FeatureQuestion(layout, zero - 1, zero + WEIGHT, features, values, span)


def scores_target(shipped: PrivateSum) -> AuditTarget:
    """The worst pair of people against sums of scores: all scores at one end of their clips, or at the other.

    Raises CardError if there is no noise: there is nothing to claim.
    """
    made_up, layout = _made_up(shipped, MomentLayout)
    return tables_target("scores of people, discrete gaussian", shipped, made_up, layout.add_up, shipped.rho)


def _made_up(summed: PrivateSum, kind: type[L]) -> tuple[PrivateSum, L]:
    """The same sum over made-up people, and its layout."""
    layout = summed.layout
    assert isinstance(layout, kind)
    if isinstance(layout, MomentLayout | GateLayout):
        layout = replace(layout, data_kind="synthetic")
    else:
        layout = replace(layout, card=layout.card.model_copy(update={"kind": "synthetic"}))
    return replace(summed, layout=layout), layout


Parts = Callable[[str], bool]


def crossing_target(counts: PrivateSum, scores: PrivateSum, claimed: Fraction, part: Parts) -> AuditTarget:
    """A person of the part that learns, replaced by one of the part that evaluates: one part loses, the other gains.

    Raises CardError if there is no noise: there is nothing to claim.
    """
    if counts.rho is None or scores.rho is None:
        raise CardError(f"{counts.layout.dataset}: no noise, no claim to attack")
    (learn, count_layout), (evaluate, layout) = _made_up(counts, CountLayout), _made_up(scores, MomentLayout)
    taught = counts.farthest(partial(count_person, count_layout.card), counts.layout.extremes())
    judged = evaluate.farthest(layout.add_up, layout.extremes())
    # the first made-up id of each part
    ids = [next(str(i) for i in range(10_000) if part(str(i)) is evaluates) for evaluates in (False, True)]
    paths: list[TablesPath] = []
    for summed, tables, evaluates in ((learn, taught, False), (evaluate, judged, True)):
        # zeros where the person is in the other part
        one, other = ({name: t * (part(i) is evaluates) for name, t in tables.items()} for i in ids)
        paths.append(TablesPath(summed, (one, other)))

    def path(side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        return [table for each in paths for table in each(side, noise, copies)]

    means = silence(path)
    variances = [float(m.variance or 0) for s in (counts, scores) for m in s.mechanisms]
    law = Gaussian([np.full(table.shape, v) for table, v in zip(means[0], variances, strict=True)])
    return AuditTarget("people across the parts, discrete gaussian", Trust.CENTRAL, path, means, law, claimed)


def _extreme_question(plan: TargetPlan) -> TargetQuestion:
    """All values in the middle of one reward, and a window that both ends of a reward leave."""
    (low, high), (least, most) = plan.card.reward.range, plan.span
    unit = (most - least) / VALUE_STEPS
    middle = round(((low + high) / 2 - least) / unit)
    return TargetQuestion(np.full(plan.layout("v").shape, middle), max(1, int((high - low) / 2 / unit) - 1))


# a made-up person, as the layout's summing code takes one
One = TypeVar("One")


def tables_target(
    words: str, shipped: PrivateSum, made_up: PrivateSum, sum_of: Callable[[One], Tables], rho: Fraction | None
) -> AuditTarget:
    """The worst pair of people against a private sum of tables.

    ``sum_of``: from a person to their exact tables, by the shipped code that sums.
    Raises CardError if there is no noise: there is nothing to claim.
    """
    mechanisms, time = shipped.mechanisms, shipped.time
    if rho is None or (time is not None and any(m.variance is None for m in mechanisms)):
        name = shipped.layout.dataset
        raise CardError(f"{name}: no{'' if time is None else ' Gaussian'} noise, no claim to attack")
    one, other = replace(shipped, layout=made_up.layout).worst_pair(sum_of)
    path = TablesPath(made_up, (sum_of(one), sum_of(other)))
    means, pure_epsilon = silence(path), total_epsilon(mechanisms)
    law = Laplace(tuple(float(m.scale or 0) for m in mechanisms))
    if pure_epsilon is None or time is not None:
        claimed = [m.standard_deviation**2 if time is None else float(m.variance or 0) for m in mechanisms]
        tables = zip(means[0], claimed * (len(means[0]) // len(claimed)), strict=True)
        law = Gaussian([np.full(table.shape, variance) for table, variance in tables])
        if mirrored := path.mirrored:
            law = Gaussian(
                [_once(v) if m.table in mirrored else v for m, v in zip(mechanisms, law.variances, strict=True)]
            )
    names = ", ".join(m.table for m in mechanisms)
    return AuditTarget(f"{words}, {names}", Trust.CENTRAL, path, means, law, rho, claimed_epsilon=pure_epsilon)


def _once(variances: Array) -> Array:
    """Variances of symmetric tables ``(..., d, d)``, whose entries off the diagonal are drawn once, at half of them."""
    below = np.tri(variances.shape[-1], k=-1, dtype=np.bool_)
    return np.where(below, np.inf, np.where(below.T, variances / 2, variances))


@dataclass(frozen=True)
class TablesPath:
    """The private sum's own draw, on the entries in which two people differ, many copies at once."""

    drawn: PrivateSum
    pair: tuple[Tables, Tables]

    @property
    def mirrored(self) -> frozenset[str]:
        """Tables that are drawn as whole symmetric matrices."""
        return frozenset(t.name for t in self.drawn.layout.tables if t.symmetric)

    @cached_property
    def _differing(self) -> list[Bools]:
        """Masks of the entries in which the two people differ."""
        return [self.pair[0][m.table] != self.pair[1][m.table] for m in self.drawn.mechanisms]

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        tables, mechanisms = dict[str, Integers](), list(self.drawn.mechanisms)
        for i, (m, where) in enumerate(zip(self.drawn.mechanisms, self._differing, strict=True)):
            entries = self.pair[side][m.table]
            entries = entries if m.table in self.mirrored else entries[where]
            tables[m.table] = np.broadcast_to(entries, (copies, *entries.shape)).astype(np.int64)
            copied = replace(m, shape=(copies, *entries.shape))
            # the plan's own share of delta, a draw: without it the sampler is refused here as it is in a run
            mechanisms[i] = replace(copied, delta_slack=m.delta_slack * Fraction(copied.drawn, m.drawn))
        drawn = replace(self.drawn, mechanisms=tuple(mechanisms))
        if self.drawn.time is not None:
            return self._rows(drawn, list(tables.values()), noise)
        release = drawn.draw(ExactSums(drawn.layout.dataset, "synthetic", drawn.layout.dynamics, tables), noise)
        return [release.tables[name].astype(np.float64) for name in tables]

    def _rows(self, drawn: PrivateSum, tables: list[Integers], noise: NoiseSource) -> list[Array]:
        first, ends = np.concatenate([t.ravel() for t in tables]), np.cumsum([t.size for t in tables])[:-1]
        copies, time = list[Array](), drawn.time
        assert isinstance(time, Factorisation)
        for night in range(1, time.steps + 1):
            # rows that do not hold the first night show only whether their noise is independent
            for row in drawn.draw_rows(time.rows(night), lambda t: first if t == 1 else None, noise, WORLD):
                parts = zip(np.split(row, ends), tables, strict=True)
                copies += [part.reshape(table.shape).astype(np.float64) for part, table in parts]
        return copies


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
