"""Audit targets of tables that are summed over people: counts at once or night by night, and stages of one step.

Each target goes from two people to the tables that are drawn of them, many copies at once, and to the claimed law.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import TypeVar

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.audits.attack import WORLD, AuditTarget, Gaussian, Laplace, Side, silence
from pipeline.declaration.card import CardError
from pipeline.logs.aggregate import count_person
from pipeline.logs.one_step_rows import RETURN_STEPS
from pipeline.logs.one_step_sums import FeatureQuestion, FollowQuestion, ask_person
from pipeline.logs.target_sums import person_sums
from pipeline.privacy.continual import Factorisation
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import total_epsilon, total_rho
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.layout import ExactSums, GateLayout, Tables
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.one_step_layout import FEATURES, STEPS, WEIGHT, FeatureLayout, FollowLayout
from pipeline.statistics.played import PlayedLayout
from pipeline.statistics.private_sum import PrivateSum
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
    words: str,
    shipped: PrivateSum,
    made_up: PrivateSum,
    sum_of: Callable[[One], Tables],
    rho: Fraction | None,
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
