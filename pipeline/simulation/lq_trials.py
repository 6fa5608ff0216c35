"""Trials of linear-quadratic control (paper 004), in the worlds of :mod:`pipeline.simulation.lq_rollouts`.

Regret is exact: J of the gains of each episode by the Riccati recursion, less J*.  Knobs:

==========================  ====================================================================
``constants``               ``practical``, or ``paper``: a plan an episode, ln det V_k in β_k
``growth``                  a new plan when the episodes have grown by this factor (1.2; 1)
``counter``                 ``tree`` or ``epochs`` (one release of each plan's episodes)
``width``                   times β_k; only 1 has the theorem
``starts``                  of the optimistic search (4)
``explore``, ``radius``     of explore-then-commit: K_0, and the sphere as a part of gamma
==========================  ====================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.dp_lqr import LqConstants, LqTask, certainty_equivalence
from pipeline.agents.explore_then_commit import Exploration, explore, explore_then_commit
from pipeline.agents.lq_optimism import Search
from pipeline.agents.ofu_rl import OfuConstants, OptimisticPlan, batch_ends, ofu_rl
from pipeline.declaration.toml import CardError
from pipeline.environments.lq_systems import LqSystem, norm
from pipeline.mdp.riccati import clip_norm, riccati
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.noise import SimulatedWorld
from pipeline.privacy.release import Release
from pipeline.simulation.lq_rollouts import (
    LqPlayed,
    ask_of,
    control_of,
    controlled,
    lq_world,
    noise_of,
    play_lq,
    spent,
)
from pipeline.simulation.rollouts import as_printed
from pipeline.simulation.targets import SumsTarget
from pipeline.simulation.trial import NOTHING_CONTROLLED, OnlineAgent, Outcome, Plain, Trial, Trust
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq_layout import LqDomain, LqPlan
from pipeline.statistics.lq_message import LqMessage
from pipeline.statistics.lq_moments import draw_lq, released_moments
from pipeline.statistics.lq_regularizers import CountedLqRegularizer, LqCounter, lq_regularizer
from pipeline.statistics.lq_rows import Episodes, SimulatedRows
from pipeline.statistics.online_sum import asked_rho
from pipeline.statistics.regression import LqMoments

Array = NDArray[np.float64]

# how far, in norm, the fixed gain's model is from the truth
WRONG = 0.3
# lengths to which dp-lqr cuts states and successors, tuned on other systems (docs/lab/lq.md)
CUT = 0.5, 0.7
# of gamma: the sphere on which explore-then-commit explores; like K_0 chosen on other systems
RADIUS = 0.1
# an audit and a trial cut episodes alike: growth of the optimist's batches
_GROWTH = 1.2
_SEARCH, _MODEL, _LOGS = 2, 3, 4


def zero(trial: Trial) -> Outcome:
    """Does nothing."""
    world = lq_world(trial)
    return _constant(trial, world, world.zero_gains(), "control")


def fixed_gain(trial: Trial) -> Outcome:
    """Optimal gains of a model whose A and B are each 30 % off in norm, in a direction drawn for each run."""
    world, rng = lq_world(trial), trial.stream(_MODEL)
    off = [M + WRONG * norm(M) * E / norm(E) for M in (world.A, world.B) for E in [rng.normal(size=M.shape)]]
    return _constant(trial, world, clip_norm(riccati(off[0], off[1], world.cost)[0], world.gamma), "control")


def commit(trial: Trial) -> Outcome:
    """Explore-then-commit: one release of exploring episodes, then the gains of the estimate."""
    world = lq_world(trial)
    exploration = _exploration(trial, world)
    plan = _plan(trial, world, exploration)
    drawn: list[Release] = []

    def release(seen: Sequence[LqBatch]) -> LqMoments:
        drawn.append(_release(trial, plan, seen))
        return released_moments(plan, drawn[-1])

    agent = explore_then_commit(_task(world), trial.episodes, exploration, release, LqConstants())
    played = play_lq(world, agent, trial.stream(0))
    words = f"K_0 = {exploration.episodes:,} exploring episodes, counted, on the sphere of {exploration.radius:g}"
    facts = {"trust": "joint", "variant": "extra: one release", "constants": f"{words}; {_cuts()}"}
    facts |= spent(trial, plan.summed.rho) | {"left_zero_at": exploration.episodes + 1}
    # the server sees who explores, and what it does with the others is made of the release
    return _outcome(world, played, facts, _protected(plan, replace(drawn[-1], trust_model="joint")))


def release_of(trial: Trial) -> list[LqPlan]:
    """What an audit attacks: the one release of explore-then-commit or dp-lqr."""
    world = lq_world(trial)
    logged = Exploration(trial.episodes, world.gamma)
    return [_plan(trial, world, logged if trial.agent == "dp-lqr" else _exploration(trial, world))]


def message_of(trial: Trial) -> LqMessage:
    """What one episode adds to the optimist's sums."""
    world = lq_world(trial)
    return LqMessage(*world.shape, world.horizon, world.gamma)


