"""The answer of a page: what it is decided on, what it certifies, and that page, Markdown and shell say the same."""

import math
from dataclasses import replace
from html import unescape
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from flows.jobs.run import standing
from flows.terminal.screen import plain
from flows.verbs import summary
from pipeline.facts.answers import Left, RunAnswer
from pipeline.facts.learnt import Baseline, Best, Contained, LearntFacts
from pipeline.facts.promise import SimulatedLog
from pipeline.facts.report import verdict_of
from pipeline.facts.verdict import ends_near, missing, round_up
from pipeline.mdp.policy import Policy
from reports.page import percent
from reports.run.answer import OPERATOR, reason, sentence, shell_line
from reports.run.value_sections import half_width
from reticent import Card
from tests.conftest import card_dict
from tests.reports.sample import (
    abstaining,
    card,
    drawn,
    first_screen,
    in_words,
    report_of,
    sample_facts,
    sample_report,
    sample_view,
)
from tests.reports.verdicts import CHANGES, answer_of, decided, evaluation, judged, said

WHOM, COST = "For whom it changes", "What it costs in privacy"
# of the sample: that of its largest table, over the states that an action may lead to
NOISE = 12.884098726725126 * math.sqrt(8)
# conditions of every difference that no operator's word covers
LOOK = "states, actions, score and vetoes were not chosen by what came of choices in this log"
ALONE = "each choice was made for one person alone"
APART = "what is done for one, or comes of it, changes nothing for another"
WHOLE = "no person, outcome or step is missing or there twice"
SAME = "the same comes of a choice on all days"
BEFORE = (
    "each state was recorded before its choice, each action as it was chosen and each outcome alike, whatever was done"
)


@pytest.mark.parametrize("kind", ["real", "synthetic"])
@pytest.mark.parametrize("answer", [*CHANGES, "conditional"])
def test_page_markdown_and_shell_say_the_same_answer(answer, kind):
    report = judged(answer, kind)
    verdict = verdict_of(report)
    said = sentence(verdict)
    line = shell_line(verdict, 5.2216, binned=False)
    assert line.startswith(said) and line.endswith("at ε = 5.222") is (verdict.answer in ("better", "worse"))
    assert verdict.answer == ("better" if answer == "conditional" else answer)
    head = said[0].upper() + said[1:]
    html, text = drawn(report)
    assert f"<h1>{head}</h1>" in html and text.startswith(f"# {head}\n")
    assert reason(verdict, report.evaluation) in text.replace("\\", "")
    # suboptimality, the four cards and the promise stand in the first section
    cards = "For whom it changes", "How sure", "What it costs in privacy", "What next"
    for words in ("suboptimality", *cards, 'id="guarantee"', "<span>Signature</span>"):
        assert words in html.partition("<nav")[0]
    # the operator's check is named once
    assert unescape(html).count(OPERATOR) == text.replace("\\", "").count(OPERATOR) == 1


def test_the_first_screen_says_what_the_best_policy_would_gain_and_whether_that_is_a_guarantee():
    for status, words in {
        None: "gain (suboptimality) is not known.",
        "bound": "would gain at most 0.072 more (suboptimality): it leaves current practice only where",
        "estimate": "would gain at most 0.072 more (suboptimality, an estimate, not a guarantee): it leaves",
    }.items():
        told = status and {"upper": 0.072, "over": "supported_actions", "status": status}
        shown = report_of(judged("better").model_dump() | ({"suboptimality": told} if told else {}))
        assert words in unescape(first_screen(shown)) and words in in_words(shown)
    # a withheld verdict names no gain of another policy
    withheld = judged("withheld").model_copy(update={"suboptimality": shown.suboptimality})
    assert "0.072" not in first_screen(withheld)


def test_what_is_missed_is_the_distance_of_two_ends_and_a_guarantee_only_where_both_are():
    value = judged("better").value.model_copy(update={"lower": 0.7, "upper_trivial": 1.0, "status": "evaluated"})
    best = Best(0.75, measured=True)
    found = missing(best, value)
    assert found is not None and (found.upper, found.status) == (pytest.approx(0.05), "bound")
    modelled = value.model_copy(update={"status": "modelled"})
    for other, worth in ((replace(best, measured=False), value), (best, modelled)):
        assert (told := missing(other, worth)) is not None and told.status == "estimate"
    # two ends that contradict each other say nothing; nothing gains more than there can be
    assert missing(replace(best, upper=0.69), value) is None and missing(None, value) is None
    assert (most := missing(Best(math.inf, measured=False), value)) is not None and most.over == "all_policies"
    assert missing(Best(math.inf, measured=True), value.model_copy(update={"lower_flag": "trivial"})) is None
    assert (most := missing(Best(5.0, measured=False), value)) is not None
    assert most.upper == pytest.approx(0.3) and most.status == "estimate"


