"""How the constants of the centred linear agents were chosen: ``python -P -m tests.campaigns.linear_tuning [runs]``.

On instances and seeds that no reported figure uses (generator seeds 10 and 11).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipeline.agents.linear_backup import LinearConstants, linear_task
from pipeline.agents.one_shot import one_shot
from pipeline.agents.vapvi import vapvi
from pipeline.environments.linear_003 import LinearWorld, linear_003
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive import InteractiveRegression
from pipeline.statistics.linear_calibration import draw_one_shot, released_statistics
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.regression_rows import count_rows

WORLDS, SEED = (10, 11), 500
BASE, ASK = LinearConstants(), LinearTerms(Ask(Fraction(1)))
CHANGES = {
    "C 0": (replace(BASE, C=0.0), ASK),
    "C 0.1 (taken)": (BASE, ASK),
    "C 0.3": (replace(BASE, C=0.3), ASK),
    "ridge 0.1": (replace(BASE, ridge=0.1), ASK),
    "ridge 10": (replace(BASE, ridge=10.0), ASK),
    "paper's shift": (replace(BASE, shift="paper"), ASK),
    "Gram share 0.30": (BASE, replace(ASK, ask=Ask(Fraction(1), split={"gram": Fraction(3, 10)}))),
    "Gram share 0.60": (BASE, replace(ASK, ask=Ask(Fraction(1), split={"gram": Fraction(3, 5)}))),
    "one-shot": (BASE, replace(ASK, variant="one_shot")),
}


def lost(world: LinearWorld, terms: LinearTerms, episodes: int, seed: tuple[int, ...], c: LinearConstants) -> float:
    """v* - v of one run; logs, noise and ties have streams of their own."""
    # of four, as the rows of docs/lab/linear.md were drawn
    log, noise, _, ties = np.random.SeedSequence(seed).spawn(4)
    plan = LinearPlan(LinearDomain("simulated", "synthetic", world.mdp.horizon, episodes), terms, world.features)
    visits = world.counts(episodes, np.random.default_rng(log))
    rows, task = count_rows(plan, {"both": visits}, world.mdp.rewards), linear_task(plan)
    source, rng = SeededNoise(noise), np.random.default_rng(ties)
    if terms.variant == "one_shot":
        found = one_shot(released_statistics(plan, draw_one_shot(plan, rows, source)), task, c, rng)
    else:
        found = vapvi(InteractiveRegression(plan, rows, source), task, c, rng, centred=True)
    return float(world.mdp.start @ optimal_values(world.mdp)[1][0]) - policy_value(world.mdp, found.policy)


def main(runs: int) -> None:
    """Print a row a change: mean v* - v at (K, rho)."""
    cells = ((1000, 1), (1000, 25), (2000, 1))
    print(f"{'map':11} {'change':16}" + "".join(f"  K={k} rho={r:<4}" for k, r in cells))
    for scale in ("normalised", "balanced"):
        worlds = [linear_003(w, scale) for w in WORLDS]
        for name, (constants, ask) in CHANGES.items():
            shown = ""
            for episodes, rho in cells:
                asked = replace(ask, ask=replace(ask.ask, rho=Fraction(rho)))
                each = [
                    lost(w, asked, episodes, (SEED, i, j), constants) for i, w in enumerate(worlds) for j in range(runs)
                ]
                shown += f"  {np.mean(each):6.3f}       "
            print(f"{scale:11} {name:16}{shown}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
