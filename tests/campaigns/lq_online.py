"""How explore-then-commit was tuned: ``python -P -m tests.campaigns.lq_online``; K_0 and the sphere on other systems
(seeds 21 to 23) and other runs (100 to 103) than any reported figure uses.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from pipeline.simulation.registry import run
from pipeline.simulation.trial import Trial
from pipeline.studies.paper_004 import DELTA


def total(trial: Trial) -> float:
    return run(trial).regret[-1]


def main() -> None:
    """Median over systems and runs of the regret over zero's, an instance a column; then the geometric mean."""
    for K, share, radius in product((10_000, 100_000), (0.05, 0.1, 0.2, 0.3, 0.5), (0.03, 0.05, 0.1, 0.2, 0.3)):
        medians = []
        for number in range(1, 6):
            ratios = []
            for system, seed in product((21, 22, 23), range(100, 104)):
                params, knobs = (
                    (("instance", number), ("seed", system)),
                    (("explore", int(share * K)), ("radius", radius)),
                )
                zero = total(Trial("zero", "lq", params, K))
                asked = Trial("explore-then-commit", "lq", params, K, 1.0, DELTA, "tight", knobs, seed)
                ratios.append(total(asked) / zero)
            medians.append(float(np.median(ratios)))
        cells = " ".join(f"{m:.3f}" for m in medians)
        print(f"K={K} K_0/K={share} radius={radius}: {cells}  all {np.exp(np.mean(np.log(medians))):.3f}", flush=True)


if __name__ == "__main__":
    main()
