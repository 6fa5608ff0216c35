"""One-step policies measured on other people, in known worlds: does the interval hold the truth, is "better" right.

``python -P -m tests.campaigns.one_step_evaluation NAME ...`` adds the rows that ``results/one_step_evaluation.csv``
lacks, a row a run, as they come; a campaign that was stopped goes on where it was.  NAME is one of :data:`CAMPAIGNS`.
Without a name it prints what the rows of today's code say, a line a cell.

Seeds below 9000 tuned constants and report nothing.  Runs of a seed share their log, whatever the budget, the share or
the policy; those of a cell share nothing.  Simulation: seeded noise.
"""

from __future__ import annotations

import csv
import itertools
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.stats import beta

from pipeline.declaration.code import syntax_digest
from pipeline.learners.one_step import OneStepLearner
from pipeline.learners.one_step_evaluation import OneStepEvaluation
from pipeline.learners.one_step_learning import learn_step, next_question
from pipeline.learners.terms import Evaluate, Privacy, Terms
from pipeline.logs.one_step_scores import OneStepScores
from pipeline.logs.one_step_sums import add_people
from pipeline.logs.score_sums import add_scores
from pipeline.logs.target_sums import add_targets
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from reports.facts.dataset import declared
from reports.facts.evaluation import EvaluationFacts
from reports.facts.verdict import decide
from tests.campaigns.one_step_worlds import WORLDS

RESULTS = Path(__file__).parent / "results" / "one_step_evaluation.csv"
FIRST, _BLOCK = 9000, 10
CELL = ("world", "people", "rho", "share", "policy", "seed")
NUMBERS = ("proposed", "truth", "practice", "value", "value_low", "value_high", "gain", "gain_low", "gain_high")
FIELDS = ("code", *CELL, *NUMBERS, "own", "placebo", "changed", "answer", "status")
# rows of another text of these are rows of another estimator
_CODE = (
    "pipeline.agents.one_step",
    "pipeline.agents.one_step_value",
    "pipeline.evaluation.intervals",
    "pipeline.learners.one_step_evaluation",
    "pipeline.logs.one_step_rows",
    "pipeline.logs.one_step_scores",
    "pipeline.logs.one_step_sums",
)
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


HIDDEN = ("clinicians16", "clinicians64", "clinicians256")
FRESH = ("ward", "ward_greedy", "school", "school_greedy", "depot", "season")
OLD = ("clinicians", "retention", *(f"chain{k}" for k in range(1, 7)))
SIZES, BUDGETS = (20_000, 100_000), (0.3, 1.0, 3.0)
# a campaign: how many runs of which cells
CAMPAIGNS = {
    # does the interval hold where nothing is hidden
    "held": (20, cells((*OLD, *FRESH), SIZES, BUDGETS)),
    # outside of what is called measured: shorter, longer, a drift that practice follows
    "outside": (20, cells(("short", "long", "turning"), SIZES)),
    # states hide what practice acts on
    "hidden": (20, cells(HIDDEN, SIZES)),
    # is "better" said of what is not
    "false": (400, cells(("clinicians", "ward", "season"), policies=("level", "worst"))),
    "inert": (400, cells(("inert",))),
    "worse": (50, cells((*OLD, *FRESH), policies=("level", "worst", "random"))),
    # what holding people out costs
    "share": (20, cells(("clinicians", "ward", "school"), SIZES, shares=(0.0, 0.2, 0.3, 0.5))),
}


def code():
    """Digest of the estimator."""
    return syntax_digest(_CODE)[:16]


def proposed(found, logged, plan, policy, rng):
    """What is measured instead of the learnt policy, where one that is not better is asked for.

    ``level`` does what is truly nearest to practice among what is no better, in the half of the states where that is
    nearest; ``worst`` does what looks worst among what practice does, in every state, and ``random`` anything of that.
    """
    if policy == "learnt":
        return found
    advantage = found.advantage[0]
    usual = ~np.isnan(advantage)
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


def runs(people: int, seed: int, asked: list[Cell]) -> Iterator[tuple[Cell, tuple]]:
    """Cells of one world and one log: one log, a split and a learner a budget, an evaluation a policy."""
    logged = _logged(asked[0].world, people)
    rng = np.random.default_rng(seed)
    log, place = logged.sample(people, rng), rng.random(people)
    for share, of_share in _groups(asked, "share"):
        other = place < share
        learn, rest = ([f.filter(pl.Series(s[f["user_id"].to_numpy()])) for f in log] for s in (~other, other))
        for rho, of_rho in _groups(of_share, "rho"):
            entropy = seed, round(100 * share), round(1000 * rho)
            terms = Terms("campaign", "dp-one-step", Privacy(rho=rho), evaluate=Evaluate(people=share))
            plan = OneStepLearner().plan(logged.card, terms).plan
            noise = SeededNoise(np.random.SeedSequence(entropy))
            first = plan.stages["v"].draw(add_targets(plan, None, learn), noise)
            question = next_question(plan, first)
            second = plan.stages["q"].draw(add_targets(plan, question, learn), noise)
            learnt = learn_step(plan, terms, plan.joined((first, second), question))
            for cell in of_rho:
                drawn = np.random.SeedSequence((*entropy, POLICIES.index(cell.policy), 1)).spawn(2)
                found = proposed(learnt.found, logged, plan, cell.policy, np.random.default_rng(drawn[0]))
                yield cell, _evaluated(logged, replace(learnt, found=found), share, rest, SeededNoise(drawn[1]))


