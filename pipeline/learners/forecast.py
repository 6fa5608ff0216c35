"""What quality to expect of a run before anything is spent: a log, a release and a plan, simulated; no row is read.

The world is the one that a synthetic recipe declares in [evaluate], else a surrogate made up from the card.  Any world
is linear in one-hot features; in others a surrogate would be nobody's, so there the world must be declared.  A card
declares no A and B, so that without a declared plant there is none to simulate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.apvi import CountsPlanner
from pipeline.agents.dp_lqr import certainty_equivalence
from pipeline.agents.pessimism import constants
from pipeline.declaration.card import Card, task_of
from pipeline.environments.lq_catalog import check_world, explorer, load_lq_world
from pipeline.environments.lq_systems import simulate
from pipeline.environments.worlds import load_world
from pipeline.evaluation.exact import binned_behaviour, binned_process
from pipeline.learners.evaluation_terms import Known
from pipeline.learners.linear_learning import drawn, plan_linear
from pipeline.learners.linear_request import LinearRequest
from pipeline.learners.lq_learning import LqRequest
from pipeline.learners.one_step_learning import learn_step, next_question
from pipeline.learners.terms import Terms
from pipeline.logs.target_sums import add_targets
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.policy import Policy
from pipeline.privacy.epochs import Epochs
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Mechanism, Release
from pipeline.simulation.logged_trials import Integers, Logged
from pipeline.simulation.simulate import sample_people
from pipeline.simulation.surrogate import Drawn, best_allowed, draw_runs, draw_surrogate, evenly, places_of
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.count_layout import reward_lattice
from pipeline.statistics.lq_moments import draw_lq, released_moments
from pipeline.statistics.lq_rows import Episodes, SimulatedRows
from pipeline.statistics.regression_rows import Side, TalliedRows, Tallies
from pipeline.statistics.target_layout import Stage
from pipeline.statistics.target_plan import Question, TargetPlan

Array = NDArray[np.float64]


def foresee_counts(
    card: Card,
    terms: Terms,
    mechanisms: tuple[Mechanism, ...],
    episodes: int,
    seeds: Sequence[int],
    planner: CountsPlanner,
) -> list[Drawn]:
    """Simulate a run of a tabular agent for each seed, beside the same without noise on the same log.

    Parameters
    ----------
    card
        Synthetic, or the noise is refused.
    terms
        Planner and known world.
    mechanisms
        What one release draws.
    episodes
        Episodes of each log.
    seeds
        One simulated run each.
    planner
        Makes the policies.
    """
    logged, silent = _logs(card, terms), count_sum(card, Ask(tables=terms.ask().tables)).mechanisms

    def both(rng: np.random.Generator) -> tuple[Logged, Logged]:
        one = replace(logged(mechanisms, rng), planner=planner)
        return one, replace(one, mechanisms=silent)

    return draw_runs(both, episodes, seeds)


def _logs(
    card: Card, terms: Terms, ball: Array | None = None
) -> Callable[[tuple[Mechanism, ...], np.random.Generator], Logged]:
    return partial(_logged, card, terms, ball, None if terms.known is None else _known(card, terms.known))


def _known(card: Card, declared: Known) -> tuple[TabularMDP, Array]:
    """The declared world as the card's tables see it, and its logging policy."""
    world = load_world(declared.world, card.folder)
    return binned_process(card, world, declared.behaviour), binned_behaviour(card, world, declared.behaviour)


def _logged(
    card: Card,
    terms: Terms,
    ball: Array | None,
    known: tuple[TabularMDP, Array] | None,
    mechanisms: tuple[Mechanism, ...],
    rng: np.random.Generator,
) -> Logged:
    p, task = terms.planner, task_of(card)
    mdp = draw_surrogate(card, rng, ball) if known is None else known[0]
    behaviour = np.full(mdp.shape, 1 / mdp.shape[2]) if known is None else known[1]
    d = card.domain
    cells, pooled = task.horizon * task.allowed.size, d.dynamics == "stationary"
    c = constants(p.constants, cells, p.failure, pooled=pooled, policy=d.markov)
    return Logged(card, task, mdp, behaviour, mechanisms, c, p.penalty, p.failure)


def _foresee(
    card: Card,
    terms: Terms,
    seeds: Sequence[int],
    learn: Callable[[Logged, np.random.Generator, np.random.SeedSequence], Sequence[Policy]],
    instead: Callable[[Logged], Policy],
    ball: Array | None = None,
) -> list[Drawn]:
    """A run for each seed: ``learn`` gives two policies of one log, with noise and without; ``instead`` needs none."""
    logs, mechanisms = _logs(card, terms, ball), count_sum(card, Ask()).mechanisms
    found, world, best, other = list[Drawn](), None, 0.0, 0.0
    for seed in seeds:
        of_world, of_log, of_noise = np.random.SeedSequence((seed,)).spawn(3)
        logged = logs(mechanisms, np.random.default_rng(of_world))
        if logged.mdp is not world:
            # a declared world is the same for every log
            world, best = logged.mdp, best_allowed(logged.mdp, logged.task)
            other = best - logged.value(instead(logged))
        policies = learn(logged, np.random.default_rng(of_log), of_noise)
        private, exact = (best - logged.value(p) for p in policies)
        found.append(Drawn(private, exact, other, best, float(policies[0].abstains.mean())))
    return found


