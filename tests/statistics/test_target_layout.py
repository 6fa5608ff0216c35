"""Sums of targets: every person of a tiny domain through the code that really sums, both relations, and the bound."""

import itertools
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from pipeline.audits.attack import attack
from pipeline.audits.tables import stage_target
from pipeline.logs.aggregate import person_rows
from pipeline.logs.target_sums import add_targets, first_rows
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.held_out import one_step_loss
from pipeline.statistics.target_plan import (
    STEPS,
    VALUE_STEPS,
    TargetLayout,
    TargetPlan,
    TargetQuestion,
    pair_cost,
    window,
)
from reticent import Card
from tests.audits.broken import drawing_sum
from tests.conftest import slow
from tests.statistics.test_sensitivity import largest, largest_square, tiny


def plan_of(card, rows=2, cap=1, rho=1.0, groups=0):
    return TargetPlan(card, Ask(rho), rows, cap, spread=4, version=1, groups=groups)


def people(card, rewards=(0.0, 1.0), actions=2):
    """Every person of ``horizon`` rows, and the one without any; ``actions`` of 1 where none is looked at."""
    L, A, S = len(card.domain.live_states), actions, len(card.domain.state_labels)
    step = list(itertools.product(range(L), range(A), rewards, range(S)))
    H, m = card.domain.horizon, card.unit.episodes_per_user
    yield []
    for rows in itertools.product(step, repeat=H * m):
        yield [rows[e * H : (e + 1) * H] for e in range(m)]


@cache
def frames(card_as_json, actions=2):
    card = Card.model_validate_json(card_as_json)
    return [person_rows(person, card) for person in people(card, actions=actions) if person]


def everybody(plan, asked, actions=2):
    """What every person who has rows adds to a stage, through :func:`person_sums`' own code."""
    return (add_targets(plan, asked, [rows]).tables for rows in frames(plan.card.model_dump_json(), actions))


def moves(plan, stage, asked):
    """Distinct points ``(L N, Z)`` of all people."""
    found = {(0,) * (2 * int(np.prod(plan.layout(stage).shape)))}
    for tables in everybody(plan, asked, 1 if stage == "v" else 2):
        joint = np.concatenate([STEPS[stage] * tables[f"{stage}_count"].ravel(), tables[f"{stage}_sum"].ravel()])
        found.add(tuple(joint.tolist()))
    return np.array(sorted(found), dtype=np.int64)


def middle(plan, group=None):
    """Both ends of a reward leave the window."""
    low, high = plan.span
    unit = (high - low) / VALUE_STEPS
    return TargetQuestion(np.full(plan.layout("v").shape, round(0.5 / unit)), round(0.25 / unit), group)


CASES = {
    "stationary": {"dynamics": "stationary", "horizon": 2, "total": 1.0},
    "per step": {"dynamics": "per_step", "horizon": 2, "total": 1.0},
    "two episodes": {"dynamics": "stationary", "horizon": 1, "m": 2, "total": 1.0},
    "no total": {"dynamics": "stationary", "horizon": 2},
}