def sums_of(trial: Trial) -> list[SumsTarget]:
    """What an audit attacks: the optimist's sums.

    Raises
    ------
    CardError
        If the counter is none of those there are.
    """
    ask = ask_of(trial)
    tree = "plain" if ask.calibration == "paper" else "bottom-up"
    return [SumsTarget(message_of(trial), ask, "fresh" if counter_of(trial) == "epochs" else tree)]


def cost_of(trial: Trial) -> tuple[Fraction | None, Fraction]:
    """What the optimist's sums cost one user, exactly (None without noise), and what is claimed.  Nobody plays."""
    return _regularizer(trial, lq_world(trial), _ends(trial)).guarantee.rho, asked_rho(ask_of(trial))


def dp_lqr(trial: Trial) -> Outcome:
    """dp-lqr: one release of the logs of as many exploring episodes, which others have played, then K episodes."""
    world, rng = lq_world(trial), trial.stream(_LOGS)
    task = _task(world)
    behaviour = Exploration(trial.episodes, world.gamma)
    plan = _plan(trial, world, behaviour)
    logs = play_lq(world, explore(task, behaviour), rng)
    seen = _release(trial, plan, logs.result)
    gains = certainty_equivalence(released_moments(plan, seen), task, LqConstants()).gains
    outcome = _constant(trial, world, gains, f"offline: {trial.episodes:,} exploring episodes were logged before")
    words = f"logs at no regret, controls on the sphere of {world.gamma:g}; {_cuts()}"
    facts = {"trust": "central", "constants": words} | spent(trial, plan.summed.rho)
    return replace(outcome, facts={**outcome.facts, **facts}, release=_protected(plan, seen))


def _exploration(trial: Trial, world: LqSystem) -> Exploration:
    knobs = trial.over(_EXPLORER)
    first = exploring(trial.episodes) if knobs["explore"] is None else int(knobs["explore"])
    radius = float(knobs["radius"]) * world.gamma
    return Exploration(min(first, trial.episodes - 1), radius)


