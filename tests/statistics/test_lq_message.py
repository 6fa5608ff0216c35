"""What one LQ episode adds: exact on the lattice, cut to balls; nobody moves the sums too far, and twins do."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq import CountedLqRegularizer, LqMessage, lq_regularizer, paper_004
from pipeline.statistics.online_sum import Variances, asked_rho, cost_of, tight
from tests.statistics.lq_people import CORNERS, any_length, everybody, in_a_box, opposed, person, unclipped

WORLD = SimulatedWorld("tests")
TINY = LqMessage(1, 1, 2, steps=64)


def squares(message: LqMessage, people: list[LqBatch]) -> tuple[np.ndarray, np.ndarray]:
    """Squared moves of the Gram matrix (Frobenius) and of the cross sums between every two people."""
    p = np.array([message.integers(one) for one in people], dtype=float)
    D, above, _ = message.sizes
    p[:, D : D + above] *= math.sqrt(2)
    moved = []
    for part in (p[:, : D + above], p[:, D + above :]):
        n = (part * part).sum(1)
        moved.append(n[:, None] + n - 2 * part @ part.T)
    return moved[0], moved[1]


def loss(message: LqMessage, variances: Variances, people: list[LqBatch], cost: int = 1) -> float:
    """Largest rho of a pair: the Gram part with its worst lane's variance."""
    gram, cross = squares(message, people)
    of_gram = min(variances["diagonal"], 2 * variances["above"])
    return cost * float((gram / (2 * of_gram) + cross / (2 * variances["cross"])).max())


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_each_sum_alone_is_moved_exactly_as_far_as_declared(gamma):
    message = LqMessage(1, 2, 4, (1.0, gamma, 1.0))
    moved = [squares(message, opposed(t, 4, gamma)) for t in np.linspace(0, np.pi, 181)]
    H, q = 4, 4096**2
    declared = 2 * (H * (1 + gamma**2) * q) ** 2, (2 * H * math.sqrt(1 + gamma**2) * q) ** 2
    assert message.cost({"diagonal": Fraction(1)}) == declared[0]
    assert message.cost({"cross": Fraction(1)}) == pytest.approx(declared[1])
    # x and its opposite, u at an angle: right angles between two z need gamma >= 1
    assert max(g.max() for g, _ in moved) == pytest.approx(declared[0], rel=1e-3) or gamma < 1
    assert max(c.max() for _, c in moved) == pytest.approx(declared[1], rel=1e-3)


def test_no_two_people_are_further_apart_than_claimed():
    people = everybody()
    gram, cross = squares(TINY, people)
    assert gram.max() == pytest.approx(float(TINY.cost({"diagonal": Fraction(1)})), rel=1e-9)
    assert cross.max() == pytest.approx(float(TINY.cost({"cross": Fraction(1)})), rel=1e-9)
    for variances in (tight(TINY, Ask(epsilon=1.0, delta=1e-5), 7), paper_004(TINY, Ask(epsilon=1.0, delta=1e-5), 100)):
        claimed = cost_of(TINY, variances, 7)
        assert loss(TINY, variances, people, 7) <= claimed * (1 + 1e-9)


def test_the_joint_claim_is_met_by_two_real_episodes():
    """Over-charging fails too."""
    message, ask = LqMessage(1, 2, 4), Ask(epsilon=1.0, delta=1e-5)
    variances = tight(message, ask, 3)
    worst = max(loss(message, variances, opposed(t, 4), 3) for t in np.linspace(0, np.pi, 181))
    claimed = cost_of(message, variances, 3)
    assert 0.999 * claimed < worst <= claimed <= asked_rho(ask)


def test_the_printed_sensitivities_are_not_those_of_a_replacement():
    """Delta_2 = H (1 + gamma) never is; Delta_1 = H (1 + gamma)^2 is for gamma of about .22 to 4.6."""
    q = 4096**2
    for gamma, enough in ((0.1, False), (1.0, True), (4.0, True), (5.0, False)):
        message = LqMessage(1, 1, 10, (1.0, gamma, 1.0))
        gram, cross = message.cost({"diagonal": Fraction(1)}), message.cost({"cross": Fraction(1)})
        assert (gram <= (10 * (1 + gamma) ** 2 * q) ** 2) is enough
        assert cross > (10 * (1 + gamma) * q) ** 2


