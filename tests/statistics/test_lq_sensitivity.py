"""Sums of LQ episodes: what is summed and cut, nobody moves them further than claimed, and twins are caught."""

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise
from pipeline.privacy.release import total_rho
from pipeline.statistics import lq
from pipeline.statistics.ask import Ask
from pipeline.statistics.private_sum import asked_rho, cost_of, tight
from tests.statistics.lq_people import (
    CORNERS,
    any_length,
    everybody,
    in_a_box,
    layout_of,
    opposed,
    person,
    plan_of,
    unclipped,
    variances_of,
)

ASK, ANGLES = Ask(epsilon=1.0, delta=1e-5), np.linspace(0, np.pi, 181)
TINY = lq.LqMessage(1, 1, 2, steps=64)


def message(n: int = 1, d: int = 1, horizon: int = 2, steps: int = 64) -> lq.LqMessage:
    return lq.LqMessage(n, d, horizon, steps=steps)


def point(layout: lq.LqSums, one: LqBatch) -> np.ndarray:
    """One person's sums: G in svec coordinates, then X."""
    if isinstance(layout, lq.LqMessage):
        root = np.ones(sum(layout.sizes))
        root[layout.sizes[0] : sum(layout.sizes[:2])] = math.sqrt(2)
        return layout.integers(one) * root
    gram, cross = layout.add([one]).values()
    i, j = np.triu_indices(len(gram))
    return np.concatenate([gram[i, j] * np.where(i == j, 1.0, np.sqrt(2)), cross.ravel()])


def squares(layout: lq.LqSums, people: list[LqBatch]) -> tuple[np.ndarray, np.ndarray]:
    """Squared moves of G (Frobenius) and of X between every two people."""
    p, upper = np.array([point(layout, one) for one in people]), layout.dimension * (layout.dimension + 1) // 2
    gram, cross = (cdist(part, part, "sqeuclidean") for part in (p[:, :upper], p[:, upper:]))
    return gram, cross


def loss(layout: lq.LqSums, variances: tuple[int, int], people: list[LqBatch]) -> float:
    """Largest rho of a pair, by the variance of G's diagonal (in svec coordinates of every lane) and of X."""
    gram, cross = squares(layout, people)
    return float((gram / (2 * variances[0]) + cross / (2 * variances[1])).max())


def noise_of(layout: lq.LqSums) -> tuple[tuple[int, int], Fraction]:
    if isinstance(layout, lq.LqMessage):
        v = tight(layout, ASK, 1)
        return lanes(v), cost_of(layout, v, 1)
    summed = lq.lq_sum(layout, Fraction(1))
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
    printed = lq.paper_004(TINY, Ask(epsilon=1.0, delta=1e-5, calibration="paper"), 100)
    assert loss(TINY, lanes(printed), people) <= cost_of(TINY, printed, 1) * (1 + 1e-9)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_each_sum_alone_is_moved_exactly_as_far_as_declared(gamma):
    message = lq.LqMessage(1, 2, 4, (1.0, gamma, 1.0))
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
        plan = lq.lq_sum(layout_of(d=2, horizon=4, steps=4096, gram_share=share), Fraction(1))
        layout, variances, claimed = plan.layout, variances_of(plan), plan.rho
        assert 0.999 < claimed <= 1 and total_rho(plan.mechanisms) > claimed
    worst = max(loss(layout, variances, opposed(t, 4)) for t in ANGLES)
    assert 0.999 * claimed < worst <= claimed * (1 + 1e-9)


def test_twins_that_do_not_cut_or_cut_to_a_box_break_the_claim(monkeypatch):
    """In one dimension box and ball agree; in two, corners are too long."""
    layout, wide = message(), message(n=2, d=1)
    (variances, claimed), (of_wide, claimed_wide) = noise_of(layout), noise_of(wide)
    assert loss(wide, of_wide, CORNERS) <= claimed_wide
    for twin in (unclipped, any_length):
        monkeypatch.setattr(lq.LqSums, "rows", twin)
        assert loss(layout, variances, everybody()) > claimed * (1 + 1e-9)
    monkeypatch.setattr(lq.LqSums, "rows", in_a_box)
    assert loss(wide, of_wide, CORNERS) > 1.1 * claimed_wide


