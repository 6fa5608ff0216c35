"""What privacy costs on paper 003's bench: ``python -P -m tests.campaigns.linear_study [runs an instance]``.

Appendix F, generator seeds 0 and 1 (most significant bit first), 10 runs each; mean (sd over all runs) of v* - v.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np

from pipeline.agents.linear_backup import LinearConstants, linear_task
from pipeline.agents.pevi import theory_beta
from pipeline.environments.linear_003 import LinearWorld, linear_003
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.statistics.ask import Ask
from pipeline.statistics.linear_calibration import true_rho
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from tests.campaigns.linear_runs import run_linear

WORLDS, SEED = (0, 1), 1
PRINTED, OURS = LinearConstants(shift="paper"), LinearConstants()
EPISODES = (5, 100, 1000, 2000, 5000, 10_000, 100_000)
ROUTES = {
    "paper's noise, literal": ("literal", PRINTED, LinearTerms(Ask(None, calibration="paper"), "paper")),
    "paper's noise, normalised": ("normalised", PRINTED, LinearTerms(Ask(None, calibration="paper"), "paper")),
    "paper's targets, tight": ("normalised", OURS, LinearTerms(Ask(None), "paper")),
    "centred, normalised": ("normalised", OURS, LinearTerms(Ask(None))),
    "one-shot, normalised": ("normalised", OURS, LinearTerms(Ask(None), "one_shot")),
    "centred, balanced": ("balanced", OURS, LinearTerms(Ask(None))),
    "one-shot, balanced": ("balanced", OURS, LinearTerms(Ask(None), "one_shot")),
}


def shown(values: list[float]) -> str:
    """Mean (sd)."""
    return f"{np.mean(values):5.2f} ({np.std(values, ddof=1):4.2f})"


def baselines(worlds: list[LinearWorld]) -> None:
    """What no learning gives."""
    for i, w in zip(WORLDS, worlds, strict=True):
        best, (H, S, A) = float(w.mdp.start @ optimal_values(w.mdp)[1][0]), w.mdp.shape
        even, first = np.full((H, S, A), 1 / A), np.zeros((H, S, A))
        first[..., 0] = 1
        rows = {"behaviour": np.tile(w.behaviour, (H, 1, 1)), "uniform": even, "always 0": first}
        told = "  ".join(f"{name} {best - policy_value(w.mdp, p):.2f}" for name, p in rows.items())
        print(f"seed {i}: v* = {best:.6f}; v* - v: {told}")


def main(runs: int) -> None:
    """Print the tables."""
    began = time.perf_counter()
    maps = {scale: [linear_003(w, scale) for w in WORLDS] for scale in ("literal", "normalised", "balanced")}
    baselines(maps["normalised"])
    for scale in ("literal", "normalised"):
        plan = LinearPlan(
            LinearDomain("003", "synthetic", 20, 1000),
            LinearTerms(Ask(Fraction(1), calibration="paper"), "paper"),
            maps[scale][0].features,
        )
        print(f"paper's noise at rho = 1 truly spends {float(true_rho(plan) or 0):.3f} with {scale} features")
    print(f"{'route':27} {'rho':>4}" + "".join(f"{'K=' + str(k):>13}" for k in EPISODES))

    def row(name: str, rho: int | None, scale: str, ask: LinearTerms, constants: LinearConstants, **kwargs) -> None:
        asked, line = replace(ask, ask=replace(ask.ask, rho=None if rho is None else Fraction(rho))), ""
        for k in EPISODES:
            beta = kwargs.get("beta")
            each = [
                run_linear(
                    w, asked, k, (SEED, i, j), constants, kwargs.get("agent", "vapvi"), beta(w, k) if beta else None
                ).suboptimality
                for i, w in enumerate(maps[scale])
                for j in range(runs)
            ]
            line += f"{shown(each):>13}"
        print(f"{name:27} {rho or 'none':>4}{line}", flush=True)

    def beta(w: LinearWorld, k: int) -> float:
        plan = LinearPlan(LinearDomain("003", "synthetic", 20, k), LinearTerms(Ask(None), variance=False), w.features)
        return theory_beta(linear_task(plan), 0.1)

    row("VAPVI, normalised", None, "normalised", LinearTerms(Ask(None), "paper"), OURS)
    row("VAPVI, balanced", None, "balanced", LinearTerms(Ask(None)), OURS)
    row(
        "PEVI, beta = C sqrt(d)",
        None,
        "normalised",
        LinearTerms(Ask(None), "paper", variance=False),
        OURS,
        agent="pevi",
    )
    row(
        "PEVI, theory beta",
        None,
        "normalised",
        LinearTerms(Ask(None), "paper", variance=False),
        OURS,
        agent="pevi",
        beta=beta,
    )
    for rho in (1, 5, 25):
        for name, (scale, constants, ask) in ROUTES.items():
            row(name, rho, scale, ask, constants)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
