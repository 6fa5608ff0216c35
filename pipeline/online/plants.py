"""Linear plants: their world, exact costs, long batches from their moments; trials of every agent of plants.

Regret is exact: J of the gains of each episode by the Riccati recursion, less J*.  Knobs:

==========================  ====================================================================
``constants``               ``practical``, or ``paper``: a plan an episode, ln det V_k in β_k
``growth``                  a new plan when the episodes have grown by this factor (1.2; 1)
``counter``                 ``tree`` or ``epochs`` (one release of each plan's episodes)
``width``                   times β_k; only 1 has the theorem
``starts``                  of the optimistic search (4)
``explore``, ``radius``     of explore-then-commit: K_0, and the sphere as a part of gamma
``first``, ``certainty``    of adaptive LQR: :class:`~pipeline.agents.adaptive_lqr.AdaptiveConstants`
``norm``                    of adaptive LQR: declared bound on the Frobenius norm of [A, B] (1, or the next half above)
==========================  ====================================================================
"""

# ruff: noqa: N806  (the letters of the paper)
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from pipeline.agents.adaptive_lqr import AdaptiveConstants, Epoch, ResidualQuery, adaptive_lqr, prior, recentred_lqr
from pipeline.agents.dp_lqr import LqConstants, LqTask, certainty_equivalence, explore_then_commit
from pipeline.agents.ofu_rl import LqControl, OfuConstants, OfuPlan, Search, batch_ends, ofu_rl
from pipeline.arrays import Array
from pipeline.declaration.toml import CardError
from pipeline.mdp.riccati import gain_matrices, occupancies
from pipeline.mdp.rollout import LinearRollout, LqBatch, play_every
from pipeline.online.rollouts import Played, as_printed, play, typed_place
from pipeline.online.trial import NOTHING_CONTROLLED, OnlineAgent, Outcome, Plain, SumsTarget, Trial, staged_curve
from pipeline.privacy.budget import up
from pipeline.privacy.continual import Once
from pipeline.privacy.losses import Trust, safe_epsilon
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.privacy.release import Release
from pipeline.statistics import lq
from pipeline.statistics.private_sum import PrivateSum, asked_rho, begin, cost_of, stacked, tight
from pipeline.statistics.regression import LqMoments
from pipeline.worlds.plants import LqSystem, explorer, simulate, wrong_model

# longer batches are this many episodes and exact means
SIMULATED = 4096


class PlantWorld:
    """Answers rollouts in a plant; ``rng`` belongs to the world alone, so that agents can share worlds.

    ``gains``: of each rollout ``(H, d, n)``.
    ``gram`` ``(n+d, n+d)``: sum of z z' over all episodes: raw, for the reader of a simulation only.
    """

    def __init__(self, world: LqSystem, rng: np.random.Generator) -> None:
        self.world, self._rng = world, rng
        self._best = world.expected_cost(world.optimal_gains())
        self.gains, self.gram = list[Array](), np.zeros((sum(world.shape),) * 2)

    def __call__(self, rollout: LinearRollout) -> tuple[LqBatch, int, float]:
        """Raises ValueError if gains and exploration can ask for a control longer than gamma: it has no exact cost."""
        batch = rolled_out(self.world, rollout, self._rng)
        self.gains.append(rollout.gains)
        self.gram += moments(self.world, rollout)[0] * rollout.episodes
        return batch, rollout.episodes, rollout_cost(self.world, rollout) - self._best


def rolled_out(world: LqSystem, rollout: LinearRollout, rng: np.random.Generator) -> LqBatch:
    """Episodes of a rollout; of a long one the first :data:`SIMULATED`, with the exact means of the others."""
    longest, most = np.linalg.norm(rollout.gains, 2, axis=(1, 2)).max(), world.gamma * (1 + 1e-9)
    if longest > most:
        raise ValueError(f"gains must have a norm of at most gamma = {world.gamma}; cut them")
    if longest + rollout.explore > most:
        raise ValueError("gains and the radius of exploration must be at most gamma together")
    states, controls = simulate(world, replace(rollout, episodes=min(rollout.episodes, SIMULATED)), rng)
    means = moments(world, rollout) if rollout.episodes > SIMULATED else None
    return LqBatch(states, controls, rollout.episodes, means)


