"""One-step sums over nights: every person on every night, through the code that sums, and what all rows cost."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from pipeline.audits.attack import attack
from pipeline.audits.tables import stage_target
from pipeline.logs.aggregate import person_rows
from pipeline.logs.target_sums import TargetLeaf, TargetSums
from pipeline.privacy.epochs import Epochs
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.joint_loss import one_step_loss
from pipeline.statistics.target_layout import STEPS
from pipeline.statistics.target_plan import VALUE_STEPS, Question, TargetPlan
from tests.audits.broken import drawing_sum
from tests.privacy.test_continual import matrix
from tests.statistics.test_sensitivity import tiny
from tests.statistics.test_target_layout import everybody, middle

NIGHTS, EPOCH = 4, 2


def plan_of(card, kind, rows=2, cap=1, rho=1.0, nights=NIGHTS, epoch=EPOCH):
    return TargetPlan(card, Ask(rho, counter=Epochs(nights, epoch, kind)), rows, cap, spread=4, version=1)


def whitened(plan, stage, asked):
    """``(people, n)``: what each adds to a leaf, in units of the noise of a row; a squared length is a loss in rho."""
    units = {m.table: (2 * m.variance) ** 0.5 for m in plan.stages[stage].mechanisms}
    nobody = np.zeros(sum(m.cells for m in plan.stages[stage].mechanisms))
    moved = (np.concatenate([tables[t].ravel() / u for t, u in units.items()]) for tables in everybody(plan, asked))
    return np.array([nobody, *moved])


def worst_loss(plan, questions):
    """Largest loss of a person who is replaced by any other, on any other night, over all rows of both stages."""
    stages = {s: matrix(p.time)[0].astype(float) for s, p in plan.stages.items()}
    parts = dict.fromkeys([("v", e) for e in range(2)], whitened(plan, "v", None))
    parts |= {("q", e): whitened(plan, "q", questions[e]) for e in range(2)}
    worst, alone = 0.0, {"v": 0.0, "q": 0.0}
    for a, b in itertools.product(range(NIGHTS), repeat=2):
        moved = 0.0
        for stage, M in stages.items():
            one, other = parts[stage, a // EPOCH], parts[stage, b // EPOCH]
            lengths = (M[:, a] ** 2).sum() * (one**2).sum(1)[:, None] + (M[:, b] ** 2).sum() * (other**2).sum(1)
            here = lengths - 2 * (M[:, a] @ M[:, b]) * (one @ other.T)
            alone[stage] = max(alone[stage], float(here.max()))
            moved = moved + here
        worst = max(worst, float(moved.max()))
    return worst, alone


@pytest.mark.parametrize("kind", ["tree", "toeplitz"])
@pytest.mark.parametrize(("dynamics", "rows", "cap"), [("stationary", 2, 1), ("per_step", 2, 1), ("stationary", 2, 2)])
def test_nobody_moves_all_rows_of_all_epochs_by_more_than_is_charged(kind, dynamics, rows, cap):
    """Whatever the answers that open the epochs were: the questions of two epochs are as different as they can be."""
    plan = plan_of(tiny(dynamics, horizon=2, total=1.0), kind, rows, cap)
    far = Question(np.where(np.indices(plan.layout("v").shape).sum(0) % 2, VALUE_STEPS, 0), VALUE_STEPS // 16)
    worst, alone = worst_loss(plan, [middle(plan), far])
    assert worst <= float(plan.cost) * (1 + 1e-12)
    for stage, summed in plan.stages.items():
        assert alone[stage] == pytest.approx(float(summed.rho), rel=1e-3), "the bound of a stage is attained"


def test_an_epoch_that_is_priced_as_one_release_is_caught():
    plan = plan_of(tiny("stationary", horizon=2, total=1.0), "tree")
    cheap = replace(plan)
    for stage, summed in plan.stages.items():
        quiet = tuple(replace(m, variance=-(-m.variance // summed.time.cost)) for m in summed.mechanisms)
        cheap.stages[stage] = replace(summed, mechanisms=quiet)
    worst, _ = worst_loss(cheap, [middle(plan)] * 2)
    assert worst > 1.5 * float(plan.cost)
    told = {"stages": {s: plan.layout(s).joint() for s in STEPS}}
    listed = [m for s in cheap.stages.values() for m in s.mechanisms]
    assert one_step_loss(plan.mechanisms, told) == plan.cost < one_step_loss(listed, told)


@pytest.mark.parametrize("kind", ["tree", "toeplitz"])
def test_every_epoch_has_the_whole_budget_of_its_stage_at_the_price_of_its_nights(kind):
    card = tiny("stationary", horizon=5, total=1.0)
    life, months = (plan_of(card, kind, 3, nights=360, epoch=epoch, rho=0.7) for epoch in (360, 30))
    for plan in (life, months):
        assert 0.69 < plan.cost <= Fraction(7, 10)
    # values are read once in the one, and twelve times in the other
    assert life.stages["v"].time.cost < months.stages["v"].time.cost
    assert months.stages["q"].mechanisms[1].variance < life.stages["q"].mechanisms[1].variance
    for plan in (life, months):
        for ours, once in zip(plan.mechanisms, plan.once.mechanisms, strict=True):
            assert once.running is None and once.standard_deviation == pytest.approx(ours.standard_deviation, rel=0.02)


def test_counts_and_sums_of_two_counters_are_no_stage():
    plan = plan_of(tiny("stationary", horizon=2, total=1.0), "tree")
    count, total, *rest = plan.mechanisms
    other = replace(total, running=replace(total.running, cost=1))
    with pytest.raises(ValueError, match="another counter"):
        one_step_loss([count, other, *rest], {"stages": {s: plan.layout(s).joint() for s in STEPS}})


def test_a_person_waits_until_all_that_was_delivered_of_them_has_closed():
    card = tiny("stationary", horizon=3, m=2, total=1.0)
    plan = plan_of(card, "tree", rows=9)
    leaf, end = TargetLeaf(TargetSums(plan, None)), card.domain.states.first_terminal
    ends, goes_on, whole = [(0, 0, 1.0, end)], [(0, 0, 0.0, 1), (1, 0, 0.0, 0)], [(0, 0, 0.0, 1)] * 3
    told = [[ends, whole], [ends, goes_on], [goes_on], [whole]]
    frames = [person_rows(p, card).with_columns(pl.lit(i, dtype=pl.Int64).alias("user_id")) for i, p in enumerate(told)]
    ready = leaf.ready(pl.concat(frames))
    assert ready["user_id"].unique().sort().to_list() == [0, 3]
    assert leaf.tables(ready)["v_count"].sum() == leaf.tables(frames[0])["v_count"].sum() + 1 * len(set(whole))
    assert not leaf.tables(ready.clear())["v_count"].any()


@pytest.mark.parametrize("stage", ["v", "q"])
def test_the_audit_of_a_counter_comes_close_to_its_claim_and_catches_less_noise(stage):
    plan = plan_of(tiny("stationary", horizon=3, total=1.0, labels=("x", "y", "z")), "tree", rows=3, rho=2.0)
    target = stage_target(plan, stage)
    assert target.attained == pytest.approx(1)
    assert not attack(target, SeededNoise(1), draws=4000).violates
    shipped = plan.stages[stage]
    quiet = tuple(replace(m, variance=max(1, m.variance // 3)) for m in shipped.mechanisms)
    assert attack(drawing_sum(target, replace(shipped, mechanisms=quiet)), SeededNoise(1), draws=4000).violates
