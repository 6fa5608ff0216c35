"""Regularizers: what one episode moves, by enumeration; what the noise costs, exactly; what ridge() promises."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from pipeline.privacy.counters import levels
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise, SimulatedWorld
from pipeline.privacy.square_root import squared_column
from pipeline.statistics.mixture_calibration import Ask, paper_000, paper_001, tight
from pipeline.statistics.mixture_message import LATTICE, MOVE, Message
from pipeline.statistics.regularizers import fixed, local, tree
from tests.privacy.handles import REAL

S, A, WORLD = 2, 2, SimulatedWorld("tests")
RANGES = (2.0, 0.5)


def message(unit, blocks=S * A, dimension=S, stretch=S**0.5, ranges=RANGES):
    return Message(blocks, dimension, stretch, tuple(ranges), 2.5, unit)


def step_rows(V, unit, block=True):
    """Every (gram, target) that one visit of one step can add, one-hot, with V (S,) of the next step."""
    weight = np.linalg.norm(V) if unit and V.any() else 1.0
    for cell, after in product(range(S * A), range(S)):
        gram, target = np.zeros((S * A, S, S)), np.zeros((S * A, S))
        gram[cell], target[cell] = np.outer(V, V) / weight**2, V * V[after] / weight**2
        if not block:
            phi = np.kron(np.eye(S * A)[cell], V) / weight
            gram, target = np.outer(phi, phi)[None], (phi * V[after] / weight)[None]
        yield gram, target


def lengths(m, x, y):
    """Squared svec move of the Gram matrices and squared move of the targets, between two messages, exactly."""
    diagonal, above, target = np.split(x.astype(object) - y.astype(object), np.cumsum(m.sizes)[:2])
    return (diagonal**2).sum() + 2 * (above**2).sum(), (target**2).sum()


def enumerated(m, V, unit, block=True):
    """All integer messages of one step; a second person may be absent."""
    one = replace(m, ranges=(float(V.max()) if V.any() else 1.0,))
    rows = [one.integers(g[None], t[None]) for g, t in step_rows(V, unit, block)]
    return one, [*rows, np.zeros_like(rows[0])]


@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("block", [True, False])
def test_two_episodes_move_one_step_by_the_declared_squared_length_and_no_more(unit, block):
    m = message(unit) if block else message(unit, 1, S * S * A)
    largest = [0, 0]
    for V in (np.array(v) for v in product((0.0, 1.0, 2.0), repeat=S)):
        one, rows = enumerated(m, V, unit, block)
        moves = [lengths(one, x, y) for x, y in product(rows, rows)]
        largest = [max(largest[i], max(move[i] for move in moves)) for i in (0, 1)]
    # both are attained, up to flooring
    assert MOVE * (1 - 1e-7) < largest[0] <= MOVE
    assert MOVE * (1 - 1e-7) < largest[1] <= MOVE


def test_the_norm_bound_of_paper_001_is_too_small_for_one_hot_rows():
    V = np.array([1.0, 1.0])
    raw = list(step_rows(V, unit=False))
    gram = max(((g - other) ** 2).sum() for (g, _), (other, _) in product(raw, raw))
    assert gram == 2 * S**2 > 2
    broken = message(unit=False, stretch=1.0, ranges=(1.0,))
    assert (broken.integers(raw[0][0][None], raw[0][1][None])[: 3 * S * A] > 0).any()
    x, y = (broken.integers(g[None], t[None]) for g, t in (raw[0], raw[-1]))
    # declared too small, rows are cut: less is learnt, but nothing leaks
    assert max(lengths(broken, x, y)) <= MOVE


def test_whatever_is_sent_stays_inside_the_bounds():
    m, rng = message(unit=False), np.random.default_rng(0)
    for scale in (1.0, 1e3, 1e300):
        gram, target = scale * rng.normal(size=(2, S * A, S, S)), scale * rng.normal(size=(2, S * A, S))
        x = m.integers(gram + gram.swapaxes(-1, -2), target)
        assert (x >= 0).all()
        for h in range(2):
            parts = [p.reshape(2, -1)[h] for p in np.split(x.astype(object), np.cumsum(m.sizes)[:2])]
            assert (parts[0] ** 2).sum() + 2 * (parts[1] ** 2).sum() <= LATTICE**2 >= (parts[2] ** 2).sum()


def test_sums_give_back_what_was_sent():
    m = message(unit=False)
    rows = [list(step_rows(V, unit=False)) for V in (np.array([2.0, 1.0]), np.array([0.25, 0.5]))]
    gram, target = (np.stack([rows[0][3][i], rows[1][6][i]]) for i in (0, 1))
    back = m.sums(m.integers(gram, target).astype(float))
    np.testing.assert_allclose(back[0], gram, atol=1e-6)
    np.testing.assert_allclose(back[1], target, atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("cost", [1, levels(1024), squared_column(50)])
@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(9, 10)])
def test_tight_noise_costs_what_was_asked_on_the_worst_pair_and_a_lost_level_costs_more(epsilon, cost, share):
    m, ask = message(unit=True), Ask(epsilon, 1e-5, "tight", share)
    v = tight(m, ask, cost)
    # the worst pair: two visits of different cells at every step, drawn out in integers
    worst = sum(
        Fraction(cost * MOVE, 2 * d) + Fraction(cost * MOVE, 2 * t) for d, t in zip(v.diagonal, v.target, strict=True)
    )
    assert all(d == 2 * a for d, a in zip(v.diagonal, v.above, strict=True))
    assert ask.rho() * Fraction(999_999, 10**6) < worst == v.rho(m, cost) <= ask.rho()
    assert v.rho(m, cost + 1) > ask.rho()


def test_paper_scales_are_the_printed_ones_and_their_guarantee_is_recomputed():
    m = Message(18, 3, 3**0.5, tuple((6 - h) / 6 for h in range(1, 6)), 1.0, False)
    ask = Ask(10.0, 1e-5, "paper")
    v = paper_001(m, ask)
    sd = np.sqrt(np.array(v.target, float)) * m.target_bound / LATTICE
    np.testing.assert_allclose(sd, 4 * 6 * np.sqrt(2 * np.log(2.5 * 6 / 1e-5)) / 10, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(np.array(v.above, float)) * m.gram_bound / LATTICE, sd, rtol=1e-9)
    # 1.08 by the exact Gaussian trade-off (it counts a diagonal once less); zCDP is a little above
    true = local(m, 100, ask, 0.01, WORLD, SeededNoise(0)).guarantee.epsilon(1e-5)
    assert 1.08 < true < 1.5
    tree_000 = paper_000(m, Ask(1.0, 1e-5, "paper"), 10_000)
    sd = np.sqrt(32 * 14 * np.log(4 * 6 / 1e-5)) * 6
    np.testing.assert_allclose(np.sqrt(np.array(tree_000.above, float)) * m.gram_bound / LATTICE, 3 * sd, rtol=1e-9)
    private = tree(m, 10_000, Ask(1.0, 1e-5, "paper"), 0.01, WORLD, SeededNoise(0)).guarantee
    assert private.trust == "joint"
    # two counters a step, 14 levels, moves of 2 in units of the paper's Delta where a value reaches its range
    reach = sum(((6 - h) / 6) ** 4 for h in range(1, 6))
    assert float(private.rho) == pytest.approx(2 * 14 * reach * 2 / (2 * sd**2), rel=1e-6)
    assert private.epsilon(1e-5) < 0.1
    with pytest.raises(ValueError, match="unit features"):
        paper_001(replace(m, unit=True), ask)


def episodes_of(m, n, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        gram, target = np.zeros((m.steps, m.blocks, S, S)), np.zeros((m.steps, m.blocks, S))
        for h in range(m.steps):
            x = rng.random(S)
            x /= np.linalg.norm(x)
            cell = rng.integers(m.blocks)
            gram[h, cell], target[h, cell] = np.outer(x, x), x * rng.random()
        yield gram, target


def private(make, m, n, noise, **settings):
    return make(m, n, Ask(5.0, 1e-5), 0.01, WORLD, noise, **settings)


@pytest.mark.parametrize("shift", ["edge", "paper"])
@pytest.mark.parametrize("make", [tree, local])
def test_ridge_is_positive_definite_and_the_paper_shift_keeps_its_bounds(make, shift):
    m, n = message(unit=True), 40
    plain = fixed(m, n, 0.01, WORLD, SeededNoise(0))
    noisy = private(make, m, n, SeededNoise(1), shift=shift)
    for gram, target in episodes_of(m, n):
        plain.observe(gram, target)
        noisy.observe(gram, target)
        ridge, b = noisy.ridge(), noisy.bounds
        lowest = np.linalg.eigvalsh(ridge.Lambda)[..., 0]
        assert (lowest >= b.lambda_min[:, None] * (1 - 1e-9)).all()
        if shift == "paper":
            added = ridge.Lambda - plain.ridge().Lambda + 0.01 * np.eye(S)
            e = np.linalg.eigvalsh(added)
            assert (e[..., 0] >= b.lambda_min[:, None]).all()
            assert (e[..., -1] <= b.lambda_max[:, None]).all()
            wrong = ridge.U - plain.ridge().U
            norm = np.sqrt(np.einsum("hbi,hbi->hb", wrong, np.linalg.solve(ridge.Lambda, wrong[..., None])[..., 0]))
            assert (norm <= b.nu[:, None]).all()


@pytest.mark.parametrize("mechanism", ["plain", "bottom-up", "square-root"])
def test_drawn_noise_has_the_standard_deviation_that_the_calibration_says(mechanism):
    m, n = message(unit=True), 12
    draws = []
    for seed in range(100):
        r = private(tree, m, n, SeededNoise(seed), mechanism=mechanism)
        for _ in range(n):
            r.observe(np.zeros((2, S * A, S, S)), np.zeros((2, S * A, S)))
        draws.append(r.ridge().U)
    cost = squared_column(n) if mechanism == "square-root" else levels(n)
    sd = np.sqrt(tight(m, Ask(5.0, 1e-5), cost).target[0] * r._counter.error(n)) / LATTICE
    ratio = np.std(draws) / sd
    # 1600 draws, a standard error of 1.8 per cent
    assert abs(ratio - 1) < 0.1


def test_real_data_is_refused():
    for make in (tree, local):
        with pytest.raises(RealDataError):
            make(message(unit=True), 10, Ask(1.0, 1e-5), 0.01, REAL, OsNoise())
    with pytest.raises(RealDataError):
        fixed(message(unit=True), 10, 0.01, REAL, OsNoise())
