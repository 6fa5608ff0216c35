"""What the best policy is worth that a release speaks about: it holds, is near, and is exact without noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest

from flows.jobs.publish import standing
from pipeline.agents import suboptimality
from pipeline.agents.suboptimality import best_supported, left_within_one_step, rows_of
from pipeline.agents.support import supported
from pipeline.declaration.card import task_of
from pipeline.facts.learnt import ValueFacts
from pipeline.facts.promise import Joint
from pipeline.facts.verdict import Suboptimality, missing
from pipeline.learners.held_out import HeldOutRun, LearntHeldOut
from pipeline.learners.offline_agents import plan_run
from pipeline.learners.tabular import TabularRun
from pipeline.learners.tabular_evaluation import STAGE, TabularEvaluation
from pipeline.learners.tabular_facts import LearntCounts
from pipeline.learners.terms import Evaluate, Privacy, Terms
from pipeline.logs.aggregate import count_rows
from pipeline.logs.parts import evaluates, part_key
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.planning_counts import prepare, private_counts
from tests.agents.test_apvi import sample, world
from tests.campaigns.one_step_worlds import Logged, MadeUp
from tests.made_up import add_scores

# of no figure: a world whose outcome comes at the end, one that pays at each step, and one with tables by step
WORLDS = {
    "end": MadeUp(91, 30, 4, 8, told=False),
    "dense": MadeUp(92, 12, 3, 6, dense=True, told=False),
    "by step": MadeUp(93, 8, 3, 5, told=False, drift=0.5, turns=True, per_step=True),
}


@dataclass(frozen=True)
class Found:
    """What was said of one run, and the truth: in reward units; ``best``: the value that the said end is about."""

    said: Suboptimality | None
    upper: float
    value: ValueFacts
    best: float
    truth: float
    span: float

    @property
    def end_holds(self) -> bool:
        return self.upper >= self.best - 1e-9

    @property
    def holds(self) -> bool:
        """Of what was said of the loss: nothing said is nothing false."""
        return self.said is None or self.said.upper >= self.truth - 1e-9


def best_in_class(logged: Logged, learnt: LearntCounts) -> float:
    """True value of the best policy that takes supported actions, and practice."""
    task, mdp, V = task_of(learnt.card), logged.mdp, np.zeros(logged.mdp.shape[1])
    may, L = supported(learnt.release, len(learnt.learnt.prepared.counts.n_sas)) & task.allowed, len(task.allowed)
    for h in reversed(range(task.horizon)):
        Q = mdp.rewards[h] + mdp.transitions[h] @ V
        V = (logged.practice[h] * Q).sum(-1)
        V[:L] = np.maximum(V[:L], np.where(may[min(h, len(may) - 1)], Q[:L], -np.inf).max(-1))
    return float(mdp.start @ V)


def once(logged: Logged, seed: int, *, judged: bool = True) -> Found:
    """One run in memory, at rho = 1: people of both parts, and noise of its own."""
    card, people = logged.card, logged.card.unit.users_public
    run = plan_run(card, Terms("made up", "dp-apvi", Privacy(rho=1.0), evaluate=Evaluate(people=0.3)))
    assert isinstance(run, HeldOutRun) and isinstance(run.plan, TabularRun)
    noise, key = SeededNoise(np.random.SeedSequence((seed, 1))), part_key(str(seed).encode(), card.name)
    parts: dict[bool, list[pl.DataFrame]] = {False: [], True: []}
    for rows in logged.sample(people, np.random.default_rng((seed, 2))):
        users = rows["user_id"].unique(maintain_order=True)
        held = users.filter(pl.Series(evaluates(users.cast(pl.String), run.share, key))).implode()
        for judges in parts:
            parts[judges].append(rows.filter(rows["user_id"].is_in(held) == judges))
    counted = [count_rows(rows, card) for rows in parts[False]]
    sums = {name: sum((c[name] for c in counted[1:]), counted[0][name]) for name in counted[0]}
    exact = ExactSums(card.name, "synthetic", card.domain.dynamics, sums)
    learnt, e = run.plan.learn(run.plan.privatizer.draw(exact, noise)), run.evaluation
    told = learnt.facts()
    if judged:
        assert isinstance(e, TabularEvaluation)
        scores = e.scores(learnt)
        drawn = e.sums[STAGE].draw(add_scores(card, e.layout, scores, parts[True]), noise)
        measured = e.measure(learnt, e.told(scores, drawn), 0.3, 1)[1]
        told = LearntHeldOut(learnt, measured, Joint(rho_exact=None)).facts()
    told = standing(told, card, None)
    assert told.best is not None
    best, (low, high) = best_in_class(logged, learnt), task_of(card).value_range(0)
    lost = best - logged.worth(learnt.learnt.plan.policy)
    return Found(missing(told.best, told.value), told.best.upper, told.value, best, lost, high - low)


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_said_holds_and_is_near(name):
    logged = WORLDS[name](20_000)
    found = [once(logged, seed) for seed in range(2)]
    assert all(f.end_holds and f.holds for f in found)
    assert max(f.said.upper for f in found if f.said) <= 0.15 * found[0].span
    assert all(f.said is not None and f.said.over == "supported_actions" for f in found)


def test_without_judges_the_models_lower_end_stands_and_nothing_is_guaranteed():
    found = once(WORLDS["end"](20_000), 1, judged=False)
    assert found.said is not None and found.said.status == "estimate"
    assert found.holds and found.said.upper >= found.upper - found.value.lower


def told(seed: int, rho: float | None, tables: str) -> tuple[bool, bool]:
    """Does the upper end of fresh counts with fresh noise hold the best value; and where it is as if no noise were?"""
    mdp, card = world(5, A=1)
    counts = sample(mdp, card, 300_000, np.random.default_rng(seed))
    ask = Ask(rho=rho, tables=tables)
    drawn = private_counts(count_sum(card, ask).draw(counts, SeededNoise(np.random.SeedSequence(seed))), card)
    planned = prepare(drawn, card, "practical").counts
    rows, best = rows_of(planned, None), float(mdp.start @ optimal_values(mdp)[1][0])
    honest, deaf = (best_supported(r, planned, task_of(card)) for r in (rows, replace(rows, sd=0.0, paid_sd=0.0)))
    return honest >= best, deaf >= best


@pytest.mark.parametrize("tables", ["one_table", "two_tables"])
def test_the_end_holds_where_nothing_is_to_be_chosen_and_not_where_noise_is_ignored(tables):
    # one action: no choice lifts the end, which must hold by its deviation alone, in 39 of 40
    runs = 100
    held, deaf = np.sum([told(seed, 1e-5, tables) for seed in range(runs)], axis=0)
    assert held >= 0.95 * runs
    assert deaf < 0.85 * runs


def test_exact_counts_give_the_best_value_of_what_was_counted(monkeypatch):
    monkeypatch.setattr(suboptimality, "Z", 0.0)
    mdp, card = world(6)
    counts = sample(mdp, card, 3_000, np.random.default_rng(1))
    planned = private_counts(count_sum(card, Ask()).draw(counts, SeededNoise(np.random.SeedSequence(1))), card)
    n = counts.tables["n_sas"].astype(float)
    H, L, A, S = n.shape
    P, r = np.zeros((H, S, A, S)), np.zeros((H, S, A))
    P[:, L:] = np.eye(S)[L:, None]
    P[:, :L] = n / n.sum(-1, keepdims=True)
    # rewards of the lattice stand as their distance from its middle, in half units
    r[:, :L] = 0.5 + counts.tables["r_sa"] / 2 / n.sum(-1)
    start = n[0].sum((1, 2)) / n[0].sum()
    best = optimal_values(TabularMDP(P, r, np.append(start, np.zeros(S - L))))[1][0]
    found = best_supported(rows_of(planned, None), planned, task_of(card))
    assert found == pytest.approx(float(start @ best[:L]), abs=1e-9)


def test_one_step_is_left_where_an_action_gains_more():
    advantage = np.array([[[0.0, 0.2, np.nan], [np.nan, -0.1, 0.1]]])
    own = np.array([[[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
    rows, none = np.array([[30.0, 10.0]]), np.zeros((1, 2, 3))
    # practice goes on in the first state, three visits in four, where .2 could be gained
    assert left_within_one_step(advantage, none, own, rows, 4) == pytest.approx(0.75 * 0.2 * 4)
    assert left_within_one_step(advantage, none + 0.1, own, rows, 4) == pytest.approx((0.75 * 0.3 + 0.25 * 0.1) * 4)
    best = np.array([[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    assert left_within_one_step(advantage, none, best, rows, 4) == 0
