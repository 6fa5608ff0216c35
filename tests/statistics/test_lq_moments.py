"""LQ moments: what is summed, cut and truncated, what is drawn and what is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise
from pipeline.statistics.lq import SummedRows, Transitions, draw_lq, gram_deviation, released_moments
from tests.statistics.lq_people import everybody, layout_of, person, plan_of, variances_of


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
    z, y = (v / 2**20 for v in layout_of(3, 2, steps=2**20).rows(Transitions(*rows)))
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
    releases = [draw_lq(plan, [], SeededNoise(s)).tables for s in range(400)]
    gram, cross = (np.array([r[t] for r in releases]).astype(float) for t in ("gram", "target"))
    assert (gram == gram.transpose(0, 2, 1)).all()
    off, diagonal = gram[:, *np.triu_indices(3, 1)], gram[:, range(3), range(3)]
    a, b = variances_of(plan)
    for drawn, variance in ((diagonal, a), (off, a / 2), (cross, b)):
        spread = 5 * np.sqrt(2 / drawn.size)
        ratio = (drawn**2).mean() / variance
        assert abs(ratio - 1) < spread and spread < 0.3


def test_a_release_says_what_it_cost_and_planners_see_bounds_as_units():
    plan = plan_of(2, 1, steps=16)
    one = [person([[0.5, 0.1], [0.2, 0.3]], [[0.4]])]
    release = draw_lq(plan, one, SeededNoise(0))
    seen = released_moments(plan, release)
    assert release.rho == plan.rho <= 1 and seen.shape == (2, 1)
    np.testing.assert_array_equal(seen.gram * 256, release.tables["gram"])
    assert seen.gram_sd**2 * 256**2 == pytest.approx(variances_of(plan)[0] / 2)
    silent = plan_of(2, 1, steps=16, rho=None)
    exact = released_moments(silent, draw_lq(silent, one, SeededNoise(0)))
    assert exact.gram_sd == 0
    np.testing.assert_array_equal(exact.cross * 256, plan.layout.add(one)["target"])


def unread():
    raise AssertionError("rows were read")


def test_real_data_is_refused_to_every_other_noise_before_a_row_is_read():
    real, logged = plan_of(data_kind="real"), SummedRows("real", unread)
    for plan, rows, noise in (
        (real, logged, SeededNoise(0)),
        (plan_of(data_kind="real", rho=None), logged, OsNoise()),
        (plan_of(), logged, OsNoise()),
        (real, [], OsNoise()),
    ):
        with pytest.raises(RealDataError):
            draw_lq(plan, rows, noise)
    with pytest.raises(AssertionError, match="rows were read"):
        draw_lq(real, logged, OsNoise())
    release = draw_lq(plan_of(steps=4096), everybody()[:50], OsNoise())
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
    for change in (
        {"state": 0},
        {"control": 0},
        {"horizon": 0},
        {"steps": 0},
        {"bounds": (0.0, 1.0, 1.0)},
        {"bounds": (1.0, np.inf, 1.0)},
    ):
        with pytest.raises(ValueError, match="at least 1"):
            replace(layout_of(), **change)
    for change in ({"rho": Fraction(0)}, {"gram_share": Fraction(1)}):
        with pytest.raises(ValueError, match="positive"):
            plan_of(**change)
    assert gram_deviation(plan_of(rho=None)) == 0.0
    # the coarsest lattice has one step
    assert layout_of(steps=1).square == 2
