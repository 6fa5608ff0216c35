"""One-step policies measured on other people, in known worlds: does the interval hold the truth, is "better" right.

Run it as ``python -P -m tests.campaigns.one_step_evaluation FIRST RUNS CELL ...``; a cell is
``world:people:rho:share:policy``, where the policy is ``learnt``, ``random`` (one supported action a state, at random),
or ``worst`` (what is learnt from rewards turned round).  It adds rows to ``results/one_step_evaluation.csv``; with no
argument it prints what they say, and writes what coverage a run may state: of rows of today's code, in worlds that hide
nothing.  Seeds below 9000 tuned constants and report nothing.  Simulation: seeded noise.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import polars as pl
from scipy.stats import beta

from pipeline.evaluation.coverage import ONE_STEP, code_of
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
from reports.facts.evaluation import LEANS
from reports.facts.verdict import PLACEBO
from tests.campaigns import rows as committed
from tests.campaigns.one_step_worlds import WORLDS

TABLE = "one_step_evaluation"
CELL = ("world", "people", "rho", "share", "policy")
NUMBERS = ("proposed", "truth", "practice", "value", "value_low", "value_high", "gain", "gain_low", "gain_high")
FIELDS = (*CELL, "seed", *NUMBERS, "own", "placebo", "hidden", "changed", "range")


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
    return (*numbers, told.practice.estimate, told.placebo, told.hidden, told.diagnostics[0].value, high - low)


def measured():
    """What the rows of today's code say, a row a cell."""
    rows = pl.DataFrame(committed.read(TABLE)).filter(code=code_of(ONE_STEP))
    rows = rows.with_columns(pl.col("people", "share", *FIELDS[6:]).cast(pl.Float64))
    true, gain = pl.col("truth") - pl.col("practice"), pl.col("gain")
    clear = (pl.col("gain_low") > 0) | (pl.col("gain_high") < 0)
    # what the page would say: |z| > 4 withholds, and a difference that may all be hidden is modelled
    hides = (pl.col("hidden") >= gain.abs()) | (pl.col("placebo") * gain.sign() > LEANS)
    seen = (pl.col("placebo").abs() <= PLACEBO) & ~(clear & hides)
    better = seen & (pl.col("gain_low") > 0)
    return rows.group_by(*CELL, maintain_order=True).agg(
        pl.len().alias("runs"),
        pl.col("truth").mean(),
        (gain - true).mean().alias("bias"),
        ((gain - true).std() / pl.len().sqrt()).alias("se"),
        pl.col("truth").is_between("value_low", "value_high").mean().alias("value_held"),
        (pl.col("value_high") - pl.col("value_low")).mean().alias("value_width"),
        true.is_between("gain_low", "gain_high").mean().alias("gain_held"),
        (pl.col("gain_high") - pl.col("gain_low")).mean().alias("gain_width"),
        better.sum().alias("better"),
        (better & (true <= 0)).sum().alias("false"),
        (better & ~true.is_between("gain_low", "gain_high")).sum().alias("wrong_size"),
        (pl.col("gain_low") > 0).sum().alias("above"),
        pl.col("placebo").mean().alias("z"),
        (pl.col("placebo").abs() > 3).sum().alias("z3"),
        (pl.col("placebo").abs() > 4).sum().alias("z4"),
    )


def table():
    """What the rows say, a line a cell."""
    for r in measured().iter_rows(named=True):
        n, held = r["runs"], round(r["gain_held"] * r["runs"])
        least = beta.ppf(0.05, held, n - held + 1) if held else 0.0
        print(
            f"{r['world']:13} {r['people']:>7,.0f} rho {r['rho']:>4} f {r['share']:.1f} {r['policy']:6} {n:>4} runs"
            f"  policy {r['truth']:.4f}  bias {r['bias']:+.4f}({r['se']:.4f})"
            f"  value {r['value_held']:.3f} / {r['value_width']:.4f}"
            f"  gain {r['gain_held']:.3f} (>= {least:.3f}) / {r['gain_width']:.4f}"
            f"  above 0: {r['above'] / n:.2f}, says better {r['better'] / n:.2f}, false {r['false']}, of wrong size"
            f" {r['wrong_size']}  z {r['z']:+.1f}, beyond 3: {r['z3']}, 4: {r['z4']}"
        )


def shown(_name):
    """The same for a page."""
    lines = ["log, policy | people, ρ | runs | policy | bias of the gain | value: held, width | gain: held, width"]
    lines[0] += " | above 0 | better | false | wrong size | placebo z"
    lines.append(" | ".join(["---"] * 12))
    for r in measured().iter_rows(named=True):
        n = r["runs"]
        held = (f"{round(r[f'{x}_held'] * n)}, {r[f'{x}_width']:.3f}" for x in ("value", "gain"))
        cells = (f"{r['world']}, {r['policy']}", f"{r['people']:,.0f}, {r['rho']}", n, f"{r['truth']:.4f}")
        bias = f"{r['bias']:+.4f} ({r['se']:.4f})"
        said = (r["above"], r["better"], r["false"], r["wrong_size"], f"{r['z']:+.1f}")
        lines.append(" | ".join(map(str, (*cells, bias, *held, *said))))
    return "\n".join(f"| {line} |" for line in lines)


def covered():
    """The cells in which states hide nothing, as runs read them."""
    rows = list[dict[str, object]]()
    for r in measured().filter(pl.col("rho") != "none").iter_rows(named=True):
        logged = WORLDS[r["world"]](int(r["people"]))
        if logged.bins is None:
            d = logged.card.domain
            where = {"dynamics": d.dynamics, "states": len(d.live_states), "horizon": d.horizon}
            of = {k: r[k] for k in (*CELL, "runs", "false")} | {"people": int(r["people"])}
            told = ("value_held", "value_width", "gain_held", "gain_width")
            rows.append(where | of | {k: f"{r[k]:.4f}" for k in told})
    committed.write("coverage_one_step", rows, "from 9000, as results/one_step_evaluation.csv has them")


def main(arguments):
    """Add rows, or print what they say."""
    if not arguments:
        table()
        return covered()
    first, runs, cells = int(arguments[0]), int(arguments[1]), [Cell.read(a) for a in arguments[2:]]
    for seed in range(first, first + runs):
        for cell in cells:
            rho = "none" if cell.rho is None else f"{cell.rho:g}"
            found = (f"{x:.6g}" for x in run(WORLDS[cell.world](cell.people), cell, seed))
            told = (cell.world, cell.people, rho, cell.share, cell.policy, seed, *found)
            committed.write(TABLE, [dict(zip(FIELDS, told, strict=True))], str(seed), (*CELL, "seed"))
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
