"""The linear desk: its joint loss by enumeration, broken twins, exact integers, and one answer a call."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import pipeline.mdp.features as features_module
import pipeline.statistics.linear_plan as plan_module
import pipeline.statistics.linear_sums as desk_module
from pipeline.learners.linear_request import LinearLearner
from pipeline.learners.terms import Privacy, Terms
from pipeline.mdp.features import FeatureMap
from pipeline.online.linear import feature_map, linear_003
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise, SimulatedWorld, symmetric_noise
from pipeline.statistics import linear_sums
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram import BallMoves, Extent, Moves, exact_sums, moves, table_moves
from pipeline.statistics.linear_plan import GRAM_SHARE, LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.regression import MechanismClosedError, Window
from reticent import CardError, load_card
from tests.conftest import SHELF, slow
from tests.privacy.handles import Silent
from tests.statistics.linear_people import loss, people, plan_of, points, random_map, rows_of, script
from tests.statistics.test_sensitivity import largest_square

ONE = Fraction(1)
SMALL = {"value_steps": 64, "weight_steps": 16}
CASES = {
    "centred, no variance step": (LinearTerms(Ask(ONE), variance=False, **SMALL), False),
    "centred, variance skipped": (LinearTerms(Ask(ONE), **SMALL), False),
    "centred, weighted": (LinearTerms(Ask(ONE), **SMALL), True),
    "centred, weighted, halves": (LinearTerms(Ask(ONE), halves=True, **SMALL), True),
    "paper's targets, weighted": (LinearTerms(Ask(ONE), "paper", **SMALL), True),
    "paper's targets, halves": (LinearTerms(Ask(Fraction(1, 10)), "paper", halves=True, **SMALL), True),
}


# of all people of the domain every fourth: enough to catch a twin
SOME = people(3, 2, True)[::4]


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.slow if c.endswith(", weighted") else ()) for c in CASES]
)
def test_no_two_people_of_the_domain_are_further_apart_and_nobody_who_joins_moves_further_than_claimed(case):
    """What every person of the domain adds; in halves, or where no row is weighed, every fourth."""
    ask, weigh = CASES[case]
    plan = plan_of(random_map(0), ask)
    everyone = people(3, 2, True) if weigh and not ask.halves else SOME
    at = points(plan, everyone, lambda d: script(d, 0, 1, weigh))
    assert loss(at) <= float(ask.ask.rho) * (1 + 1e-9)
    found = ((at - at[0]) ** 2).sum(1).max() / 2
    assert float(ask.ask.rho) / 4 <= linear_sums.joining_rho(plan) <= ask.ask.rho and found <= linear_sums.joining_rho(
        plan
    ) * (1 + 1e-9)


@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_what_joining_costs_is_attained_in_one_step(calibration):
    ask = LinearTerms(Ask(ONE, calibration=calibration), "paper", variance=False, value_steps=1024)
    plan = plan_of(random_map(3), ask, horizon=1)
    everyone = [p for p in people(3, 2, True) if len(p) < 2]
    at = points(plan, everyone, lambda d: script(d, 0, 0, False))
    assert ((at - at[0]) ** 2).sum(1).max() / 2 == pytest.approx(float(linear_sums.joining_rho(plan)), rel=1e-5)


@pytest.mark.parametrize("low", [-4, 0])
@pytest.mark.parametrize("variant", ["centred", "paper"])
def test_the_claim_of_one_step_is_attained(low, variant):
    """Over-charging fails too: rounding variances up to integers is all that separates the two."""
    plan = plan_of(random_map(3, low=low), LinearTerms(Ask(ONE), variant, variance=False, value_steps=1024), horizon=1)
    everyone = [p for p in people(3, 2, True) if len(p) < 2]
    assert loss(points(plan, everyone, lambda d: script(d, 0, 0, False))) == pytest.approx(1.0, rel=1e-5)


def test_a_person_in_the_other_half_leaves_this_half_alone():
    features = random_map(0)
    plan = plan_of(features, LinearTerms(Ask(ONE), halves=True, **SMALL))
    at = points(plan, SOME, lambda d: script(d, 0, 1, True))
    d = features.dimension
    # order of release: step 1 D, step 0 D', step 0 D; these people are in D
    first, other = d * (d + 1) // 2 + d, d * (d + 1) // 2 + 2 * d
    assert np.ptp(at[:, first : first + other], axis=0).max() == 0
    assert np.ptp(at[:, first + other :], axis=0).max() > 0


@pytest.mark.parametrize("weigh", [True, slow(False)])
def test_people_of_the_second_half_pay_for_the_steps_at_which_they_join_the_first(weigh):
    """The last step asks nothing of D', so its people enter the regression there: they are the ones who pay most."""
    H = 20
    plan = plan_of(random_map(0), LinearTerms(Ask(ONE, calibration="paper"), "paper", halves=True, **SMALL), horizon=H)
    everyone = [(), *(((s, a, r, n),) * H for s in range(3) for a in range(2) for r in (0.0, 1.0) for n in range(4))]

    def in_second(desk):
        person = everyone[len(played)]
        played.append(person)
        desk.rows = rows_of(person, plan.features, lambda side: side in ("D'", "both"))
        script(desk, 0, 1, weigh, reach=100.0)

    played = []
    found, claimed = loss(points(plan, everyone, in_second)), float(linear_sums.true_rho(plan))
    assert 0.99 * claimed < found <= claimed if weigh else found <= claimed


