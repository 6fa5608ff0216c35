"""The answer of a page: what it is decided on, what it certifies, and that page, Markdown and shell say the same."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from flows.jobs.publish import standing
from pipeline.declaration.card import Card
from reports.facts.dataset import Made
from reports.facts.learnt import Baseline, Contained, LearntFacts
from reports.facts.measurement import EvaluationFacts
from reports.facts.report import Report
from reports.facts.verdict import decide, forecast, stricter
from reports.page import interval
from reports.run.answer import reason, sentence, shell_line, verdict_of
from reports.run.opening import changes, cost_card, whom_card
from reports.run.run_page import render_html, render_markdown
from reports.run.value_sections import half_width, overlaps
from tests.conftest import card_dict
from tests.reports.sample import sample_report, sample_view
from tests.reports.verdicts import CHANGES, evaluation, judged


@pytest.mark.parametrize("kind", ["real", "synthetic"])
@pytest.mark.parametrize("answer", CHANGES)
def test_page_markdown_and_shell_say_the_same_answer(answer: str, kind: str) -> None:
    report = judged(answer, kind)
    verdict = verdict_of(report)
    said = shell_line(verdict, report.guarantee.epsilon, binned=False)
    assert verdict.answer == answer
    head = said[0].upper() + said[1:]
    html, text = (render(report, sample_view()) for render in (render_html, render_markdown))
    assert f"<h1>{head}</h1>" in html and text.startswith(f"# {head}\n")
    assert verdict.why in text.replace("\\", "")
    # suboptimality, the three cards and the promise stand in the first section
    first = html[: html.index("<nav")]
    for words in ("Suboptimality", "For whom it changes", "What it costs in privacy", "Who signs", 'id="guarantee"'):
        assert words in first


def test_an_answer_is_that_of_the_interval() -> None:
    data = judged("better").dataset
    for lower, upper, answer in ((0.01, 0.03, "better"), (-0.03, -0.01, "worse"), (-0.01, 0.03, "not_told_apart")):
        found = evaluation(improvement={"estimate": (lower + upper) / 2, "lower": lower, "upper": upper})
        assert decide(found, data, 1.0).answer == answer
    # at 95 % an estimate counts from 2.33 standard errors on, its interval reaches to 1.96
    for estimate, answer in ((0.023, "not_told_apart"), (0.0240, "better"), (-0.0240, "worse")):
        ends = {"estimate": estimate, "lower": estimate - 0.0196, "upper": estimate + 0.0196}
        assert decide(evaluation(improvement=ends), data, 1.0).answer == answer
    assert decide(evaluation(placebo=-4.1), data, 1.0).answer == "withheld"
    assert decide(evaluation(placebo=-3.9), data, 1.0).answer == "better"
    assert decide(evaluation(changes=False, placebo=9.0), data, 1.0).answer == "nothing_changes"
    assert "[evaluate] people" in decide(None, data, 1.0).why


@pytest.mark.parametrize("found", [evaluation(calibrated=False), evaluation()])
def test_what_is_not_certified_never_stands_first_of_real_people(found: EvaluationFacts) -> None:
    markov = "declared" if not found.calibrated else "aggregated"
    real, made_up = (decide(found, judged("better", kind, markov).dataset, 1.0) for kind in ("real", "synthetic"))
    assert (real.answer, made_up.answer) == ("withheld", "better")
    for verdict in (real, made_up):
        assert verdict.improvement is not None and verdict.improvement.status == "modelled" and not verdict.holds
    assert "not a guarantee" in sentence(made_up)
    certified = decide(evaluation(), judged("better").dataset, 1.0)
    assert certified.holds and "guarantee" not in sentence(certified)


def test_a_difference_that_hidden_state_may_have_made_unseen_is_not_certified() -> None:
    hidden = evaluation(hidden=0.07)
    for answer in ("better", "worse"):
        found = evaluation(hidden=0.07, **(CHANGES[answer] or {}))
        real, made_up = (decide(found, judged("better", kind).dataset, 1.0) for kind in ("real", "synthetic"))
        assert (real.answer, made_up.answer) == ("withheld", answer)
        assert not real.holds and not made_up.holds
        assert "sees too little" in real.why
    # what holds 0 claims nothing that a placebo could speak against
    open_ = decide(evaluation(hidden=0.07, **(CHANGES["not_told_apart"] or {})), judged("better").dataset, 1.0)
    assert open_.answer == "not_told_apart"
    assert open_.improvement is not None and open_.improvement.status == "evaluated"
    # a placebo that leans to the same side speaks against a difference before it withholds the answer
    leaning, away = (evaluation(placebo=z).outweighed for z in (2.1, -2.1))
    assert leaning and not away and not evaluation(placebo=1.9).outweighed
    assert hidden.outweighed and not hidden.certified("declared") and not evaluation(hidden=None).outweighed


def test_bins_say_nothing_about_people() -> None:
    report = judged("better", "synthetic", "aggregated")
    assert "<h1>In the binned process, better than" in render_html(report, sample_view())


def test_a_forecast_is_what_a_larger_log_or_budget_would_give() -> None:
    found = evaluation(**(CHANGES["not_told_apart"] or {}))
    needed = forecast(found, 1.0)
    assert needed is not None and needed.people is not None and needed.rho is None
    # as many people as that: the half-width leaves four fifths of chance above 0
    people = needed.people * found.share
    then = math.sqrt(found.person_variance / people + found.noise_variance * (found.people / people) ** 2)
    now = math.sqrt(found.person_variance / found.people + found.noise_variance)
    # that far from 0 an answer is clear, not only beyond the interval
    factor = float(found.half_width) / now * stricter(found.level)
    assert (factor + 0.84) * then == pytest.approx(found.improvement.estimate, rel=0.03)
    # where noise is all there is, budget does it
    noisy = evaluation(**(CHANGES["not_told_apart"] or {}), person_variance=1e-3, noise_variance=2e-5)
    more = forecast(noisy, 1.0)
    assert more is not None and more.rho is not None and more.rho > 1
    null = {"estimate": 0.0001, "lower": -0.01, "upper": 0.0102}
    assert forecast(evaluation(improvement=null), 1.0) is None


def test_half_widths_of_other_splits_follow_from_released_variances() -> None:
    found = evaluation()
    assert half_width(found, found.share) == pytest.approx((found.improvement.upper - found.improvement.lower) / 2)
    quiet = evaluation(noise_variance=0.0)
    assert half_width(quiet, 1.2) == pytest.approx(half_width(quiet, 0.3) / 2)


def test_diagnostics_have_a_price_or_are_free() -> None:
    page = render_markdown(judged("better"), sample_view())
    assert "| effective sample size | 5,210 | free |" in page and "| ρ = 0.02 |" in page
    assert "Half-width, had 50 % judged" in page and "| Placebo | z = 0.7 |" in page
    assert "How it was judged" not in render_markdown(judged("not_evaluated"), sample_view())


def test_overlap_is_told_by_how_often_states_are_visited() -> None:
    view = sample_view(2, ["a", "b"], ["x", "y"])
    evidence = np.array([[[30.0, 10.0], [5.0, 5.0]]])
    told = replace(view, evidence=evidence, practice=evidence / evidence.sum(-1, keepdims=True))
    told = replace(told, action=np.zeros((2, 2), dtype=np.int64), abstains=np.zeros((2, 2), dtype=bool))
    assert overlaps(told) == [("Overlap, all states", 0.7)]
    assert [share for _, share in overlaps(replace(told, practice=np.full((1, 2, 2), np.nan)))] == []
    many = sample_view(2, [f"s{i}" for i in range(12)], ["x", "y"])
    assert len(overlaps(many)) == 3


def test_nothing_finer_than_its_error_is_printed() -> None:
    page = render_markdown(judged("better", "synthetic"), sample_view())
    for ends in ((0.0512, 0.0698), (0.7334, 0.7626), (0.6868, 0.6974)):
        assert interval(*ends) in page
    assert not any(fine in page for fine in ("0.0512", "0.0698", "0.7334", "0.7481", "0.6921"))


def test_for_whom_it_changes_counts_the_decisions_that_differ() -> None:
    view, better = sample_view(2, ["a", "b"], ["x", "y"]), judged("better")
    evidence = np.array([[[3000.0, 1000.0], [500.0, 500.0]]])
    practice = evidence / evidence.sum(-1, keepdims=True)
    told = replace(view, evidence=evidence, practice=practice, action=np.array([[1, 0], [1, 0]]))
    told = replace(told, abstains=np.array([[False, True]] * 2))
    [change], total = changes(told, 0.0)
    assert (change.run.state, change.usual, change.decisions, total) == (0, 0, 3000.0, 5000.0)
    card = whom_card(better, told, verdict_of(better))
    assert card.answer == "About 60 % of decisions" and card.rows == (("a, step 0–1:", "x → y"),)
    # practice does the same three times of four: a fourth of its decisions change all the same
    mostly = replace(told, action=np.zeros((2, 2), dtype=np.int64))
    [change], _ = changes(mostly, 0.0)
    assert (change.usual, change.decisions) == (1, 1000.0)
    never = replace(mostly, practice=np.array([[[1.0, 0.0], [0.5, 0.5]]]))
    assert changes(never, 0.0)[0] == [] and whom_card(better, never, verdict_of(better)).rows == ()
    silent = whom_card(judged("nothing_changes"), told, verdict_of(judged("nothing_changes")))
    assert silent.answer == "For nobody"


def test_what_noise_alone_may_count_is_nobodys_decision() -> None:
    view = sample_view(1, ["a", "b"], ["x", "y"])
    evidence = np.array([[[900.0, 250.0], [500.0, 90.0]]])
    told = replace(view, evidence=evidence, practice=evidence / evidence.sum(-1, keepdims=True))
    told = replace(told, action=np.zeros((1, 2), dtype=np.int64), abstains=np.zeros((1, 2), dtype=bool))
    [change], total = changes(told, 50.0)
    assert (change.run.state, change.decisions, total) == (0, 250.0, 1650.0)


def test_too_few_people_are_told_how_many_would_do() -> None:
    many = judged("not_evaluated").dataset
    assert "[evaluate] people = 0.3" in decide(None, many, 1.0).why
    few = many.model_copy(update={"users_public": 93})
    why = decide(None, few, 1.0).why
    assert "93 people are too few to hold any out: that takes at least 1,700" in why and "[evaluate]" not in why


def test_the_first_screen_says_what_is_counted() -> None:
    report = judged("better")
    assert "What is counted: rewards of 0 to 1 a step" in render_markdown(report, sample_view())
    paid = report.dataset.model_copy(update={"reward_on_entering": {"survived": 1.0, "died": 0.0}})
    told = report.model_copy(update={"dataset": paid})
    assert "What is counted: 1 for survived, summed" in render_markdown(told, sample_view())


def test_privacy_is_told_as_odds_and_as_a_test() -> None:
    words = " ".join(cost_card(sample_report()).words)
    assert "all of it together would be ε = " in words
    assert "at most 2,200" in words and "right at most 86 times in 100" in words
    pure = sample_report(guarantee={"pure": True, "rho": None, "epsilon": 1.0, "delta": 0.0})
    assert "right at most 74 times in 100" in " ".join(cost_card(pure).words)
    assert cost_card(sample_report(guarantee={"noise": "none"})).answer == "No promise"


def card_of(**tables: object) -> Card:
    return Card.model_validate(card_dict(**tables))


def learnt(**changes: object) -> LearntFacts:
    report = sample_report()
    value = report.value.model_validate(
        {**report.value.parts(), "status": "modelled", "assumes": [UNMEASURED], "upper_trivial": 20.0, "upper": 3.0}
    )
    baselines = {"uniform": Baseline(lower=0.2, upper=4.0, estimate=1.5, lower_trivial=0.0, upper_trivial=20.0)}
    told = LearntFacts(constants=report.constants, value=value, model_baselines=baselines, policy=report.policy)
    return replace(told, **changes)


UNMEASURED = "containment: neither proved nor measured for these constants and this process"
MEASURED = Contained(world="swim", behaviour="right", episodes=50, draws=100, inside=99)
LOG = Made(world="swim", behaviour="right", seed=1, episodes=50, sha256="0" * 64)


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (LOG, "bound"),
        (None, "modelled"),
        (LOG.model_validate(LOG.parts() | {"behaviour": "left"}), "modelled"),
        (LOG.model_validate(LOG.parts() | {"episodes": 49}), "modelled"),
        (LOG.model_validate(LOG.parts() | {"world": "sea"}), "modelled"),
    ],
)
def test_a_bound_is_of_logs_that_were_made_alike(made: Made | None, status: str) -> None:
    found = standing(learnt(contained=MEASURED), card_of(), made)
    assert found.value.status == status
    assert found.value.assumes == (
        ["containment: measured, inside in 99 of 100 draws of this very setting"] if made == LOG else [UNMEASURED]
    )


def test_no_number_is_beyond_what_an_episode_can_pay() -> None:
    card = card_of(reward={"range": [0.0, 1.0], "on_entering": {"end": 1.0}})
    found = standing(learnt(), card, None)
    assert (found.value.upper, found.value.upper_trivial, found.value.lower) == (1.0, 1.0, 0.66123)
    uniform = found.model_baselines["uniform"]
    assert (uniform.upper, uniform.estimate, uniform.lower) == (1.0, 1.0, 0.2)
    far = evaluation(value={"estimate": 0.9, "lower": 0.7, "upper": 1.4})
    judged_value = standing(learnt(evaluation=far), card, None)
    assert judged_value.value.upper == 1.0 and judged_value.value.status == "evaluated"
    assert judged_value.model_baselines["this policy"].upper == 1.0
    # a live state that pays may be entered again and again
    again = card_of(reward={"range": [0.0, 1.0], "on_entering": {"end": 1.0, "y": 0.1}})
    assert standing(learnt(), again, None).value.upper == 3.0


def test_what_nobody_measured_is_told_from_what_a_check_speaks_against() -> None:
    found = evaluation(calibrated=False)
    report = judged("better", "real")
    verdict = decide(found, report.dataset, 1.0)
    assert verdict.answer == "withheld" and sentence(verdict).startswith("no calibrated verdict: ")
    said = interval(found.improvement.lower, found.improvement.upper)
    assert f"By the model alone the difference is {said}, modelled: not a guarantee." in reason(verdict)
    against = decide(evaluation(calibrated=False, placebo=9.0), report.dataset, 1.0)
    assert sentence(against) == "no verdict: the estimate is withheld" and "By the model alone" not in reason(against)


def test_no_number_of_people_makes_bins_tell_of_people() -> None:
    binned, declared = (decide(None, judged("better", "real", m).dataset, 1.0).why for m in ("aggregated", "declared"))
    assert "hide part of what was logged" in binned and "hold people out" not in binned
    assert "[evaluate] people" in declared


def test_logged_probabilities_that_do_not_fit_withhold_and_cut_weights_certify_nothing() -> None:
    data = judged("better").dataset
    for z, answer in ((4.1, "withheld"), (-4.1, "withheld"), (3.9, "better"), (-1.9, "better")):
        assert decide(evaluation(ratios=z), data, 1.0).answer == answer
    assert "logged probabilities" in decide(evaluation(ratios=-4.1), data, 1.0).why
    cut = decide(evaluation(ratios=-2.1), data, 1.0)
    assert cut.improvement is not None and cut.improvement.status == "modelled" and not cut.holds


def test_a_policy_that_no_model_values_stands_beside_nothing() -> None:
    report = judged("better")
    alone = replace_baselines(report, {"this policy": Baseline(lower=0.0, estimate=None)})
    assert "Simple policies" not in render_markdown(alone, sample_view())
    beside = {
        "this policy": Baseline(lower=0.0, estimate=None),
        "uniform": Baseline(estimate=0.4, lower=0.1, upper=0.6),
    }
    assert "Simple policies" in render_markdown(replace_baselines(report, beside), sample_view())


def replace_baselines(report: Report, beside: dict[str, Baseline]) -> Report:
    return report.model_copy(update={"model_baselines": beside})
