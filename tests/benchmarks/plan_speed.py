"""From a release to policy, bounds and baselines: ``python -P -m tests.benchmarks.plan_speed [S [A [H]]]``.

A stationary card; the release is drawn once, outside of the timing.  Processor seconds of one thread and the process's
peak, beside one pass over the kernel, ``H`` times ``P @ V``, in the same run.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from pipeline.declaration.card import Card
from pipeline.learners.tabular_learning import learn
from pipeline.learners.terms import Planner
from pipeline.privacy.noise import OsNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.layout import ExactSums
from tests.benchmarks.scale_speed import peak_megabytes
from tests.conftest import card_dict


def main(S: int = 1000, A: int = 25, H: int = 50) -> None:
    """Print one line."""
    domain = {
        "horizon": H,
        "dynamics": "stationary",
        "states": {"column": "state", "labels": S, "ends": ["end"]},
        "actions": {"column": "action", "labels": A},
    }
    card = Card.model_validate(card_dict(domain=domain, reward={"range": [0.0, 1.0], "steps": 1}))
    made, rng = count_sum(card, Ask(rho=1.0)), np.random.default_rng(0)
    shapes = {m.table: m.shape for m in made.mechanisms}
    tables = {name: rng.poisson(20.0, shape).astype(np.int64) for name, shape in shapes.items()}
    release = made.draw(ExactSums("tiny", "synthetic", "stationary", tables), OsNoise())
    del tables
    # the peak of what follows alone
    Path("/proc/self/clear_refs").write_text("5")
    before, began = peak_megabytes(), time.process_time()
    learnt = learn(card, Planner(), release)
    whole = time.process_time() - began
    peak = peak_megabytes()
    P, V = np.ones((S * A, S + 1)), np.ones(S + 1)
    began = time.process_time()
    for _ in range(H):
        P @ V
    passed = time.process_time() - began
    print(f"S = {S}, A = {A}, H = {H}, stationary: {len(learnt.baselines)} baselines; 1 thread")
    print(f"learn {whole:.2f} CPU s, {H} passes {passed:.2f}; peak {peak:.0f} MB, {before:.0f} before")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
