"""What is said to be true of a controller, and what the released model says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.declaration.card import load_any_card, require_linear_quadratic
from pipeline.learners.lq import LqLearner, LqRun, least_value, lq_truth
from pipeline.learners.terms import Lq, Privacy, Terms
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.noise import RealDataError, SeededNoise
from pipeline.statistics.lq import draw_lq
from pipeline.worlds.plants import Controller, double_integrator, simulate
from reticent import CardError, LqCard

SHELF = Path(__file__).resolve().parent.parent.parent / "datasets"


def run_of(rho: float | None = None, card: LqCard | None = None, **chosen: Any) -> LqRun:
    card = card or require_linear_quadratic(load_any_card(SHELF / "double_integrator" / "card.toml"))
    agent, privacy = ("lqr", None) if rho is None else ("dp-lqr", Privacy(rho=rho))
    return LqLearner().plan(card, Terms("here", agent, privacy, lq=Lq(**chosen)))


def learnt(run: LqRun, episodes: int = 2000):
    world = double_integrator()
    x, u = simulate(world, Controller(world.zero_gains(), 1.0), episodes, np.random.default_rng(1))
    return run.learn(draw_lq(run.summed, [LqBatch(x, u, episodes)], SeededNoise(0)))


@pytest.mark.slow
def test_true_values_are_in_the_order_that_they_must_have():
    truth = lq_truth(run_of(), "double-integrator", "sphere", learnt(run_of()).result.gains)
    assert truth.v_star >= truth.v_policy == truth.v_policy_model > truth.v_zero > truth.v_behavior
    assert truth.v_star >= truth.v_certainty > truth.v_fixed_gain > truth.v_zero
    assert truth.suboptimality == truth.v_star - truth.v_policy
    assert truth.v_star == pytest.approx(-1.38823, abs=1e-5)
    zero = lq_truth(run_of(), "double-integrator", "zero", double_integrator().zero_gains())
    assert zero.v_policy == zero.v_zero == zero.v_behavior


def test_without_noise_the_estimate_is_nearly_the_truth_and_the_declared_balls_bound_it():
    run = run_of()
    found, world = learnt(run), double_integrator()
    told = found.facts()
    assert told.value.estimate == pytest.approx(-world.expected_cost(found.result.gains), rel=0.02)
    assert told.model_baselines["zero"].estimate < told.value.estimate < 0
    assert least_value(run.card) == pytest.approx(-20 * (1 + 0.2)) == told.value.lower
    assert told.policy.left_zero and run.floor == 0 and len(found.directions) == 3


def test_hopeless_noise_leaves_directions_untrusted_and_says_so():
    found = learnt(run_of(1e-6), 50)
    assert found.result.raised > 0 and min(found.directions) < found.run.floor


def test_a_release_on_other_terms_is_refused():
    run = run_of(1.0)
    world = double_integrator()
    x, u = simulate(world, Controller(world.zero_gains(), 1.0), 10, np.random.default_rng(1))
    release = draw_lq(run.summed, [LqBatch(x, u, 10)], SeededNoise(0))
    other = run_of(1.0, cut=(1.0, 1.0))
    with pytest.raises(ValueError, match="on other terms"):
        other.learn(release)


def test_real_people_are_refused_without_a_budget():
    card = run_of().card
    budget = card.budget.model_copy(update={"ledger": "ledger.db"})
    real = card.model_copy(update={"kind": "real", "budget": budget})
    with pytest.raises(RealDataError, match="ask for a finite budget"):
        run_of(card=real)


def test_another_plant_is_not_called_true():
    run = run_of()
    with pytest.raises(CardError, match="is not that of the world"):
        lq_truth(run, "lq-5", "sphere", double_integrator().zero_gains())
    cost = run.card.cost.model_copy(update={"R": [0.3]})
    with pytest.raises(CardError, match=r"cost\.R is not that"):
        changed = replace(run, card=run.card.model_copy(update={"cost": cost}))
        lq_truth(changed, "double-integrator", "sphere", double_integrator().zero_gains())


def test_the_floor_is_the_noise_in_units_of_the_balls_whatever_the_lattice():
    """An entry off the diagonal is half the sum of two draws: its deviation is that of one over root 2."""
    d = run_of().layout.dimension
    for steps in (1024, 4096):
        run = run_of(1.0, steps=steps)
        sd = run.summed.mechanisms[0].standard_deviation
        assert run.floor**2 == pytest.approx(run.constants.floor**2 * d * sd**2 / 2 / float(steps) ** 4)
    assert run_of().floor == 0
