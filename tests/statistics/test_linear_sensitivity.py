"""The joint loss of the linear desk by enumeration, and deliberately broken twins that the enumeration catches."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import pipeline.mdp.features as features_module
import pipeline.statistics.linear_plan as plan_module
import pipeline.statistics.linear_sums as desk_module
from pipeline.learners.linear_request import linear_request
from pipeline.learners.terms import Privacy, Terms
from pipeline.mdp.features import FeatureMap
from pipeline.online.linear import feature_map
from pipeline.privacy.noise import OsNoise, SeededNoise, SimulatedWorld, symmetric_noise
from pipeline.statistics.ask import Ask
from pipeline.statistics.gram import BallMoves, Moves, moves, table_moves
from pipeline.statistics.linear_plan import GRAM_SHARE, LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.linear_sums import (
    InteractiveRegression,
    Quantiser,
    StepRows,
    StreamRows,
    joining_rho,
    true_rho,
    widest_variance,
)
from pipeline.statistics.regression import Window
from reticent import CardError, load_card
from tests.statistics.linear_people import Silent, loss, people, plan_of, points, random_map, rows_of, script

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


def measured(features: FeatureMap, ask: LinearTerms) -> float:
    return loss(points(plan_of(features, ask), SOME, lambda d: script(d, 0, 1, False)))


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
    assert float(ask.ask.rho) / 4 <= joining_rho(plan) <= ask.ask.rho and found <= joining_rho(plan) * (1 + 1e-9)


@pytest.mark.parametrize("calibration", ["tight", "paper"])
def test_what_joining_costs_is_attained_in_one_step(calibration):
    ask = LinearTerms(Ask(ONE, calibration=calibration), "paper", variance=False, value_steps=1024)
    plan = plan_of(random_map(3), ask, horizon=1)
    everyone = [p for p in people(3, 2, True) if len(p) < 2]
    at = points(plan, everyone, lambda d: script(d, 0, 0, False))
    assert ((at - at[0]) ** 2).sum(1).max() / 2 == pytest.approx(float(joining_rho(plan)), rel=1e-5)


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


@pytest.mark.parametrize("weigh", [True, pytest.param(False, marks=pytest.mark.slow)])
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
    found, claimed = loss(points(plan, everyone, in_second)), float(true_rho(plan))
    assert 0.99 * claimed < found <= claimed if weigh else found <= claimed


def test_a_window_upside_down_is_refused_and_a_weight_that_is_no_number_stays_within_its_bound():
    for low, high in ((1.0, 0.0), (float("nan"), 1.0), (0.0, float("nan"))):
        with pytest.raises(ValueError, match="low <= high"):
            Window(low, high)
    q = Quantiser(64, 0, 64, (0, 64), 0, 16)
    assert q.weights(np.array([np.nan, np.inf, -np.inf, 0.5])).tolist() == [1, 16, 1, 8]


def test_noise_of_twenty_steps_is_drawn_at_a_usual_budget_and_refused_before_a_charge_at_none():
    """The shipped card of observations: its first calls need noise beyond 2^40 at any rho up to 1."""
    card = load_card(Path(__file__).parents[2] / "datasets" / "cartpole" / "card.toml")

    def asked(rho: float) -> LinearPlan:
        return linear_request(card, Terms("a recipe", "dp-vapvi", Privacy(rho=rho)), "vapvi").plan

    plan = asked(0.3)
    assert 2**41 < math.sqrt(widest_variance(plan)) < 2**50
    rows = StreamRows(lambda h, side: iter(()), plan.features.dimension, "synthetic")
    desk = InteractiveRegression(plan, rows, OsNoise())
    for h in reversed(range(plan.domain.horizon)):
        window = Window(*plan.domain.value_range(h + 1))
        if h < plan.domain.horizon - 1:
            desk.variance(h, lambda x: np.zeros(len(x)), window)
        desk.regression(h, lambda x: np.zeros(len(x)), window)
    drawn = desk.release().mechanisms
    assert max(m.variance for m in drawn) == widest_variance(plan)
    with pytest.raises(CardError, match="steps"):
        asked(1e-9)
    assert 2**21 < math.sqrt(widest_variance(replace(plan, terms=replace(plan.terms, variant="one_shot")))) < 2**30


@pytest.mark.parametrize("variant", ["centred", "paper"])
def test_the_extent_covers_weighted_gram_matrices_and_values_far_from_zero(variant):
    long = FeatureMap(np.array([[[2**13, 0]]], dtype=np.int64), 2**26, Fraction(1, 2**26))
    ask = LinearTerms(Ask(ONE), variant, value_steps=1, weight_steps=2**20)
    extent = LinearPlan(LinearDomain("x", "synthetic", 1, 2), ask, long).extent()
    assert extent.block * 2**20 * 2**26 < 2**53
    with pytest.raises(OverflowError):
        LinearPlan(LinearDomain("x", "synthetic", 1, 2**17), ask, long)
    far = LinearDomain("x", "synthetic", 2, 100, bounds=(1000.0, 1001.0))
    assert (
        variant == "centred"
        or LinearPlan(far, LinearTerms(Ask(ONE), variant), feature_map("literal")).extent().target >= 2 * 1001
    )


def _add_remove(features: FeatureMap, episodes: int = 1) -> Moves:
    found = moves(features, episodes)
    return Moves(
        found.squares * np.array([[0], [1], [1]]) + found.squares.max(1)[:, None] // 2 * np.array([[1], [0], [0]])
    )


def _twice(self: InteractiveRegression, h: int, half: str) -> None:
    self._done.append((h, half))


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
        (Quantiser, "values", lambda self, v: np.floor(v * self.lattice).astype(np.int64), GRAM_SHARE, 1.9),
    ],
    ids=["moves", "variance", "window"],
)
def test_twins_lose_more_than_they_claim(monkeypatch, constants, owner, name, twin, share, least):
    monkeypatch.setattr(owner, name, twin)
    constants(gram_share=share)
    assert measured(random_map(3), LinearTerms(Ask(ONE), variance=False, **SMALL)) > least


def test_two_calls_at_one_step_are_caught(monkeypatch):
    monkeypatch.setattr(InteractiveRegression, "_admit", _twice)
    plan = plan_of(random_map(3), LinearTerms(Ask(ONE), variance=False, **SMALL))

    def greedy(desk: InteractiveRegression) -> None:
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
        yield StepRows(far, np.array([0.5]), far[:, None], np.array([False]))

    plan = LinearPlan(LinearDomain("t", "synthetic", 1, 10), LinearTerms(Ask(ONE), variance=False), fmap)
    desk = InteractiveRegression(plan, StreamRows(batches, 2, "synthetic"), Silent())
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
    rows = [np.zeros((3, 4))]
    for f in features.integers.reshape(-1, 3):
        for s in range(3):
            for r in (-reward, 0, reward):
                x = np.append(tag * np.eye(3)[s], r)
                rows.append(np.outer(f, x))
    at = np.array(rows).reshape(len(rows), -1)
    far = ((at[:, None] - at[None]) ** 2).sum(-1).max()
    assert table_moves(features, tag, reward).cost(Fraction(0), ONE, Fraction(0)) == far


def test_the_literal_features_truly_spend_about_23_times_the_nominal_budget():
    domain = LinearDomain("003", "synthetic", 20, 1000)
    found = {
        (scale, split): float(
            true_rho(
                LinearPlan(
                    domain, LinearTerms(Ask(ONE, calibration="paper"), "paper", halves=split), feature_map(scale)
                )
            )
        )
        for scale in ("literal", "normalised")
        for split in (False, True)
    }
    assert found["literal", False] == pytest.approx(22.53, abs=0.05)
    assert found["literal", True] == pytest.approx(11.5, abs=0.1)
    assert found["normalised", False] == pytest.approx(0.50, abs=0.01)
    assert found["normalised", True] == pytest.approx(0.25, abs=0.01)


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
