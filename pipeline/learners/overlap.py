"""Overlap of a policy with practice: what held-out people can contradict, from released sums and no rows.

A row of a held-out person weighs as often as the policy is there more than practice, and this weight is cut.  Beyond
the cut the estimate rests on the model that chose the policy for what it overestimates, and the interval does not know.
Coverage was measured where practice often does what a policy may advise; the limits below are chosen, not measured.
"""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipeline.agents.against_behaviour import as_practised
from pipeline.agents.apvi import model
from pipeline.agents.doubly_robust import MOST_STATE, MOST_STEP, policy_visits, practice_visits
from pipeline.agents.observed_value import fit
from pipeline.agents.pessimism import start_distribution
from pipeline.agents.support import practice
from pipeline.declaration.card import declared_start, task_of
from pipeline.declaration.numbers import number
from pipeline.learners.learner import Learnt
from pipeline.learners.linear_evaluation import LinearEvaluation
from pipeline.learners.observed_evaluation import ObservedEvaluation
from pipeline.learners.one_step_evaluation import OneStepEvaluation
from pipeline.learners.one_step_learning import LearntStep
from pipeline.learners.tabular_evaluation import TabularEvaluation
from pipeline.learners.tabular_facts import LearntCounts
from pipeline.privacy.release import Release
from pipeline.statistics.moment_layout import PEOPLE
from pipeline.statistics.one_step_layout import STEPS

# largest share of the policy's steps beyond the cut of weights
CUT = 0.02
# largest mean square of the weights of a step, on observations
_SQUARE = 12.0
SELDOM = "Practice seldom does what the policy advises"
# largest share of those who follow that are there still at the last of steps that are alike
_STAY = 0.5
# weight of a state at which dp-one-step cuts
_MOST_STATE = 2.5


def beyond(evaluation: object, learnt: Learnt, answers: Release) -> str | None:
    """Sentence on a policy that practice hardly ever follows, or that features do not; or None."""
    if isinstance(evaluation, ObservedEvaluation):
        square = _mean_square(evaluation, answers)
        if square <= _SQUARE:
            return None
        return (
            f"{SELDOM}: the mean square of the weights of a step is "
            f"{number(square, 2)}, and beyond {number(_SQUARE)} no interval is called measured."
        )
    if isinstance(evaluation, LinearEvaluation):
        cut = _cut(evaluation.judge, evaluation.counted(learnt, answers))
    elif isinstance(evaluation, TabularEvaluation) and isinstance(learnt, LearntCounts):
        cut = _cut(evaluation, learnt)
    elif isinstance(evaluation, OneStepEvaluation) and isinstance(learnt, LearntStep):
        d = evaluation.plan.card.domain
        if d.horizon > 1 and d.dynamics == "stationary" and _stays(evaluation, learnt, answers) > _STAY:
            return (
                "More than half of those who follow the policy may be there still at the last declared step, and where "
                "it leads them so far five features of a state do not show. dp-apvi, with steps apart, uses none, and "
                "was measured up to 40 states."
            )
        cut = _cut_states(evaluation, learnt, answers)
    else:
        return None
    if cut <= CUT:
        return None
    unseen = ", or five features of a state do not show where (dp-apvi uses no features)" if is_led(evaluation) else ""
    return (
        f"{SELDOM}, or seldom comes where it leads{unseen}: {number(100 * cut, 2)} % of "
        f"its steps lie beyond the largest weight of a row, and beyond {number(100 * CUT)} % no interval is called "
        "measured."
    )


def is_unweighted(evaluation: object, came: float = 1.0) -> bool:
    """Whether states weigh as in practice, as people are too few for moments of practice.

    ``came``: share of the declared people; asked of fewer, states would.
    """
    if not isinstance(evaluation, OneStepEvaluation) or evaluation.plan.card.domain.horizon == 1:
        return False
    return not replace(evaluation, share=evaluation.share * Fraction(came)).features.practice


