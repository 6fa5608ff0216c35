"""Audit targets of tables that are summed over people: counts at once or night by night, and stages of one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TypeVar

import numpy as np

from pipeline.audits.attack import AuditTarget, silence
from pipeline.audits.laws import Gaussian
from pipeline.audits.sums import LEAVES
from pipeline.audits.table_paths import BothPaths, TablesPath, tables_target
from pipeline.declaration.card import CardError
from pipeline.logs.aggregate import count_person
from pipeline.logs.one_step_rows import RETURN_STEPS
from pipeline.logs.one_step_sums import FeatureQuestion, FollowQuestion, ask_person
from pipeline.logs.target_sums import person_sums
from pipeline.privacy.continual import continual
from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.losses import Trust
from pipeline.privacy.release import total_rho
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.layout import GateLayout, Tables
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.one_step_layout import FEATURES, STEPS, WEIGHT, FeatureLayout, FollowLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.target_layout import Stage
from pipeline.statistics.target_plan import VALUE_STEPS, Question, TargetPlan

# a layout that says of itself whose people it counts
Named = TypeVar("Named", MomentLayout, GateLayout)


def counts_target(shipped: PrivateSum) -> AuditTarget:
    """The worst pair of people against count tables, or all rows of a counter that hold its first night.

    What a night publishes is post-processing of its rows, and the ledger charges for these.

    Parameters
    ----------
    shipped
        Count tables; with a ``time`` those of one row.

    Raises
    ------
    CardError
        If a table has no noise, or one of a counter no Gaussian noise: there is nothing to claim.
    """
    layout, mechanisms, time = shipped.layout, shipped.mechanisms, shipped.time
    assert isinstance(layout, CountLayout) and (time is None or isinstance(time, Factorisation))
    card = layout.card.model_copy(update={"kind": "synthetic"})
    words = f"counts, {' and '.join(dict.fromkeys(m.name for m in mechanisms))}"
    if time is not None:
        words = f"nightly {time.kind}, {time.steps} nights, discrete gaussian"
    made_up = replace(shipped, layout=replace(layout, card=card))
    return tables_target(words, shipped, made_up, partial(count_person, card), total_rho(mechanisms))


def gate_target(shipped: PrivateSum) -> AuditTarget:
    """Somebody of whom nothing is set aside against whoever breaks most rules, in the counts of a gate.

    Parameters
    ----------
    shipped
        Counts of people by rule.

    Raises
    ------
    CardError
        If there is no noise: there is nothing to claim.
    """
    made_up, layout = _made_up(shipped, GateLayout)
    words = f"the gate, {shipped.mechanisms[0].name}"
    return tables_target(words, shipped, made_up, layout.count, total_rho(shipped.mechanisms))


def stage_target(plan: TargetPlan, stage: Stage) -> AuditTarget:
    """The worst pair of people against one stage of one-step improvement, for a question of the auditor's own.

    Parameters
    ----------
    plan
        Of the run.
    stage
        Which of the two.

    Raises
    ------
    CardError
        If there is no noise: there is nothing to claim.
    """
    card = plan.card.model_copy(update={"kind": "synthetic"}).placed(plan.card.folder)
    made_up, shipped = replace(plan, card=card), plan.stages[stage]
    asked = None if stage == "v" else _extreme_question(made_up)
    draws = replace(shipped, layout=made_up.layout(stage))
    words = "values of practice" if stage == "v" else "gains of actions"
    return tables_target(
        f"{words}, discrete gaussian", shipped, draws, partial(person_sums, made_up, asked), shipped.rho
    )


def rows_target(shipped: PrivateSum, span: float) -> AuditTarget:
    """The worst pair of people against a stage that measures a one-step policy, for a question of the auditor's own.

    Parameters
    ----------
    shipped
        Rows that follow, or moments of features.
    span
        Range of returns, reward units.

    Raises
    ------
    CardError
        If there is no noise: there is nothing to claim.
    """
    layout = shipped.layout
    assert isinstance(layout, FollowLayout | FeatureLayout)
    card = layout.card.model_copy(update={"kind": "synthetic"}).placed(layout.card.folder)
    layout = replace(layout, card=card)
    made_up = replace(shipped, layout=layout)
    if isinstance(layout, FollowLayout):
        # whoever takes the first action follows
        words, asked = "rows that follow", FollowQuestion(layout, np.zeros(math.prod(layout.cells), dtype=np.int64))
    else:
        words, asked = "moments of features", _longest_features(layout, span)
    return tables_target(f"{words}, discrete gaussian", shipped, made_up, partial(ask_person, asked), shipped.rho)


def _longest_features(layout: FeatureLayout, span: float) -> FeatureQuestion:
    """Rows of full weight; whoever comes to the last state is as far as any from who comes to the first."""
    cells, states = math.prod(FollowLayout(layout.card).cells), len(layout.card.domain.live_states)
    first, last = (np.arange(cells) % states == s for s in (0, states - 1))
    features, zero = np.zeros((cells, FEATURES), dtype=np.int64), np.zeros(cells, dtype=np.int64)
    features[:, 0] = np.where(last, -STEPS, STEPS)
    values = RETURN_STEPS * (first.astype(np.int64) - last)
    return FeatureQuestion(layout, zero - 1, zero + WEIGHT, features, values, span)


def scores_target(shipped: PrivateSum) -> AuditTarget:
    """The worst pair of people against sums of scores: all scores at one end of their clips, or at the other.

    Parameters
    ----------
    shipped
        Moments of scores.

    Raises
    ------
    CardError
        If there is no noise: there is nothing to claim.
    """
    made_up, layout = _made_up(shipped, MomentLayout)
    return tables_target("scores of people, discrete gaussian", shipped, made_up, layout.add_up, shipped.rho)


def _made_up(summed: PrivateSum, of: type[Named]) -> tuple[PrivateSum, Named]:
    assert isinstance(summed.layout, of)
    layout = replace(summed.layout, data_kind="synthetic")
    return replace(summed, layout=layout), layout


Parts = Callable[[str], bool]


def crossing_target(counts: PrivateSum, scores: PrivateSum, claimed: Fraction, part: Parts) -> AuditTarget:
    """A person of the part that learns, replaced by one of the part that evaluates: one part loses, the other gains.

    Parameters
    ----------
    counts, scores
        What is drawn of either part.
    claimed
        What both cost together.
    part
        Whether the person of an id evaluates: the shipped split, or what a test puts in its place.

    Raises
    ------
    CardError
        If there is no noise: there is nothing to claim.
    """
    counted = counts.layout
    assert isinstance(counted, CountLayout)
    if counts.rho is None or scores.rho is None:
        raise CardError(f"{counted.dataset}: no noise, no claim to attack")
    card, time = counted.card.model_copy(update={"kind": "synthetic"}), counts.time
    if isinstance(time, Factorisation) and time.steps > LEAVES:
        # rows of the same noise; of more nights there are more of them
        counts = replace(counts, time=continual(time.kind, LEAVES))
    learn = replace(counts, layout=replace(counted, card=card))
    evaluate, layout = _made_up(scores, MomentLayout)
    taught = counts.farthest(partial(count_person, card), counts.layout.extremes())
    told = evaluate.farthest(layout.add_up, layout.extremes())
    # ids of made-up people, until there is one in either part
    ids = [next(str(i) for i in range(10_000) if part(str(i)) is held) for held in (False, True)]
    paths = [
        TablesPath(summed, _sides([part(i) is held for i in ids], tables))
        for summed, tables, held in ((learn, taught, False), (evaluate, told, True))
    ]
    path = BothPaths(paths[0], paths[1])
    means = silence(path)
    ends = [[float(m.variance or 0) for m in s.mechanisms] for s in (counts, scores)]
    # of a counter, every row that the leaf is in
    variances = ends[0] * ((len(means[0]) - len(ends[1])) // len(ends[0])) + ends[1]
    law = Gaussian([np.full(table.shape, v) for table, v in zip(means[0], variances, strict=True)])
    return AuditTarget("people across the parts, discrete gaussian", Trust.CENTRAL, path, means, law, claimed)


def _sides(there: Sequence[bool], tables: Tables) -> tuple[Tables, Tables]:
    """What a part holds of the person of either log: their tables, or nothing."""
    one, other = ({name: t * int(held) for name, t in tables.items()} for held in there)
    return one, other


def _extreme_question(plan: TargetPlan) -> Question:
    """All values in the middle of one reward, and a window that both ends of a reward leave."""
    (low, high), (least, most) = plan.card.reward.range, plan.span
    unit = (most - least) / VALUE_STEPS
    middle = round(((low + high) / 2 - least) / unit)
    return Question(np.full(plan.layout("v").shape, middle), max(1, int((high - low) / 2 / unit) - 1))
