"""Appendix F at a small size, with a desk on it: what the tests of the linear agents share."""

from __future__ import annotations

import numpy as np

from pipeline.agents.linear_backup import LinearConstants, LinearResult, linear_task
from pipeline.agents.vapvi import vapvi
from pipeline.online.linear import LinearWorld
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.linear_sums import InteractiveRegression, TalliedRows, count_rows

C, K, Q = LinearConstants(C=0.3), 400, 1024


def setting(ask: LinearTerms, w: LinearWorld, seed: int = 0) -> tuple[LinearPlan, TalliedRows]:
    H = w.mdp.horizon
    plan = LinearPlan(LinearDomain("003", "synthetic", H, K), ask, w.features)
    return plan, count_rows(plan, {"both": w.counts(K, np.random.default_rng(seed))}, w.mdp.rewards)


def planned(ask: LinearTerms, w: LinearWorld, c: LinearConstants = C, seed: int = 0) -> LinearResult:
    plan, rows = setting(ask, w, seed)
    desk = InteractiveRegression(plan, rows, SeededNoise(seed))
    return vapvi(desk, linear_task(plan), c, np.random.default_rng(0), centred=ask.variant != "paper")
