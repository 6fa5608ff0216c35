"""Milliseconds an episode of online agents: ``python -P -m tests.benchmarks.online_speed [whole | SIZE..]``.

``whole``: processor time of a whole private run, 10 000 episodes with noise, messages, plans and the exact regret, in
RiverSwim; the median of three.  Else linear mixture agents, block beside dense.

Every pair is timed in turns within a round, so that both meet the same machine; medians of the rounds.  ``default``:
the agents' own schedule (plans grow by 2 %), over the first 3000 episodes (S = 5) or 300 (S = 10).  ``every``: a plan
each episode, over the first 30 or 4.  Noise, messages and planning included, exact evaluation of the regret excluded.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from statistics import median

import numpy as np

from pipeline.agents.linopt_vi import linopt_vi
from pipeline.environments.riverswim import riverswim_homogeneous
from pipeline.simulation.mixture_settings import settings_of
from pipeline.simulation.mixture_trials import problem_of
from pipeline.simulation.registry import run
from pipeline.simulation.rollouts import Sampler
from pipeline.simulation.trial import Trial
from tests.environments.mixtures import tabular_mixture

ROUNDS = 3
AGENTS = (("ucrl-vtr", None, None), ("private-linopt-vi", 10.0, "tight"), ("ldp-ucrl-vtr", 10.0, "tight"))
# episodes of `default` and of `every`: dense ones cost seconds
PLAYED = {5: (3000, 30), 10: (300, 4)}


def milliseconds(states: int, agent: tuple, features: str, growth: float, episodes: int, declared: int) -> float:
    """An episode's, of a run cut after so many."""
    name, epsilon, calibration = agent
    world = tabular_mixture(riverswim_homogeneous(states))
    options = (("features", features), ("growth", growth))
    trial = Trial(name, "river", (), declared, epsilon, epsilon and 1e-5, calibration, options)
    problem, _ = problem_of(trial, settings_of(trial), world)
    play, sampler = linopt_vi(problem, growth, np.random.default_rng(0)), Sampler(world.mdp, np.random.default_rng(1))
    began, ask, done = time.perf_counter(), next(play), 0
    while done < episodes:
        done += ask.episodes or 1
        try:
            ask = play.send(sampler.episodes(ask))
        except StopIteration:
            break
    return 1000 * (time.perf_counter() - began) / done


PRIVATE = (
    *("dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle", "sdp-pe"),
    *("private-linopt-vi", "private-linopt-po", "ldp-ucrl-vtr"),
)


def whole(agent: str, states: int) -> float:
    """Milliseconds an episode of a whole run."""
    trial = Trial(agent, "riverswim_homogeneous", (("states", states),), 10_000, 10.0, 1e-5, "tight")
    took = list[float]()
    for seed in range(ROUNDS):
        began = time.process_time()
        run(replace(trial, seed=seed))
        took.append(1000 * (time.process_time() - began) / trial.episodes)
    return median(took)


def print_whole() -> None:
    """A line an agent."""
    print("| agent | S = 5, H = 10 | S = 10, H = 20 |\n| --- | --- | --- |")
    for agent in PRIVATE:
        # elimination plans over every cell of every step: minutes at S = 10
        sizes = (5,) if agent == "sdp-pe" else (5, 10)
        said = [f"{whole(agent, s):.3f}" for s in sizes] + ["–"] * (2 - len(sizes))
        print(f"| {agent} | {' | '.join(said)} |", flush=True)


def main(sizes: list[int]) -> None:
    """One line an agent, size and schedule."""
    print(f"{'S':>3} {'H':>3} {'d':>4} {'agent':18} {'schedule':8} {'block ms':>9} {'dense ms':>9} {'ratio':>7}")
    for states in sizes:
        for schedule, growth, played in zip(("default", "every"), (1.02, 1.0), PLAYED[states], strict=True):
            for agent in AGENTS:
                block, dense = ([] for _ in range(2))
                for _ in range(ROUNDS):
                    block.append(milliseconds(states, agent, "block", growth, played, 10_000))
                    dense.append(milliseconds(states, agent, "dense", growth, played, 10_000))
                ratio = median(d / b for b, d in zip(block, dense, strict=True))
                size = f"{states:>3} {2 * states:>3} {2 * states**2:>4} {agent[0]:18} {schedule:8}"
                print(f"{size} {median(block):>9.3f} {median(dense):>9.3f} {ratio:>7.1f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["whole"]:
        print_whole()
    else:
        main([int(x) for x in sys.argv[1:]] or list(PLAYED))
