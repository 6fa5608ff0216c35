"""One-step policies measured on other people, in known worlds: does the interval hold the truth, is "better" right.

``python -P -m tests.campaigns.one_step_evaluation NAME ...`` adds the runs that ``build/`` lacks of this very code, a
row a run, as they come; a campaign that was stopped goes on where it was.  NAME is one of :data:`CAMPAIGNS`; none: all.
What the runs say, counted by cell: :mod:`tests.campaigns.one_step_coverage`.

Seeds below 9000 tuned constants and report nothing.  Runs of a seed share
their log, whatever the budget, the share or the policy; those of a cell share nothing.  Simulation: seeded noise.
"""

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import polars as pl

from pipeline.evaluation.coverage import ONE_STEP, code_of
from pipeline.learners.one_step_evaluation import LEAST, OneStepEvaluation
from pipeline.learners.one_step_learning import OneStepLearner, drawn_stages, learn_step
from pipeline.learners.terms import Evaluate, Privacy, Terms
from pipeline.logs.one_step_sums import OneStepScores, add_people
from pipeline.logs.target_sums import add_targets
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from tests.campaigns.one_step_worlds import CONTEXTS, LASTING, OTHERS, WORLDS
from tests.campaigns.resumed import adding
from tests.campaigns.rows import ROOT, rows_in
from tests.campaigns.tabular_evaluation import add_scores

FIRST, _BLOCK = 9000, 5
CELL = ("world", "people", "rho", "share", "policy", "seed")
NUMBERS = ("proposed", "truth", "practice", "value", "value_low", "value_high", "gain", "gain_low", "gain_high")
FIELDS = (*CELL, *NUMBERS, "placebo", "hidden")
# what is measured instead of what was learnt; see :func:`proposed`
POLICIES = ("learnt", "level", "worst", "random")


class Cell(NamedTuple):
    """World with its log, people, budget, share of them who evaluate (none: all learn), and whose policy."""

    world: str
    people: int
    rho: float
    share: float
    policy: str


def cells(worlds, people=(20_000,), rhos=(1.0,), shares=(0.3,), policies=("learnt",)):
    """All of these beside all of those."""
    return [Cell(*c) for c in itertools.product(worlds, people, rhos, shares, policies)]


def drawn(world, count, policy, most=100_000):
    """A world a cell, with people, from 5 000 on, and budget drawn from ranges in which a run is not refused."""
    rng, of = np.random.default_rng(count), list[Cell]()
    while len(of) < count:
        people = 100 * round(50 * (most / 5000) ** rng.random())
        rho = float(f"{0.0243 * 123 ** rng.random():.3g}")
        if 0.3 * people * rho**0.5 >= LEAST:
            of.append(Cell(f"{world}{len(of)}", people, rho, 0.3, policy))
    return of


SIZES, BUDGETS, EPSILON_1 = (20_000, 100_000), (0.3, 1.0, 3.0), 0.0243
OPEN = ("clinicians", "retention", *(f"chain{k}" for k in range(1, 5)))
OPEN += ("ward", "ward_greedy", "school", "school_greedy", "depot", "season")
HIDDEN = ("clinicians16", "clinicians64", "clinicians256")
FEW = ("office", "course", "pair")
# a campaign: how many runs of which cells
CAMPAIGNS = {
    # does the interval hold where nothing is hidden
    "small": (10, cells(OPEN, rhos=BUDGETS)),
    "large": (5, cells(OPEN, SIZES[1:], BUDGETS)),
    # small logs, and worlds of few states
    "tiny": (10, cells((*OPEN, *FEW), (5_000,), BUDGETS)),
    "few": (12, cells(FEW, SIZES[:1], BUDGETS)),
    "few_large": (6, cells(FEW, SIZES[1:], BUDGETS)),
    # is "better" said of what is not
    "false": (100, cells(("clinicians", "ward"), policies=("level",))),
    "false_few": (100, cells(("office", "course"), (5_000,), policies=("level",))),
    "inert": (100, cells(("inert",))),
    "worse": (2, cells(OPEN, policies=POLICIES[1:])),
    # small budgets: epsilon = 1 and 0.62 at delta = 1e-6, and one tenth; people so few that states are not pooled
    "epsilon_1": (12, cells((*OPEN, *FEW), SIZES[1:], (EPSILON_1,))),
    "epsilon_06": (6, cells((*OPEN, *FEW), SIZES[1:], (0.01,), (0.3, 0.5))),
    "tenth": (6, cells((*OPEN, *FEW), SIZES[1:], (0.1,))),
    "lean": (10, cells((*OPEN, *FEW), (50_000,), (EPSILON_1,))),
    "false_1": (150, cells(("clinicians", "ward"), SIZES[1:], (EPSILON_1,), policies=("level",))),
    "inert_1": (150, cells(("inert",), SIZES[1:], (EPSILON_1,))),
    "worse_1": (2, cells(OPEN, SIZES[1:], (EPSILON_1,), policies=POLICIES[1:])),
    # states hide what practice acts on
    "hidden": (2, cells(HIDDEN, SIZES)),
    # one step an episode, in worlds of their own
    "contexts": (5, drawn("contexts", CONTEXTS, "learnt")),
    "contexts_level": (2, drawn("contexts", CONTEXTS, "level")),
    "contexts_inert": (3, drawn("contexts_inert", OTHERS, "learnt")),
    "contexts_apart": (2, drawn("contexts_apart", OTHERS, "learnt")),
    # actions decide who comes to which states; most people leave before the last step, or most stay
    "leading": (3, drawn("leading", OTHERS, "learnt")),
    "staying": (3, drawn("staying", OTHERS, "learnt")),
    # many steps an episode
    "lasting": (6, drawn("lasting", LASTING, "learnt", 40_000)),
    "lasting_level": (4, drawn("lasting", LASTING, "level", 40_000)),
    "lasting_inert": (4, drawn("lasting_inert", LASTING, "learnt", 40_000)),
    # shorter and longer than most, and a drift that practice follows
    "outside": (2, cells(("short", "long", "turning"), SIZES)),
}


