"""What privacy costs on ICU-Sepsis: ``python -P -m tests.campaigns.icu_sepsis_study [draws]``.

True values of policies learnt from uniformly logged episodes, per step and stationary tables, budgets from 0.1 to none;
ten fresh logs and noises each.  The constants of ``practical`` were tuned on other seeds (docs/lab/index.md).
"""

from __future__ import annotations

import sys
import time

import numpy as np

from pipeline.evaluation.exact import best_bin_policy_value, truth
from pipeline.learners.terms import Planner
from pipeline.mdp.policy import uniform
from pipeline.statistics.ask import Ask
from tests.campaigns.draws import draws, shelf_card, world_of

ASKS = {"0.1": Ask(rho=0.1), "1": Ask(rho=1.0), "10": Ask(rho=10.0), "none": Ask()}
SEED = 20261121


def main(count: int) -> None:
    """Print baselines, then a row a setting."""
    began = time.time()
    card = shelf_card("icu_sepsis_uniform")
    world = world_of(card, "icu_sepsis")
    L, A, H = len(card.domain.live_states), len(card.domain.action_labels), card.domain.horizon
    base = truth(card, world, "uniform", uniform(H, L, A))
    clinician = truth(card, world, "clinician", uniform(H, L, A))["v_behavior"]
    print(f"optimal {base['v_star']:.4f}  clinician {clinician:.4f}  uniform {base['v_uniform']:.4f}")
    for dynamics in ("per_step", "stationary"):
        print(
            f"best policy of the exact {dynamics} binned process: "
            f"{best_bin_policy_value(card, world, 'uniform', dynamics):.4f}"
        )
    print(
        f"{'tables':>10} {'episodes':>8} {'rho':>5} {'value':>8} {'(sd)':>8} {'interval':>17} "
        f"{'inside':>8} {'abstains':>8}"
    )
    for dynamics in ("per_step", "stationary"):
        for episodes in (20_000, 100_000, 320_000):
            chosen = shelf_card("icu_sepsis_uniform", dynamics, episodes)
            found = list(draws(chosen, world, "uniform", episodes, ASKS, Planner(), count, SEED + episodes))
            for name in ASKS:
                of = [d[name] for d in found]
                v = np.array([d.v_policy for d in of])
                span = f"[{np.mean([d.lower for d in of]):.3f}, {np.mean([d.upper for d in of]):.3f}]"
                print(
                    f"{dynamics:>10} {episodes:>8} {name:>5} {v.mean():>8.4f} ({v.std(ddof=1):.4f}) {span:>17} "
                    f"{sum(d.inside for d in of):>4}/{len(of)} {np.mean([d.abstains for d in of]):>8.2f}",
                    flush=True,
                )
    print(f"{time.time() - began:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