def exploring(episodes: int) -> int:
    """K_0 of explore-then-commit: 20 sqrt(K), at most half of K."""
    return max(1, min(round(20 * math.sqrt(episodes)), episodes // 2))


def _growth(trial: Trial) -> float:
    return float(trial.knobs.get("growth", 1.0 if as_printed(trial) else _GROWTH))


def _ends(trial: Trial) -> Sequence[int]:
    return batch_ends(trial.episodes, _growth(trial))


def optimistic(trial: Trial) -> Outcome:
    """OFU-RL; on noisy sums Private-OFU-RL; without a width certainty equivalence, which never tries a control."""
    world, knobs, ends = lq_world(trial), trial.over(_OPTIMIST), _ends(trial)
    regularizer = _regularizer(trial, world, ends)
    width = 0.0 if trial.agent == "certainty-equivalence" else float(knobs["width"])
    volume = "released" if as_printed(trial) else "declared"
    c = OfuConstants(width=width, volume=volume, search=Search(starts=int(knobs["starts"])))
    agent = ofu_rl(control_of(world), regularizer, c, ends, trial.stream(_SEARCH))
    played = play_lq(world, agent, trial.stream(0))
    cost = spent(trial, regularizer.guarantee.rho)
    facts = _said(trial, width) | cost | _story(world, played.result, regularizer)
    return _outcome(world, played, facts, regularizer.release())


def _regularizer(trial: Trial, world: LqSystem, ends: Sequence[int]) -> CountedLqRegularizer:
    ask, handle = None if trial.epsilon is None else ask_of(trial), SimulatedWorld(trial.place)
    return lq_regularizer(message_of(trial), ends, ask, 1.0, handle, noise_of(trial), counter_of(trial))


def _story(world: LqSystem, plans: Sequence[OptimisticPlan], regularizer: CountedLqRegularizer) -> dict[str, Any]:
    """What happened on the way; facts of a simulation."""
    best = world.expected_cost(world.optimal_gains())
    ridge = regularizer.ridge()
    return {
        "left_zero_at": next((p.episode for p in plans if p.gains.any()), None),
        "plans": len(plans),
        "beta": plans[-1].beta,
        "noise_bound": ridge.lambda_min - 1.0,
        "optimistic_share": sum(p.cost <= best * (1 + 1e-9) for p in plans) / len(plans),
        "gains_cut": sum(p.cut for p in plans),
        "eigenvalues_raised": sum(p.raised for p in plans),
        "sets_apart": sum(p.empty for p in plans),
    }


def _said(trial: Trial, width: float) -> dict[str, Any]:
    counter = "" if trial.epsilon is None else counter_of(trial)
    variant = {"": "λ = 1", "tree": "tree over episodes", "epochs": "extra: one release a plan"}[counter]
    growth = _growth(trial)
    words = f"α = 0.05, plans at growth {growth:g}, {trial.knobs.get('starts', 4)} starts"
    if as_printed(trial):
        words += ", ln det V_k in β_k"
    if trial.epsilon is not None:
        words += ", printed Λ and ν" if trial.calibration == "paper" else ", Λ and ν by Gaussian tails"
    if width == 0:
        variant, words = "control", f"β = 0, λ = 1, plans at growth {growth:g}"
    elif width != 1:
        words += f", β times {width:g}: no theorem"
    return {"trust": "none" if trial.epsilon is None else "joint", "variant": variant, "constants": words}


def _plan(trial: Trial, world: LqSystem, exploration: Exploration) -> LqPlan:
    if trial.calibration == "paper":
        raise CardError(f"paper 004 prints no scale for {trial.agent}; use calibration = 'tight'")
    n, d = world.shape
    domain = LqDomain(
        trial.place, "synthetic", n, d, world.horizon, exploration.episodes, CUT[0], exploration.radius, CUT[1]
    )
    return LqPlan(domain, Ask(asked_rho(ask_of(trial))))


def _release(trial: Trial, plan: LqPlan, batches: Sequence[LqBatch]) -> Release:
    rows = (Episodes(b.states, b.controls, np.full(len(b.states), plan.domain.horizon)) for b in batches)
    return draw_lq(plan, SimulatedRows(tuple(rows)), noise_of(trial))


def _protected(plan: LqPlan, release: Release) -> Release | None:
    """What nothing protects is no release to whoever asks for one."""
    return None if plan.rho is None else release


def _outcome(world: LqSystem, played: LqPlayed, facts: dict[str, Any], release: Release | None) -> Outcome:
    eigenvalues = np.linalg.eigvalsh(played.gram)
    spread = {"largest_eigenvalue": float(eigenvalues[-1]), "smallest_eigenvalue": max(0.0, float(eigenvalues[0]))}
    return controlled(world, played.gains[-1], facts | spread, played.ends, played.losses, release)


def _constant(trial: Trial, world: LqSystem, gains: Array, variant: str) -> Outcome:
    facts = {"trust": "none", "variant": variant, "left_zero_at": 1 if gains.any() else None}
    return controlled(world, gains, facts, [trial.episodes])


def _task(world: LqSystem) -> LqTask:
    return LqTask(world.cost, world.gamma)


def counter_of(trial: Trial) -> LqCounter:
    """How the optimist adds up episodes."""
    return trial.over(_OPTIMIST, counter=("tree", "epochs"))["counter"]


def _cuts() -> str:
    return f"states cut to {CUT[0]}, successors to {CUT[1]}"


_EXPLORER: dict[str, Plain] = {"explore": None, "radius": RADIUS}
_OPTIMIST: dict[str, Plain] = {"constants": "practical", "growth": None, "counter": "tree", "width": 1.0, "starts": 4}


def _agent(
    play: Callable[[Trial], Outcome], trust: Trust = "none", plain: str | None = None, **more: Any
) -> OnlineAgent:
    return OnlineAgent(play, trust, plain, controls=NOTHING_CONTROLLED, **more)


AGENTS = {
    "ofu-rl": _agent(optimistic, defaults=_OPTIMIST),
    "private-ofu-rl": _agent(optimistic, "joint", "ofu-rl", defaults=_OPTIMIST, targets=sums_of, cost=cost_of),
    "dp-lqr": _agent(dp_lqr, "central", "certainty-equivalence", targets=release_of, from_logs=True),
    "explore-then-commit": _agent(commit, "joint", "certainty-equivalence", defaults=_EXPLORER, targets=release_of),
    "zero": _agent(zero),
    "fixed-gain": _agent(fixed_gain),
    "certainty-equivalence": _agent(optimistic, defaults=_OPTIMIST),
}