def test_an_answer_is_that_of_the_interval():
    data = judged("better").dataset
    for lower, upper, answer in ((0.01, 0.03, "better"), (-0.03, -0.01, "worse"), (-0.01, 0.03, "not_told_apart")):
        found = evaluation(improvement={"estimate": (lower + upper) / 2, "lower": lower, "upper": upper})
        assert decided(found, data, 1.0).answer == answer
    # at 95 % an estimate counts from 2.33 standard errors on, its interval reaches to 1.96
    for estimate, answer in ((0.023, "not_told_apart"), (0.0240, "better"), (-0.0240, "worse")):
        ends = {"estimate": estimate, "lower": estimate - 0.0196, "upper": estimate + 0.0196}
        assert decided(evaluation(improvement=ends), data, 1.0).answer == answer
    assert decided(evaluation(placebo=-4.1), data, 1.0).answer == "withheld"
    assert decided(evaluation(past=4.1), data, 1.0).answer == "withheld"
    assert decided(evaluation(placebo=-3.9), data, 1.0).answer == "better"
    assert decided(evaluation(changes=False, placebo=9.0), data, 1.0).answer == "nothing_changes"
    assert "[evaluate] people" in decided(None, data, 1.0).why


@pytest.mark.parametrize("found", [evaluation(calibrated=False), evaluation()])
def test_what_is_not_certified_never_stands_first_of_real_people(found):
    markov = "declared" if not found.calibrated else "aggregated"
    real, made_up = (decided(found, judged("better", kind, markov).dataset, 1.0) for kind in ("real", "synthetic"))
    assert (real.answer, made_up.answer) == ("withheld", "better")
    for verdict in (real, made_up):
        assert verdict.improvement is not None and verdict.improvement.status == "modelled" and not verdict.holds
    assert "not a guarantee" in answer_of(made_up)
    certified = decided(evaluation(), judged("better").dataset, 1.0, recorded=True)
    assert certified.holds and "guarantee" not in answer_of(certified)


def test_what_hidden_traits_may_have_made_is_better_on_a_condition_only():
    data = judged("better").dataset
    for answer, sign in (("better", 1), ("worse", -1)):
        ends = CHANGES[answer] or {}
        open_ = (evaluation(**ends, hidden=0.07), evaluation(**ends, past=2.1 * sign), evaluation(**ends, reach=0.09))
        for found in open_:
            verdict = decided(found, data)
            # the interval is as sure as before: the condition stands beside it
            assert verdict.answer == answer and verdict.improvement is not None
            assert verdict.improvement.status == "evaluated" and verdict.conditional and not verdict.holds
            told, conditions = answer_of(verdict), f"{BEFORE}, {WHOLE}, {SAME}, {ALONE}, {APART} and {LOOK} (95 %)"
            assert f"if the recorded state explains the choices, {conditions}" in told
            assert "than current practice" not in told
        for found in (evaluation(**ends), evaluation(**ends, past=-2.1 * sign)):
            assert decided(found, data).conditions == [BEFORE, WHOLE, SAME, ALONE, APART, LOOK]
        word = answer_of(decided(evaluation(**ends), data, recorded=True))
        assert word.startswith(f"{answer} than current practice by ")
    # what holds 0 claims nothing that hidden traits could have made
    none = decided(evaluation(**{**OPEN, "hidden": 0.07}), data)
    assert none.answer == "not_told_apart" and not none.conditional
    assert "recorded state" not in answer_of(none) and "trait" not in said(none).partition("## To decide")[0]


