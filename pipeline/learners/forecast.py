"""Forecast of a run before anything is spent: a simulated log, release and plan; no row is read.

The world is the one that a synthetic recipe declares in [evaluate], else a surrogate made up from the card.  Any world
is linear in one-hot features; a surrogate need not be linear in others, so there the world must be declared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pipeline.agents.pessimism import constants
from pipeline.arrays import Array
from pipeline.declaration.card import Card, task_of
from pipeline.learners.terms import Known, Terms
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimum
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.worlds import surrogate
from pipeline.worlds.world import barred

if TYPE_CHECKING:
    from pipeline.learners.one_step_evaluation import OneStepEvaluation
    from pipeline.learners.one_step_learning import LearntStep
    from pipeline.statistics.target_plan import Stage, TargetPlan, TargetQuestion

Seed = np.random.SeedSequence


def foresee(
    card: Card,
    terms: Terms,
    seeds: Sequence[int],
    learn: Callable[[surrogate.Logged, Seed, Seed, Seed], Sequence[Policy]],
    reference: Callable[[surrogate.Logged], Policy] = lambda logged: surrogate.evenly(logged.task),
    ball: Array | None = None,
) -> list[surrogate.SimulatedRun]:
    """A run for each seed: ``learn`` gives two policies of one log, with noise and without; ``reference`` needs none.

    ``learn``: its seeds are of the log, the noise and the ties.
    """
    p, task, d = terms.planner, task_of(card), card.domain
    cells, pooled = task.horizon * task.allowed.size, d.dynamics == "stationary"
    c = constants(p.constants, cells, p.failure, pooled=pooled, policy=d.markov)
    declared, mechanisms = None if terms.known is None else _known(card, terms.known), count_sum(card, Ask()).mechanisms
    runs, world, best, reference_gap = list[surrogate.SimulatedRun](), None, 0.0, 0.0
    for seed in seeds:
        of_world, *streams = np.random.SeedSequence((seed,)).spawn(4)
        if declared is None:
            mdp = surrogate.draw_surrogate(card, np.random.default_rng(of_world), ball)
            # practice does nothing vetoed either: the best policy may not
            behaviour = np.full(mdp.shape, 1 / mdp.shape[2])
            behaviour[:, : len(task.allowed)] = surrogate.evenly(task).probabilities
        else:
            mdp, behaviour = declared.mdp, declared.behaviour
        logged = surrogate.Logged(card, task, mdp, behaviour, mechanisms, c, p.penalty, p.failure)
        value_of = logged.value if declared is None else declared.value_of
        if mdp is not world:
            # a declared world is the same for every log
            world, best = mdp, optimum(barred(mdp, task.allowed)) if declared is None else declared.best
            reference_gap = best - value_of(reference(logged))
        policies = learn(logged, *streams)
        private, exact = (best - value_of(p) for p in policies)
        runs.append(surrogate.SimulatedRun(private, exact, reference_gap, best, float(policies[0].abstains.mean())))
    return runs


class _Declared(NamedTuple):
    """The declared world as the card's tables see it, its logging policy, and values of policies in the world.

    Values are not those of the tables' process: there an action that practice never takes leads nowhere and pays
    nothing, while a run that takes it, misled by noise, gets the world's reward.
    """

    mdp: TabularMDP
    behaviour: Array
    value_of: Callable[[Policy], float]
    best: float


def _known(card: Card, declared: Known) -> _Declared:
    from pipeline.worlds.catalog import load_world
    from pipeline.worlds.world import best_value, binned_behaviour, binned_process, true_value

    world, name = load_world(declared.world, card.folder), declared.behaviour
    mdp, behaviour = binned_process(card, world, name), binned_behaviour(card, world, name)
    return _Declared(mdp, behaviour, partial(true_value, card, world, name), best_value(world, card.domain.horizon))


def foresee_one_step(
    plan: TargetPlan,
    terms: Terms,
    episodes: int,
    seeds: Sequence[int],
    held_out_evaluation: tuple[OneStepEvaluation, int] | None = None,
) -> list[surrogate.SimulatedRun]:
    """Simulate a run of a one-step agent for each seed, beside the same without noise on the same log.

    ``plan``: the planned release; its card must be synthetic.
    ``held_out_evaluation``: evaluation that confirms the published policy, and its number of episodes; None: none.
    """
    from pipeline.worlds.simulated_logs import sample_people

    def learn(logged: surrogate.Logged, of_log: Seed, noise: Seed, _: Seed) -> list[Policy]:
        rng = np.random.default_rng(of_log)
        log = sample_people(plan.card, logged.mdp, logged.behaviour, episodes, rng)
        evaluation, people = (None, 0) if held_out_evaluation is None else held_out_evaluation
        held_out = sample_people(plan.card, logged.mdp, logged.behaviour, people, rng) if evaluation else []

        def policy(p: TargetPlan) -> Policy:
            noise_source = SeededNoise(noise)
            learnt = one_step_learnt(p, terms, log, noise_source)
            if evaluation is None:
                return learnt.policy
            return confirmed(replace(evaluation, plan=p), learnt, held_out, noise_source)

        return [policy(p) for p in (plan, replace(plan, ask=Ask(), groups=0))]

    def practice(logged: surrogate.Logged) -> Policy:
        shape = plan.card.domain.horizon, *logged.task.allowed.shape
        return Policy(np.zeros(shape), np.ones(shape[:2], dtype=bool))

    return foresee(plan.card, terms, seeds, learn, practice)


def confirmed(evaluation: OneStepEvaluation, learnt: LearntStep, people: Sequence[Any], noise: SeededNoise) -> Policy:
    """The policy that is published: the part of the proposal that held-out people confirm."""
    from pipeline.learners.one_step_evaluation import FOLLOW
    from pipeline.logs.one_step_sums import FollowQuestion, add_people
    from pipeline.statistics.one_step_layout import FollowLayout

    proposal = evaluation.propose(learnt)
    question = FollowQuestion(FollowLayout(evaluation.plan.card), proposal.action)
    return evaluation.policy(
        evaluation.confirm(proposal, evaluation.sums[FOLLOW].draw(add_people(question, people), noise))
    )


def one_step_learnt(plan: TargetPlan, terms: Terms, people: Sequence[Any], noise: SeededNoise) -> LearntStep:
    """The learnt policy of one simulated run."""
    from pipeline.learners.one_step_learning import drawn_stages, learn_step
    from pipeline.logs.target_sums import add_targets

    def answer(stage: Stage, question: TargetQuestion | None) -> Release:
        return plan.stages[stage].draw(add_targets(plan, question, people), noise)

    return learn_step(plan, terms, drawn_stages(plan, answer))
