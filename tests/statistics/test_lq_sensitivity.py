"""Nobody moves the LQ moments further than claimed, and the claim is met; broken twins are caught."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import pipeline.statistics.lq_moments as lq_module
from pipeline.privacy.release import total_rho
from pipeline.statistics.lq_layout import LqPlan
from pipeline.statistics.lq_moments import lattice_rows, lq_sums
from pipeline.statistics.lq_rows import Episodes, SimulatedRows
from tests.statistics.lq_people import everybody, person, plan_of

Point = np.ndarray


def point(plan: LqPlan, one: Episodes) -> Point:
    """One person's sums: G in svec coordinates, then X."""
    gram, cross = lq_sums(plan, SimulatedRows((one,)))
    i, j = np.triu_indices(len(gram))
    return np.concatenate([gram[i, j] * np.where(i == j, 1.0, np.sqrt(2)), cross.ravel()])


def squares(plan: LqPlan, people: list[Episodes]) -> tuple[np.ndarray, np.ndarray]:
    """Squared moves of G and of X between every two people."""
    D = plan.domain.dimension
    p = np.array([point(plan, one) for one in people])
    moved = []
    for part in (p[:, : D * (D + 1) // 2], p[:, D * (D + 1) // 2 :]):
        n = (part * part).sum(1)
        moved.append(n[:, None] + n - 2 * part @ part.T)
    return moved[0], moved[1]


def loss(plan: LqPlan, people: list[Episodes]) -> float:
    gram, cross = squares(plan, people)
    a, b = plan.variances
    return float((gram / (2 * a) + cross / (2 * b)).max())


def opposed(angle: float, horizon: int) -> list[Episodes]:
    """One stands still, the other flips its sign every step: the worst pair that real episodes can form."""
    sign = (-1.0) ** np.arange(horizon + 1)[:, None]
    still = person(np.ones((horizon + 1, 1)), np.tile([1.0, 0.0], (horizon, 1)))
    return [still, person(sign, sign[:-1] * [np.cos(angle), np.sin(angle)])]


def test_no_two_people_are_further_apart_than_claimed_and_each_table_alone_is_met_exactly():
    plan = plan_of()
    people = everybody()
    gram, cross = squares(plan, people)
    assert gram.max() == pytest.approx(plan.tables[0].replace.l2_squared, rel=1e-9)
    assert cross.max() == pytest.approx(plan.tables[1].replace.l2_squared, rel=1e-9)
    assert loss(plan, people) <= plan.summed.rho * (1 + 1e-9) <= 1 + 1e-9


@pytest.mark.parametrize("share", [Fraction(1, 10), Fraction(3, 10), Fraction(2, 3)])
def test_the_joint_claim_is_met_by_two_real_episodes(share):
    """Over-charging fails too: only the lattice separates the two."""
    plan = plan_of(d=2, horizon=4, steps=4096)
    plan = replace(plan, ask=replace(plan.ask, split={"gram": share}))
    worst = max(loss(plan, opposed(t, 4)) for t in np.linspace(0, np.pi, 181))
    assert 0.999 < worst <= plan.summed.rho * (1 + 1e-9)
    assert total_rho(plan.summed.mechanisms) > plan.summed.rho


def test_several_episodes_of_one_person_cost_their_square():
    one, three = plan_of(), plan_of(episodes_each=3)
    for many, alone in zip(three.tables, one.tables, strict=True):
        assert many.replace.l2_squared == 9 * alone.replace.l2_squared
    assert three.variances[0] == pytest.approx(9 * one.variances[0], rel=1e-6)


def unclipped(plan, batch):
    H = plan.domain.horizon
    q = plan.steps
    read = (np.arange(H) < batch.lengths[:, None])[..., None]
    parts = [np.trunc(v * q) * read for v in (batch.states[:, :H], batch.controls[:, :H], batch.states[:, 1 : H + 1])]
    x, u, y = (v.reshape(-1, v.shape[-1]) for v in parts)
    return np.hstack([x, u]), y


def any_length(plan, batch):
    return lattice_rows(replace(plan, domain=replace(plan.domain, horizon=99)), batch)


def clipped_each_alone_in_a_box(plan, batch):
    q = plan.steps
    box = replace(batch, states=np.clip(batch.states, -1, 1), controls=np.clip(batch.controls, -1, 1))
    return unclipped(replace(plan, steps=q), box)


@pytest.mark.parametrize("twin", [unclipped, any_length])
def test_twins_that_do_not_cut_break_the_claim(monkeypatch, twin):
    monkeypatch.setattr(lq_module, "lattice_rows", twin)
    assert loss(plan_of(), everybody()) > plan_of().summed.rho * (1 + 1e-9)


def test_a_box_is_no_ball(monkeypatch):
    """In one dimension they agree; in two, corners are too long."""
    plan = plan_of(n=2, d=1)
    corners = [person([[a, b]] * 3, [[1.0]] * 2) for a, b in product((-1.0, 1.0), repeat=2)]
    assert loss(plan, corners) <= 1
    monkeypatch.setattr(lq_module, "lattice_rows", clipped_each_alone_in_a_box)
    assert loss(plan, corners) > 1.1