def test_an_effect_that_comes_later_and_people_left_out_are_conditions_whoever_chose():
    data = judged("better").dataset
    several = decided(evaluation(), data, recorded=True, course=True)
    assert "by 0.051 to 0.070 if the recorded state explains the outcomes (95 %)" in answer_of(several)
    assert several.conditional and not several.holds and several.above_zero
    # of 30 000 who were to judge
    lost = "of declared people without a usable record are like the others (95 %)"
    for people, words in ((29_500, None), (29_400, f"if the 2 % {lost}"), (24_000, f"if the 20 % {lost}")):
        verdict = decided(evaluation(people=people), data, recorded=True)
        assert verdict.holds == (words is None) and (words or "than current practice") in answer_of(verdict)
    # of 6 000, chance alone leaves out twice as much
    few = data.model_copy(update={"users_public": 20_000})
    assert decided(evaluation(people=5_780), few, recorded=True).holds
    assert not decided(evaluation(people=5_680), few, recorded=True).holds
    again = decided(evaluation(), data.model_copy(update={"episodes_per_user": 3}), recorded=True, course=True)
    words = "if the recorded state explains the outcomes, people come as often whatever is done and comes of it"
    assert f"{words} and no episode of a person changes their later ones (" in answer_of(again) and not again.holds
    alike = decided(evaluation(unweighted=True), data, recorded=True)
    assert "if practice often comes where the policy leads (" in answer_of(alike) and not alike.holds
    led = decided(evaluation(led=True), data, recorded=True)
    assert "if the policy hardly changes which states people come to (" in answer_of(led) and not led.holds
    both = decided(evaluation(people=24_000), data, pays_at_the_end=True, course=True)
    words = f"outcomes, the 20 % of declared people without a usable record are like the others, {BEFORE}"
    rest = f"no other person, outcome or step is missing or there twice, {SAME}, {ALONE}, {APART} and {LOOK} ("
    assert f"{words}, {rest}" in answer_of(both)


def test_what_no_number_shows_to_be_missing_is_a_condition_but_for_simulated_people():
    report, verdict = judged("conditional"), judged("conditional").verdict
    assert verdict is not None
    open_ = ["the recorded state explains the choices", BEFORE, WHOLE, SAME, ALONE, APART, LOOK]
    assert verdict.conditions == open_
    assert "Does what one person gets take anything from another?" in card(report, "What next")[1]
    assert " Rows without an outcome" in card(report, "How sure")[1]
    assert "no number on this page shows how many" in card(report, "How sure")[1]
    counted = verdict.model_copy(update={"left_out": 0.2})
    words = card(report.model_copy(update={"verdict": counted}), "How sure")[1]
    # a fifth of the people is a number
    assert "Other rows without an outcome" in words and " Rows without an outcome" not in words
    simulated = judged("conditional", "synthetic").verdict
    assert simulated is not None and simulated.conditions == ["the recorded state explains the choices"]


def test_episodes_beyond_the_cap_are_a_condition_unless_the_operator_says_there_are_none():
    report = judged("better")
    for word, course, holds in ((None, False, False), (True, False, True), (True, True, False)):
        verdict = decided(evaluation(), report.dataset, recorded=word, course=course, beyond_cap=True)
        assert verdict.returning is (word is None) and verdict.holds is holds
        assert ("people come as often whatever is done" in answer_of(verdict)) is verdict.returning
        assert ("one episode counts, drawn by a hash" in said(verdict)) is verdict.returning


def test_where_model_and_people_disagree_on_practice_the_answer_is_withheld():
    data, value = judged("better").dataset, judged("better").value
    for off, answer in ((0.01, "better"), (-0.01, "better"), (0.05, "withheld"), (-0.05, "withheld")):
        at = 0.6921 + off
        model = value.model_copy(update={"estimate": at, "lower": at - 0.1, "upper": at + 0.1})
        verdict = decided(evaluation(), data, practice=model)
        assert verdict.answer == answer and ("domain.cell_cap" in verdict.why) == (answer == "withheld")


def test_a_condition_says_why_and_how_strong_a_trait_would_have_to_be():
    report = judged("conditional", "synthetic")
    html, text = drawn(report)
    for page in (html, text.replace("\\", "")):
        assert "The card pays at the end of an episode only, so no check on this log can see a trait" in page
        assert (
            "To explain all of this gain, a trait that half of the people have, and that doubles the odds of the "
            "advised action, would have to change the score directly by at least 0.31."
        ) in page
    assert "<h1>Better by 0.051 to 0.070 if the recorded state explains the choices (95 %)</h1>" in html
    for words in ("unchecked", "Confirmed on one condition", "no check on this log can show it", "Ask, then decide"):
        assert words in html
    # nothing is said of a strength that is not known, or where hidden traits are excluded
    unknown = decided(evaluation(strength=None), report.dataset, pays_at_the_end=True)
    for verdict in (unknown, decided(evaluation(), report.dataset)):
        assert "To explain all of" not in said(verdict)


def test_the_word_of_an_operator_is_told_as_his():
    report = judged("better", practice="recorded")
    verdict = decided(evaluation(reach=None, hidden=None), report.dataset, recorded=True)
    page = said(verdict, data=report.dataset)
    assert verdict.holds and "nothing on the log proves it" in page
    assert "| Choices | recorded: the operator declares that" in page