@pytest.mark.parametrize("twin", [unclipped, any_length])
def test_twins_that_do_not_cut_break_the_claim(monkeypatch, twin):
    variances = tight(TINY, Ask(epsilon=1.0, delta=1e-5), 1)
    monkeypatch.setattr(LqMessage, "rows", twin)
    assert loss(TINY, variances, everybody()) > cost_of(TINY, variances, 1) * (1 + 1e-9)


def test_a_box_is_no_ball(monkeypatch):
    message = LqMessage(2, 1, 2, steps=64)
    variances = tight(message, Ask(epsilon=1.0, delta=1e-5), 1)
    assert loss(message, variances, CORNERS) <= cost_of(message, variances, 1)
    monkeypatch.setattr(LqMessage, "rows", in_a_box)
    assert loss(message, variances, CORNERS) > 1.1 * cost_of(message, variances, 1)


def test_sums_on_the_lattice_are_those_of_the_loops():
    rng, message = np.random.default_rng(0), LqMessage(3, 2, 6, (1.0, 0.5, 1.0))
    x = np.trunc(rng.normal(size=(5, 7, 3)) * 0.2 * 4096) / 4096
    u = np.trunc(rng.normal(size=(5, 6, 2)) * 0.1 * 4096) / 4096
    assert np.linalg.norm(x, axis=2).max() <= 1
    assert np.linalg.norm(u, axis=2).max() <= 0.5
    gram, cross = np.zeros((5, 5)), np.zeros((5, 3))
    for e, h in np.ndindex(5, 6):
        z = np.concatenate([x[e, h], u[e, h]])
        gram += np.outer(z, z)
        cross += np.outer(z, x[e, h + 1])
    found = message.sums(message.integers(LqBatch(x, u, len(x))).astype(float))
    np.testing.assert_allclose(found[0], gram, atol=1e-10)
    np.testing.assert_allclose(found[1], cross, atol=1e-10)


def test_rows_that_are_no_numbers_count_as_absent():
    broken = person([[0.5], [0.5], [np.nan]], [[0.5]] * 2)
    assert TINY.integers(broken).tolist() == [32**2, 32**2, 32**2, 32**2, 32**2]
    huge = person([[1e308]] * 3, [[1.7e308]] * 2)
    assert (np.abs(TINY.integers(huge)) <= 2 * 64**2).all()


def test_a_batch_of_many_has_the_mean_and_the_spread_of_its_sum():
    rng, message = np.random.default_rng(0), LqMessage(1, 1, 3)
    states, controls = rng.uniform(-1, 1, (4000, 4, 1)), rng.uniform(-1, 1, (4000, 3, 1))
    z = np.concatenate([states[:, :-1], controls], axis=2)
    mean = (np.diag([1.0, 1.0]), np.zeros((2, 1)))
    sums = [
        message.integers(LqBatch(states[i : i + 200], controls[i : i + 200], 5000, mean)) / message.steps**2
        for i in range(0, 4000, 200)
    ]
    # 5 000 episodes of three steps with E z z' = I / 3 each: E of the diagonal is one an episode
    np.testing.assert_allclose(np.mean(sums, axis=0)[:2], 5000, rtol=0.01)
    own = np.var((z**2).sum(1)[:, 0])
    assert np.var([s[0] for s in sums]) == pytest.approx(5000 * own, rel=0.9)


def test_a_regularizer_cuts_what_it_observes():
    """The door itself: an unbounded state moves the released sums no further than a bounded one."""
    message = LqMessage(1, 1, 2)
    shown = []
    for scale in (1.0, 50.0):
        r: CountedLqRegularizer = lq_regularizer(
            message, (1,), Ask(epsilon=math.inf, delta=1e-5), 1.0, WORLD, SeededNoise(0)
        )
        r.observe(LqBatch(np.full((1, 3, 1), scale), np.zeros((1, 2, 1)), 1))
        shown.append(r.ridge().V)
    np.testing.assert_allclose(shown[1], shown[0], atol=1e-12)
