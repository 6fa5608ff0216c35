"""The winner of the constants study on ICU-Sepsis: ``python -P -m tests.campaigns.constants_on_icu_sepsis [draws]``.

True values of policies from per-step tables, each step by itself or drawn towards all steps, beside the declared
stationary table; (C1, C2) from half a standard deviation to the shipped constants.  Uniformly logged episodes.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from pipeline.agents.apvi import apvi
from pipeline.agents.pessimism import constants
from pipeline.declaration.card import task_of
from pipeline.evaluation.exact import lift
from pipeline.mdp.planning import policy_value
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.simulate import sample_counts
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.counts import private_counts
from tests.campaigns.constants_refinements import shared_steps
from tests.campaigns.draws import shelf_card, world_of

SEED, MULTIPLES = 20261124, ((0.5, 0.5), (1.0, 1.0), (2.0, 1.0), (5.0, 3.0), (8.0, 5.0))
TABLES = {
    "per step, own": ("per_step", None),
    "per step, shared": ("per_step", shared_steps),
    "declared stationary": ("stationary", None),
}


def main(count: int) -> None:
    """Print a row a setting: mean (sd) of the true value for each (C1, C2)."""
    print(f"{'tables':>20} {'episodes':>8} {'rho':>4}  " + "  ".join(f"{a:6g},{b:<8g}" for a, b in MULTIPLES))
    for episodes in (20_000, 100_000):
        for name, (dynamics, refine) in TABLES.items():
            card = shelf_card("icu_sepsis_uniform", dynamics)
            world, task = world_of(card, "icu_sepsis"), task_of(card)
            for rho in (0.1, 1.0):
                values: list[list[float]] = []
                for i in range(count):
                    rng = np.random.default_rng([SEED, episodes, i])
                    counts = sample_counts(card, world, "uniform", episodes, rng)
                    release = count_sum(card, Ask(rho=rho)).draw(counts, SeededNoise(np.random.SeedSequence([SEED, i])))
                    private = private_counts(release, card)
                    private = refine(private, task.bounds) if refine else private
                    plans = [
                        apvi(private, task, replace(constants("practical", 1), C1=a, C2=b), np.random.default_rng(i))
                        for a, b in MULTIPLES
                    ]
                    lifted = [lift(p.policy.probabilities, world, card) for p in plans]
                    values.append([policy_value(world.mdp(task.horizon), p) for p in lifted])
                v = np.array(values)
                shown = "  ".join(f"{m:.4f} ({s:.4f})" for m, s in zip(v.mean(0), v.std(0, ddof=1), strict=True))
                print(f"{name:>20} {episodes:>8} {rho:>4}  {shown}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
