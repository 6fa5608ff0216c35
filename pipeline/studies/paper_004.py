"""The bench of paper 004: Private-OFU-RL beside OFU-RL, what learns nothing, and one release instead of a tree.

The paper prints no experiment.  Worlds: five systems of the sizes and norms of Assumption 1, and a damped double
integrator; delta = 1e-5, alpha = 0.05, a new plan whenever the episodes have grown by 1.2.  Every agent of a (world, K,
run) meets the same plant noise.  Up to K = 10^4 every episode is simulated; longer stretches of one plan are 4 096
simulated episodes and exact means (:class:`~pipeline.mdp.rollout.LqBatch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipeline.simulation.trial import Plain, Trial

DELTA, EPISODES = 1e-5, 10_000
EPSILONS = (0.5, 1.0, 4.0)
WORLDS: tuple[tuple[str, tuple[tuple[str, Plain], ...]], ...] = (
    *(("lq", (("instance", i),)) for i in range(1, 6)),
    ("double_integrator", ()),
)
# where Private-OFU-RL is followed until it leaves zero
LONG, MORE_EPISODES = WORLDS[:1] + WORLDS[4:5], (100_000, 1_000_000, 10_000_000, 100_000_000)
RUNS, PRIVATE_RUNS, MORE_RUNS = 10, 5, 3

Options = tuple[tuple[str, Plain], ...]
Calibration = Literal["tight", "paper"]
EPOCHS: Options = (("counter", "epochs"), ("growth", 2.0))
PRIVATE: tuple[tuple[Calibration, Options], ...] = (("paper", ()), ("tight", ()), ("tight", EPOCHS))


def grid(
    worlds: Sequence[tuple[str, Options]] = WORLDS,
    episodes: Sequence[int] = (EPISODES,),
    runs: int = RUNS,
    private_runs: int = PRIVATE_RUNS,
) -> list[Trial]:
    """Every agent at every K in every world; the private ones at each epsilon."""
    found: list[Trial] = []
    for world, params in worlds:
        for K in episodes:  # noqa: N806
            found += [Trial("zero", world, params, K)]
            found += [Trial("certainty-equivalence", world, params, K)]
            found += [Trial(a, world, params, K, seed=s) for a in ("fixed-gain", "ofu-rl") for s in range(runs)]
            for epsilon in EPSILONS:
                found += [
                    Trial("private-ofu-rl", world, params, K, epsilon, DELTA, calibration, options, s)
                    for calibration, options in PRIVATE
                    for s in range(private_runs)
                ]
                found += [
                    Trial(agent, world, params, K, epsilon, DELTA, "tight", seed=s)
                    for agent in ("dp-lqr", "explore-then-commit")
                    for s in range(runs)
                ]
    return found


def full_grid() -> list[Trial]:
    """The same with more runs, and two worlds up to the K at which Private-OFU-RL leaves zero.

    dp-lqr is left out there: logs of as many episodes say nothing new from 10^5 on.
    """
    more = [t for t in grid(LONG, MORE_EPISODES, MORE_RUNS, MORE_RUNS) if t.agent != "dp-lqr"]
    return grid(runs=2 * RUNS, private_runs=2 * PRIVATE_RUNS) + more