def foresee_linear(request: LinearRequest, terms: Terms, episodes: int, seeds: Sequence[int]) -> list[Drawn]:
    """Simulate a run of a linear agent for each seed, beside the same without noise on the same log.

    Parameters
    ----------
    request
        The run; its card must be synthetic.
    terms
        Known world.
    episodes
        Episodes of each log.
    seeds
        One simulated run each.
    """
    ball = None
    if request.observed is not None:
        seen = places_of(request.card)
        request, ball = replace(request, card=seen.card, plan=replace(request.plan, features=seen.features)), seen.ball
    silent = replace(request, plan=request.plan.without_noise(), start_rho=None)

    def learn(logged: Logged, rng: np.random.Generator, noise: np.random.SeedSequence) -> list[Policy]:
        tallies: dict[Side, Tallies] = {"both": _tallies(request, *logged.visits_and_rewards(episodes, rng))}
        rows = TalliedRows(request.features, lambda: tallies, "synthetic")
        return [plan_linear(r, drawn(r, rows, SeededNoise(noise)))[1] for r in (request, silent)]

    return _foresee(request.card, terms, seeds, learn, lambda logged: evenly(logged.task), ball)


def _tallies(request: LinearRequest, visits: Integers, paid: Integers) -> Tallies:
    """Sums on the recipe's lattice: ``paid`` lattice steps of the card above the least reward."""
    lattice, steps = reward_lattice(request.card), request.plan.terms.value_steps
    n = visits.sum(-1)
    least = request.plan.reward_steps[0]
    rewards = np.floor(paid * (steps / lattice.steps)).astype(np.int64) + least * n
    ends = bool(request.card.domain.states.ends)
    L = visits.shape[1]
    onto = np.concatenate([visits[..., :L], visits[..., L:].sum(-1, keepdims=True)], axis=-1) if ends else visits
    return Tallies(onto, rewards, n[0].sum(-1))


def foresee_one_step(plan: TargetPlan, terms: Terms, episodes: int, seeds: Sequence[int]) -> list[Drawn]:
    """Simulate a run of a one-step agent for each seed, beside the same without noise on the same log.

    Of a counter: the last night of its last whole epoch, with the noise of its noisiest one, where as many people come
    on each night; those who came until the epoch began tell values, those of its nights tell gains.

    Parameters
    ----------
    plan
        What would be released; its card must be synthetic.
    terms
        Known world, and how cautious the planner is.
    episodes
        Episodes of each log, one a person; of a counter, of all its nights.
    seeds
        One simulated run each.
    """
    shares = night_shares(plan)

    def learn(logged: Logged, rng: np.random.Generator, noise: np.random.SeedSequence) -> list[Policy]:
        counts = [max(1, round(episodes * share)) for share in shares]
        logs = [sample_people(plan.card, logged.mdp, logged.behaviour, n, rng) for n in counts]
        return [one_step_policy(p, terms, logs, SeededNoise(noise)) for p in (plan.once, replace(plan, ask=Ask()))]

    def practice(logged: Logged) -> Policy:
        shape = plan.card.domain.horizon, *logged.task.allowed.shape
        return Policy(np.zeros(shape), np.ones(shape[:2], dtype=bool))

    return _foresee(plan.card, terms, seeds, learn, practice)


def night_shares(plan: TargetPlan) -> tuple[float, ...]:
    """Shares of the people whose logs :func:`one_step_policy` takes, where as many come on each night.

    Parameters
    ----------
    plan
        Of a counter, on the last night of its last whole epoch: who came until it began, and who came in it.
    """
    if not isinstance(counter := plan.ask.counter, Epochs):
        return (1.0,)
    opened = (counter.steps // counter.epoch - 1) * counter.epoch + 1
    return opened / counter.steps, counter.epoch / counter.steps


def one_step_policy(plan: TargetPlan, terms: Terms, logs: Sequence[Sequence[Any]], noise: SeededNoise) -> Policy:
    """The policy of one simulated run.

    Parameters
    ----------
    plan, terms
        What is released, and how cautious the planner is.
    logs
        Canonical rows of whole people, as :func:`~pipeline.simulation.simulate.sample_people` gives them: the first log
        answers the first stage, the last one the second.
    noise
        A simulation's.
    """

    def answer(stage: Stage, asked: Question | None) -> Release:
        people = logs[0 if asked is None else -1]
        return plan.stages[stage].draw(add_targets(plan, asked, people), noise)

    first = answer("v", None)
    asked = next_question(plan, first)
    return learn_step(plan, terms, plan.joined((first, answer("q", asked)), asked)).policy


def foresee_lq(request: LqRequest, declared: Known, episodes: int, seeds: Sequence[int]) -> list[Drawn]:
    """Simulate an LQ run for each seed: what its gains cost above the optimum, beside those without noise.

    Parameters
    ----------
    request
        The run.
    declared
        The plant, and the controller that logs.
    episodes
        Episodes of each log.
    seeds
        One simulated run each.

    Raises
    ------
    CardError
        If there is no such world or behaviour, or the card declares another plant.
    """
    system = load_lq_world(declared.world)
    check_world(system, request.card)
    best, zero = (system.expected_cost(K) for K in (system.optimal_gains(), system.zero_gains()))
    asked = replace(request.plan, domain=replace(request.plan.domain, kind="synthetic"))
    exact = asked.without_noise()
    found: list[Drawn] = []
    for seed in seeds:
        of_log, of_noise = np.random.SeedSequence((seed,)).spawn(2)
        x, u = simulate(system, explorer(system, declared.behaviour), episodes, np.random.default_rng(of_log))
        rows = SimulatedRows((Episodes(x, u, np.full(episodes, system.horizon)),))
        losses: list[float] = []
        for plan in (asked, exact):
            moments = released_moments(plan, draw_lq(plan, rows, SeededNoise(of_noise)))
            gains = certainty_equivalence(moments, request.task, request.constants).gains
            losses.append(system.expected_cost(gains) - best)
        found.append(Drawn(losses[0], losses[1], zero - best, -best, 0.0))
    return found
