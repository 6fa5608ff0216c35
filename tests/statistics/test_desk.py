"""The desk answers each call of its plan once, is charged once before that, and real data gets real noise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipeline.online.linear import linear_003
from pipeline.privacy.noise import OsNoise, RealDataError, SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.linear_sums import (
    InteractiveRegression,
    TalliedRows,
    count_rows,
    draw_one_shot,
    planned_calls,
    released_statistics,
    true_rho,
)
from pipeline.statistics.regression import MechanismClosedError, Window
from tests.statistics.linear_people import random_map

ONE, NONE = Fraction(1), Window(0, 1)


def zero(features: np.ndarray) -> np.ndarray:
    return np.zeros(features.shape[:-2])


def plan(rho: Fraction | None = ONE, kind: str = "synthetic", calibration="tight", **terms) -> LinearPlan:
    return LinearPlan(
        LinearDomain("tiny", kind, 3, 100), LinearTerms(Ask(rho, calibration=calibration), **terms), random_map(0)
    )


def rows(kind: str = "synthetic") -> TalliedRows:
    n = np.random.default_rng(0).integers(0, 5, (3, 3, 2, 3))
    return count_rows(plan(), {"both": n}, np.full((3, 3, 2), 0.5), kind)


def test_each_call_is_answered_once_and_in_order():
    desk = InteractiveRegression(plan(), rows(), SeededNoise(0))
    desk.regression(2, zero, NONE)
    for call in (lambda: desk.regression(2, zero, NONE), lambda: desk.regression(0, zero, NONE)):
        with pytest.raises(MechanismClosedError, match="never answers twice"):
            call()
    desk.variance(1, zero, NONE)
    with pytest.raises(MechanismClosedError):
        desk.variance(1, zero, NONE)
    desk.regression(1, zero, NONE)
    with pytest.raises(MechanismClosedError):
        desk.variance(1, zero, NONE)
    desk.regression(0, zero, NONE)
    with pytest.raises(MechanismClosedError):
        desk.regression(0, zero, NONE)
    assert desk.release().rho == 1
    # nothing is asked of the variance half at the last step, or without a plan for it
    for terms, step in (({}, 2), ({"variance": False}, 1)):
        with pytest.raises(MechanismClosedError, match="no variance call"):
            InteractiveRegression(plan(**terms), rows(), SeededNoise(0)).variance(step, zero, NONE)


def test_real_rows_refuse_every_desk_that_is_not_private():
    real = rows("real")
    with pytest.raises(RealDataError):
        InteractiveRegression(plan(kind="real"), real, SeededNoise(0))
    with pytest.raises(RealDataError):
        InteractiveRegression(plan(None, "real"), real, OsNoise())
    with pytest.raises(RealDataError):
        InteractiveRegression(plan(), real, OsNoise())
    long = replace(random_map(0), unit_squared=Fraction(1))
    unfit = LinearPlan(LinearDomain("t", "real", 3, 100), LinearTerms(Ask(ONE, calibration="paper"), "paper"), long)
    with pytest.raises(RealDataError, match="does not give"):
        InteractiveRegression(unfit, real, OsNoise())
    with pytest.raises(RealDataError):
        draw_one_shot(plan(None, "real", variant="one_shot"), real, OsNoise())
    InteractiveRegression(plan(kind="real"), real, OsNoise()).regression(2, zero, NONE)


@pytest.mark.parametrize(
    "ask", [{}, {"halves": True}, {"variant": "paper"}, {"variance": False}, {"variant": "one_shot"}]
)
def test_the_planned_calls_add_up_to_what_was_asked(ask):
    p = plan(**ask)
    calls = list(planned_calls(p))
    halves = {half: sum(Fraction(e["rho"]) for e in calls if e["name"].endswith(f", {half}")) for half in ("D", "D'")}
    assert max(halves.values()) == 1 if p.terms.halves else sum(halves.values()) == 1
    assert all(e["adaptive"] == p.centred for e in calls) or p.terms.variant == "one_shot"


def test_the_planned_calls_of_the_papers_noise_are_charged_what_they_truly_cost():
    w = linear_003(0, "literal")
    p = LinearPlan(
        LinearDomain("003", "synthetic", 20, 500), LinearTerms(Ask(ONE, calibration="paper"), "paper"), w.features
    )
    alone = sum(Fraction(e["rho"]) for e in planned_calls(p))
    assert true_rho(p) <= alone < 24.2


def test_the_one_shot_release_costs_what_was_asked_and_is_shaped_as_declared():
    w = linear_003(0)
    p = LinearPlan(LinearDomain("003", "synthetic", 20, 500), LinearTerms(Ask(ONE), "one_shot"), w.features)
    release = draw_one_shot(
        p, count_rows(p, {"both": w.counts(500, np.random.default_rng(0))}, w.mdp.rewards), SeededNoise(0)
    )
    assert Fraction(99, 100) < release.rho <= 1
    r = released_statistics(p, release)
    assert r.gram.shape == (20, 10, 10) and r.successors.shape == (20, 2, 10)
    np.testing.assert_array_equal(r.gram, r.gram.transpose(0, 2, 1))


def test_declared_mistakes_are_refused():
    for message, make in (
        ("must be positive", lambda: plan(Fraction(0))),
        ("its own variant", lambda: plan(variant="centred", calibration="paper")),
        (
            "never negative",
            lambda: LinearPlan(
                LinearDomain("t", "real", 3, 9, (-1.0, 1.0)), LinearTerms(Ask(ONE), "paper"), random_map(0)
            ),
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make()