def rollout_cost(world: LqSystem, rollout: LinearRollout) -> float:
    """Exact expected cost of one episode, exploration included."""
    B, R = world.B, world.cost.R
    P = gain_matrices(world.A, B, world.cost, rollout.gains)
    pushed = np.sum(R + B.T @ P[1:] @ B, axis=0).trace() * rollout.explore**2 / len(R)
    return world.expected_cost(rollout.gains) + float(pushed)


def lost_by(world: LqSystem, gains: Array) -> float:
    """J - J* of gains ``(H, d, n)``, exactly."""
    return world.expected_cost(gains) - world.expected_cost(world.optimal_gains())


def moments(world: LqSystem, rollout: LinearRollout) -> tuple[Array, Array]:
    """Exact means of one episode's sums of z z' ``(D, D)`` and z x_next' ``(D, n)``."""
    AB, gains = np.hstack([world.A, world.B]), rollout.gains
    (gram,) = occupancies(AB[None], gains, len(gains), world.start, world.covariance, rollout.explore)
    return gram, gram @ AB.T


def controlled(
    world: LqSystem,
    gains: Array,
    facts: Mapping[str, Any],
    ends: Sequence[int],
    losses: Sequence[float] | None = None,
    release: Release | None = None,
) -> Outcome:
    """The outcome of a run that ends with gains ``(H, d, n)``."""
    lost = lost_by(world, gains)
    marks, summed = staged_curve(ends, [lost] if losses is None else losses)
    return Outcome(marks, summed, {**facts, "final_loss": lost}, gains.tolist(), release, sum(world.shape))


def lq_world(trial: Trial) -> LqSystem:
    """The trial's system.

    Raises CardError if there is no such system.
    """
    return typed_place(trial.world, trial.params, LqSystem)


def spent(trial: Trial, rho: Fraction | None) -> dict[str, Any]:
    """Loss of the noise drawn, by the conversion that is valid for every rho."""
    if rho is None or trial.delta is None:
        return {}
    spent = up(rho)
    return {"true_rho": spent, "true_epsilon": safe_epsilon(spent, trial.delta)}


def control_of(world: LqSystem) -> LqControl:
    """Public parameters of a system."""
    return LqControl(world.cost, world.gamma, world.noise.bound, world.start, world.covariance)


def noise_of(trial: Trial) -> SeededNoise:
    """The trial's noise, apart from the world's stream."""
    micro_epsilon = 0 if trial.epsilon is None or math.isinf(trial.epsilon) else round(trial.epsilon * 10**6)
    return trial.noise(_NOISE, micro_epsilon)


# lengths to which dp-lqr cuts states and successors, tuned on other systems
CUT = 0.5, 0.7
_CUTS = f"states cut to {CUT[0]}, successors to {CUT[1]}"
# of gamma: the sphere on which explore-then-commit explores; like K_0 chosen on other systems
RADIUS = 0.1
# an audit and a trial cut episodes alike: growth of the optimist's batches
_GROWTH = 1.2
_NOISE, _SEARCH, _MODEL, _LOGS, _PLANNER = 1, 2, 3, 4, 5


def zero(trial: Trial) -> Outcome:
    """Does nothing."""
    world = lq_world(trial)
    return _constant(trial, world, world.zero_gains(), "control")


def fixed_gain(trial: Trial) -> Outcome:
    """Optimal gains of a model whose A and B are each 30 % off in norm, in a direction drawn for each run."""
    world = lq_world(trial)
    return _constant(trial, world, wrong_model(world, trial.stream(_MODEL)), "control")