def test_a_window_upside_down_is_refused_and_a_weight_that_is_no_number_stays_within_its_bound():
    for low, high in ((1.0, 0.0), (float("nan"), 1.0), (0.0, float("nan"))):
        with pytest.raises(ValueError, match="low <= high"):
            Window(low, high)
    q = linear_sums.Quantiser(64, 0, 64, (0, 64), 0, 16)
    assert q.weights(np.array([np.nan, np.inf, -np.inf, 0.5])).tolist() == [1, 16, 1, 8]


def test_noise_of_twenty_steps_is_drawn_at_a_usual_budget_and_refused_before_a_charge_at_none():
    """The shipped card of observations: its first calls need noise beyond 2^40 at any rho up to 1."""
    card = load_card(SHELF / "cartpole" / "card.toml")

    def asked(rho: float) -> LinearPlan:
        return LinearLearner("vapvi").plan(card, Terms("a recipe", "dp-vapvi", Privacy(rho=rho))).plan

    plan = asked(0.3)
    assert 2**41 < math.sqrt(linear_sums.widest_variance(plan)) < 2**50
    rows = linear_sums.StreamRows(lambda h, side: iter(()), plan.features.dimension, "synthetic")
    desk = linear_sums.InteractiveRegression(plan, rows, OsNoise())
    for h in reversed(range(plan.domain.horizon)):
        window = Window(*plan.domain.value_range(h + 1))
        if h < plan.domain.horizon - 1:
            desk.variance(h, lambda x: np.zeros(len(x)), window)
        desk.regression(h, lambda x: np.zeros(len(x)), window)
    drawn = desk.release().mechanisms
    assert max(m.variance for m in drawn) == linear_sums.widest_variance(plan)
    with pytest.raises(CardError, match="steps"):
        asked(1e-9)
    once = replace(plan, terms=replace(plan.terms, variant="one_shot"))
    assert 2**21 < math.sqrt(linear_sums.widest_variance(once)) < 2**30


@pytest.mark.parametrize("variant", ["centred", "paper"])
def test_the_extent_covers_weighted_gram_matrices_and_values_far_from_zero(variant):
    long = FeatureMap(np.array([[[2**13, 0]]], dtype=np.int64), 2**26, Fraction(1, 2**26))
    ask = LinearTerms(Ask(ONE), variant, value_steps=1, weight_steps=2**20)
    extent = LinearPlan(LinearDomain("x", "synthetic", 1, 2), ask, long).extent()
    assert extent.block * 2**20 * 2**26 < 2**53
    with pytest.raises(OverflowError):
        LinearPlan(LinearDomain("x", "synthetic", 1, 2**17), ask, long)
    far = LinearDomain("x", "synthetic", 2, 100, bounds=(1000.0, 1001.0))
    if variant == "paper":
        assert LinearPlan(far, LinearTerms(Ask(ONE), variant), feature_map("literal")).extent().target >= 2 * 1001


