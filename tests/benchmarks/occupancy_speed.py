"""Lagrangian programme against HiGHS and cvxpy, same 75 targets: ``python -P -m tests.benchmarks.occupancy_speed``.

The model and constraint are those that SDP-PE holds after 10^5 episodes of X = 5, A = 3, H = 5 (8.5 * 10^11 policies).
Prints medians of five rounds, ratios within a round, and the largest difference of an optimum.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, kron, vstack

from pipeline.agents.active_set import Constrained
from pipeline.agents.sdp_pe import BatchTask, Constants, sdp_pe
from pipeline.environments.mixture_worlds import random_tabular
from pipeline.mdp.planning import most_visits, most_visits_lp
from pipeline.privacy.losses import Trust
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.rollouts import play_batch_rollouts
from pipeline.statistics.batch_privatizers import BatchPrivatizer

ROUNDS = 5


def learnt() -> Constrained:
    """The active set after 10^5 episodes."""
    mdp = random_tabular(5, 3, 5, seed=0, successors=5).mdp(5)
    agent = sdp_pe(BatchTask(mdp.shape, mdp.start, 10**5), Constants(), np.random.default_rng(1))
    played = play_batch_rollouts(
        mdp, agent, BatchPrivatizer(Trust.SHUFFLE, 1.0, 1e-5), np.random.default_rng(0), SeededNoise(0)
    )
    active = played.answer.stages[-1].active
    assert isinstance(active, Constrained)
    return active


def by_highs(active: Constrained, targets: np.ndarray) -> np.ndarray:
    """The linear programme by scipy's HiGHS, matrices built once."""
    H, S, A = active.bonus.shape
    cells, states = H * S * A, kron(eye_array(S), np.ones((1, A)))
    rows = []
    for h in range(H):
        row = [csr_array((S, S * A)) for _ in range(H)]
        row[h] = states
        if h:
            row[h - 1] = -csr_array(active.P[h - 1].reshape(S * A, S).T)
        rows.append(row)
    equal = vstack([csr_array(np.hstack([np.asarray(block.todense()) for block in row])) for row in rows])
    level = np.concatenate([active.start, np.zeros((H - 1) * S)])
    found = np.empty(len(targets))
    for i, (h, s, a) in enumerate(targets):
        goal = np.zeros(cells)
        goal[(h * S + s) * A + a] = -1.0
        answer = linprog(
            goal, A_ub=-active.bonus.reshape(1, -1), b_ub=[-active.floor], A_eq=equal, b_eq=level, method="highs"
        )
        found[i] = -answer.fun
    return found


def main() -> None:
    """Print one line a route."""
    active = learnt()
    targets = np.argwhere(np.ones(active.bonus.shape))
    P, start, bonus, floor = active.P, active.start, active.bonus, active.floor
    routes = {
        "Lagrangian programme": lambda: most_visits(P, start, bonus, floor, targets, np.random.default_rng(0)).visits,
        "scipy, HiGHS": lambda: by_highs(active, targets),
        "cvxpy with a parameter, HiGHS": lambda: most_visits_lp(P, start, bonus, floor, targets),
    }
    times: dict[str, list[float]] = {name: [] for name in routes}
    found: dict[str, np.ndarray] = {}
    for route in routes.values():
        route()
    for _ in range(ROUNDS):
        for name, route in routes.items():
            began = time.perf_counter()
            found[name] = route()
            times[name].append(1e3 * (time.perf_counter() - began))
    ours = np.array(times["Lagrangian programme"])
    free = most_visits(P, start, bonus, -np.inf, targets, np.random.default_rng(0)).visits
    binding = int((free > found["Lagrangian programme"] + 1e-9).sum())
    print(f"{len(targets)} targets, the constraint binds in {binding}")
    for name, ms in times.items():
        off = np.abs(found[name] - found["Lagrangian programme"]).max()
        print(f"{name:32} {np.median(ms):8.1f} ms  {np.median(np.array(ms) / ours):6.0f}x  difference {off:.1e}")


if __name__ == "__main__":
    main()