def test_the_printed_sensitivities_are_not_those_of_a_replacement():
    """Delta_2 = H (1 + gamma) never is; Delta_1 = H (1 + gamma)^2 is for gamma of about .22 to 4.6."""
    q = 4096**2
    for gamma, enough in ((0.1, False), (1.0, True), (4.0, True), (5.0, False)):
        message = lq.LqMessage(1, 1, 10, (1.0, gamma, 1.0))
        gram, cross = message.cost({"diagonal": Fraction(1)}), message.cost({"cross": Fraction(1)})
        assert (gram <= (10 * (1 + gamma) ** 2 * q) ** 2) is enough
        assert cross > (10 * (1 + gamma) * q) ** 2


def test_sums_are_those_of_a_loop_over_rows():
    r = np.random.default_rng(0)
    layout = layout_of(3, 2, 4, steps=32, bounds=(2.0, 0.5, 1.5))
    batch = LqBatch(r.normal(size=(20, 6, 3)), r.normal(size=(20, 5, 2)), 20)
    gram, cross = np.zeros((5, 5), int), np.zeros((5, 3), int)
    for states, controls in zip(batch.states, batch.controls, strict=True):
        for h in range(4):
            x, u, y = states[h] / 2, controls[h] / 0.5, states[h + 1] / 1.5
            w = min(1, 1 / np.linalg.norm(x), 1 / np.linalg.norm(u))
            y = y * w / max(1, np.linalg.norm(y * w))
            z = np.array([int(v * 32) for v in (*(x * w), *(u * w))])
            gram += np.outer(z, z)
            cross += np.outer(z, [int(v * 32) for v in y])
    halves = [LqBatch(batch.states[s], batch.controls[s], 0) for s in (slice(7), slice(7, None))]
    found = list(layout.add(halves).values())
    # the loop shortens in another order: a product on the edge of the lattice may fall to its other side
    assert np.abs(found[0] - gram).max() <= 32 and np.abs(found[1] - cross).max() <= 32


def test_a_row_that_is_too_long_is_shortened_as_a_whole():
    """The plant x' = A x + B u still holds on what is left, so a tight bound costs no bias."""
    A, B = np.array([[0.5, 0.2], [0.0, 0.4]]), np.array([[0.1], [0.5]])
    r = np.random.default_rng(1)
    x, u = r.normal(size=(500, 2)), r.normal(size=(500, 1))
    batch = LqBatch(np.stack([x, x @ A.T + u @ B.T], 1), u[:, None], 500)
    layout = layout_of(2, 1, 1, steps=2**19, bounds=(0.5, 0.3, 1.0))
    z, y = (v / 2**19 for v in layout.rows(batch))
    assert (np.linalg.norm(x, axis=1) > 0.5).mean() > 0.5
    np.testing.assert_allclose(y, z[:, :2] * 0.5 @ A.T + z[:, 2:] * 0.3 @ B.T, atol=1e-5)


def test_values_are_truncated_toward_zero_and_stay_in_the_ball_whatever_they_are():
    layout = layout_of(2, 2, 1, steps=25)
    z, y = layout.rows(person([[0.99, -0.05], [-0.05, 0.0399]], [[-0.5, 0.0]]))
    np.testing.assert_array_equal(np.hstack([z, y]), [[24, -1, -12, 0, -1, 0]])
    r = np.random.default_rng(0)
    for size in (1e-300, 1.0, 1e9, 1e200, 1.7e308):
        wild = LqBatch(r.normal(size=(200, 2, 2)).clip(-1, 1) * size, r.uniform(-9, 9, (200, 1, 2)), 200)
        z, y = layout.rows(wild)
        for v in (z[:, :2], z[:, 2:], y):
            assert ((v * v).sum(1) <= 25**2).all() and (v == np.trunc(v)).all()
    # 3-4-5 and 7-24-25 lie on the ball: no rounding throws them out
    z, _ = layout.rows(person([[0.6, 0.8], [0, 0]], [[0.28, -0.96]]))
    np.testing.assert_array_equal(z, [[15, 20, 7, -24]])
    # a successor longer than its ball is shortened, after the factor that the whole row gets; none is stretched
    rows = [r.normal(0, scale, (500, n)) for n, scale in ((3, 1.0), (2, 0.3), (3, 5.0))]
    z, y = (v / 2**20 for v in layout_of(3, 2, steps=2**20).rows(lq.Transitions(*rows)))
    for before, after in zip(rows, (z[:, :3], z[:, 3:], y), strict=True):
        assert after.any(axis=1).all()
        lengths = np.linalg.norm(after, axis=1)
        assert lengths.max() <= 1 + 1e-12 and (lengths <= np.linalg.norm(before, axis=1) + 1e-12).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 1, 2])