def _add_remove(features: FeatureMap, episodes: int = 1) -> Moves:
    squares = moves(features, episodes).squares
    return Moves(np.vstack([np.full_like(squares[:1], squares[0].max() // 2), squares[1:]]))


def _half(*args, shipped=desk_module.call_sum, **kwargs):
    s = shipped(*args, **kwargs)
    gram, *targets = s.mechanisms
    halved = (replace(m, variance=m.variance // 2) for m in targets)
    return replace(s, mechanisms=(replace(gram, variance=gram.variance // 4 * 2), *halved))


@pytest.mark.parametrize(
    ("owner", "name", "twin", "share", "least"),
    [
        # a Gram matrix scaled for add or remove, half the variance, targets that leave their window
        (plan_module, "moves", _add_remove, Fraction(9, 10), 1.2),
        (desk_module, "call_sum", _half, GRAM_SHARE, 1.9),
        (linear_sums.Quantiser, "values", lambda self, v: np.floor(v * self.lattice).astype(np.int64), GRAM_SHARE, 1.9),
    ],
    ids=["moves", "variance", "window"],
)
def test_twins_lose_more_than_they_claim(monkeypatch, constants, owner, name, twin, share, least):
    monkeypatch.setattr(owner, name, twin)
    constants(gram_share=share)
    plan = plan_of(random_map(3), LinearTerms(Ask(ONE), variance=False, **SMALL))
    assert loss(points(plan, SOME, lambda d: script(d, 0, 1, False))) > least


def test_two_calls_at_one_step_are_caught(monkeypatch):
    monkeypatch.setattr(linear_sums.InteractiveRegression, "_admit", lambda self, h, half: self._done.append((h, half)))
    plan = plan_of(random_map(3), LinearTerms(Ask(ONE), variance=False, **SMALL))

    def greedy(desk: linear_sums.InteractiveRegression) -> None:
        script(desk, 0, 1, False)
        first = dict(desk._tables)
        desk._tables.clear()
        kept = list(desk._mechanisms)
        script(desk, 0, 1, False)
        desk._tables.update({f"{k}_again": v for k, v in first.items()})
        desk._mechanisms += [replace(m, table=f"{m.table}_again") for m in kept[: len(first)]]
        del desk._mechanisms[len(first) : 2 * len(first)]

    assert loss(points(plan, SOME, greedy)) > 1.9


def _lifted(clip: bool, monkeypatch) -> float:
    """Largest move of the Gram matrix, in F², of a person whose logged observation is far out."""

    if not clip:
        monkeypatch.setattr(features_module, "quantise", lambda phi, steps: np.trunc(np.asarray(phi) * steps))
    fmap = FeatureMap(64 * np.eye(2, dtype=np.int64)[None], 64 * 64, Fraction(1, 64 * 64))
    far = features_module.quantise(np.array([[600.0, -14.0]]), 64)

    def batches(h, side):
        yield linear_sums.StepRows(far, np.array([0.5]), far[:, None], np.array([False]))

    plan = LinearPlan(LinearDomain("t", "synthetic", 1, 10), LinearTerms(Ask(ONE), variance=False), fmap)
    desk = linear_sums.InteractiveRegression(plan, linear_sums.StreamRows(batches, 2, "synthetic"), Silent(0))
    desk.regression(0, lambda f: np.zeros(f.shape[:-2]), Window(0, 0))
    return float(np.linalg.norm(desk._tables["gram_D_0"].astype(float)) / fmap.square)


def test_features_that_were_not_clipped_are_caught(monkeypatch):
    assert _lifted(True, monkeypatch) <= 1
    assert _lifted(False, monkeypatch) > 1000


def test_the_ball_bounds_every_pair_in_it():
    rng = np.random.default_rng(0)
    F2, G, v = 10_000, Fraction(1, 10**8), Fraction(1, 10**4)
    for signed in (v / 9, v / 2, v, 5 * v):
        bound = float(BallMoves(F2).cost(G, signed, Fraction(0)))
        f, g = rng.normal(size=(2, 200_000, 2))
        f, g = (x / np.linalg.norm(x, axis=1)[:, None] * 100 * rng.random((len(x), 1)) ** 0.1 for x in (f, g))
        inner, n, m = (f * g).sum(1), (f * f).sum(1), (g * g).sum(1)
        got = float(G) * (n**2 + m**2 - 2 * inner**2) + float(signed) * (n + m + 2 * abs(inner))
        assert 0.97 * bound < got.max() <= bound


def test_enumerated_moves_stay_inside_the_ball():
    features = feature_map("normalised")
    for rates in ((1, 0, 0), (0, 1, 0), (1, 30, 0), (1, 0, 30)):
        exact, ball = (r.cost(*map(Fraction, rates)) for r in (moves(features), BallMoves(features.square)))
        assert 0 < exact <= ball


def test_the_one_shot_moves_bound_all_tagged_rows():
    features, tag, reward = random_map(1), 5, 7
    ends = [np.append(tag * np.eye(3)[s], r) for s in range(3) for r in (-reward, 0, reward)]
    rows = [np.zeros(12), *(np.outer(f, x).ravel() for f in features.integers.reshape(-1, 3) for x in ends)]
    assert table_moves(features, tag, reward).cost(Fraction(0), ONE, Fraction(0)) == largest_square(np.array(rows))


def test_the_literal_features_truly_spend_about_23_times_the_nominal_budget():
    domain = LinearDomain("003", "synthetic", 20, 1000)
    for scale, split, spent, near in (
        ("literal", False, 22.53, 0.05),
        ("literal", True, 11.5, 0.1),
        ("normalised", False, 0.50, 0.01),
        ("normalised", True, 0.25, 0.01),
    ):
        terms = LinearTerms(Ask(ONE, calibration="paper"), "paper", halves=split)
        assert float(linear_sums.true_rho(LinearPlan(domain, terms, feature_map(scale)))) == pytest.approx(
            spent, abs=near
        )


def test_a_gram_at_the_papers_noise_costs_two_rho_0_under_replace():
    """By enumeration, and by Monte Carlo of the log likelihood ratio between e1 e1^T and e2 e2^T."""
    features = FeatureMap(np.array([[[1000, 0], [0, 1000]]], dtype=np.int64), 10**6, Fraction(1, 10**6))
    rho_0 = Fraction(1, 20)
    off = int(1 / (4 * rho_0) * 10**12)  # Z_ij ~ N(0, 1/(4 rho_0)), as Algorithm 2 prints it, in lattice steps
    assert moves(features).cost(Fraction(1, 2 * 2 * off), Fraction(0), Fraction(0)) == 2 * rho_0
    drawn = symmetric_noise(SeededNoise(0), 20_000, 2, 2 * off, SimulatedWorld("made up")).astype(float)
    assert drawn[:, 0, 0].var() == pytest.approx(2 * off, rel=0.05)
    assert drawn[:, 0, 1].var() == pytest.approx(off, rel=0.05)
    shift = np.array([10.0**6, -(10.0**6)])
    diagonal = drawn[:, [0, 1], [0, 1]]
    ratio = (((diagonal + shift) ** 2 - diagonal**2) / (2 * 2 * off)).sum(1)
    error = ratio.std() / len(ratio) ** 0.5
    assert abs(ratio.mean() - 2 * float(rho_0)) < 5 * error < 0.5 * float(rho_0)


def test_blocks_of_float_products_give_pythons_integers():
    rng, n, d = np.random.default_rng(0), 3000, 7
    f, y, w = rng.integers(-1000, 1001, (n, d)), rng.integers(-20_000, 20_001, (2, n)), rng.integers(1, 1025, n)
    extent = Extent(n, d * 10**6, 1024, 20_000)
    gram, sums = exact_sums(extent, *(x.astype(np.float64) for x in (f, y, w)))
    f, y, w = (x.astype(object) for x in (f, y, w))
    assert (gram == (f * w[:, None]).T @ f).all() and (sums == (y * w) @ f).all() and gram.dtype == np.int64


def test_blocks_are_short_enough_for_the_worst_rows():
    extent = Extent(10**4, 2**20, 1024, 2**26)
    f = np.full((10_000, 2), 1024 / 2**0.5 // 1)
    y = np.full((1, 10_000), float(2**26))
    gram, sums = exact_sums(extent, f, y, np.full(10_000, 1024.0))
    assert sums[0, 0] == 10_000 * 1024 * 2**26 * 724 and gram[0, 0] == 10_000 * 1024 * 724**2
    assert extent.block * 1024 * 1024 * 2**26 < 2**53


@pytest.mark.parametrize("extent", [(10**9, 2**20, 1024, 2**20), (1, 2**20, 1024, 2**40)])
def test_what_could_leave_the_exact_integers_is_refused_before_any_row(extent):
    with pytest.raises(OverflowError, match="coarser lattice"):
        Extent(*extent)


NONE = Window(0, 1)


def zero(features: np.ndarray) -> np.ndarray:
    return np.zeros(features.shape[:-2])


def plan(rho: Fraction | None = ONE, kind: str = "synthetic", calibration="tight", **terms) -> LinearPlan:
    return LinearPlan(
        LinearDomain("tiny", kind, 3, 100), LinearTerms(Ask(rho, calibration=calibration), **terms), random_map(0)
    )


def rows(kind: str = "synthetic") -> linear_sums.TalliedRows:
    n = np.random.default_rng(0).integers(0, 5, (3, 3, 2, 3))
    return linear_sums.count_rows(plan(), {"both": n}, np.full((3, 3, 2), 0.5), kind)


def test_each_call_is_answered_once_and_in_order():
    desk = linear_sums.InteractiveRegression(plan(), rows(), SeededNoise(0))
    calls = {"regression": desk.regression, "variance": desk.variance}
    # what is answered, and what is refused from then on
    for call, step, refused in (
        ("regression", 2, [("regression", 2), ("regression", 0)]),
        ("variance", 1, [("variance", 1)]),
        ("regression", 1, [("variance", 1)]),
        ("regression", 0, [("regression", 0)]),
    ):
        calls[call](step, zero, NONE)
        for again, at in refused:
            with pytest.raises(MechanismClosedError, match="never answers twice" if step == 2 else None):
                calls[again](at, zero, NONE)
    assert desk.release().rho == 1
    # nothing is asked of the variance half at the last step, or without a plan for it
    for terms, step in (({}, 2), ({"variance": False}, 1)):
        with pytest.raises(MechanismClosedError, match="no variance call"):
            linear_sums.InteractiveRegression(plan(**terms), rows(), SeededNoise(0)).variance(step, zero, NONE)


def test_real_rows_refuse_every_desk_that_is_not_private():
    real = rows("real")
    for refused, noise in ((plan(kind="real"), SeededNoise(0)), (plan(None, "real"), OsNoise()), (plan(), OsNoise())):
        with pytest.raises(RealDataError):
            linear_sums.InteractiveRegression(refused, real, noise)
    long = replace(random_map(0), unit_squared=Fraction(1))
    unfit = LinearPlan(LinearDomain("t", "real", 3, 100), LinearTerms(Ask(ONE, calibration="paper"), "paper"), long)
    with pytest.raises(RealDataError, match="does not give"):
        linear_sums.InteractiveRegression(unfit, real, OsNoise())
    with pytest.raises(RealDataError):
        linear_sums.draw_one_shot(plan(None, "real", variant="one_shot"), real, OsNoise())
    linear_sums.InteractiveRegression(plan(kind="real"), real, OsNoise()).regression(2, zero, NONE)


@pytest.mark.parametrize(
    "ask", [{}, {"halves": True}, {"variant": "paper"}, {"variance": False}, {"variant": "one_shot"}]
)
def test_the_planned_calls_add_up_to_what_was_asked(ask):
    p = plan(**ask)
    calls = list(linear_sums.planned_calls(p))
    halves = {half: sum(Fraction(e["rho"]) for e in calls if e["name"].endswith(f", {half}")) for half in ("D", "D'")}
    assert max(halves.values()) == 1 if p.terms.halves else sum(halves.values()) == 1
    assert all(e["adaptive"] == p.centred for e in calls) or p.terms.variant == "one_shot"


def test_the_planned_calls_of_the_papers_noise_are_charged_what_they_truly_cost():
    terms, features = LinearTerms(Ask(ONE, calibration="paper"), "paper"), linear_003(0, "literal").features
    p = LinearPlan(LinearDomain("003", "synthetic", 20, 500), terms, features)
    alone = sum(Fraction(e["rho"]) for e in linear_sums.planned_calls(p))
    assert linear_sums.true_rho(p) <= alone < 24.2


def test_the_one_shot_release_costs_what_was_asked_and_is_shaped_as_declared():
    w = linear_003(0)
    p = LinearPlan(LinearDomain("003", "synthetic", 20, 500), LinearTerms(Ask(ONE), "one_shot"), w.features)
    counted = linear_sums.count_rows(p, {"both": w.counts(500, np.random.default_rng(0))}, w.mdp.rewards)
    release = linear_sums.draw_one_shot(p, counted, SeededNoise(0))
    assert Fraction(99, 100) < release.rho <= 1
    r = linear_sums.released_statistics(p, release)
    assert r.gram.shape == (20, 10, 10) and r.successors.shape == (20, 2, 10)
    np.testing.assert_array_equal(r.gram, r.gram.transpose(0, 2, 1))


def test_declared_mistakes_are_refused():
    with pytest.raises(ValueError, match="must be positive"):
        plan(Fraction(0))
    with pytest.raises(ValueError, match="its own variant"):
        plan(variant="centred", calibration="paper")
    with pytest.raises(ValueError, match="never negative"):
        LinearPlan(LinearDomain("t", "real", 3, 9, (-1.0, 1.0)), LinearTerms(Ask(ONE), "paper"), random_map(0))
