"""What quality to expect of a linear run before anything is spent: the same simulation as for counts, on features.

Any world is linear in one-hot features; in others a made-up world would be nobody's, so there it must be declared.
"""

# ruff: noqa: N806  (H, L, A, S as everywhere)

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pipeline.learners.linear_learning import drawn, learn_linear
from pipeline.learners.linear_request import LinearRequest
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.logged import Integers, Logged
from pipeline.simulation.surrogate import Drawn, best_allowed, evenly
from pipeline.statistics.count_layout import reward_lattice
from pipeline.statistics.rows import Side, TalliedRows, Tallies


def foreseen_linear(
    request: LinearRequest, setting: Callable[[np.random.Generator], Logged], episodes: int, draws: Sequence[int]
) -> list[Drawn]:
    """A simulated run for each seed of ``draws``; the card must be synthetic."""
    silent = replace(request, plan=replace(request.plan, ask=replace(request.plan.ask, rho=None)), start_rho=None)
    found: list[Drawn] = []
    for seed in draws:
        of_world, of_log, of_noise = np.random.SeedSequence((seed,)).spawn(3)
        logged = setting(np.random.default_rng(of_world))
        visits, paid = logged.visits_and_rewards(episodes, np.random.default_rng(of_log))
        tallies: dict[Side, Tallies] = {"both": _tallies(request, visits, paid)}
        policies = [_learnt(r, tallies, SeededNoise(of_noise)) for r in (request, silent)]
        best = best_allowed(logged.mdp, logged.task)
        losses = [best - logged.value(p) for p in policies]
        even = best - logged.value(evenly(logged.task))
        found.append(Drawn(losses[0], losses[1], even, best, float(policies[0].abstains.mean())))
    return found


def _learnt(request: LinearRequest, tallies: Mapping[Side, Tallies], noise: SeededNoise) -> Policy:
    rows = TalliedRows(request.features, lambda: tallies, "synthetic")
    return learn_linear(request, drawn(request, rows, noise)).policy


def _tallies(request: LinearRequest, visits: Integers, paid: Integers) -> Tallies:
    """Sums on the recipe's lattice: ``paid`` lattice steps of the card above the least reward."""
    lattice, steps = reward_lattice(request.card), request.plan.ask.value_steps
    n = visits.sum(-1)
    least = request.plan.reward_steps[0]
    rewards = np.floor(paid * (steps / lattice.steps)).astype(np.int64) + least * n
    ends = bool(request.card.domain.states.ends)
    L = visits.shape[1]
    onto = np.concatenate([visits[..., :L], visits[..., L:].sum(-1, keepdims=True)], axis=-1) if ends else visits
    return Tallies(onto, rewards, n[0].sum(-1))
