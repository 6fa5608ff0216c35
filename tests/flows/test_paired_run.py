"""A run judged beside an earlier one by people who chose neither: its third sum, its price, and what promotes it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from flows.config.home import Home
from flows.config.recipe import load_recipe
from flows.config.setting import Setting
from flows.jobs.promotion import Alias, consider, paired_to_hold
from flows.jobs.run import run_recipe
from pipeline.declaration.card import CardError, load_card
from pipeline.learners.evaluation_terms import Earlier
from pipeline.learners.paired_evaluation import PairedEvaluation
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import open_ledger
from pipeline.logs.score_sums import PairedScores
from pipeline.mdp.policy import Policy
from pipeline.privacy.release_file import read_release
from pipeline.statistics.held_out import held_out_loss
from reports.facts.measurement import IntervalFacts
from reports.facts.report import read_report
from tests.flows.test_held_out_run import HELD, call, shop, told, write
from tests.flows.verb import invoke

__all__ = ["shop"]
RULE = "\n[promote]\n"


@pytest.fixture(scope="module")
def before(shop):
    """The run in use: nobody was held out, so it learnt of everybody."""
    run = call(shop, "run", write(shop, "first", more=""))["run"]
    Alias(shop / "home" / "runs").promote(run)
    return run


@pytest.fixture(scope="module")
def published(shop, before):
    recipe = write(shop, "second", privacy="[privacy]\nrho = 2.0", more=f'{HELD}against = "{before}"\n{RULE}')
    return call(shop, "run", recipe)


def test_people_are_asked_about_both_policies_and_one_charge_pays(shop, before, published):
    found = told(shop, published["run"])["evaluation"]
    assert found["against"]["run"] == before
    other = found["against"]["improvement"]
    assert other["lower"] <= 0 <= other["upper"], "both sell to the warm"
    ledger = open_ledger(Home(shop / "home").root / "ledger.db", create=False)
    intent = [e for e in ledger.entries() if e.kind == "INTENT"][-1]
    assert {m["table"] for m in intent.body["mechanisms"]} >= {"b_sum", "b_b_sum", "b_b_square", "b_b_people"}
    assert Fraction(19, 10) < Fraction(intent.body["rho"]) <= 2
    folder = shop / "home" / "runs" / published["run"]
    release = read_release(folder)
    assert held_out_loss(release.mechanisms, release.joint) == release.joint_rho
    quiet = [replace(m, variance=m.variance // 4) if m.table == "b_b_sum" else m for m in release.mechanisms]
    assert held_out_loss(quiet, release.joint) > release.joint_rho, "a twin with half of the noise"
    done = invoke("--home", shop / "home", "ledger", "verify", published["run"])
    assert done.exit_code == 0, done.output
    page = (folder / "report.md").read_text()
    assert f"Difference to {before}, modelled" in page, "it missed more often than it may at one size"
    assert call(shop, "run", shop / "second.toml")["replayed"]


def test_no_run_takes_the_place_of_one_that_it_is_not_better_than(shop, before, published):
    runs, rule = shop / "home" / "runs", load_recipe(shop / "second.toml").promote
    report = read_report(runs / published["run"])
    said = consider(rule, runs, published["run"], report.value.status, report.verdict)
    assert not said.promoted and Alias(runs).now() == before
    assert any(f"its lower gain over {before}, the run in use" in why for why in said.held)
    low, high = (report.evaluation.against.model_copy(update={"improvement": interval(x)}) for x in (0.0, 0.1))
    assert paired_to_hold(low) and not paired_to_hold(high)


def interval(lower):
    return IntervalFacts(estimate=1.0, lower=lower, upper=2.0)


def test_without_noise_it_is_the_mean_of_the_paired_differences(shop, before):
    recipe = write(shop, "bare", agent="apvi", privacy="", more=f'{HELD}against = "{before}"\n')
    setting = Setting(load_recipe(recipe), load_card(shop / "card.toml"), Home(shop / "home"))
    run = told(shop, call(shop, "run", recipe)["run"])["evaluation"]
    assert isinstance(setting.plan.evaluation, PairedEvaluation)
    # a policy beside itself: every person's difference is 0
    plan = setting.plan.plan
    same = read_release(shop / "home" / "runs" / before)
    learnt = plan.learn(replace(same, mechanisms=plan.privatizer.mechanisms))
    asked = replace(setting.plan.evaluation, earlier=Earlier("itself", learnt.learnt.plan.policy)).both(learnt)
    rows = _rows(shop)
    assert not asked.of(setting.card, rows).any()
    wider = replace(asked.old.clips, spread=2 * asked.old.clips.spread)
    apart = PairedScores(asked.new, replace(asked.old, clips=wider)).of(setting.card, rows)
    assert np.abs(apart).max() < 1e-12, "whatever their clips"
    nothing = Earlier(
        "practice", Policy(np.zeros_like(asked_policy(learnt)), np.ones(asked_policy(learnt).shape[:2], bool))
    )
    gain = replace(setting.plan.evaluation, earlier=nothing).both(learnt)
    paired, alone = gain.of(setting.card, rows) * gain.width, gain.new.of(setting.card, rows)[:, [2]]
    assert paired == pytest.approx(alone * gain.new.clips.widths[2]), "beside practice it is the gain itself"
    assert run["against"]["improvement"]["lower"] <= run["against"]["improvement"]["estimate"]


def asked_policy(learnt):
    return learnt.learnt.plan.policy.probabilities


def _rows(shop):
    import polars as pl

    parts = sorted((shop / "home" / "store" / "shop" / "snapshot-0001").glob("part-*.parquet"))
    return pl.concat([pl.read_parquet(p) for p in parts]).sort("user_id", "episode_id", "step")


def test_another_policy_to_compare_with_is_another_question(shop, before):
    setting = Setting(load_recipe(shop / "second.toml"), load_card(shop / "card.toml"), Home(shop / "home"))
    e = setting.plan.evaluation
    other = replace(e.earlier.policy, abstains=~e.earlier.policy.abstains)
    H, L, A = other.probabilities.shape
    even = Policy(np.full((H, L, A), 1 / A), np.zeros((H, L), dtype=bool))
    assert e.spec() != replace(e, earlier=Earlier(before, even)).spec()
    assert e.spec() == replace(e, earlier=Earlier("another name", e.earlier.policy)).spec()
    with pytest.raises(CardError, match="the card declares"):
        replace(e, earlier=Earlier(before, Policy(even.probabilities[1:], even.abstains[1:])))


@pytest.mark.parametrize(
    ("agent", "more", "why"),
    [
        ("dp-apvi", f'{HELD}against = "nothing"\n', r"no run of this name in .*runs; there are: .*first-\w+"),
        ("dp-one-step", f'{HELD}against = "nothing"\n', "of an agent of counts"),
        ("dp-apvi", '[evaluate]\nagainst = "nothing"\n', "of an agent of counts"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_charged(shop, agent, more, why):
    with pytest.raises((CardError, ValueError), match=why):
        run_recipe(str(write(shop, "wrong", agent=agent, more=more)), Home(shop / "home"))


def test_a_pointer_is_no_run_to_compare_with(shop, before):
    recipe = write(shop, "moving", more=f'{HELD}against = "current"\n')
    with pytest.raises(CardError, match=f"a pointer; name the run itself, now '{before}'"):
        run_recipe(str(recipe), Home(shop / "home"))


@pytest.mark.parametrize(
    ("changed", "error", "why"),
    [
        (lambda told: told["states"].reverse(), CardError, "not those of shop, in this order"),
        (lambda told: told["actions"].reverse(), CardError, "not those of shop, in this order"),
        (lambda told: told.update(elsewhere="nothing"), BudgetError, "was changed|vouches|not the one|policy.json"),
    ],
)
def test_people_are_asked_about_no_policy_that_was_not_published(shop, before, changed, error, why):
    runs = shop / "home" / "runs"
    shutil.copytree(runs / before, runs / "forged", dirs_exist_ok=True)
    told = json.loads((runs / "forged" / "policy.json").read_text())
    changed(told)
    (runs / "forged" / "policy.json").write_text(json.dumps(told))
    ledger = open_ledger(Home(shop / "home").root / "ledger.db", create=False)
    entries = len(ledger.entries())
    with pytest.raises(error, match=why):
        run_recipe(str(write(shop, "forger", more=f'{HELD}against = "forged"\n')), Home(shop / "home"))
    assert len(ledger.entries()) == entries, "nothing was charged"
    shutil.rmtree(runs / "forged")