def test_a_verdict_of_before_is_read_as_it_was():
    told = judged("better").model_dump()
    del told["verdict"]["confounding"]
    for key in ("past", "reach", "strength"):
        del told["evaluation"][key]
    old = report_of(told)
    assert old.verdict is not None and old.verdict.holds and old.model_dump() == told
    assert in_words(old).startswith("# Better than current practice by 0.051 to 0.070 (95 %)")


OPEN = CHANGES["not_told_apart"] or {}


def needed_by(found: Any, rho: float = 1.0) -> Any:
    return decided(found, judged("better").dataset, rho).needed


def error_of(found: Any, people: float) -> float:
    return math.sqrt(found.person_variance / people + found.noise_variance * (found.people / people) ** 2)


def test_a_forecast_is_what_a_larger_log_or_budget_would_give():
    found = evaluation(**OPEN)
    needed = needed_by(found)
    assert needed is not None and needed.people is not None and needed.rho is None
    # as many people as that: the half-width leaves four fifths of chance above 0
    people = needed.people * found.share
    then, now = error_of(found, people), error_of(found, found.people)
    # that far from 0 an answer is clear, at 98 %, not only beyond the interval, at 95 %
    deviations = NormalDist().inv_cdf(0.975)
    strict = NormalDist().inv_cdf(0.99) / deviations
    # neither people nor budget make the allowance for bias smaller
    fixed = found.half_width - deviations * now
    assert fixed > 0
    assert strict * (fixed + deviations * then) + 0.84 * then == pytest.approx(found.improvement.estimate, rel=0.03)
    assert needed_by(replace(found, half_width=deviations * now + found.improvement.estimate / strict)) is None
    # where noise is all there is, budget does it
    more = needed_by(evaluation(**{**OPEN, "people": 20_000, "person_variance": 1e-3, "noise_variance": 2e-5}))
    assert more is not None and more.rho is not None and more.rho > 1
    null = {"estimate": 0.0001, "lower": -0.01, "upper": 0.0102}
    assert needed_by(evaluation(improvement=null)) is None


def test_a_forecast_of_a_worse_policy_is_of_its_wider_interval():
    found = evaluation(**OPEN)
    now = error_of(found, found.people)
    chance = NormalDist().inv_cdf((1 + found.level) / 2)
    estimate, part = -6 * now, 0.5

    def half(error: float) -> float:
        plain = found.half_width + chance * (error - now)
        return plain + part * (plain - estimate)

    ends = {"estimate": estimate, "lower": estimate - half(now), "upper": estimate + half(now)}
    worse = evaluation(**{**OPEN, "improvement": ends})
    assert half_width(worse, worse.share) == pytest.approx(half(now))
    # without what is added the difference would be clear, and fewer people needed than there are
    strict = NormalDist().inv_cdf(0.99) / NormalDist().inv_cdf(0.975)
    assert -estimate > found.half_width * strict
    needed = needed_by(worse)
    assert needed is not None and needed.people is not None
    then = error_of(found, needed.people * found.share)
    assert strict * half(then) + 0.84 * then == pytest.approx(-estimate, rel=0.05)


def test_no_forecast_names_people_or_a_budget_beyond_what_was_measured():
    found = evaluation(**{**OPEN, "people": 8000, "person_variance": 0.136})
    # at a larger ρ every verdict of so many judges is withheld
    near, far = needed_by(found, 0.3), needed_by(found)
    assert near is not None and near.people is not None and near.people * found.share > 30_000
    assert far is None or far.people is None
    noisy = {**OPEN, "person_variance": 1e-3, "noise_variance": 2e-5}
    cheap, dear = (needed_by(evaluation(**{**noisy, "people": n}), 0.1) for n in (20_000, 50_000))
    assert cheap is not None and cheap.rho is not None and (dear is None or dear.rho is None)


def test_a_difference_beyond_what_an_episode_can_pay_is_withheld_though_many_steps_might_pay_more():
    report = judged("better")
    found = evaluation(practice={"estimate": 0.97, "lower": 0.965, "upper": 0.975})
    # an end pays once, whatever the number of steps
    data = report.dataset.model_copy(update={"reward_total": None, "horizon": 20})
    for most, answer in ((1.0, "withheld"), (1.1, "better")):
        value = report.value.model_copy(update={"upper_trivial": most})
        assert decided(found, data, value=value).answer == answer


