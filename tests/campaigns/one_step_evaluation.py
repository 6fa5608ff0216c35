"""One-step policies measured on other people, in known worlds: does the interval hold the truth, is "better" right.

Run it as ``python -P -m tests.campaigns.one_step_evaluation FIRST RUNS CELL ...``; a cell is
``world:people:rho:share:policy``, where the policy is ``learnt``, ``random`` (one supported action a state, at random),
or ``worst`` (what is learnt from rewards turned round).  It appends rows to ``results/one_step_evaluation.csv``; with
no argument it prints what they say.  Seeds below 9000 tuned constants and report nothing.  Simulation: seeded noise.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
from scipy.stats import beta

from pipeline.learners.one_step import OneStepLearner
from pipeline.learners.one_step_evaluation import OneStepEvaluation
from pipeline.learners.one_step_learning import learn_step, next_question
from pipeline.learners.terms import Evaluate, Privacy, Terms
from pipeline.logs.one_step_scores import OneStepScores
from pipeline.logs.one_step_sums import add_people
from pipeline.logs.score_sums import add_scores
from pipeline.logs.target_sums import add_targets
from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from tests.campaigns.one_step_worlds import WORLDS

RESULTS = Path(__file__).parent / "results" / "one_step_evaluation.csv"
NUMBERS = ("proposed", "truth", "practice", "value", "value_low", "value_high", "gain", "gain_low", "gain_high")
FIELDS = ("date", "world", "people", "rho", "share", "policy", "seed", *NUMBERS, "own", "placebo", "changed", "range")


@dataclass(frozen=True)
class Cell:
    """World with its log, people, budget, share of them who evaluate, and whose policy is measured."""

    world: str
    people: int
    rho: float | None
    share: float
    policy: str

    @staticmethod
    def read(text):
        world, people, rho, share, policy = text.split(":")
        return Cell(world, int(people), None if rho == "none" else float(rho), float(share), policy)


def proposed(found, plan, policy, rng):
    """What is measured instead of the learnt policy, where a policy that is not better is asked for."""
    if policy == "learnt":
        return found
    advantage = found.advantage[0]
    usual = ~np.isnan(advantage)
    score = np.where(usual, rng.random(usual.shape) if policy == "random" else -np.nan_to_num(advantage), -np.inf)
    recommended = usual.any(-1)
    chosen = np.where(recommended[:, None], np.eye(usual.shape[1])[score.argmax(-1)], 0.0)
    H = plan.card.domain.horizon
    made = Policy(np.tile(chosen, (H, 1, 1)), np.tile(~recommended, (H, 1)))
    return replace(found, policy=made)


def run(logged, cell, seed):
    """One log, one split, one policy, one evaluation."""
    rng = np.random.default_rng(seed)
    people = logged.sample(cell.people, rng)
    noise, other = SeededNoise(int(rng.integers(2**62))), rng.random(cell.people) < cell.share
    learn, rest = ([f.filter(pl.Series(side[f["user_id"].to_numpy()])) for f in people] for side in (~other, other))
    agent, privacy = ("one-step", None) if cell.rho is None else ("dp-one-step", Privacy(rho=cell.rho))
    terms = Terms("campaign", agent, privacy, evaluate=Evaluate(people=cell.share))
    plan = OneStepLearner().plan(logged.card, terms).plan
    first = plan.stages["v"].draw(add_targets(plan, None, learn), noise)
    asked = next_question(plan, first)
    second = plan.stages["q"].draw(add_targets(plan, asked, learn), noise)
    learnt = learn_step(plan, terms, plan.joined((first, second), asked))
    learnt = replace(learnt, found=proposed(learnt.found, plan, cell.policy, rng))
    evaluation = OneStepEvaluation(plan, Fraction(str(cell.share)))

    def answer(stage, question):
        scored = isinstance(question, OneStepScores)
        exact = add_scores(logged.card, evaluation.scored, question, rest) if scored else add_people(question, rest)
        return evaluation.sums[stage].draw(exact, noise)

    final, told = evaluation.measure(learnt, evaluation.answers(learnt, answer), cell.share, 1)
    numbers = (
        logged.worth(learnt.policy),
        logged.worth(final.policy),
        policy_value(logged.mdp, logged.practice),
        *(x for i in (told.value, told.improvement) for x in (i.estimate, i.lower, i.upper)),
    )
    low, high = plan.span
    return (*numbers, told.practice.estimate, told.placebo, told.diagnostics[0].value, high - low)


def table():
    """What the rows say, a line a cell."""
    rows = pl.read_csv(RESULTS, schema_overrides={"rho": pl.String})
    true = pl.col("truth") - pl.col("practice")
    # what the page would say: |z| > 4 withholds
    said = (pl.col("placebo").abs() <= 4) & (pl.col("gain_low") > 0)
    told = rows.group_by("world", "people", "rho", "share", "policy", maintain_order=True).agg(
        pl.len().alias("runs"),
        pl.col("truth").mean(),
        (pl.col("gain") - true).mean().alias("bias"),
        ((pl.col("gain") - true).std() / pl.len().sqrt()).alias("se"),
        ((pl.col("value_low") <= pl.col("truth")) & (pl.col("truth") <= pl.col("value_high"))).sum().alias("v_held"),
        (pl.col("value_high") - pl.col("value_low")).mean().alias("v_width"),
        ((pl.col("gain_low") <= true) & (true <= pl.col("gain_high"))).sum().alias("held"),
        (pl.col("gain_high") - pl.col("gain_low")).mean().alias("width"),
        said.sum().alias("better"),
        (said & (true <= 0)).sum().alias("false"),
        pl.col("placebo").mean().alias("z"),
        (pl.col("placebo").abs() > 3).sum().alias("z3"),
        (pl.col("placebo").abs() > 4).sum().alias("z4"),
    )
    for r in told.iter_rows(named=True):
        n, least = r["runs"], beta.ppf(0.05, r["held"], r["runs"] - r["held"] + 1) if r["held"] else 0.0
        print(
            f"{r['world']:10} {r['people']:>7,} rho {r['rho']:>4} f {r['share']:.1f} {r['policy']:6} {n:>4} runs"
            f"  policy {r['truth']:.4f}  bias {r['bias']:+.4f}({r['se']:.4f})"
            f"  value {r['v_held'] / n:.3f} / {r['v_width']:.4f}"
            f"  gain {r['held'] / n:.3f} (>= {least:.3f}) / {r['width']:.4f}"
            f"  better {r['better'] / n:.2f}, false {r['false']}  z {r['z']:+.1f}, beyond 3: {r['z3']}, 4: {r['z4']}"
        )


def main(arguments):
    """Add rows, or print what they say."""
    if not arguments:
        return table()
    first, runs, cells = int(arguments[0]), int(arguments[1]), [Cell.read(a) for a in arguments[2:]]
    fresh = not RESULTS.is_file()
    with RESULTS.open("a", newline="") as file:
        out = csv.writer(file)
        if fresh:
            out.writerow(FIELDS)
        for seed in range(first, first + runs):
            for cell in cells:
                today = datetime.now(UTC).date().isoformat()
                rho = "none" if cell.rho is None else f"{cell.rho:g}"
                found = run(WORLDS[cell.world](cell.people), cell, seed)
                told = (f"{x:.6g}" for x in found)
                out.writerow((today, cell.world, cell.people, rho, cell.share, cell.policy, seed, *told))
                file.flush()
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
