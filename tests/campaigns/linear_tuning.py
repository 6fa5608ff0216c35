"""How the constants of the centred linear agents were chosen: ``python -P -m tests.campaigns.linear_tuning [runs]``.

On instances and seeds that no reported figure uses (generator seeds 10 and 11).
"""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipeline.agents.linear_backup import LinearConstants
from pipeline.environments.linear_003 import linear_003
from pipeline.statistics.ask import Ask
from pipeline.statistics.linear_plan import LinearTerms
from tests.campaigns.linear_runs import run_linear

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
    "split halves": (BASE, replace(ASK, halves=True)),
}


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
                    run_linear(w, asked, episodes, (SEED, i, j), constants).suboptimality
                    for i, w in enumerate(worlds)
                    for j in range(runs)
                ]
                shown += f"  {np.mean(each):6.3f}       "
            print(f"{scale:11} {name:16}{shown}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