@pytest.mark.parametrize(
    ("changed", "margin"),
    [({}, "0.0075"), ({"noise_variance": 0.0}, "0.0075"), ({"person_variance": 0.0, "noise_variance": 1e-4}, "0.0056")],
)
def test_margins_of_other_splits_follow_from_released_variances(changed, margin):
    """By the root of the number of judges where chance is all there is, by the number where noise is; bias stays."""
    page = in_words(judged("better").model_copy(update={"evaluation": evaluation(**changed)}))
    assert "| Margin with 30 % held out | ± 0.0093 |" in page and f"| Margin with 50 % held out | ± {margin} |" in page


def test_a_bound_in_small_units_is_rounded_up_and_no_interval_has_a_level_of_all():
    assert round_up(4.43e-6) == 4.5e-6 and round_up(3e-11) == 3e-11 and round_up(0.0123) == 0.013
    # of the tenth evaluation of the same people
    level = 1 - 0.05 / (10 * 11)
    assert f"({percent(level)})" == "(> 99.9 %)" and percent(1.0) == "100 %" and percent(0.996, 2) == "> 99 %"
    assert percent(0.1 + 0.2 + 0.7 - 1e-16, 2) == percent(0.9999999999999999) == "100 %"
    late = decided(evaluation(level=level), judged("better").dataset)
    assert "100 %" not in answer_of(late)
    # an interval that lies above 0, but too near it
    near = late.improvement.model_copy(update={"estimate": 0.01, "lower": 1e-5, "upper": 0.02, "level": 0.999996})
    assert "100 %" not in ends_near(near) and "99.99 %" in ends_near(near)


def test_diagnostics_have_a_price_or_are_free():
    page = in_words(judged("better"))
    assert "| effective sample size | 5,210 | free |" in page and "| ρ = 0.02 |" in page
    assert "| Placebo, the course before a choice | z = 0.7 |" in page
    assert "How it was tested" not in in_words(judged("not_evaluated"))


def moved(action: Any, evidence: Any = None, practice: Any = None) -> Any:
    """A policy on two states and two actions, where practice is what the evidence shows."""
    evidence = np.array([[[3000.0, 1000.0], [500.0, 500.0]]]) if evidence is None else evidence
    view = sample_view(len(action), ["a", "b"], ["x", "y"])
    known = evidence / evidence.sum(-1, keepdims=True) if practice is None else practice
    policy = Policy(np.eye(2)[action], np.zeros(action.shape, dtype=bool))
    return replace(view, policy=policy, evidence=evidence, shares=known)


def test_overlap_is_told_by_how_often_states_are_visited():
    view = moved(np.zeros((2, 2), dtype=np.int64), np.array([[[30.0, 10.0], [5.0, 5.0]]]))
    page = in_words(judged("better"), view)
    assert "| Overlap, all states | 70 % |" in page and page.count("| Overlap, ") == 1
    assert "| Overlap, " not in in_words(judged("better"), replace(view, shares=None))
    many = sample_view(2, [f"s{i}" for i in range(12)], ["x", "y"])
    assert in_words(judged("better"), many).count("| Overlap, ") == 3


def test_nothing_finer_than_its_error_is_printed():
    page = in_words(judged("better", "synthetic"))
    assert all(ends in page for ends in ("0.051 to 0.070", "0.733 to 0.763", "0.686 to 0.698"))
    assert not any(fine in page for fine in ("0.0512", "0.0698", "0.7334", "0.7481", "0.6921"))


@pytest.mark.parametrize(("lower", "upper", "side"), [(0.0008, 0.034, "above"), (-0.034, -0.0008, "below")])
def test_an_interval_that_ends_near_0_says_which_one_a_verdict_takes(lower, upper, side):
    found = evaluation()
    gain = replace(found.improvement, estimate=(lower + upper) / 2, lower=lower, upper=upper)
    found, report = replace(found, improvement=gain), judged("better")
    verdict = decided(found, report.dataset, 1.0)
    assert verdict.answer == "not_told_apart"
    words = f"The 95 % interval lies {side} 0, but so near it that chance may have put it there: "
    words += "a verdict takes one at 98 %"
    assert words in verdict.why and f"\n\n{words}" in said(verdict, found)
    assert "\n\nThe 95" not in in_words(judged("not_told_apart"))


def test_a_state_of_several_columns_is_named_whole_on_the_first_screen():
    long = ["4 ≤ pain_score < 6.5 · 40 ≤ walk_minutes < 60", "b"]
    told = replace(abstaining(moved(np.array([[1, 0], [1, 0]])), [[False, True]] * 2), state_labels=long)
    assert f"{long[0]}: · x → y" in unescape(card(judged("better"), WHOM, told)[1])


