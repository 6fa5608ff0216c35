"""One-step policies measured on other people, in known worlds: is the interval around the truth, is "better" said."""

from __future__ import annotations

import csv
import sys
import time
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl

from pipeline.agents.one_step_value import Measured, measure, placebo_z
from pipeline.learners.one_step import OneStepLearner
from pipeline.learners.one_step_evaluation import OneStepEvaluation
from pipeline.learners.one_step_learning import learn_step, next_question
from pipeline.learners.terms import OneStep, Privacy, Terms
from pipeline.logs.one_step_rows import RETURN_STEPS, follow_sums, moment_sums, person_values
from pipeline.logs.target_sums import add_targets
from pipeline.mdp.planning import policy_value
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.simulate import sample_people
from tests.campaigns.one_step_figures import followed
from tests.campaigns.one_step_worlds import WORLDS


def sums_of(values, sd, clip, centre, rng):
    """Noisy mean of clipped values, and of its square."""
    y = np.clip(values / RETURN_STEPS - centre, -clip, clip) / clip
    return y.sum() + rng.normal(0, sd), (y**2).sum() + rng.normal(0, sd)


def run(logged, n, rho, share, seed, constants=None):
    rng = np.random.default_rng(seed)
    people = sample_people(logged.card, logged.mdp, logged.practice, n, rng)
    noise = SeededNoise(int(rng.integers(2**62)))
    other = rng.random(n) < share
    learn, rest = ([f.filter(pl.Series(side[f["user_id"].to_numpy()])) for f in people] for side in (~other, other))
    agent, privacy = ("one-step", None) if rho is None else ("dp-one-step", Privacy(rho=rho))
    terms = Terms("campaign", agent, privacy, one_step=OneStep(floor=0.1))
    plan = OneStepLearner().plan(logged.card, terms).plan
    first = plan.stages["v"].draw(add_targets(plan, None, learn), noise)
    asked = next_question(plan, first)
    second = plan.stages["q"].draw(add_targets(plan, asked, learn), noise)
    release = plan.joined((first, second), asked)
    learnt = learn_step(plan, terms, release)
    e = OneStepEvaluation(plan, share, None if rho is None else Fraction(str(rho)))
    proposal = e.propose(learnt.found, asked.values, release.tables["v_count"])
    confirmed = e.confirm(proposal, e.follow.draw(follow_sums(e.follow.layout, proposal.action, rest), noise))
    question = e.ask_moments(confirmed)
    model = e.fit(confirmed, question, e.moments.draw(moment_sums(e.moments.layout, question, e.range, rest), noise))
    wanted = e.ask_values(confirmed, model)
    each = [person_values(logged.card, wanted, e.range, f) for f in rest]
    psi, own, placebo = (np.concatenate([getattr(v, k) for v in each]) for k in ("value", "own", "placebo"))
    sd = 0.0 if e.values is None else float(6 / e.values) ** 0.5
    nb = len(psi) + rng.normal(0, sd)
    centre = float(np.average(proposal.value, weights=np.maximum(release.tables["v_count"].ravel(), 0)))

    def found(x, clip, centre=0.0):
        m = measure(*sums_of(x, sd, clip, centre, rng), nb, sd)
        return Measured(m.mean * clip + centre, m.error * clip)

    value, gain, control = found(psi, 6, centre), found(psi - own, 6), found(placebo, 2)
    truth, practice = followed(logged, e.policy(confirmed)) / e.range, policy_value(logged.mdp, logged.practice) / e.range
    z = placebo_z(control, confirmed, nb)
    return dict(
        world=logged.card.name, people=n, rho=rho, seed=seed, truth=truth, practice=practice,
        proposed=followed(logged, learnt.policy) / e.range,
        value=value.mean, value_half=value.half, gain=gain.mean, gain_half=gain.half, placebo=z,
        exact_gain=(psi - own).mean() / RETURN_STEPS,
        sd=(psi - own).std() / RETURN_STEPS,
        deviates=int((confirmed.proposal.action >= 0).sum()), clipped=float((abs(psi - own) > 6 * RETURN_STEPS).mean()),
    )  # fmt: skip


if __name__ == "__main__":
    world, n, rho, share, first, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])
    logged = WORLDS[world](n)
    rows = []
    for seed in range(first, first + count):
        start = time.time()
        rows.append(run(logged, n, None if rho == "none" else float(rho), share, seed))
        r = rows[-1]
        print({k: round(v, 4) if isinstance(v, float) else v for k, v in r.items()}, round(time.time() - start, 1), flush=True)
    d = pl.DataFrame(rows)
    print(d.select(pl.col("truth").mean(), (pl.col("gain") - pl.col("truth") + pl.col("practice")).mean().alias("bias"),
      (pl.col("exact_gain") - pl.col("truth") + pl.col("practice")).mean().alias("ebias"),
      ((pl.col("gain") - pl.col("truth") + pl.col("practice")).abs() < pl.col("gain_half")).mean().alias("held"),
      ((pl.col("value") - pl.col("truth")).abs() < pl.col("value_half")).mean().alias("vheld"),
      (2 * pl.col("gain_half")).mean().alias("width"), (2 * pl.col("value_half")).mean().alias("vwidth"), (pl.col("gain") > pl.col("gain_half")).mean().alias("better"), (pl.col("placebo").abs() > 3).mean().alias("z3"), (pl.col("placebo").abs() > 4).mean().alias("z4")))
