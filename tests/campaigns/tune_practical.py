"""How the constants of ``practical`` were chosen: ``python -P -m tests.campaigns.tune_practical [draws]``.

Multiples of (C1, C2) = (5, 3) on ICU-Sepsis, on seeds that no reported figure uses.
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
from tests.campaigns.draws import shelf_card, world_of

SEED, MULTIPLES = 5000, ((0.4, 0.33), (0.6, 0.6), (1.0, 1.0), (1.0, 2.0), (1.6, 1.6))


def main(count: int) -> None:
    """Print a row a setting: mean (sd) of the true value for each multiple."""
    print("tables episodes rho  " + "  ".join(f"{5 * a:4.1f},{3 * b:4.1f}      " for a, b in MULTIPLES))
    for dynamics in ("per_step", "stationary"):
        card = shelf_card("icu_sepsis_uniform", dynamics)
        world, task = world_of(card, "icu_sepsis"), task_of(card)
        mdp, base = world.mdp(task.horizon), replace(constants("practical", 1), C1=5.0, C2=3.0)
        for episodes in (20_000, 100_000, 320_000):
            values: dict[tuple[float, tuple[float, float]], list[float]] = {}
            for i in range(count):
                counts = sample_counts(card, world, "uniform", episodes, np.random.default_rng(SEED + i))
                for rho in (0.1, 1.0):
                    release = count_sum(card, Ask(rho=rho)).draw(counts, SeededNoise(i))
                    private = private_counts(release, card)
                    for a, b in MULTIPLES:
                        c = replace(base, C1=base.C1 * a, C2=base.C2 * b)
                        plan = apvi(private, task, c, np.random.default_rng(0))
                        value = policy_value(mdp, lift(plan.policy.probabilities, world, card))
                        values.setdefault((rho, (a, b)), []).append(value)
            for rho in (0.1, 1.0):
                found = [values[rho, m] for m in MULTIPLES]
                shown = "  ".join(f"{np.mean(v):.4f} ({np.std(v, ddof=1):.4f})" for v in found)
                print(f"{dynamics:10} {episodes:>7} {rho:>4}  {shown}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