def test_rows_that_are_no_numbers_and_batches_without_rows_add_nothing_and_move_nobody_else(bad, where):
    layout, fine = layout_of(), person([[0.5], [0.2], [0.1]], [[0.3], [0.4]])
    values = [[0.5], [0.2], [0.3]]
    values[where] = [bad]
    broken = person([values[0], values[1]], [values[2]])
    nobody = LqBatch(np.zeros((0, 3, 1)), np.zeros((0, 2, 1)), 0)
    idle = LqBatch(np.zeros((4, 1, 1)), np.zeros((4, 0, 1)), 4)
    np.testing.assert_equal(layout.add([nobody, broken, fine, idle]), layout.add([fine]))


def test_noise_has_the_stated_scale_and_no_other():
    plan = plan_of(2, 1, steps=16)
    releases = [lq.draw_lq(plan, [], SeededNoise(s)).tables for s in range(400)]
    gram, cross = (np.array([r[t] for r in releases]).astype(float) for t in ("gram", "target"))
    assert (gram == gram.transpose(0, 2, 1)).all()
    off, diagonal = gram[:, *np.triu_indices(3, 1)], gram[:, range(3), range(3)]
    a, b = variances_of(plan)
    for drawn, variance in ((diagonal, a), (off, a / 2), (cross, b)):
        spread = 5 * np.sqrt(2 / drawn.size)
        assert abs((drawn**2).mean() / variance - 1) < spread < 0.3


def test_a_release_says_what_it_cost_and_planners_see_bounds_as_units():
    plan = plan_of(2, 1, steps=16)
    one = [person([[0.5, 0.1], [0.2, 0.3]], [[0.4]])]
    release = lq.draw_lq(plan, one, SeededNoise(0))
    seen = lq.released_moments(plan, release)
    assert release.rho == plan.rho <= 1 and seen.shape == (2, 1)
    np.testing.assert_array_equal(seen.gram * 256, release.tables["gram"])
    assert seen.gram_sd**2 * 256**2 == pytest.approx(variances_of(plan)[0] / 2)
    silent = plan_of(2, 1, steps=16, rho=None)
    exact = lq.released_moments(silent, lq.draw_lq(silent, one, SeededNoise(0)))
    assert exact.gram_sd == 0
    np.testing.assert_array_equal(exact.cross * 256, plan.layout.add(one)["target"])


def test_real_data_is_refused_to_every_other_noise_before_a_row_is_read():
    def unread():
        raise AssertionError("rows were read")

    real, logged = plan_of(data_kind="real"), lq.SummedRows("real", unread)
    for plan, rows, noise in (
        (real, logged, SeededNoise(0)),
        (plan_of(data_kind="real", rho=None), logged, OsNoise()),
        (plan_of(), logged, OsNoise()),
        (real, [], OsNoise()),
    ):
        with pytest.raises(RealDataError):
            lq.draw_lq(plan, rows, noise)
    with pytest.raises(AssertionError, match="rows were read"):
        lq.draw_lq(real, logged, OsNoise())
    release = lq.draw_lq(plan_of(steps=4096), everybody()[:50], OsNoise())
    assert release.noise == "os" and release.tables["target"].shape == (2, 1)


def test_plans_that_would_overflow_and_rows_of_another_shape_are_refused():
    with pytest.raises(OverflowError, match="64-bit"):
        plan_of(steps=2**29)
    with pytest.raises(OverflowError, match="noise"):
        plan_of(steps=2**20, rho=Fraction(1, 10**6), horizon=50)
    with pytest.raises(ValueError, match="more episodes than declared"):
        layout_of().add(everybody()[:51])
    with pytest.raises(ValueError, match="other dimensions"):
        layout_of(n=2).add(everybody()[:1])
    for change in ({"steps": 0}, {"bounds": (0.0, 1.0, 1.0)}, {"bounds": (1.0, np.inf, 1.0)}):
        with pytest.raises(ValueError, match="at least 1"):
            replace(layout_of(), **change)
    for change in ({"rho": Fraction(0)}, {"gram_share": Fraction(1)}):
        with pytest.raises(ValueError, match="positive"):
            plan_of(**change)
    assert lq.gram_deviation(plan_of(rho=None)) == 0.0
    # the coarsest lattice has one step
    assert layout_of(steps=1).square == 2
