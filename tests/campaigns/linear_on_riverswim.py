"""DP-APVI, DP-VAPVI and the one-shot release on the shipped RiverSwim log: v* - v over draws of the noise.

Run it as ``python -P -m tests.campaigns.linear_on_riverswim DRAWS``.  Simulation: seeded noise, nothing is private.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from pipeline.declaration.card import load_card
from pipeline.environments.worlds import load_world
from pipeline.evaluation.exact import truth
from pipeline.learners.linear_learning import drawn, learn_linear
from pipeline.learners.linear_request import linear_request
from pipeline.learners.tabular_learning import learn
from pipeline.learners.terms import Planner, Privacy, Terms
from pipeline.logs.aggregate import aggregate
from pipeline.logs.ingest import ingest
from pipeline.logs.regression_sums import tally
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.regression_rows import TalliedRows

ROOT = Path(__file__).resolve().parents[2]


def main(draws: int) -> None:
    """Print one row a budget and agent."""
    card = load_card(ROOT / "datasets" / "riverswim" / "card.toml")
    world = load_world("riverswim", card.folder)
    with tempfile.TemporaryDirectory() as store:
        snapshot = ingest(card, Path(store))
        counts, sums = aggregate(snapshot, card), tally(snapshot, card, 1024, (0, 1024), split=False)
    print(f"{'rho':>6}  {'agent':12} {'v* - v':>8} {'(sd)':>8} {'lower':>8}  abstains")
    for rho in (0.01, 0.1, 1.0):
        for agent in ("dp-apvi", "dp-vapvi", "dp-one-shot"):
            lost, lower, silent = [], [], []
            for seed in range(draws):
                if agent == "dp-apvi":
                    asked, planner = (
                        count_sum(card, Ask(rho, tables="two_tables")),
                        Planner(constants="tail", bounds="tail"),
                    )
                    learnt = learn(card, planner, asked.draw(counts, SeededNoise(seed)))
                    policy = learnt.plan.policy
                else:
                    method = "one-shot" if agent == "dp-one-shot" else "vapvi"
                    request = linear_request(card, Terms("here", agent, Privacy(rho=rho)), method)
                    rows = TalliedRows(request.features, lambda: sums, card.kind)
                    learnt = learn_linear(request, drawn(request, rows, SeededNoise(seed)))
                    policy = learnt.policy
                lost.append(truth(card, world, "right-0.8", policy)["suboptimality"])
                lower.append(learnt.value["lower"])
                silent.append(policy.abstains.mean())
            told = f"{np.mean(lost):8.4f} {np.std(lost):8.4f} {np.mean(lower):8.3f}  {np.mean(silent):.0%}"
            print(f"{rho:6g}  {agent:12} {told}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