def commit(trial: Trial) -> Outcome:
    """Explore-then-commit: one release of exploring episodes, then the gains of the estimate."""
    world = lq_world(trial)
    exploration = _exploration(trial, world)
    plan = _plan(trial, world, exploration)
    drawn: list[Release] = []

    def release(batches: Sequence[LqBatch]) -> LqMoments:
        drawn.append(lq.draw_lq(plan, batches, noise_of(trial)))
        return lq.released_moments(plan, drawn[-1])

    agent = explore_then_commit(_task(world), trial.episodes, exploration, release, LqConstants())
    plant = PlantWorld(world, trial.stream(0))
    played = play(agent, plant)
    words = f"K_0 = {exploration.episodes:,} exploring episodes, counted, on the sphere of {exploration.explore:g}"
    facts = {"trust": "joint", "variant": "extra: one release", "constants": f"{words}; {_CUTS}"}
    facts |= spent(trial, plan.rho) | {"left_zero_at": exploration.episodes + 1}
    # the server knows which users explore; the controls of the others depend on the release alone
    return _outcome(plant, played, facts, replace(drawn[-1], trust_model="joint"))


def release_of(trial: Trial) -> list[PrivateSum]:
    """The target of an audit: the one release of explore-then-commit or dp-lqr."""
    world = lq_world(trial)
    logged = explorer(world, "sphere", trial.episodes)
    return [_plan(trial, world, logged if trial.agent == "dp-lqr" else _exploration(trial, world))]


def message_of(trial: Trial) -> lq.LqMessage:
    """Message of one episode to the optimist's sums."""
    world = lq_world(trial)
    return lq.LqMessage(*world.shape, world.horizon, (1.0, world.gamma, 1.0))


def sums_of(trial: Trial) -> list[SumsTarget]:
    """The target of an audit: the optimist's sums.

    Raises CardError if the counter is none of those there are.
    """
    ask = trial.ask()
    tree = "plain" if ask.calibration == "paper" else "bottom-up"
    return [SumsTarget(message_of(trial), ask, "fresh" if counter_of(trial) == "epochs" else tree)]


def optimist_cost(trial: Trial) -> tuple[Fraction | None, Fraction]:
    """Exact cost of the optimist's sums to one user (None without noise), and the claim; plays no episode."""
    return _regularizer(trial, lq_world(trial), _ends(trial)).guarantee.rho, asked_rho(trial.ask())


def dp_lqr(trial: Trial) -> Outcome:
    """dp-lqr: one release of the logs of as many exploring episodes of other people, then K episodes."""
    world, rng = lq_world(trial), trial.stream(_LOGS)
    task = _task(world)
    behaviour = explorer(world, "sphere", trial.episodes)
    plan = _plan(trial, world, behaviour)
    logs = play(play_every(behaviour), PlantWorld(world, rng))
    release = lq.draw_lq(plan, logs.result, noise_of(trial))
    gains = certainty_equivalence(lq.released_moments(plan, release), task, LqConstants()).gains
    outcome = _constant(trial, world, gains, f"offline: {trial.episodes:,} exploring episodes were logged before")
    words = f"logs at no regret, controls on the sphere of {world.gamma:g}; {_CUTS}"
    facts = {"trust": "central", "constants": words} | spent(trial, plan.rho)
    return replace(outcome, facts={**outcome.facts, **facts}, release=release)


def _exploration(trial: Trial, world: LqSystem) -> LinearRollout:
    knobs = trial.over(_EXPLORER)
    first = exploring(trial.episodes) if knobs["explore"] is None else int(knobs["explore"])
    radius = float(knobs["radius"]) * world.gamma
    return LinearRollout(world.zero_gains(), min(first, trial.episodes - 1), radius)


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
    plant = PlantWorld(world, trial.stream(0))
    played = play(agent, plant)
    cost = spent(trial, regularizer.guarantee.rho)
    facts = _setting_facts(trial, width) | cost | _planning_facts(world, played.result, regularizer)
    if max(np.diff(played.ends, prepend=0)) > SIMULATED:
        facts["long_batches"] = f"{SIMULATED:,} episodes are played, and the exact mean stands for each other one"
    return _outcome(plant, played, facts, regularizer.release())


def _regularizer(trial: Trial, world: LqSystem, ends: Sequence[int]) -> lq.CountedLqRegularizer:
    ask, handle = None if trial.epsilon is None else trial.ask(), SimulatedWorld(trial.place)
    return lq.lq_regularizer(message_of(trial), ends, ask, 1.0, handle, noise_of(trial), counter_of(trial))


