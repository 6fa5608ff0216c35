"""Nobody moves sums of LQ episodes further than claimed, released once or added up as messages; twins are caught."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest

from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.release import total_rho
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq import LqMessage, LqSums, lq_sum, paper_004
from pipeline.statistics.private_sum import asked_rho, cost_of, tight
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

ASK, ANGLES = Ask(epsilon=1.0, delta=1e-5), np.linspace(0, np.pi, 181)
TINY = LqMessage(1, 1, 2, steps=64)


def message(n: int = 1, d: int = 1, horizon: int = 2, steps: int = 64) -> LqMessage:
    return LqMessage(n, d, horizon, steps=steps)


def point(layout: LqSums, one: LqBatch) -> np.ndarray:
    """One person's sums: G in svec coordinates, then X."""
    if isinstance(layout, LqMessage):
        root = np.ones(sum(layout.sizes))
        root[layout.sizes[0] : sum(layout.sizes[:2])] = math.sqrt(2)
        return layout.integers(one) * root
    gram, cross = layout.add([one]).values()
    i, j = np.triu_indices(len(gram))
    return np.concatenate([gram[i, j] * np.where(i == j, 1.0, np.sqrt(2)), cross.ravel()])


def squares(layout: LqSums, people: list[LqBatch]) -> tuple[np.ndarray, np.ndarray]:
    """Squared moves of G (Frobenius) and of X between every two people."""
    D = layout.dimension
    p = np.array([point(layout, one) for one in people])
    moved = []
    for part in (p[:, : D * (D + 1) // 2], p[:, D * (D + 1) // 2 :]):
        n = (part * part).sum(1)
        moved.append(n[:, None] + n - 2 * part @ part.T)
    return moved[0], moved[1]


def loss(layout: LqSums, variances: tuple[int, int], people: list[LqBatch]) -> float:
    """Largest rho of a pair, by the variance of G's diagonal (in svec coordinates of every lane) and of X."""
    gram, cross = squares(layout, people)
    return float((gram / (2 * variances[0]) + cross / (2 * variances[1])).max())


def noise_of(layout: LqSums) -> tuple[tuple[int, int], Fraction]:
    """The variances of both sums, and what they are said to cost."""
    if isinstance(layout, LqMessage):
        v = tight(layout, ASK, 1)
        return lanes(v), cost_of(layout, v, 1)
    summed = lq_sum(layout, Fraction(1))
    return variances_of(summed), summed.rho


def lanes(v: Mapping[str, int]) -> tuple[int, int]:
    """Of G the worse of the diagonal's variance and twice that above it."""
    return min(v["diagonal"], 2 * v["above"]), v["cross"]


def test_no_two_people_are_further_apart_than_claimed_and_each_table_alone_is_met_exactly():
    """As messages; what is released once is held to the same in test_layouts.py."""
    layout, people = message(), everybody()
    for moved, name in zip(squares(layout, people), ("diagonal", "cross"), strict=True):
        assert moved.max() == pytest.approx(float(layout.cost({name: Fraction(1)})), rel=1e-9)
        (table,) = (t for t in layout.tables if t.name == name)
        assert moved.max() == pytest.approx(table.replace.l2_squared, rel=1e-9)
    variances, claimed = noise_of(layout)
    assert loss(layout, variances, people) <= claimed * (1 + 1e-9)
    printed = paper_004(TINY, Ask(epsilon=1.0, delta=1e-5, calibration="paper"), 100)
    assert loss(TINY, lanes(printed), people) <= cost_of(TINY, printed, 1) * (1 + 1e-9)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_each_sum_alone_is_moved_exactly_as_far_as_declared(gamma):
    message = LqMessage(1, 2, 4, (1.0, gamma, 1.0))
    moved = [squares(message, opposed(t, 4, gamma)) for t in ANGLES]
    H, q = 4, 4096**2
    declared = 2 * (H * (1 + gamma**2) * q) ** 2, (2 * H * math.sqrt(1 + gamma**2) * q) ** 2
    assert message.cost({"diagonal": Fraction(1)}) == declared[0]
    assert message.cost({"cross": Fraction(1)}) == pytest.approx(declared[1])
    # x and its opposite, u at an angle: right angles between two z need gamma >= 1
    assert max(g.max() for g, _ in moved) == pytest.approx(declared[0], rel=1e-3) or gamma < 1
    assert max(c.max() for _, c in moved) == pytest.approx(declared[1], rel=1e-3)


@pytest.mark.parametrize("share", [Fraction(1, 10), Fraction(3, 10), Fraction(2, 3), None])
def test_the_joint_claim_is_met_by_two_real_episodes(share):
    """Over-charging fails too: only the lattice separates the two; ``None``: of messages."""
    if share is None:
        layout = message(d=2, horizon=4, steps=4096)
        variances, claimed = noise_of(layout)
        assert claimed <= asked_rho(ASK)
    else:
        plan = lq_sum(layout_of(d=2, horizon=4, steps=4096, gram_share=share), Fraction(1))
        layout, variances, claimed = plan.layout, variances_of(plan), plan.rho
        assert 0.999 < claimed <= 1 and total_rho(plan.mechanisms) > claimed
    worst = max(loss(layout, variances, opposed(t, 4)) for t in ANGLES)
    assert 0.999 * claimed < worst <= claimed * (1 + 1e-9)


def test_several_episodes_of_one_person_cost_their_square():
    one, three = plan_of(), plan_of(episodes_each=3)
    for many, alone in zip(three.layout.tables, one.layout.tables, strict=True):
        assert many.replace.l2_squared == 9 * alone.replace.l2_squared
    assert variances_of(three)[0] == pytest.approx(9 * variances_of(one)[0], rel=1e-6)


def test_twins_that_do_not_cut_or_cut_to_a_box_break_the_claim(monkeypatch):
    """In one dimension box and ball agree; in two, corners are too long."""
    layout, wide = message(), message(n=2, d=1)
    (variances, claimed), (of_wide, claimed_wide) = noise_of(layout), noise_of(wide)
    assert loss(wide, of_wide, CORNERS) <= claimed_wide
    for twin in (unclipped, any_length):
        monkeypatch.setattr(LqSums, "rows", twin)
        assert loss(layout, variances, everybody()) > claimed * (1 + 1e-9)
    monkeypatch.setattr(LqSums, "rows", in_a_box)
    assert loss(wide, of_wide, CORNERS) > 1.1 * claimed_wide


def test_the_printed_sensitivities_are_not_those_of_a_replacement():
    """Delta_2 = H (1 + gamma) never is; Delta_1 = H (1 + gamma)^2 is for gamma of about .22 to 4.6."""
    q = 4096**2
    for gamma, enough in ((0.1, False), (1.0, True), (4.0, True), (5.0, False)):
        message = LqMessage(1, 1, 10, (1.0, gamma, 1.0))
        gram, cross = message.cost({"diagonal": Fraction(1)}), message.cost({"cross": Fraction(1)})
        assert (gram <= (10 * (1 + gamma) ** 2 * q) ** 2) is enough
        assert cross > (10 * (1 + gamma) * q) ** 2
