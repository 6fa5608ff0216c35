"""What a learner asks and what it costs, against the definition of each number; no row is read."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pipeline.learners.tabular_learning as learning
from flows.config.recipe import setting
from pipeline.declaration.card import CardError, load_any_card
from pipeline.learners.learner import find, plan_run, typeable
from pipeline.learners.linear_request import LinearRequest, learn_linear
from pipeline.learners.tabular import TabularRun
from pipeline.learners.terms import Evaluate, Privacy, Terms
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics.linear_sums import released_statistics
from tests.flows.shop import lay_out
from tests.jobs import home_at
from tests.learners import linear_shop
from tests.learners.linear_shop import lay_out_linear


def linear_run(folder: Path, name: str) -> LinearRequest:
    plan = setting(str(lay_out_linear(folder) / f"{name}.toml"), home_at(folder / "home")).plan
    assert isinstance(plan, LinearRequest)
    return plan


def test_a_typeable_budget_has_six_digits_and_is_never_more():
    assert typeable(0.123456789) == 0.123456
    assert typeable(2 / 3) == 0.666666
    assert typeable(1234567.0) == 1234560.0


@pytest.mark.parametrize(
    ("agent", "privacy", "says"),
    [
        ("dp-apvi", {"calibration": "paper"}, "needs release = 'two_tables'"),
        ("dp-one-step", {"calibration": "paper"}, "one release, tight"),
        ("dp-one-step", {"release": "two_tables"}, "one release, tight"),
    ],
)
def test_what_no_paper_prints_is_refused(agent, privacy, says):
    learner = find(agent).learner
    learner.check(Terms("here", agent, Privacy(rho=1.0)))
    with pytest.raises(ValueError, match=says):
        learner.check(Terms("here", agent, Privacy.model_validate({"rho": 1.0} | privacy)))


@pytest.mark.parametrize("agent", ["dp-apvi", "dp-vapvi", "dp-one-shot"])
def test_a_budget_too_small_for_an_evaluation_is_refused_and_no_fault_of_the_program(tmp_path, agent):
    folder = lay_out_linear(tmp_path)
    card = load_any_card(folder / "card.toml")
    terms = Terms("here", agent, Privacy(rho=1e-15), evaluate=Evaluate(people=0.4))
    unit = card.unit.model_copy(update={"users_public": 5000})
    with pytest.raises(CardError, match=r"here: \[evaluate\] people = 0\.4: .*noise leaves 64-bit"):
        plan_run(card.model_copy(update={"unit": unit}), terms)


def test_what_fits_a_pure_recipe_is_all_that_is_left(tmp_path):
    """A loss of ε costs ε²/2 in zCDP: 2 are left, so ε = 2 fits and no more."""
    plan = setting(str(lay_out(tmp_path) / "pure.toml"), home_at(tmp_path / "home")).plan
    found = plan.fitting(Fraction(2))
    assert found is not None and found["epsilon"] == pytest.approx(2.0, rel=1e-5)


def test_nothing_is_published_where_two_solvers_disagree(tmp_path, monkeypatch):
    plan = setting(str(lay_out(tmp_path) / "private.toml"), home_at(tmp_path / "home")).plan
    assert isinstance(plan, TabularRun)
    proof = SimpleNamespace(holds=False, largest_relative_difference=0.5, tolerance=1e-6)
    monkeypatch.setattr(learning, "prepare", lambda *_: SimpleNamespace(certify=lambda: proof, counts=None))
    tables = {m.table: np.zeros(m.shape, np.int64) for m in plan.privatizer.mechanisms}
    release = Release("shop", "synthetic", "per_step", plan.privatizer.mechanisms, tables, "seeded", "seeded")
    with pytest.raises(RuntimeError, match="nothing is published"):
        plan.learn(release)


def test_the_first_states_cost_their_share_to_the_last_integer(tmp_path):
    request = linear_run(tmp_path, "once")
    (first,), share = request.start.mechanisms, request.start_rho
    assert first is not None and first.rho is not None and first.variance is not None and share is not None
    assert first.rho <= share < first.rho * Fraction(first.variance, first.variance - 1)


def test_an_audit_attacks_at_most_two_steps(tmp_path, monkeypatch):
    plan, seen = linear_run(tmp_path, "linear"), list[int]()
    monkeypatch.setattr("pipeline.audits.tables.linear_target", lambda p: seen.append(p.domain.horizon))
    assert plan.plan.domain.horizon == 3
    plan.targets(SeededNoise(0))
    assert seen == [2]


def test_a_log_of_nothing_has_half_the_evidence_that_speaks(tmp_path, monkeypatch):
    """Zero sums leave ridge and shift in every direction, short or long; twice of both is asked of a state."""
    monkeypatch.setattr(linear_shop, "FEATURES", linear_shop.FEATURES.replace("[1, 1]", "[2, 1]"))
    request = linear_run(tmp_path, "once")
    mechanisms = request.mechanisms()
    assert mechanisms is not None
    tables = {m.table: np.zeros(m.shape, np.int64) for m in mechanisms}
    release = Release("shop", "synthetic", "per_step", mechanisms, tables, "seeded", "seeded", joint_rho=request.rho)
    learnt = learn_linear(request, release)
    task, backup = request.task, learnt.result.backups[0]
    assert ((task.reference * task.unit) ** 2).sum(-1).min() < 0.5, "some features are so short that they once spoke"
    np.testing.assert_allclose(backup.evidence(task.reference), learnt.threshold / 2)
    assert learnt.policy.abstains.all()
    assert backup.evidence(np.zeros((1, task.dimension))) == 0


def test_one_shot_statistics_say_what_noise_is_in_them(tmp_path):
    """Tables of noise alone: their spread is the stated one, and rewards are read off the last row."""
    request = linear_run(tmp_path, "once")
    mechanisms, rng = request.mechanisms(), np.random.default_rng(0)
    assert mechanisms is not None
    tables = {m.table: np.rint(rng.normal(0, m.standard_deviation, m.shape)).astype(np.int64) for m in mechanisms}
    assert request.plan.features.unit < 0.8
    found = released_statistics(request.plan, Release("shop", "synthetic", "per_step", mechanisms, tables, "s", "s"))
    assert found.successors.std() == pytest.approx(found.successor_sd, rel=0.3)
    assert found.rewards.std() == pytest.approx(found.reward_sd, rel=0.3)
    tables["target"][:, -1] = 0
    again = released_statistics(request.plan, Release("shop", "synthetic", "per_step", mechanisms, tables, "s", "s"))
    assert not again.rewards.any() and again.successors.any()
