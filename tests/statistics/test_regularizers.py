"""Regularizers: what one episode moves, by enumeration; what the noise costs, exactly; what ridge() promises."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest

from pipeline.privacy.continual import CounterFullError, SquareRoot, levels
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.mixture import LATTICE, MOVE, PARTS, MixtureMessage, mixture_regularizer, paper_000, paper_001
from pipeline.statistics.private_sum import asked_rho, cost_of, tight
from pipeline.statistics.regression import Visits
from tests.conftest import slow
from tests.privacy.handles import REAL, WORLD

S, A = 2, 2
ASK, PAPER = (Ask(epsilon=1.0, delta=1e-5, calibration=of) for of in ("tight", "paper"))
LOCAL = partial(mixture_regularizer, mechanism=None)


def message(unit, blocks=S * A, dimension=S, stretch=S**0.5, ranges=(2.0, 0.5)):
    return MixtureMessage(blocks, dimension, stretch, tuple(ranges), 2.5, unit)


def visit(phi, response, block=0, step=0, count=1, episodes=1):
    """One regression row, met by ``count`` of ``episodes`` episodes."""
    one = [np.array([x]) for x in (step, block)]
    return Visits(*one, np.array([phi], float), np.array([response], float), np.array([count]), episodes)


def together(*visits):
    """Rows of several steps of one batch."""
    parts = [np.concatenate([getattr(v, n) for v in visits]) for n in ("step", "block", "phi", "response", "count")]
    return Visits(*parts, visits[0].episodes)


def of_steps(m, variances):
    """Variances of the diagonals, above them and of the targets, a step each."""
    return [[variances[f"{part}_{h}"] for h in range(m.steps)] for part in PARTS]


def step_rows(V, unit, block=True):
    """Every row that one visit of one step can add, one-hot, with V (S,) of the next step."""
    weight = np.linalg.norm(V) if unit and V.any() else 1.0
    for cell, after in product(range(S * A), range(S)):
        phi = V / weight if block else np.kron(np.eye(S * A)[cell], V) / weight
        yield visit(phi, V[after] / weight, cell if block else 0)


def lengths(m, x, y):
    """Squared svec move of the Gram matrices and squared move of the targets, between two messages, exactly."""
    diagonal, above, target = np.split(x.astype(object) - y.astype(object), np.cumsum(m.sizes)[:2])
    return (diagonal**2).sum() + 2 * (above**2).sum(), (target**2).sum()


def enumerated(m, V, unit, block=True):
    """All integer messages of one step; a second person may be absent."""
    one = replace(m, ranges=(float(V.max()) if V.any() else 1.0,))
    rows = [one.integers(v) for v in step_rows(V, unit, block)]
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
    assert MOVE * (1 - 1e-7) < min(largest) <= max(largest) <= MOVE


def test_the_norm_bound_of_paper_001_is_too_small_for_one_hot_rows():
    V = np.array([1.0, 1.0])
    raw = [np.kron(np.eye(S * A)[v.block[0]], v.phi[0]) for v in step_rows(V, unit=False)]
    gram = max(((np.outer(x, x) - np.outer(y, y)) ** 2).sum() for x, y in product(raw, raw))
    assert gram == 2 * S**2 > 2
    broken = message(unit=False, stretch=1.0, ranges=(1.0,))
    x, *_, y = (broken.integers(v) for v in step_rows(V, unit=False))
    assert (x[: 3 * S * A] > 0).any()
    # declared too small, rows are cut: less is learnt, but nothing leaks
    assert max(lengths(broken, x, y)) <= MOVE


class Uncut(MixtureMessage):
    """A broken twin: one-hot rows taken as ||phi|| <= H - h, as paper 001 does, and sent as they are."""

    @property
    def row_bound(self):
        return np.array(self.ranges)

    def integers(self, visits):
        return message(unit=False, ranges=self.ranges).integers(visits) * np.repeat([S, 1], [12, 8])


def test_rows_taken_as_paper_001_takes_them_move_by_more_than_is_paid_for():
    V = np.array([1.0, 1.0])
    twin = Uncut(S * A, S, 1.0, (1.0,), 2.5, False)
    rows = [twin.integers(v) for v in step_rows(V, unit=False)]
    # squared: S^2 / 1 for the Gram matrix
    assert max(lengths(twin, x, y)[0] for x, y in product(rows, rows)) > 3.9 * MOVE


def test_a_tree_charged_by_natural_logarithms_costs_more_than_was_asked():
    m = message(unit=True)
    for leaves in (64, 296, 1024, 10_000):
        wrong = tight(m, ASK, math.floor(math.log(leaves)) + 1)
        assert cost_of(m, wrong, levels(leaves)) > 1.25 * asked_rho(ASK)
        assert cost_of(m, tight(m, ASK, levels(leaves)), levels(leaves)) <= asked_rho(ASK)


def test_whatever_is_sent_stays_inside_the_bounds():
    m, rng = message(unit=False), np.random.default_rng(0)
    for scale in (1.0, 1e3, 1e150):
        sent = (visit(scale * rng.normal(size=S), scale * rng.normal(), 1, h) for h in range(2))
        x = m.integers(together(*sent))
        assert (x >= 0).all()
        for h in range(2):
            parts = [p.reshape(2, -1)[h] for p in np.split(x.astype(object), np.cumsum(m.sizes)[:2])]
            assert (parts[0] ** 2).sum() + 2 * (parts[1] ** 2).sum() <= LATTICE**2 >= (parts[2] ** 2).sum()
    # what is no number counts as nothing
    one = MixtureMessage(2, 1, 1.0, (1.0,), 1.0, unit=False)
    for bad, most in ((np.nan, 0), (np.inf, LATTICE)):
        sent = one.integers(visit([bad], bad))
        assert sent.min() >= 0 and sent.max() <= most


def test_sums_give_back_what_was_sent_and_a_person_sends_one_row_a_step():
    m = message(unit=False)
    rows = [(np.array([2.0, 1.0]), 1.0, 3, 0, 2, 5), (np.array([0.25, 0.5]), 0.5, 2, 1, 5, 5)]
    gram, target = m.sums(m.integers(together(*(visit(*r) for r in rows))).astype(float))
    for phi, response, block, step, count, _ in rows:
        np.testing.assert_allclose(gram[step, block], count * np.outer(phi, phi), atol=1e-6)
        np.testing.assert_allclose(target[step, block], count * phi * response, atol=1e-6)
        assert np.count_nonzero(gram[step]) == S * S
    with pytest.raises(ValueError, match="one row a step"):
        m.integers(visit(np.ones(S), 1.0, count=3, episodes=2))


def test_a_batch_moves_by_one_message_when_one_of_its_people_changes():
    m, V = message(unit=True, ranges=(1.0,)), np.array([1.0, 0.5])
    everybody = list(step_rows(V, unit=True))
    others = visit(everybody[2].phi[0], everybody[2].response[0], everybody[2].block[0], 0, 6, 7)
    batches = [m.integers(replace(together(others, v), episodes=7)) for v in everybody]
    alone = [m.integers(v) for v in everybody]
    for i, j in product(range(len(alone)), repeat=2):
        assert np.array_equal(batches[i] - batches[j], alone[i] - alone[j])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("cost", [1, levels(1024), SquareRoot(50).cost])
@pytest.mark.parametrize("share", [Fraction(1, 2), Fraction(9, 10)])
def test_tight_noise_costs_what_was_asked_on_the_worst_pair_and_a_lost_level_costs_more(epsilon, cost, share):
    m, ask = message(unit=True), Ask(epsilon=epsilon, delta=1e-5, split={"gram": share})
    v = tight(m, ask, cost)
    # the worst pair: two visits of different cells at every step, drawn out in integers
    diagonal, above, target = of_steps(m, v)
    worst = sum(Fraction(cost * MOVE, 2 * variance) for variance in (*diagonal, *target))
    assert all(d == 2 * a for d, a in zip(diagonal, above, strict=True))
    assert asked_rho(ask) * Fraction(999_999, 10**6) < worst == cost_of(m, v, cost) <= asked_rho(ask)
    assert cost_of(m, v, cost + 1) > asked_rho(ask)


def test_paper_scales_are_the_printed_ones_and_their_guarantee_is_recomputed():
    m = MixtureMessage(18, 3, 3**0.5, tuple((6 - h) / 6 for h in range(1, 6)), 1.0, False)
    ask = Ask(epsilon=10.0, delta=1e-5, calibration="paper")
    v = paper_001(m, ask)
    sd = np.sqrt(np.array(of_steps(m, v)[2], float)) * m.target_bound / LATTICE
    np.testing.assert_allclose(sd, 4 * 6 * np.sqrt(2 * np.log(2.5 * 6 / 1e-5)) / 10, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(np.array(of_steps(m, v)[1], float)) * m.gram_bound / LATTICE, sd, rtol=1e-9)
    # 1.08 by the exact Gaussian trade-off (it counts a diagonal once less); zCDP is a little above
    true = LOCAL(m, 100, ask, 0.01, WORLD, SeededNoise(0)).guarantee.epsilon(1e-5)
    assert 1.08 < true < 1.5
    above = np.sqrt(np.array(of_steps(m, paper_000(m, PAPER, 10_000))[1], float)) * m.gram_bound / LATTICE
    sd = np.sqrt(32 * 14 * np.log(4 * 6 / 1e-5)) * 6
    np.testing.assert_allclose(above, 3 * sd, rtol=1e-9)
    private = mixture_regularizer(m, 10_000, PAPER, 0.01, WORLD, SeededNoise(0)).guarantee
    assert private.trust == "joint"
    # two counters a step, 14 levels, moves of 2 in units of the paper's Delta where a value reaches its range
    reach = sum(((6 - h) / 6) ** 4 for h in range(1, 6))
    assert float(private.rho) == pytest.approx(2 * 14 * reach * 2 / (2 * sd**2), rel=1e-6)
    assert private.epsilon(1e-5) < 0.1
    with pytest.raises(ValueError, match="unit features"):
        paper_001(replace(m, unit=True), ask)


def nothing(episodes):
    none = np.zeros(0, dtype=int)
    return Visits(none, none, np.zeros((0, S)), np.zeros(0), none, episodes)


def private(make, m, n, noise, **settings):
    return make(m, n, Ask(epsilon=5.0, delta=1e-5), 0.01, WORLD, noise, **settings)


@pytest.mark.parametrize("shift", ["edge", "paper"])
@pytest.mark.parametrize("make", [mixture_regularizer, LOCAL])
def test_ridge_is_positive_definite_and_the_paper_shift_keeps_its_bounds(make, shift):
    m, n = message(unit=True), 40
    plain = mixture_regularizer(m, n, None, 0.01, WORLD, SeededNoise(0))
    noisy = private(make, m, n, SeededNoise(1), shift=shift)
    rng = np.random.default_rng(0)
    for _ in range(n):
        x = rng.random((m.steps, S))
        rows = zip(x / np.linalg.norm(x, axis=1, keepdims=True), rng.random(m.steps), range(m.steps), strict=True)
        visits = together(*(visit(phi, response, rng.integers(m.blocks), h) for phi, response, h in rows))
        plain.observe(visits)
        noisy.observe(visits)
        ridge = b = noisy.ridge()
        lowest = np.linalg.eigvalsh(ridge.V)[..., 0]
        assert (lowest >= b.lambda_min[:, None] * (1 - 1e-9)).all()
        if shift == "paper":
            e = np.linalg.eigvalsh(ridge.V - plain.ridge().V + 0.01 * np.eye(S))
            assert (e[..., 0] >= b.lambda_min[:, None]).all()
            assert (e[..., -1] <= b.lambda_max[:, None]).all()
            wrong = ridge.U - plain.ridge().U
            norm = np.sqrt(np.einsum("hbi,hbi->hb", wrong, np.linalg.solve(ridge.V, wrong[..., None])[..., 0]))
            assert (norm <= b.nu[:, None]).all()


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("mechanism", ["plain", slow("bottom-up"), slow("square-root"), slow("local")])
def test_drawn_noise_has_the_standard_deviation_that_the_calibration_says(mechanism, batch):
    m, n = message(unit=True), 12
    draws, make = [], LOCAL if mechanism == "local" else partial(mixture_regularizer, mechanism=mechanism)
    for seed in range(50):
        r = private(make, m, n, SeededNoise(seed))
        for _ in range(n // batch):
            r.observe(nothing(batch))
        draws.append(r.ridge().U)
    cost = {"square-root": SquareRoot(n).cost, "local": 1}.get(mechanism, levels(n))
    sd = np.sqrt(tight(m, Ask(epsilon=5.0, delta=1e-5), cost)["target_0"] * r._counter.error) / LATTICE
    ratio = np.std(draws) / sd
    # 800 draws of fixed seeds, a standard error of 2.5 per cent: 30 % off is 8 of them beyond the bound
    assert abs(ratio - 1) < 0.1


def test_a_batch_as_one_leaf_has_the_noise_of_a_counter_over_batches():
    m = message(unit=True)
    r = private(mixture_regularizer, m, 4096, SeededNoise(0), batches=3)
    assert r.guarantee.rho <= asked_rho(Ask(epsilon=5.0, delta=1e-5)) < r.guarantee.rho * Fraction(100_001, 100_000)
    for episodes in (1, 95, 4000):
        r.observe(nothing(episodes))
    assert (r.seen, r._counter.seen, r._counter.time.cost) == (4096, 3, 2)
    with pytest.raises(CounterFullError):
        r.observe(nothing(1))
    with pytest.raises(ValueError, match="tree over episodes"):
        mixture_regularizer(m, 10, PAPER, 0.01, WORLD, SeededNoise(0), batches=3)


def test_floor_raises_low_eigenvalues_alone_and_a_prior_answers_where_nothing_was_seen():
    m = message(unit=True)
    settings = {"shift": "floor", "prior": 1.0}
    r = private(mixture_regularizer, m, 5000, SeededNoise(0), batches=1, **settings)
    x = np.array([0.6, 0.8])
    r.observe(visit(x, 0.5, 0, 0, 5000, 5000))
    ridge, exact = r.ridge(), 5000 * np.outer(x, x)
    e = np.linalg.eigvalsh(ridge.V)
    assert (e[..., 0] >= ridge.lambda_min[:, None] - 1e-9).all()
    # an added shift would move the seen direction by 1.3 edges or more
    assert abs(x @ (ridge.V[0, 0] - exact) @ x) < (ridge.lambda_min[0] - 0.01)
    quiet = mixture_regularizer(
        m, 9, Ask(epsilon=math.inf, delta=1e-5), 0.01, WORLD, SeededNoise(0), **settings
    ).ridge()
    np.testing.assert_allclose(np.linalg.solve(quiet.V, quiet.U[..., None]), 0.5, atol=1e-12)


def test_reward_rows_move_by_the_declared_squared_length():
    m = MixtureMessage(S * A, 1, 1.0, (0.5,), 0.5, False, "rewards")
    rows = [m.integers(visit([1.0], r, cell)) for cell in range(S * A) for r in (0.0, 0.25, 0.5)]
    moves = [lengths(m, x, y) for x, y in product([*rows, 0 * rows[0]], repeat=2)]
    assert max(g for g, _ in moves) == MOVE
    assert max(t for _, t in moves) == MOVE
    assert m.horizon == 1 and replace(m, of="transitions").horizon == 2
    v = paper_000(m, PAPER, 1024)
    sd = np.sqrt(32 * 10 * np.log(4 / 1e-5))
    np.testing.assert_allclose(np.sqrt(float(v["diagonal_0"])) / LATTICE, sd, rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(float(v["target_0"])) / LATTICE * 0.5, 0.5 * sd, rtol=1e-9)
    with pytest.raises(ValueError, match="knows the rewards"):
        paper_001(m, PAPER)


def test_real_data_is_refused():
    for make in (mixture_regularizer, LOCAL):
        with pytest.raises(RealDataError):
            make(message(unit=True), 10, ASK, 0.01, REAL, OsNoise())
    with pytest.raises(RealDataError):
        mixture_regularizer(message(unit=True), 10, None, 0.01, REAL, OsNoise())
