"""Trials of the linear mixture agents: papers 000 and 001 in any tabular world, or a mixture of kernels."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.batch_pace import plan_starts
from pipeline.agents.linopt_po import linopt_po, step_size
from pipeline.agents.linopt_vi import linopt_vi, planned
from pipeline.agents.mixture_backup import LearntRewards, MixtureTask, Problem, Regression
from pipeline.agents.optimism import Radii, ldp, ldp_theory, linopt, linopt_rewards, ucrl_vtr
from pipeline.declaration.card import CardError
from pipeline.environments.mixture_worlds import Mixture, random_mixture
from pipeline.mdp.features import RewardFeatures, dense_one_hot, one_hot
from pipeline.mdp.planning import policy_value
from pipeline.mdp.rollout import Agent
from pipeline.privacy.losses import Guarantee
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.privacy.release import Release
from pipeline.simulation.control_trials import named_world
from pipeline.simulation.mixture_settings import (
    KINDS,
    Settings,
    bonus_of,
    constants_of,
    defaults_of,
    settings_of,
    variant_of,
)
from pipeline.simulation.rollouts import as_control, play
from pipeline.simulation.targets import SumsTarget
from pipeline.simulation.trial import OnlineAgent, Outcome, Trial, curve
from pipeline.statistics.ask import Ask
from pipeline.statistics.mixture_message import Message, Visits
from pipeline.statistics.online_sum import asked_rho
from pipeline.statistics.regularizers import CountedRegularizer, fixed, local, tree

# purposes of a trial's streams
_WORLD, _NOISE, _TIES = 0, 1, 2


def no_data(trial: Trial) -> Outcome:
    """The agent of option ``of``, to whom no statistics ever arrive: noise, bonus, ties and known rewards remain."""
    of = str(trial.knobs["of"])
    return as_control(mixture_agent(replace(trial, agent=of), deaf=True), of)


class _Deaf:
    """A regularizer to which episodes come without their statistics."""

    def __init__(self, inner: CountedRegularizer) -> None:
        self._inner, self.ridge = inner, inner.ridge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def observe(self, visits: Visits) -> None:
        """Count the episodes, and drop what they say."""
        nothing = visits.count[:0]
        rows = visits.phi[:0], visits.response[:0]
        self._inner.observe(Visits(nothing, nothing, *rows, nothing, visits.episodes))


def mixture_agent(trial: Trial, deaf: bool = False) -> Outcome:
    """Value iteration or mirror descent in a linear mixture, as :data:`~.mixture_settings.KINDS` says of the agent.

    Parameters
    ----------
    trial
        Agent, world, budget and seed.
    deaf
        Whether no statistics arrive.
    """
    s, world = settings_of(trial), _world(trial.world, trial.params)
    problem, guarantee = problem_of(trial, s, world)
    if deaf:
        problem = replace(
            problem,
            transitions=_deafened(problem.transitions),
            rewards=None if problem.rewards is None else _deafened(problem.rewards),
        )
    agent: Agent = (
        linopt_po(problem, s.growth, s.eta * step_size(problem.task))
        if KINDS[trial.agent].mirror
        else linopt_vi(problem, s.growth, trial.stream(_TIES))
    )
    played = play(world.mdp, agent, trial.stream(_WORLD))
    at, regret = curve(played.regret)
    delta = trial.delta or 0.0
    facts = {
        "trust": guarantee.trust.value,
        "variant": variant_of(trial, s),
        "constants": constants_of(trial, s),
        "true_rho": None if guarantee.rho is None else float(guarantee.rho),
        "true_epsilon": guarantee.epsilon(delta) if trial.delta else None,
        "tie_share": None if played.policy.ndim == 3 else float(planned(problem, trial.stream(_TIES)).tied.mean()),
        "v_star": world.optimum,
        "final_loss": world.optimum - policy_value(world.mdp, _as_probabilities(played.policy, world.mdp.shape[2])),
        "last_tenth": float(played.regret[-max(1, trial.episodes // 10) :].mean()),
        "plans": len(plan_starts(trial.episodes, s.growth)),
        "unknowns": problem.task.features.unknowns,
    }
    return Outcome(at, regret, facts, played.policy.tolist(), _released(problem))


def _released(problem: Problem) -> Release:
    """Both regressions' sums as one release, that of rewards under names of its own."""
    first, *more = (r.regularizer.release() for r in (problem.transitions, problem.rewards) if r is not None)
    return first if not more else first.beside(more[0], "rewards_")


def _as_probabilities(policy: NDArray[Any], actions: int) -> NDArray[Any]:
    return np.eye(actions)[policy] if policy.ndim == 2 else policy


def _deafened(regression: Regression) -> Regression:
    regularizer: Any = _Deaf(regression.regularizer)  # pyright: ignore[reportArgumentType]
    return replace(regression, regularizer=regularizer)


@cache
def _world(name: str, params: tuple[tuple[str, Any], ...]) -> Mixture:
    mdp = named_world(name, params)
    if name == "random_mixture":
        # its agents know the kernels
        world = random_mixture(**dict(params))
    else:
        world = Mixture(name, mdp, one_hot(*mdp.shape[1:]), mdp.transitions.reshape(mdp.horizon, -1))
    if (world.mdp.rewards < 0).any():
        raise CardError(f"world {name}: has negative rewards; linear mixture agents need rewards of at least 0")
    return world