def _planning_facts(world: LqSystem, plans: Sequence[OfuPlan], regularizer: lq.CountedLqRegularizer) -> dict[str, Any]:
    """Facts of the plans of a simulation."""
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


def _setting_facts(trial: Trial, width: float) -> dict[str, Any]:
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


def _plan(trial: Trial, world: LqSystem, exploration: LinearRollout) -> PrivateSum:
    if trial.calibration == "paper":
        raise CardError(f"paper 004 prints no scale for {trial.agent}; use calibration = 'tight'")
    bounds = CUT[0], exploration.explore, CUT[1]
    layout = lq.LqSums(*world.shape, world.horizon, bounds, episodes=exploration.episodes, dataset=trial.place)
    return lq.lq_sum(layout, asked_rho(trial.ask()))


def _outcome(plant: PlantWorld, played: Played[Any], facts: dict[str, Any], release: Release | None) -> Outcome:
    eigenvalues = np.linalg.eigvalsh(plant.gram)
    spread = {"largest_eigenvalue": float(eigenvalues[-1]), "smallest_eigenvalue": max(0.0, float(eigenvalues[0]))}
    return controlled(plant.world, plant.gains[-1], facts | spread, played.ends, played.losses, release)


def _constant(trial: Trial, world: LqSystem, gains: Array, variant: str) -> Outcome:
    facts = {"trust": "none", "variant": variant, "left_zero_at": 1 if gains.any() else None}
    return controlled(world, gains, facts, [trial.episodes])


def _task(world: LqSystem) -> LqTask:
    return LqTask(world.cost, world.gamma, declared_norm(world))


def counter_of(trial: Trial) -> lq.LqCounter:
    """Counter of the optimist's episodes."""
    return trial.over(_OPTIMIST, counter=("tree", "epochs"))["counter"]


_ADAPTIVE: dict[str, Plain] = {
    "first": AdaptiveConstants().first,
    "certainty": AdaptiveConstants().certainty,
    "norm": None,
}


def adaptive(trial: Trial) -> Outcome:
    """Play K episodes; without epsilon the releases are exact, the baseline."""
    world, c, sums = lq_world(trial), _adaptive_constants(trial), _Sums(trial)
    agent = adaptive_lqr(control_of(world), trial.episodes, sums, sums.spread, c, trial.stream(_PLANNER))
    plant = PlantWorld(world, trial.stream(0))
    played = play(agent, plant)
    epochs: list[Epoch] = played.result
    facts = {
        "trust": "none" if trial.epsilon is None else "joint",
        "variant": "extra: one release an epoch",
        "constants": f"first epoch {c.first:g} √K, doubling; gains better than none by {c.certainty:g} deviations",
        "left_zero_at": next((e.first for e in epochs if e.rollout.gains.any()), None),
        "explored": [e.rollout.explore for e in epochs],
    }
    return controlled(world, plant.gains[-1], facts | sums.cost, played.ends, played.losses, stacked(sums.drawn))