def is_led(evaluation: object) -> bool:
    """Whether five features of a state must say where a policy leads.

    One set of them serves all steps and all states, however many: actions that lead to states that these do not tell
    from others are not seen.
    """
    return isinstance(evaluation, OneStepEvaluation) and evaluation.plan.card.domain.horizon > 1


def _stays(evaluation: OneStepEvaluation, learnt: LearntStep, answers: Release) -> float:
    """Share of those who follow that are there still at the last declared step, by released moments; mostly too large.

    No sum counts rows that have a next one, and cut features do not make up a constant: they make f, nearest to it over
    rows, and where states mix, f of a row and of the next are there as often as people stay, times the mean of f.
    """
    card = evaluation.plan.card
    confirmed = evaluation.confirm(evaluation.propose(learnt), answers)
    phi = evaluation.ask_features(confirmed).features / STEPS
    used = np.abs(phi).max(axis=0) > 0
    phi, m = phi[:, used], evaluation.moments(answers).only(used)
    # those of the learning part are of all states, the others of what was proposed
    rows, stay = np.maximum(confirmed.proposal.rows, 0.0), np.linspace(0, 1, 1001)
    root = np.sqrt(rows)
    one = np.linalg.lstsq(phi * root[:, None], root)[0]
    mean = float(rows @ (phi @ one)) / max(float(rows.sum()), 1.0)
    each = float(one @ m.after @ one) / max(float(one @ m.gram @ one) * mean, 1e-300)
    if card.source.columns.next_state is None:
        # a last declared row has no next one, whoever stays
        there = stay ** np.arange(card.domain.horizon)[:, None]
        each = float(np.interp(each, there[1:].sum(0) / there.sum(0), stay))
    return min(max(each, 0.0), 1.0) ** (card.domain.horizon - 1)


def _cut(evaluation: TabularEvaluation, found: LearntCounts) -> float:
    """Share of the policy's steps, in the released model, that the cut takes from the weights."""
    made, planner, policy = found.learnt, evaluation.terms.planner, found.learnt.plan.policy
    m = model(made.prepared.counts, task_of(evaluation.card), made.policy_constants, planner.penalty)
    usual, start = practice(found.release), start_distribution(m.counts, declared_start(evaluation.card))
    mu = as_practised(usual, m.task.allowed, m.task.horizon).probabilities
    pi = policy.beside(mu)
    here, there = policy_visits(m, policy, usual, start), practice_visits(m, usual, start)
    state = np.divide(here, there, out=np.ones_like(here), where=there > 0)[..., None]
    action = np.divide(pi, mu, out=np.zeros_like(pi), where=mu > 0)
    kept = np.minimum(np.minimum(state, MOST_STATE) * action, MOST_STEP)
    steps = here[..., None] * pi
    lost = 1 - np.divide(kept, state * action, out=np.ones_like(kept), where=state * action > 0)
    return float((steps * lost).sum() / max(float(steps.sum()), 1e-300))


def _cut_states(evaluation: OneStepEvaluation, learnt: LearntStep, answers: Release) -> float:
    """Share of the policy's rows whose state has the largest weight."""
    confirmed = evaluation.confirm(evaluation.propose(learnt), answers)
    there, each = evaluation.followers(confirmed, answers.derived["b_weights"])
    # as a release holds them, weights are rounded
    largest = each * np.resize(confirmed.chance, each.shape) > 0.99 * _MOST_STATE
    return float((there * largest).sum()) / max(float(there.sum()), 1e-300)


def _mean_square(evaluation: ObservedEvaluation, answers: Release) -> float:
    """Of the weights of rows, at the step where it is largest."""
    m, people = evaluation.moments(answers), max(1.0, float(answers.tables[PEOPLE][0]))
    weights, episodes = fit(m).weights, evaluation.card.unit.episodes_per_user
    return float(np.einsum("hd,hde,he->h", weights, m.gram, weights).max()) / people / episodes