def problem_of(trial: Trial, s: Settings, world: Mixture) -> tuple[Problem, Guarantee]:
    """What the agent is given, and what its noise guarantees."""
    task = _task(trial, s, world)
    radii, reward_radii = _radii(trial, s)
    source = SeededNoise(np.random.SeedSequence((_NOISE, trial.seed, trial.episodes)))
    of_transitions, *of_rewards = _shared(task, s)
    transitions = _regularizer(trial, s, *of_transitions, source)
    if not of_rewards:
        return Problem(task, Regression(transitions, radii)), transitions.guarantee
    counted = _regularizer(trial, replace(s, prior=0.0), *of_rewards[0], source)
    both = Regression(transitions, radii), Regression(counted, reward_radii)
    return Problem(task, *both), transitions.guarantee.beside(counted.guarantee)


def targets_of(trial: Trial) -> list[SumsTarget]:
    """What an audit attacks: each regression's sums, at its part of the budget."""
    counter = None if KINDS[trial.agent].trust == "local" else settings_of(trial).counter
    return [SumsTarget(message, ask, counter) for message, ask in messages_of(trial)]


def messages_of(trial: Trial) -> list[tuple[Message, Ask]]:
    """What one episode adds to each regression, and the part of the budget asked for it."""
    s = settings_of(trial)
    task = _task(trial, s, _world(trial.world, trial.params))
    return [(message, _ask(trial, share, gram_share)) for message, share, gram_share in _shared(task, s)]


def cost_of(trial: Trial) -> tuple[Fraction | None, Fraction]:
    """What all sums of the trial cost one user, exactly (None without noise), and what is claimed.  Nobody plays."""
    _, guarantee = problem_of(trial, settings_of(trial), _world(trial.world, trial.params))
    return guarantee.rho, sum((asked_rho(ask) for _, ask in messages_of(trial)), Fraction(0))


def _task(trial: Trial, s: Settings, world: Mixture) -> MixtureTask:
    _, S, A = world.mdp.shape  # noqa: N806
    features = world.features
    if s.features == "dense" and features.psi is None:
        features = dense_one_hot(S, A)
    rewards = world.mdp.rewards
    if s.rewards == "learnt":
        rewards = LearntRewards(RewardFeatures(None, S, A), world.mdp.rewards.max((1, 2)))
    return MixtureTask(rewards, features, trial.episodes, s.unit)


def _shared(task: MixtureTask, s: Settings) -> list[tuple[Message, Fraction, float]]:
    """Messages, their shares of the budget, and those of their Gram matrices."""
    if s.rewards == "known":
        return [(task.message, Fraction(1), s.gram_share)]
    part = Fraction(s.reward_share)
    return [(task.message, 1 - part, s.gram_share), (task.reward_message, part, 0.5)]


def _ask(trial: Trial, share: Fraction, gram_share: float) -> Ask:
    if trial.epsilon is None or trial.calibration is None:
        raise CardError(f"{trial.agent} needs epsilon and delta")
    delta = trial.delta if trial.delta is not None else 1e-5
    return Ask(
        epsilon=trial.epsilon,
        delta=delta,
        calibration=trial.calibration,
        split={"gram": Fraction(gram_share)},
        part=share,
    )


def _regularizer(
    trial: Trial, s: Settings, m: Message, share: Fraction, gram_share: float, noise: SeededNoise
) -> CountedRegularizer:
    world, lam = SimulatedWorld(trial.place), _lambda(s, m)
    trust = KINDS[trial.agent].trust
    if trust == "none":
        return fixed(m, trial.episodes, lam, world, noise)
    ask = _ask(trial, share, gram_share)
    try:
        if trust == "local":
            return local(m, trial.episodes, ask, lam, world, noise, shift=s.shift, prior=s.prior)
        batches = len(plan_starts(trial.episodes, s.growth)) if s.leaf == "batch" else None
        made = partial(tree, mechanism=s.counter, shift=s.shift, prior=s.prior, batches=batches)
        return made(m, trial.episodes, ask, lam, world, noise)
    except ValueError as e:
        raise CardError(f"{trial.agent}: {e}") from None


def _lambda(s: Settings, m: Message) -> float:
    """λ in the squared units of a row; the printed 1 is for values up to H, and so (V_max / H)^2."""
    if s.lam is None:
        return (1.0 if m.unit else m.value**2) / m.horizon**2
    return s.lam * (1.0 if s.unit else float(m.row_bound.max() ** 2))


def _radii(trial: Trial, s: Settings) -> tuple[Radii, Radii]:
    """Bonus of transitions and rewards, by paper and trust."""
    kind, c = KINDS[trial.agent], bonus_of(trial.agent, s)
    as_printed = s.constants == "paper"
    if kind.trust == "local":
        transitions = ldp(c)
        if as_printed and trial.epsilon is not None:
            transitions = ldp_theory(trial.epsilon, trial.delta or 0.1, c=c)
        return transitions, linopt_rewards(c)
    if kind.trust == "joint" or (as_printed and kind.page == "000"):
        return linopt(c), linopt_rewards(c)
    return ucrl_vtr(c, printed=as_printed), linopt_rewards(c)


def _registered(name: str) -> OnlineAgent:
    kind, defaults = KINDS[name], defaults_of(name)
    bare = OnlineAgent(mixture_agent, kind.trust, kind.plain, defaults=defaults, unread=no_data)
    return bare if kind.trust == "none" else replace(bare, targets=targets_of, cost=cost_of)


AGENTS = {name: _registered(name) for name in KINDS}