def test_for_whom_it_changes_counts_the_decisions_that_differ():
    told = abstaining(moved(np.array([[1, 0], [1, 0]])), [[False, True]] * 2)
    answer, words = card(judged("better"), WHOM, told)
    assert answer == "About 60 % of decisions" and words.endswith("- a: · x → y")
    # those who judge, or are reserved, are in no count
    assert "3,000 of 5,000 decisions of those who taught, in 1 of 2 states" in words
    # practice does the same three times of four: a fourth of its decisions change all the same
    mostly = abstaining(moved(np.zeros((2, 2), dtype=np.int64)), told.abstains)
    assert "1,000 of 5,000 decisions" in card(judged("better"), WHOM, mostly)[1]
    never = replace(mostly, shares=np.array([[[1.0, 0.0], [0.5, 0.5]]]))
    answer, words = card(judged("better"), WHOM, never)
    assert answer == "Not known" and "→" not in words
    assert card(judged("nothing_changes"), WHOM, told)[0] == "Nobody"


def test_what_noise_alone_may_count_is_nobodys_decision():
    cells = NOISE / 50 * np.array([[[900.0, 250.0], [500.0, 90.0]]])
    shown = card(sample_report(), WHOM, moved(np.zeros((1, 2), dtype=np.int64), cells))[1]
    assert "About 180 of 1,200 decisions of those who taught, in 1 of 2 states" in shown


def test_what_noise_hides_is_no_part_of_all_decisions_and_abstaining_everywhere_changes_nobody():
    report = sample_report()
    told = moved(np.zeros((1, 2), dtype=np.int64), np.ones((1, 2, 2)), np.array([[[0.2, 0.8], [0.5, 0.5]]]))
    # one cell is clear of noise, and the others have as many decisions together
    some = replace(told, evidence=NOISE * np.array([[[3.0, 8.0], [3.0, 3.0]]]))
    assert card(report, WHOM, some)[0] == "About 100 % of decisions that stand clear of the noise"
    answer, words = card(report, WHOM, replace(told, evidence=NOISE * np.full((1, 2, 2), 3.0)))
    assert answer == "Not known" and "practice takes" not in words
    for known in (told.practice, None):
        silent = replace(abstaining(told, np.ones((1, 2), bool)), shares=known)
        assert card(report, WHOM, silent)[0] == "Nobody"


def test_too_few_people_are_told_how_many_would_do():
    many = judged("not_evaluated").dataset
    assert "[evaluate] people = 0.3" in decided(None, many, 1.0).why
    few = many.model_copy(update={"users_public": 93})
    why = decided(None, few, 1.0).why
    assert "93 people are too few to hold any out: that takes at least 1,700" in why and "[evaluate]" not in why
    assert "takes at least 4,300" in decided(None, few, 0.5, agent="dp-one-step").why


def test_the_first_screen_says_what_is_counted():
    data = judged("better").dataset
    counted = "a step, cut to this range and rounded down to steps of 1 (how many were, only ingest tells), "
    counted += "summed over the first 20 steps of an episode "
    counted += "(cut to 1 in all), 0 after its end"
    survived = {"survived": 1.0, "died": 0.0}
    for changed, words in (
        ({}, f"Score (more is better): rewards of 0 to 1 {counted}."),
        (
            {"episodes_per_user": 3},
            f"Score (more is better): rewards of 0 to 1 {counted}; a person with several counts by their mean.",
        ),
        (
            {"reward_on_entering": survived},
            "the share of people with the end “survived” within 20 steps, from 0 (worst) to 1 (best).",
        ),
        ({"reward_on_entering": survived}, "The difference: 5.1 to 7.0 more of 100."),
        (
            {"reward_on_entering": survived | {"died": -1.0}},
            "Score (more is better): 1 for survived, −1 for died, summed",
        ),
        ({"reward_called": "good seasons"}, f"Score (more is better): good seasons, 0 to 1 {counted}."),
    ):
        report = judged("better").model_copy(update={"dataset": data.model_copy(update=changed)})
        assert words in in_words(report)