def proposed(found, logged, plan, policy, rng):
    """What is measured instead of the learnt policy, where one that is not better is asked for.

    ``level`` does what is truly nearest to practice among what is no better, in the half of the states where that is
    nearest; ``worst`` does what looks worst among what practice does, in every state, and ``random`` anything of that.
    """
    if policy == "learnt":
        return found
    advantage = found.advantage[0]
    # one action serves all steps: it must have an estimate at each
    usual = ~np.isnan(found.advantage).any(0)
    if policy == "level":
        score = np.where(logged.advantage <= 1e-12, logged.advantage, -np.inf)
        best = np.where(usual, score, -np.inf).max(-1)
        usual &= (np.isfinite(best) & (best >= np.median(best)))[:, None]
    else:
        score = rng.random(usual.shape) if policy == "random" else -np.nan_to_num(advantage)
    recommended = usual.any(-1)
    best = np.where(usual, score, -np.inf).argmax(-1)
    chosen = np.where(recommended[:, None], np.eye(usual.shape[1])[best], 0.0)
    H = plan.card.domain.horizon
    return replace(found, policy=Policy(np.tile(chosen, (H, 1, 1)), np.tile(~recommended, (H, 1))))


def runs(people: int, seed: int, asked: list[Cell], source=SeededNoise) -> Iterator[tuple[Cell, tuple]]:
    """Cells of one world and one log: one log, a split and a learner a budget, an evaluation a policy.

    ``source``: makes noise of a seed.
    """
    logged = _logged(asked[0].world, people)
    rng = np.random.default_rng(seed)
    log, place = logged.sample(people, rng), rng.random(people)
    for share, of_share in _groups(asked, "share"):
        other, values = place < share, None
        learn, rest = ([f.filter(pl.Series(s[f["user_id"].to_numpy()])) for f in log] for s in (~other, other))
        for rho, of_rho in _groups(of_share, "rho"):
            entropy = seed, round(100 * share), round(10_000 * rho)
            terms = Terms("campaign", "dp-one-step", Privacy(rho=rho), evaluate=Evaluate(people=share))
            plan = OneStepLearner().plan(logged.card, terms).plan
            noise = source(np.random.SeedSequence(entropy))
            # whatever the budget, the first question is the same
            values = values or add_targets(plan, None, learn)

            def answer(stage, asked, plan=plan, values=values, noise=noise, learn=learn):
                exact = values if asked is None else add_targets(plan, asked, learn)
                return plan.stages[stage].draw(exact, noise)

            learnt = learn_step(plan, terms, drawn_stages(plan, answer))
            for cell in of_rho:
                drawn = np.random.SeedSequence((*entropy, POLICIES.index(cell.policy), 1)).spawn(2)
                found = proposed(learnt.found, logged, plan, cell.policy, np.random.default_rng(drawn[0]))
                yield cell, _evaluated(logged, replace(learnt, found=found), share, rest, source(drawn[1]))


@lru_cache(1)
def _logged(world, people):
    return WORLDS[world](people)


def _groups(asked, name):
    key = lambda c: getattr(c, name)  # noqa: E731
    return [(k, list(g)) for k, g in itertools.groupby(sorted(asked, key=key), key)]


def _evaluated(logged, learnt, share, rest, noise):
    practice, worth = logged.practised, logged.worth(learnt.policy)
    if not share:
        return (worth, worth, practice, *[float("nan")] * 8)
    evaluation = OneStepEvaluation(learnt.plan, Fraction(str(share)))

    def answer(stage, question):
        scored = isinstance(question, OneStepScores)
        exact = add_scores(logged.card, evaluation.scored, question, rest) if scored else add_people(question, rest)
        return evaluation.sums[stage].draw(exact, noise)

    final, told = evaluation.measure(learnt, evaluation.answers(learnt, answer), share, 1)
    ends = (x for i in (told.value, told.improvement) for x in (i.estimate, i.lower, i.upper))
    none = float("nan")
    checks = (none if x is None else x for x in (told.placebo, told.hidden))
    return (worth, logged.worth(final.policy), practice, *ends, *checks)


def raw():
    """Where the runs of this very code are kept."""
    return ROOT / "build" / f"one_step_evaluation-{code_of(ONE_STEP)}.csv"


def made():
    return rows_in(raw())


def add(names):
    """Add what the campaigns lack, a log at a time."""
    done = {tuple(r[k] for k in CELL) for r in made()}
    left = {
        (seed // _BLOCK, *cell, seed)
        for name in names
        for cell, seed in itertools.product(CAMPAIGNS[name][1], range(FIRST, FIRST + CAMPAIGNS[name][0]))
        if (*map(text_of, cell), str(seed)) not in done
    }
    with adding(raw(), FIELDS) as keep:
        # a world at a time, so that it is made once; a block of seeds at a time, so that no world waits for another
        order = lambda x: (x[0], x[1], x[2], x[-1])  # noqa: E731
        for (_, _, people, seed), group in itertools.groupby(sorted(left, key=order), key=order):
            for cell, told in runs(people, seed, [Cell(*x[1:-1]) for x in group]):
                keep(dict(zip(FIELDS, (*map(text_of, cell), seed, *map(text_of, told)), strict=True)))


def text_of(x):
    return x if isinstance(x, str) else f"{x:.6g}" if isinstance(x, float) else str(x)


if __name__ == "__main__":
    add(sys.argv[1:] or [*CAMPAIGNS])
