"""Nobody moves the LQ moments further than claimed, and the claim is met; broken twins are caught."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.release import total_rho
from pipeline.statistics.lq import LqSums, lq_sum
from pipeline.statistics.private_sum import PrivateSum
from tests.statistics.lq_people import (
    CORNERS,
    any_length,
    everybody,
    in_a_box,
    layout_of,
    opposed,
    plan_of,
    unclipped,
    variances_of,
)

Point = np.ndarray


def point(layout: LqSums, one: LqBatch) -> Point:
    """One person's sums: G in svec coordinates, then X."""
    gram, cross = layout.add([one]).values()
    i, j = np.triu_indices(len(gram))
    return np.concatenate([gram[i, j] * np.where(i == j, 1.0, np.sqrt(2)), cross.ravel()])


def squares(layout: LqSums, people: list[LqBatch]) -> tuple[np.ndarray, np.ndarray]:
    """Squared moves of G and of X between every two people."""
    D = layout.dimension
    p = np.array([point(layout, one) for one in people])
    moved = []
    for part in (p[:, : D * (D + 1) // 2], p[:, D * (D + 1) // 2 :]):
        n = (part * part).sum(1)
        moved.append(n[:, None] + n - 2 * part @ part.T)
    return moved[0], moved[1]


def loss(plan: PrivateSum, people: list[LqBatch]) -> float:
    gram, cross = squares(plan.layout, people)
    a, b = variances_of(plan)
    return float((gram / (2 * a) + cross / (2 * b)).max())


def test_no_two_people_are_further_apart_than_claimed_and_each_table_alone_is_met_exactly():
    plan = plan_of()
    people = everybody()
    gram, cross = squares(plan.layout, people)
    assert gram.max() == pytest.approx(plan.layout.tables[0].replace.l2_squared, rel=1e-9)
    assert cross.max() == pytest.approx(plan.layout.tables[1].replace.l2_squared, rel=1e-9)
    assert loss(plan, people) <= plan.rho * (1 + 1e-9) <= 1 + 1e-9


@pytest.mark.parametrize("share", [Fraction(1, 10), Fraction(3, 10), Fraction(2, 3)])
def test_the_joint_claim_is_met_by_two_real_episodes(share):
    """Over-charging fails too: only the lattice separates the two."""
    plan = lq_sum(layout_of(d=2, horizon=4, steps=4096, gram_share=share), Fraction(1))
    worst = max(loss(plan, opposed(t, 4)) for t in np.linspace(0, np.pi, 181))
    assert 0.999 < worst <= plan.rho * (1 + 1e-9)
    assert total_rho(plan.mechanisms) > plan.rho


def test_several_episodes_of_one_person_cost_their_square():
    one, three = plan_of(), plan_of(episodes_each=3)
    for many, alone in zip(three.layout.tables, one.layout.tables, strict=True):
        assert many.replace.l2_squared == 9 * alone.replace.l2_squared
    assert variances_of(three)[0] == pytest.approx(9 * variances_of(one)[0], rel=1e-6)


@pytest.mark.parametrize("twin", [unclipped, any_length])
def test_twins_that_do_not_cut_break_the_claim(monkeypatch, twin):
    monkeypatch.setattr(LqSums, "rows", twin)
    assert loss(plan_of(), everybody()) > plan_of().rho * (1 + 1e-9)


def test_a_box_is_no_ball(monkeypatch):
    """In one dimension they agree; in two, corners are too long."""
    plan = plan_of(n=2, d=1)
    assert loss(plan, CORNERS) <= 1
    monkeypatch.setattr(LqSums, "rows", in_a_box)
    assert loss(plan, CORNERS) > 1.1