@pytest.mark.parametrize(
    ("answer", "next_"),
    [
        ("better", ("Promote it", "reticent promote demo-1a2b3c --card CARD.")),
        ("conditional", ("Ask, then decide", "in a trial.")),
        ("worse", ("Keep current practice", "do not promote it.")),
        ("not_told_apart", ("Get more people", "people instead of 100,000")),
        ("nothing_changes", ("Keep current practice", "may let the policy say more, where practice varies.")),
        ("withheld", ("Keep current practice", "Do not use the estimate.")),
        ("not_evaluated", ("Hold people out", "ask reticent plan, which is free")),
        ("few", ("Get more people", "takes at least 1,700 in all.")),
    ],
)
def test_what_to_do_next_follows_from_the_answer_in_three_lines(answer, next_):
    report = judged("not_evaluated", users_public=93) if answer == "few" else judged(answer)
    found, words = card(report, "What next")
    assert found == next_[0] and next_[1] in words


def test_what_is_established_over_all_decisions_is_not_so_for_a_single_state():
    none = {"known_share": 1.0, "followed_share": 0.5, "apart_share": 0.0, "cells": [(0, 0, 0.5, 0.1, False)]}
    for told, words in (
        ({"practice": none}, "Established over all decisions; for no single state on its own."),
        ({"practice": none | {"apart_share": 0.25}}, "by the released model, for 25 % of the states."),
        ({}, "Established over all decisions; single states were not compared."),
    ):
        shown = report_of(judged("better").model_dump() | told)
        assert words in card(shown, "How sure")[1]
    assert "Established" not in card(judged("not_told_apart"), "How sure")[1]


def test_privacy_is_told_as_odds_and_as_a_test():
    answer, words = card(sample_report(), COST)
    assert answer == "Weak: at most 86 in 100" and "all of it together would be ε = " in words
    odds = "the odds of any guess about that person at most 2,200-fold"
    assert f"{odds} (except with a probability of 1 in 1,000,000)" in words
    assert words.index("attacker") < words.index("-fold") < words.index("ε = 7.676")
    for guarantee, told in (
        ({"pure": True, "rho": None, "epsilon": 1.0, "delta": 0.0}, "Strong: at most 74 in 100"),
        ({"rho": 0.18, "epsilon": 2.95}, "Moderate: "),
        ({"noise": "none"}, "No promise"),
    ):
        assert card(sample_report(guarantee=guarantee), COST)[0].startswith(told)


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
LOG = SimulatedLog(world="swim", behaviour="right", seed=1, episodes=50, sha256="0" * 64)


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
def test_a_bound_is_of_logs_that_were_made_alike(made, status):
    found = standing(learnt(contained=MEASURED), card_of(), made)
    assert found.value.status == status
    measured = "containment: measured, inside in 99 of 100 draws of this very setting"
    assert found.value.assumes == [measured if made == LOG else UNMEASURED]


def test_no_number_is_beyond_what_an_episode_can_pay():
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


def test_what_nobody_measured_is_told_from_what_a_check_speaks_against():
    found, data = evaluation(calibrated=False), judged("better").dataset
    verdict = decided(found, data, 1.0)
    told = said(verdict, evaluation(calibrated=False, outside="Hold out fewer."))
    assert verdict.answer == "withheld" and told.startswith("no calibrated verdict: ") and "Hold out fewer." in told
    assert "By people's scores the difference is 0.051 to 0.070, modelled: not a guarantee." in told
    against = said(decided(evaluation(calibrated=False, placebo=9.0), data, 1.0))
    assert against.startswith("no verdict: the estimate is withheld\n")
    assert "By people's scores" not in against.partition("## ")[0]


def test_bins_say_nothing_about_people_however_many_there_are():
    assert in_words(judged("better", "synthetic", "aggregated")).startswith("# In the binned process, better than")
    binned, declared = (decided(None, judged("better", "real", m).dataset, 1.0).why for m in ("aggregated", "declared"))
    assert "hide part of what was logged" in binned and "hold people out" not in binned
    assert "[evaluate] people" in declared


def test_logged_probabilities_that_do_not_fit_withhold_and_cut_weights_certify_nothing():
    data = judged("better").dataset
    for z, answer in ((4.1, "withheld"), (-4.1, "withheld"), (3.9, "better"), (-1.9, "better")):
        assert decided(evaluation(ratios=z), data, 1.0).answer == answer
    assert "logged probabilities" in decided(evaluation(ratios=-4.1), data, 1.0).why
    cut = decided(evaluation(ratios=-2.1), data, 1.0)
    assert cut.improvement is not None and cut.improvement.status == "modelled" and not cut.holds


def test_features_that_do_not_describe_the_values_withhold():
    data = judged("better").dataset
    for z, answer in ((3.1, "withheld"), (-3.1, "withheld"), (2.9, "better")):
        assert decided(evaluation(misfit=z), data, 1.0).answer == answer
    assert "The features do not describe these values" in decided(evaluation(misfit=-9.0), data, 1.0).why