@pytest.mark.parametrize("stage", ["v", slow("q")])
@pytest.mark.parametrize(
    ("case", "rows", "cap"),
    [*((case, 2, 1) for case in CASES), slow("stationary", 2, 2), ("two episodes", 1, 1), ("per step", 9, 1)],
)
def test_counts_are_free_beside_sums_and_the_bound_is_attained(case, stage, rows, cap):
    # an action parts the cells as a state does: but for one case a single state will do beside it
    states = ("x",) if stage == "q" and (case, cap) != ("stationary", 1) else ("x", "y")
    plan = plan_of(tiny(**CASES[case], labels=states), rows, cap)
    layout: TargetLayout = plan.layout(stage)
    points = moves(plan, stage, None if stage == "v" else middle(plan))
    apart = largest_square(points)
    bound = pair_cost(layout.square, layout.steps, Fraction(layout.steps**2), Fraction(1))
    assert bound == 4 * layout.steps**2 * layout.square
    assert apart <= bound
    joins = (points**2).sum(-1).max()
    assert joins <= pair_cost(layout.square, layout.steps, Fraction(layout.steps**2), Fraction(1), "add_remove")
    # without a total, the returns of an episode's later rows are below the greatest of all
    if case != "no total" or stage == "q":
        assert apart == bound == 2 * joins
    half = points.shape[1] // 2
    for part, table in zip((points[:, :half] // layout.steps, points[:, half:]), layout.tables, strict=True):
        square, length = largest(part)
        assert square <= table.replace.l2_squared and length <= table.replace.l1
        assert (part**2).sum(-1).max() <= table.add_remove.l2_squared
        assert np.abs(part).sum(-1).max() <= table.add_remove.l1


def test_a_replaced_person_of_sums_alone_costs_as_much_as_with_counts():
    assert pair_cost(3, 8, Fraction(0), Fraction(1, 64)) == pair_cost(3, 8, Fraction(1), Fraction(1, 64)) == 12
    # counts noisier than their share would be wasted, less noise has its price
    assert pair_cost(3, 8, Fraction(2), Fraction(1, 64)) == 18


def test_both_stages_cost_what_was_asked_and_the_verifier_finds_the_same():
    plan = plan_of(tiny("stationary", horizon=5, total=1.0), rows=3, rho=0.7)
    assert plan.cost is not None
    assert 0.69 < plan.cost <= Fraction(7, 10)
    told = {"stages": {s: plan.layout(s).joint() for s in plan.stages}}
    assert one_step_loss(plan.mechanisms, told) == plan.cost
    lying = {"stages": {**told["stages"], "q": {**told["stages"]["q"], "rows": 1}}}
    with pytest.raises(ValueError, match="squared sensitivity"):
        one_step_loss(plan.mechanisms, lying)


@pytest.mark.parametrize(
    ("case", "cap", "group"),
    [
        ("stationary", 1, [0, 0]),
        slow("two episodes", 1, [1, 0]),
        *(slow(*m) for m in (("stationary", 2, [1, 0]), ("two episodes", 2, [0, 0]))),
    ],
)
def test_sums_by_group_move_as_little_as_is_charged_and_no_less(case, cap, group):
    plan = plan_of(tiny(**CASES[case]), 2, cap, groups=max(group) + 1)
    layout = plan.layout("c")
    points = moves(plan, "c", middle(plan, np.array(group)))
    apart = largest_square(points)
    assert apart == 4 * layout.steps**2 * layout.square
    assert 2 * (points**2).sum(-1).max() == apart
    told = {"stages": {s: plan.layout(s).joint() for s in plan.stages}}
    assert one_step_loss(plan.mechanisms, told) == plan.cost


def test_groups_that_rows_choose_move_more_than_is_charged():
    """The twin whose groups are not computed from released numbers: one person moves the rows of all others."""
    plan = plan_of(tiny("stationary", horizon=2, total=1.0), groups=2)
    others = [person_rows([[(s, a, 1.0, 2) for s, a in ((0, 0), (1, 1))]], plan.card) for _ in range(3)]
    moved = {}
    for person in ([[(0, 0, 1.0, 2)]], [[(1, 1, 1.0, 2)]]):
        rows = [*others, person_rows(person, plan.card)]
        visits = add_targets(plan, None, rows).tables["v_count"][0]
        for twin, group in (("honest", np.array([0, 1])), ("of rows", (visits > visits.min()).astype(np.int64))):
            tables = add_targets(plan, middle(plan, group), rows).tables
            point = np.concatenate([STEPS["c"] * tables["c_count"].ravel(), tables["c_sum"].ravel()])
            moved.setdefault(twin, []).append(point)
    bound = 4 * STEPS["c"] ** 2 * plan.layout("c").square
    far = {twin: int(((a - b) ** 2).sum()) for twin, (a, b) in moved.items()}
    assert far["honest"] <= bound < far["of rows"]


def test_the_window_is_exact_and_bounded():
    values = np.array([[0, 1000, 2000]])
    assert window(np.array([[1, 0, 1]]), values, 1) == 1000
    assert window(np.array([[-5, 0, 0]]), values, 4) == VALUE_STEPS // 16
    assert window(np.array([[1, 0, 1]]), values, 5) == VALUE_STEPS


def test_a_cap_takes_the_first_rows_of_each_key_in_the_order_of_the_log():
    user = np.array([0, 0, 0, 0, 1, 1])
    key = np.array([7, 8, 7, 9, 7, 7])
    assert first_rows(user, key, 3, 1).tolist() == [True, True, False, False, True, False]
    assert first_rows(user, key, 3, 2).tolist() == [True, True, True, False, True, True]


@pytest.mark.parametrize("stage", ["v", "c", "q"])
def test_the_audit_comes_close_to_its_claim_and_catches_less_noise(stage):
    plan = plan_of(tiny("stationary", horizon=3, total=1.0, labels=("x", "y", "z")), rows=3, rho=2.0, groups=2)
    target = stage_target(plan, stage)
    assert target.attained == pytest.approx(1)
    assert not attack(target, SeededNoise(1), draws=4000).violates
    shipped = plan.stages[stage]
    quiet = tuple(replace(m, variance=max(1, m.variance // 3)) for m in shipped.mechanisms)
    assert attack(drawing_sum(target, replace(shipped, mechanisms=quiet)), SeededNoise(1), draws=4000).violates