@lru_cache(1)
def _logged(world, people):
    return WORLDS[world](people)


def _groups(asked, name):
    key = lambda c: getattr(c, name)  # noqa: E731
    return [(k, list(g)) for k, g in itertools.groupby(sorted(asked, key=key), key)]


def _evaluated(logged, learnt, share, rest, noise):
    """Numbers and words of a row."""
    practice, worth = logged.practised, logged.worth(learnt.policy)
    if not share:
        return (worth, worth, practice, *[float("nan")] * 9, "not_evaluated", "modelled")
    evaluation = OneStepEvaluation(learnt.plan, Fraction(str(share)))

    def answer(stage, question):
        scored = isinstance(question, OneStepScores)
        exact = add_scores(logged.card, evaluation.scored, question, rest) if scored else add_people(question, rest)
        return evaluation.sums[stage].draw(exact, noise)

    final, told = evaluation.measure(learnt, evaluation.answers(learnt, answer), share, 1)
    facts = asdict(told)
    facts["diagnostics"] = [{**d, "price": float(d["price"])} for d in facts["diagnostics"]]
    rho = learnt.plan.rho
    verdict = decide(EvaluationFacts.model_validate(facts), declared(logged.card, None), rho and float(rho))
    ends = (x for i in (told.value, told.improvement) for x in (i.estimate, i.lower, i.upper))
    return (
        worth,
        logged.worth(final.policy),
        practice,
        *ends,
        told.practice.estimate,
        told.placebo,
        told.diagnostics[0].value,
        verdict.answer,
        verdict.improvement.status,
    )


def add(names):
    """Add what the campaigns lack, a log at a time."""
    this, done = code(), set()
    if RESULTS.is_file():
        with RESULTS.open(newline="") as file:
            done = {tuple(r[k] for k in CELL) for r in csv.DictReader(file) if r["code"] == this}
    with RESULTS.open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        if not file.tell():
            out.writerow(FIELDS)
        left = {
            (seed // _BLOCK, *c, seed)
            for runs_each, listed in map(CAMPAIGNS.__getitem__, names)
            for c, seed in itertools.product(listed, range(FIRST, FIRST + runs_each))
            if (*map(_text, c), str(seed)) not in done
        }
        # a world at a time, so that it is made once; a block of seeds at a time, so that no world waits for another
        order = lambda x: (x[0], x[1], x[2], x[-1])  # noqa: E731
        for (_, _, people, seed), group in itertools.groupby(sorted(left, key=order), key=order):
            for cell, told in runs(people, seed, [Cell(*x[1:-1]) for x in group]):
                out.writerow((this, *map(_text, cell), seed, *map(_text, told)))
            file.flush()


def _text(x):
    return x if isinstance(x, str) else f"{x:.6g}" if isinstance(x, float) else str(x)


def table():
    """What the rows say, a line a cell."""
    rows = pl.read_csv(RESULTS).filter(pl.col("code") == code()).fill_nan(None)
    true, gain = pl.col("truth") - pl.col("practice"), pl.col("gain")
    said = pl.col("answer") == "better"
    told = rows.group_by(CELL[:-1], maintain_order=True).agg(
        pl.len().alias("runs"),
        pl.col("proposed", "truth", "practice").mean(),
        (pl.col("truth").std() / pl.len().sqrt()).alias("truth_se"),
        (gain - true).mean().alias("bias"),
        ((gain - true).std() / pl.len().sqrt()).alias("se"),
        ((pl.col("value_low") <= pl.col("truth")) & (pl.col("truth") <= pl.col("value_high"))).sum().alias("v_held"),
        (pl.col("value_high") - pl.col("value_low")).mean().alias("v_width"),
        ((pl.col("gain_low") <= true) & (true <= pl.col("gain_high"))).sum().alias("held"),
        (pl.col("gain_high") - pl.col("gain_low")).mean().alias("width"),
        said.sum().alias("better"),
        (true <= 0).sum().alias("not_better"),
        (said & (true <= 0)).sum().alias("false"),
        (pl.col("answer") == "withheld").sum().alias("withheld"),
        pl.col("placebo").mean().alias("z"),
        (pl.col("status") == "evaluated").sum().alias("evaluated"),
    )
    for r in told.sort(CELL[:-1]).iter_rows(named=True):
        n = r["runs"]
        text = f"{r['world']:13} {r['people']:>7,} rho {r['rho']:>3g} f {r['share']:.1f} {r['policy']:6} {n:>4} runs"
        text += f"  policy {r['truth']:.4f}({r['truth_se'] or 0:.4f}), proposed {r['proposed']:.4f}, practice {r['practice']:.4f}"
        if r["width"] is not None:
            text += f"  bias {r['bias']:+.4f}({r['se'] or 0:.4f})"
            for held, width in (("v_held", "v_width"), ("held", "width")):
                text += f"  {held} {r[held]} (>= {least(r[held], n):.3f}) / {r[width]:.4f}"
            text += f"  better {r['better']}, false {r['false']} of {r['not_better']}, withheld {r['withheld']}"
            text += f"  z {r['z']:+.1f}  evaluated {r['evaluated']}"
        print(text)


def least(held, runs):
    """Clopper and Pearson's lower end, one-sided 95 %, of the share of runs in which an interval holds."""
    return float(beta.ppf(0.05, held, runs - held + 1)) if held else 0.0


if __name__ == "__main__":
    add(sys.argv[1:]) if sys.argv[1:] else table()
