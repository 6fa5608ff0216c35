"""How much pessimism pays where bins hide state: ``python -P -m tests.campaigns.aggregated_states``.

ICU-Sepsis seen through four bins, uniform log, declared stationary, rho = 1: mean true value of the policy for each
(C1, C2), six fresh logs and noises.  (12, 8) was chosen on these seeds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipeline.agents.apvi import apvi
from pipeline.agents.pessimism import constants
from pipeline.declaration.card import task_of
from pipeline.evaluation.exact import truth
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.simulate import sample_counts
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.counts import private_counts
from pipeline.statistics.planning_counts import prepare
from tests.campaigns.draws import shelf_card, world_of

SEED, LOGS = 77, 6
MULTIPLES = ((0.0, 0.0), (0.5, 0.5), (2.0, 1.0), (5.0, 3.0), (8.0, 5.0), (12.0, 8.0))


def main() -> None:
    """Print a row a size of the log."""
    card = shelf_card("icu_sepsis_uniform", "stationary")
    world, task = world_of(card, "icu_sepsis"), task_of(card)
    print("people  " + "  ".join(f"{a:g}, {b:g}" for a, b in MULTIPLES))
    for people in (20_000, 100_000):
        values: list[list[float]] = []
        for i in range(LOGS):
            log = sample_counts(card, world, "uniform", people, np.random.default_rng([SEED, people, i]))
            release = count_sum(card, Ask(rho=1.0)).draw(log, SeededNoise(i))
            counts = prepare(private_counts(release, card), card, "practical").counts
            plans = [
                apvi(counts, task, replace(constants("practical", 1), C1=a, C2=b), np.random.default_rng(i))
                for a, b in MULTIPLES
            ]
            values.append([truth(card, world, "uniform", p.policy)["v_policy"] for p in plans])
        print(f"{people:>6}  " + "  ".join(f"{v:.4f}" for v in np.mean(values, 0)), flush=True)


if __name__ == "__main__":
    main()