def test_a_page_whose_judges_were_read_says_who_can_judge():
    report, found = judged("better"), evaluation(judged_before="an earlier release read people who judge here")
    shown = report.model_copy(update={"verdict": decided(found, report.dataset), "evaluation": found})
    assert card(shown, "What next") == (
        "Keep current practice",
        "Who comes in later can judge this policy: [evaluate] since. Or try it in a trial.",
    )


def test_that_features_describe_the_values_is_a_condition_where_nothing_speaks_against_it():
    report = judged("better")
    verdict = decided(evaluation(misfit=0.3), report.dataset, recorded=True)
    shown = report.model_copy(update={"verdict": verdict})
    assert answer_of(verdict) == "better by 0.051 to 0.070 if the declared features describe the values (95 %)"
    assert verdict.above_zero and not verdict.holds
    answer, words = card(shown, "What next")
    assert answer == "Ask, then decide" and words.startswith("Do outcomes follow the numbers in ways")
    assert "twelve directions" in card(shown, "How sure")[1]
    both = decided(evaluation(misfit=0.3), report.dataset, course=True, pays_at_the_end=True)
    assert (
        f"outcomes, the declared features describe the values, {BEFORE}, {WHOLE}, {SAME}, {ALONE}, {APART} and {LOOK} ("
        in answer_of(both)
    )


def beside(answer: str | None, baselines: dict[str, Any], **changes: Any) -> Any:
    told = sample_facts(**changes) if answer is None else judged(answer).model_dump()
    return report_of(told | {"model_baselines": baselines})


def test_a_policy_that_no_model_values_stands_beside_nothing():
    alone = {"this policy": {"lower": 0.0, "estimate": None}}
    assert "By the released model alone" not in in_words(beside("better", alone))
    known = {"uniform": {"estimate": 0.4, "lower": 0.1, "upper": 0.6}}
    assert "By the released model alone" in in_words(beside("better", alone | known))


def test_a_simple_policy_whose_interval_is_the_whole_range_stands_on_no_page():
    """As of 100 000 people at rho 0.1: always 1 was valued 1 (0 to 1), in truth .69."""
    ends = {"lower": 0.0, "upper": 1.0, "lower_flag": "trivial", "upper_flag": "trivial"}
    whole = {"lower": 0.0, "upper": 0.9999999999999999, "lower_trivial": 0.0, "upper_trivial": 1.0}
    constant = {"action": "1", "estimate": 0.987, **whole}
    nothing = {"best constant": constant, "practice": {"estimate": 0.986, **whole}}
    known = {"uniform": {"estimate": 0.41, "lower": 0.2, "upper": 0.6, "lower_trivial": 0.0, "upper_trivial": 1.0}}
    pages = [drawn(beside(None, told, value=ends)) for told in (nothing, nothing | known)]
    for alone, both in zip(*pages, strict=True):
        assert "By the released model alone" not in alone
        assert "By the released model alone" in both and "0.20 to 0.60" in both
        assert not any(told in page for page in (alone, both) for told in ("0.987", "0.986", "0.99", "always 1"))


def test_an_interval_of_held_out_people_is_compared_with_what_comes_of_the_policy_itself():
    told = judged("better", "synthetic")
    assert told.evaluation is not None and told.truth is not None
    inside, outside = told.evaluation.value.estimate, told.evaluation.value.upper + 0.1
    for markov, words in (("declared", "contains"), ("aggregated", "does not contain")):
        report = judged("better", "synthetic", markov)
        truth = told.truth.model_copy(update={"v_policy": inside, "v_policy_model": outside})
        page = in_words(report.model_copy(update={"truth": truth}))
        assert f"The interval {words} the true value" in page
        assert ("in the process that the interval is about" in page) == (markov == "aggregated")


def test_the_shell_names_the_binned_process_as_the_page_does():
    for markov in ("declared", "aggregated"):
        report = judged("better", "synthetic", markov)
        answer = RunAnswer(
            run="shop-1",
            folder="runs/shop-1",
            report="runs/shop-1/report.html",
            replayed=False,
            ledger=Left(spent_rho=1.0, remaining_rho=2.0),
            guarantee=report.guarantee,
            verdict=verdict_of(report),
            value=report.value,
            markov=report.dataset.markov,
        )
        page = in_words(report).partition("\n")[0].removeprefix("# ")
        assert f"{page[0].lower()}{page[1:]}, at ε" in plain(summary(answer))[0]
