"""Do evaluations of tabular policies hold the value?  ``python -P -m tests.campaigns.tabular_evaluation [runs]``.

Fresh logs of a world, fresh people in both parts, fresh noise: how wide the intervals of value and of improvement are,
and how often they hold.  The value is that of the *binned process* where the card's bins hide part of the state, else
of the people.  Results are kept in ``results/tabular_evaluation.csv``.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np

from pipeline.declaration.card import Card
from pipeline.environments.world import World, declared_actions, declared_states
from pipeline.evaluation.exact import truth
from pipeline.evaluation.measured import Evaluated
from pipeline.learners.held_out import HeldOutRun
from pipeline.learners.registry import plan_run
from pipeline.learners.tabular import TabularRun
from pipeline.learners.tabular_evaluation import STAGE, TabularEvaluation
from pipeline.learners.terms import Evaluate, Planner, Privacy, Terms
from pipeline.logs.aggregate import count_rows
from pipeline.logs.score_sums import add_scores
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import NoiseSource, SeededNoise
from pipeline.simulation.simulate import canonical, simulate_chunks
from pipeline.statistics.layout import ExactSums
from tests.campaigns.draws import shelf_card, world_of

RESULTS = Path(__file__).with_name("results") / "tabular_evaluation.csv"
# card, world, logging policy
CELLS = (("icu_sepsis_uniform", "icu_sepsis", "uniform"), ("riverswim", "riverswim", "right-0.6"))
PEOPLE, SHARES, BUDGETS = (20_000, 100_000), ("1/2", "3/10"), (1.0,)
SEED = 20261122


def evaluate_once(
    card: Card, world: World, behaviour: str, terms: Terms, seed: int
) -> tuple[Evaluated, dict[str, float]]:
    """One run in memory: the people of both parts, learning, evaluating; and the true values."""
    run = plan_run(card, terms)
    assert isinstance(run, HeldOutRun) and isinstance(run.plan, TabularRun)
    assert isinstance(run.evaluation, TabularEvaluation)
    of_log, of_noise, of_part = np.random.SeedSequence((SEED, seed)).spawn(3)
    noise: NoiseSource = SeededNoise(of_noise)
    part, states, actions = np.random.default_rng(of_part), declared_states(card, world), declared_actions(card, world)
    practice = world.behaviours(behaviour, card.domain.horizon)
    chunks = simulate_chunks(
        world, practice, card.domain.horizon, card.unit.users_public, np.random.default_rng(of_log)
    )
    learn, evaluate = [], []
    for chunk in chunks:
        rows = canonical(chunk, states, actions)
        users = rows["user_id"].unique(maintain_order=True)
        held = users.filter(part.random(len(users)) < float(run.share)).implode()
        evaluate.append(rows.filter(rows["user_id"].is_in(held)))
        learn.append(rows.filter(~rows["user_id"].is_in(held)))
    counted = [count_rows(rows, card) for rows in learn]
    sums = {name: sum((c[name] for c in counted[1:]), counted[0][name]) for name in counted[0]}
    first = run.plan.privatizer.draw(ExactSums(card.name, "synthetic", card.domain.dynamics, sums), noise)
    learnt, e = run.plan.learn(first), run.evaluation
    scores, summed = e.scores(learnt), e.sums[STAGE]
    answers = summed.draw(add_scores(card, summed.layout, scores, evaluate), noise)
    found = e.measure(learnt, e.told(scores, answers), float(run.share), 1)[1]
    policy: Policy = learnt.learnt.plan.policy
    return found, truth(card, world, behaviour, policy)


def runs(
    name: str, world: str, behaviour: str, people: int, share: str, rho: float, count: int
) -> Iterator[list[float]]:
    """Held and widths of value and improvement, the gain said and the true one, and the placebo, of each run."""
    card = shelf_card(name)
    card = card.model_copy(update={"unit": card.unit.model_copy(update={"users_public": people})}).placed(card.folder)
    terms = Terms(
        "campaign",
        "dp-apvi",
        Privacy(rho=rho),
        Planner(),
        evaluate=Evaluate(people=float(Fraction(share)), world=world, behaviour=behaviour),
    )
    made = world_of(card, world)
    for seed in range(count):
        found, true = evaluate_once(card, made, behaviour, replace(terms, planner=Planner(seed=seed)), seed)
        gain = true["v_policy_model"] - true["v_behavior"]
        value, improvement = found.value, found.improvement
        yield [
            value.lower <= true["v_policy_model"] <= value.upper,
            value.upper - value.lower,
            value.estimate - true["v_policy_model"],
            improvement.lower <= gain <= improvement.upper,
            improvement.upper - improvement.lower,
            improvement.lower > 0,
            true["v_policy"],
            found.placebo or 0.0,
        ]


def main(count: int) -> None:
    """Measure all cells and rewrite the table."""
    head = ["card", "people", "share", "rho", "runs", "value_held", "value_width", "value_bias", "gain_held"]
    head += ["gain_width", "says_better", "v_policy", "placebo_sd", "placebo_beyond_4"]
    rows: list[list[object]] = []
    for name, world, behaviour in CELLS:
        for people in PEOPLE:
            for share in SHARES:
                for rho in BUDGETS:
                    found = np.array(list(runs(name, world, behaviour, people, share, rho, count)), dtype=float)
                    held, width, bias, gain, apart, better, value, _ = found.mean(0)
                    z = found[:, -1]
                    told = [held, width, bias, gain, apart, better, value, float(z.std()), float((abs(z) > 4).mean())]
                    rows.append([name, people, share, rho, count, *(f"{x:.4f}" for x in told)])
                    print(rows[-1], flush=True)
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
