"""Is the best policy worth no more than is said?  ``python -P -m tests.campaigns.suboptimality [NAME]``.

Each run is a log, people of both parts, and noise of its own, in a random world of its own: two to eight actions, three
to 250 states, two to 19 steps, outcomes at the end or rewards at every step, practice nearly greedy or nearly even, in
some worlds all actions alike.  Seeds below 7000 tuned constants; those from there saw no change of any rule.  With
NAME, one of :data:`~tests.campaigns.one_step_worlds.WORLDS`, that one at 10⁵ people and rho = 1.  Simulation: seeded
noise.
"""

import sys
from dataclasses import dataclass

import numpy as np

from flows.jobs.run import standing
from pipeline.agents.support import supported
from pipeline.declaration.card import task_of
from pipeline.facts.learnt import ValueFacts
from pipeline.facts.promise import Joint
from pipeline.facts.verdict import Suboptimality, missing
from pipeline.learners.held_out import HeldOutRun, LearntHeldOut
from pipeline.learners.learner import plan_run
from pipeline.learners.tabular import TabularRun
from pipeline.learners.tabular_evaluation import TabularEvaluation
from pipeline.learners.tabular_facts import LearntCounts
from pipeline.learners.terms import Evaluate, Privacy, Terms
from pipeline.privacy.noise import SeededNoise
from tests.campaigns.one_step_worlds import WORLDS, Logged, MadeUp
from tests.campaigns.tabular_evaluation import both_parts, counted, heard

SHARE, RUNS, FRESH = 0.3, 120, 7000


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


def once(logged: Logged, seed: int, rho: float | None, *, judged: bool = True) -> Found:
    card, people = logged.card, logged.card.unit.users_public
    privacy = None if rho is None else Privacy(rho=rho)
    terms = Terms("campaign", "apvi" if rho is None else "dp-apvi", privacy, evaluate=Evaluate(people=SHARE))
    run = plan_run(card, terms)
    assert isinstance(run, HeldOutRun) and isinstance(run.plan, TabularRun)
    noise = SeededNoise(np.random.SeedSequence((seed, 1)))
    learn, judges = both_parts(card, run, logged.sample(people, np.random.default_rng((seed, 2))), seed)
    learnt, e = run.plan.learn(run.plan.privatizer.draw(counted(card, learn), noise)), run.evaluation
    told = learnt.facts()
    if judged:
        assert isinstance(e, TabularEvaluation)
        told = LearntHeldOut(learnt, heard(e, learnt, judges, SHARE, noise), Joint(rho_exact=None)).facts()
    told = standing(told, card, None)
    assert told.best is not None
    best, (low, high) = best_in_class(logged, learnt), task_of(card).value_range(0)
    lost = best - logged.worth(learnt.learnt.plan.policy)
    return Found(missing(told.best, told.value), told.best.upper, told.value, best, lost, high - low)


def world(seed: int) -> tuple[Logged, float]:
    """A world and its log by their seed, and a budget."""
    rng = np.random.default_rng(seed)
    states = int(np.exp(rng.uniform(np.log(3), np.log(250))))
    actions, steps = int(rng.integers(2, 9)), int(rng.integers(2, 20))
    apart = bool(rng.random() < 0.3) and states < 30
    made = MadeUp(
        seed,
        states,
        actions,
        steps,
        warmth=float(rng.choice([0.02, 0.05, 0.1, 0.3])),
        dense=bool(rng.random() < 0.4),
        drift=float(rng.choice([0, 0.5])) if apart else 0.0,
        turns=apart,
        inert=bool(rng.random() < 0.15),
        told=False,
        per_step=apart,
    )
    return made(int(rng.choice([20_000, 100_000]))), float(rng.choice([0.1, 0.3, 1.0, 3.0]))


def main() -> None:
    """All runs, one a line, and their sum."""
    found = list[Found]()
    for seed in range(FRESH, FRESH + RUNS):
        logged, rho = world(seed)
        found.append(once(logged, seed, rho))
        f, d = found[-1], logged.card.domain
        said = "nothing" if f.said is None else f"{f.said.upper / f.span:.3f} ({f.said.status})"
        held = f"end {'holds' if f.end_holds else 'MISSES'}, loss {'holds' if f.holds else 'MISSES'}"
        size = f"{len(d.live_states)} states, {d.horizon} steps, {logged.card.unit.users_public} people, rho {rho}"
        print(f"{seed}: {size}: in ranges {said}, truth {f.truth / f.span:.4f}; {held}", flush=True)
    bounds = [f for f in found if f.said is not None and f.said.status == "bound"]
    ends, losses = sum(f.end_holds for f in found), sum(f.holds for f in found)
    print(f"of {len(found)}: the end holds in {ends}, the loss in {losses}; ", end="")
    print(f"of {len(bounds)} bounds in {sum(f.holds for f in bounds)}; silent {sum(f.said is None for f in found)}")


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        f = once(WORLDS[asked](100_000), 1, 1.0)
        print(f"{asked}: {f.said}; truth {f.truth:.4f}, range {f.span:g}")
    if not sys.argv[1:]:
        main()