def residual_logs(trial: Trial) -> Outcome:
    """Offline: as many exploring episodes were logged before, of other people, and cost nothing here."""
    world, c, sums = lq_world(trial), _adaptive_constants(trial), _Sums(trial)
    parts = [trial.episodes // 10, trial.episodes // 5]
    parts.append(trial.episodes - sum(parts))
    agent = recentred_lqr(control_of(world), parts, world.gamma, sums, sums.spread, c, trial.stream(_PLANNER))
    gains = play(agent, PlantWorld(world, trial.stream(_LOGS))).result
    facts = {
        "trust": "central",
        "variant": f"offline: {trial.episodes:,} exploring episodes were logged before",
        "constants": f"logs at no regret, controls on the sphere of {world.gamma:g}, declared; three parts",
        "left_zero_at": 1 if gains.any() else None,
    }
    return controlled(world, gains, facts | sums.cost, [trial.episodes], release=stacked(sums.drawn))


class _Sums:
    """Draws the sums of each part of the people, once; each part has the whole budget."""

    def __init__(self, trial: Trial) -> None:
        self._trial, self._world = trial, lq_world(trial)
        self._noise, self._handle = noise_of(trial), SimulatedWorld(trial.place)
        first = ResidualQuery(prior(control_of(self._world), 1.0).mean, np.eye(sum(self._world.shape)), 1.0)
        message = _residual_message(self._world, trial, first)
        self._ask = None if trial.epsilon is None else trial.ask()
        self._variances = None if self._ask is None else tight(message, self._ask, 1)
        self.spread = 0.0 if self._variances is None else math.sqrt(self._variances["residual"]) / message.steps
        self.drawn: list[Release] = []
        self.cost = spent(trial, cost_of(message, self._variances, 1))

    def __call__(self, query: ResidualQuery, batches: Sequence[LqBatch]) -> Array:
        message = _residual_message(self._world, self._trial, query)
        counter = begin(message, self._variances, Once(1), Trust.JOINT, self._handle, self._noise, self._ask)
        counter.add(np.sum([message.integers(batch) for batch in batches], axis=0))
        self.drawn.append(counter.release())
        return message.matrix(counter.total())


def _adaptive_constants(trial: Trial) -> AdaptiveConstants:
    chosen = trial.over(_ADAPTIVE)
    world = lq_world(trial)
    norm = declared_norm(world) if chosen["norm"] is None else float(chosen["norm"])
    if norm < frobenius(world):
        raise CardError(
            f"{trial.agent}: norm = {norm:g} must bound the Frobenius norm of [A, B], which is {frobenius(world):.4g} "
            f"here; say norm = {declared_norm(world):g}"
        )
    return AdaptiveConstants(first=float(chosen["first"]), certainty=float(chosen["certainty"]), norm=norm)


def frobenius(world: LqSystem) -> float:
    """Norm of [A, B] that planners bound: not the spectral one."""
    return float(np.linalg.norm(np.hstack([world.A, world.B])))


def declared_norm(world: LqSystem) -> float:
    """The bound on it that a deployment would declare: 1, or the next half above."""
    return max(1.0, math.ceil(2 * frobenius(world)) / 2)


def residual_targets(trial: Trial) -> list[SumsTarget]:
    """The target of an audit: the first epoch's one release; later ones differ in public numbers only."""
    world = lq_world(trial)
    centre = prior(control_of(world), AdaptiveConstants().norm).mean
    message = _residual_message(world, trial, ResidualQuery(centre, np.eye(sum(world.shape)), 1.0))
    return [SumsTarget(message, trial.ask(), "fresh")]


def _residual_message(world: LqSystem, trial: Trial, query: ResidualQuery) -> lq.ResidualMessage:
    if trial.calibration == "paper":
        raise CardError(f"no paper prints scales for {trial.agent}; use calibration = 'tight'")
    return lq.ResidualMessage(query.centre, query.frame, query.radius, world.horizon)


_EXPLORER: dict[str, Plain] = {"explore": None, "radius": RADIUS}
_OPTIMIST: dict[str, Plain] = {"constants": "practical", "growth": None, "counter": "tree", "width": 1.0, "starts": 4}


_agent = partial(OnlineAgent, controls=NOTHING_CONTROLLED)
AGENTS = {
    "ofu-rl": _agent(optimistic, defaults=_OPTIMIST),
    "private-ofu-rl": _agent(optimistic, "joint", "ofu-rl", defaults=_OPTIMIST, targets=sums_of, cost=optimist_cost),
    "dp-lqr": _agent(dp_lqr, "central", "certainty-equivalence", targets=release_of),
    "explore-then-commit": _agent(commit, "joint", "certainty-equivalence", defaults=_EXPLORER, targets=release_of),
    "zero": _agent(zero),
    "fixed-gain": _agent(fixed_gain),
    "certainty-equivalence": _agent(optimistic, defaults=_OPTIMIST),
    "adaptive-lqr": _agent(adaptive, defaults=_ADAPTIVE),
    "private-adaptive-lqr": _agent(adaptive, "joint", "adaptive-lqr", defaults=_ADAPTIVE, targets=residual_targets),
    "dp-residual-lqr": _agent(
        residual_logs, "central", "certainty-equivalence", defaults=_ADAPTIVE, targets=residual_targets
    ),
}
