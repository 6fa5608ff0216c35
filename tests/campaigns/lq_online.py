"""Private-OFU-RL at large K, and how explore-then-commit was tuned: ``python -P -m tests.campaigns.lq_online WHAT``.

``leave INSTANCE..`` prints when it leaves zero, one run a cell; ``tune`` shows K_0 and the sphere on other systems
(seeds 21 to 23) and other runs (100 to 103); ``beta INSTANCE..`` compares the two volumes of beta_k and two growths for
OFU-RL, 4 runs.
"""

from __future__ import annotations

import sys
from itertools import product

import numpy as np

from pipeline.simulation.registry import run
from pipeline.simulation.trial import Trial
from pipeline.studies.paper_004 import DELTA, EPSILONS, MORE_EPISODES, PRIVATE


def total(trial: Trial) -> float:
    return run(trial).regret[-1]


def leave(instances: list[int]) -> None:
    """Regret over zero's, and the first episode whose gain is not zero."""
    for number, K in product(instances, MORE_EPISODES):
        params = (("instance", number),)
        zero = total(Trial("zero", "lq", params, K))
        for epsilon, (calibration, options) in product(EPSILONS, PRIVATE):
            found = run(Trial("private-ofu-rl", "lq", params, K, epsilon, DELTA, calibration, options))
            f = found.facts
            said = f"{calibration:5}, {f['variant']:25} {found.regret[-1] / zero:.3f} left at {f['left_zero_at']}"
            rare = f"raised {f['eigenvalues_raised']}, apart {f['sets_apart']}, cut {f['gains_cut']}"
            print(
                f"{number} K={K:.0e} eps={epsilon:3} {said}; optimistic {f['optimistic_share']:.2f}; {rare}", flush=True
            )
        commit = total(Trial("explore-then-commit", "lq", params, K, 1.0, DELTA, "tight"))
        print(f"{number} K={K:.0e} explore-then-commit eps=1.0 {commit / zero:.4f}", flush=True)


def tune() -> None:
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


def beta(instances: list[int]) -> None:
    """Total regret of OFU-RL at K = 10^4."""
    for number, volume, growth in product(instances, ("declared", "released"), (1.2, 1.05)):
        knobs = (("growth", growth), ("volume", volume))
        found = [total(Trial("ofu-rl", "lq", (("instance", number),), 10_000, options=knobs, seed=s)) for s in range(4)]
        print(f"{number} {volume} growth {growth}: {np.mean(found):.1f} +- {np.std(found, ddof=1):.1f}", flush=True)


if __name__ == "__main__":
    chosen = [int(a) for a in sys.argv[2:]] or [1, 2, 3, 4, 5]
    if sys.argv[1:2] == ["tune"]:
        tune()
    elif sys.argv[1:2] == ["beta"]:
        beta(chosen)
    else:
        leave(chosen)
