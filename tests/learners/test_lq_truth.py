"""What is said to be true of a controller, and what the released model says of it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from pipeline.declaration.card import CardError, load_any_card, require_linear_quadratic
from pipeline.environments.lq_systems import Controller, double_integrator, simulate
from pipeline.learners.lq_learning import LqRequest, learn_lq, least_value, lq_request, lq_truth
from pipeline.learners.terms import Lq
from pipeline.privacy.noise import RealDataError, SeededNoise
from pipeline.statistics.lq_moments import draw_lq
from pipeline.statistics.lq_rows import Episodes, SimulatedRows

SHELF = Path(__file__).resolve().parent.parent.parent / "datasets"


def request_of(rho: Fraction | None = None) -> LqRequest:
    card = require_linear_quadratic(load_any_card(SHELF / "double_integrator" / "card.toml"))
    return lq_request(card, "dp-lqr", rho, Lq())


def learnt(request: LqRequest, episodes: int = 2000):
    world = double_integrator()
    x, u = simulate(world, Controller(world.zero_gains(), 1.0), episodes, np.random.default_rng(1))
    rows = SimulatedRows((Episodes(x, u, np.full(episodes, 20)),))
    return learn_lq(request, draw_lq(request.plan, rows, SeededNoise(0)))


def test_true_values_are_in_the_order_that_they_must_have():
    truth = lq_truth(request_of(), "double-integrator", "sphere", learnt(request_of()).result.gains)
    assert truth["v_star"] >= truth["v_policy"] == truth["v_policy_model"] > truth["v_zero"] > truth["v_behavior"]
    assert truth["v_star"] >= truth["v_certainty"] > truth["v_fixed_gain"] > truth["v_zero"]
    assert truth["suboptimality"] == truth["v_star"] - truth["v_policy"]
    assert truth["v_star"] == pytest.approx(-1.38823, abs=1e-5)
    zero = lq_truth(request_of(), "double-integrator", "zero", double_integrator().zero_gains())
    assert zero["v_policy"] == zero["v_zero"] == zero["v_behavior"]


def test_without_noise_the_estimate_is_nearly_the_truth_and_the_declared_balls_bound_it():
    request = request_of()
    found = learnt(request)
    world = double_integrator()
    assert found.value["estimate"] == pytest.approx(-world.expected_cost(found.result.gains), rel=0.02)
    assert found.baselines["zero"]["estimate"] < found.value["estimate"] < 0
    assert least_value(request.card) == pytest.approx(-20 * (1 + 0.2)) == found.value["lower"]
    assert found.left_zero and found.floor == 0 and len(found.directions) == 3


def test_hopeless_noise_leaves_directions_untrusted_and_says_so():
    found = learnt(request_of(Fraction(1, 10**6)), 50)
    assert found.result.raised > 0 and min(found.directions) < found.floor


def test_a_release_on_other_terms_is_refused():
    request = request_of(Fraction(1))
    world = double_integrator()
    x, u = simulate(world, Controller(world.zero_gains(), 1.0), 10, np.random.default_rng(1))
    release = draw_lq(request.plan, SimulatedRows((Episodes(x, u, np.full(10, 20)),)), SeededNoise(0))
    other = lq_request(request.card, "dp-lqr", Fraction(1), Lq(cut=(1.0, 1.0)))
    with pytest.raises(ValueError, match="on other terms"):
        learn_lq(other, release)


def test_real_people_are_refused_without_a_budget():
    card = request_of().card
    budget = card.budget.model_copy(update={"ledger": "ledger.db"})
    real = card.model_copy(update={"kind": "real", "budget": budget})
    with pytest.raises(RealDataError, match="ask for a finite budget"):
        lq_request(real, "lqr", None, Lq())


def test_another_plant_is_not_called_true():
    request = request_of()
    with pytest.raises(CardError, match="is not that of the world"):
        lq_truth(request, "lq-5", "sphere", double_integrator().zero_gains())
    cost = request.card.cost.model_copy(update={"R": [0.3]})
    with pytest.raises(CardError, match=r"cost\.R is not that"):
        changed = replace(request, card=request.card.model_copy(update={"cost": cost}))
        lq_truth(changed, "double-integrator", "sphere", double_integrator().zero_gains())


def test_the_floor_is_the_noise_in_units_of_the_balls_whatever_the_lattice():
    """An entry off the diagonal is half the sum of two draws: its deviation is that of one over root 2."""
    card = request_of().card
    d = request_of().plan.domain.dimension
    for steps in (1024, 4096):
        request = lq_request(card, "dp-lqr", Fraction(1), Lq(steps=steps))
        sd = request.plan.summed.mechanisms[0].standard_deviation
        assert request.floor**2 == pytest.approx(request.constants.floor**2 * d * sd**2 / 2 / float(steps) ** 4)
    assert request_of().floor == 0
