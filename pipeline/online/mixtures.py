"""Trials of the linear mixture agents: papers 000 and 001 in any tabular world, or a mixture of kernels.

Knobs of the linear mixture agents, their defaults, and the tuned ones.

Where a value is called tuned it was chosen on seeds from 1000 on, none of which any reported figure uses.  Choices
after the noise cost no privacy; ``growth`` and ``gram_share`` are fixed before anything is seen.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cache, partial
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from pipeline.agents import linopt
from pipeline.declaration.card import CardError
from pipeline.mdp.features import RewardFeatures, dense_one_hot, one_hot
from pipeline.mdp.planning import optimum, policy_value
from pipeline.mdp.rollout import Agent, plan_starts
from pipeline.online.rollouts import EpisodeWorld, named_world, play
from pipeline.online.trial import OnlineAgent, Outcome, Plain, Preset, SumsTarget, Trial, Trust, staged_curve
from pipeline.privacy.continual import Mechanism
from pipeline.privacy.losses import GaussianGuarantee
from pipeline.privacy.noise import SeededNoise, SimulatedWorld
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.mixture import CountedRegularizer, Leaf, MixtureMessage, Shift, mixture_regularizer
from pipeline.statistics.private_sum import asked_rho
from pipeline.worlds.catalog import Mixture, random_mixture


@dataclass(frozen=True)
class Kind:
    """Properties of one linear mixture agent.

    ``trust``: the trust model.
    ``plain``: the same planner without noise.
    ``growth``: see :class:`Settings`; without noise a plan costs no more than its time.
    """

    trust: Trust
    c: float
    plain: str | None = None
    growth: float = 1.02
    mirror: bool = False
    page: Literal["000", "001"] = "000"


KINDS: Mapping[str, Kind] = {
    "ucrl-vtr": Kind("none", 0.015, growth=1.005, page="001"),
    "linopt-po": Kind("none", 0.01, mirror=True),
    "private-linopt-vi": Kind("joint", 0.0, "ucrl-vtr"),
    "private-linopt-po": Kind("joint", 0.0, "linopt-po", mirror=True),
    "ldp-ucrl-vtr": Kind("local", 0.0, "ucrl-vtr", page="001"),
}


@dataclass(frozen=True)
class Settings:
    """Knobs by name.

    ``bonus``: c, which multiplies the bonus; None: tuned, or 1 as printed.
    ``lam``: λ in squares of the longest row; None: 1 where values are at most H, as printed.
    """

    constants: Preset = "practical"
    features: Literal["block", "dense"] = "block"
    unit: bool = True
    counter: Mechanism = "bottom-up"
    leaf: Leaf = "batch"
    bonus: float | None = None
    growth: float = 1.02
    lam: float | None = 0.01
    shift: Shift = "floor"
    prior: float = 1.0
    gram_share: float = 0.2
    rewards: Literal["known", "learnt"] = "known"
    reward_share: float = 0.2
    eta: float = linopt.TUNED_STEP


# the noise of a paper: rows as they are, a plain tree over episodes; ``constants`` sets what follows the noise
_PRINTED = Settings(unit=False, counter="plain", leaf="episode")
# without noise the prior would answer for unseen states, and the floor is zero
_PLAIN = Settings(prior=0.0)


def printed(base: Settings, kind: Kind) -> Settings:
    """Printed settings beside the noise: bonus, growth, prior, rewards, lambda, step, dense features.

    ``kind``: of the agent: paper 000 learns the rewards, paper 001 knows them.
    """
    return replace(
        base,
        constants="paper",
        features="dense",
        unit=base.unit and kind.trust != "none",
        growth=1.0,
        lam=None,
        shift="paper",
        prior=0.0,
        gram_share=0.5,
        rewards="learnt" if kind.page == "000" else "known",
        reward_share=0.5,
        eta=1.0,
    )


# options that are one of some words, as their types say
_WORDS: Mapping[str, tuple[Any, ...]] = {
    **{name: get_args(kind) for name, kind in get_type_hints(Settings).items() if get_origin(kind) is Literal},
    "unit": (True, False),
}


def settings_of(trial: Trial) -> Settings:
    """The trial's knobs, over the defaults of its calibration.

    Raises CardError if a knob is unknown, or its value is of another kind.
    """
    base = {"paper": _PRINTED, None: _PLAIN}.get(trial.calibration, Settings())
    kind = KINDS[trial.agent]
    base = replace(base, growth=kind.growth)
    knobs = {key: value for key, value in trial.knobs.items() if key != "of"}
    replace(trial, options=tuple(knobs.items())).over(defaults_of(trial.agent))
    for key, value in knobs.items():
        if key in _WORDS and value not in _WORDS[key]:
            raise CardError(f"{trial.agent}: {key} is one of {_WORDS[key]}; got {value!r}")
        number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
        if key not in _WORDS and not number:
            raise CardError(f"{trial.agent}: {key} is a number, at least 0; got {value!r}")
    return replace(printed(base, kind) if knobs.get("constants") == "paper" else base, **knobs)


def defaults_of(agent: str) -> dict[str, Plain]:
    """Every option of an agent with its default, where the calibration is tight."""
    return asdict(replace(Settings(), growth=KINDS[agent].growth))


def variant_of(trial: Trial, s: Settings) -> str:
    """Words for the variant of an agent."""
    words = ["unit" if s.unit else "as printed", s.features]
    if KINDS[trial.agent].trust == "joint":
        words.append(f"{s.counter} over {'batches' if s.leaf == 'batch' else 'episodes'}")
    return ", ".join([*words, f"rewards {s.rewards}"])


def bonus_of(agent: str, s: Settings) -> float:
    """c, as given, as printed, or tuned."""
    return s.bonus if s.bonus is not None else 1.0 if s.constants == "paper" else KINDS[agent].c


def constants_of(trial: Trial, s: Settings) -> str:
    """All chosen constants in a line."""
    prefix = "as printed, " if s.constants == "paper" else "tuned, " if s.bonus is None else ""
    words = [f"{prefix}c {bonus_of(trial.agent, s):g}", f"growth {s.growth:g}"]
    words.append("lambda 1 for values up to H" if s.lam is None else f"lambda {s.lam:g}")
    if trial.epsilon is not None:
        words += [f"{s.shift}", f"prior {s.prior:g}"]
        words += [f"gram share {s.gram_share:g}"] if trial.calibration == "tight" else []
    if KINDS[trial.agent].mirror:
        words.append(f"eta {s.eta:g} x paper")
    return ", ".join(words)


# purposes of a trial's streams
_WORLD, _NOISE, _TIES = 0, 1, 2
# share of an episode's reward that is declared at least, so that units are positive
_LEAST = 2**-30


def mixture_agent(trial: Trial, reads: bool = True) -> Outcome:
    """Value iteration or mirror descent in a linear mixture, by the agent's entry of :data:`KINDS`.

    ``reads``: False: without statistics: noise, bonus, ties and known rewards remain.
    """
    s, world = settings_of(trial), _world(trial.world, trial.params)
    problem, guarantee = problem_of(trial, s, world, reads=reads)
    agent: Agent = (
        linopt.linopt_po(problem, s.growth, s.eta * linopt.step_size(problem.task))
        if KINDS[trial.agent].mirror
        else linopt.linopt_vi(problem, s.growth, trial.stream(_TIES))
    )
    played = play(agent, EpisodeWorld(world.mdp, trial.stream(_WORLD)))
    losses, best, learnt = played.regret, optimum(world.mdp), played.result
    probabilities = np.eye(world.mdp.shape[2])[learnt] if learnt.ndim == 2 else learnt
    marks, regret = staged_curve(range(1, len(losses) + 1), losses)
    delta = trial.delta or 0.0
    facts = {
        "trust": guarantee.trust.value,
        "variant": variant_of(trial, s),
        "constants": constants_of(trial, s),
        "true_rho": None if guarantee.rho is None else float(guarantee.rho),
        "true_epsilon": guarantee.epsilon(delta) if trial.delta else None,
        "tie_share": None if learnt.ndim == 3 else float(linopt.planned(problem, trial.stream(_TIES)).tied.mean()),
        "v_star": best,
        "final_loss": best - policy_value(world.mdp, probabilities),
        "last_tenth": float(losses[-max(1, trial.episodes // 10) :].mean()),
        "plans": len(plan_starts(trial.episodes, s.growth)),
        "unknowns": problem.task.features.unknowns,
    }
    return Outcome(marks, regret, facts, learnt.tolist(), _released(problem))


def _released(problem: linopt.Problem) -> Release:
    """Both regressions' sums as one release; those of rewards have a prefix."""
    first, *more = (r.regularizer.release() for r in (problem.transitions, problem.rewards) if r is not None)
    return first if not more else first.beside(more[0], "rewards_")


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


def problem_of(
    trial: Trial, s: Settings, world: Mixture, *, reads: bool = True
) -> tuple[linopt.Problem, GaussianGuarantee]:
    """The agent's problem, and the guarantee of its noise; without ``reads`` its sums are of noise alone."""
    task = _task(trial, s, world)
    radii, reward_radii = _radii(trial, s)
    source = trial.noise(_NOISE)
    of_transitions, *of_rewards = _regressions(task, s)
    transitions = _regularizer(trial, s, *of_transitions, source)
    transitions.reads = reads
    if not of_rewards:
        return linopt.Problem(task, linopt.Regression(transitions, radii)), transitions.guarantee
    counted = _regularizer(trial, replace(s, prior=0.0), *of_rewards[0], source)
    counted.reads = reads
    both = linopt.Regression(transitions, radii), linopt.Regression(counted, reward_radii)
    return linopt.Problem(task, *both), transitions.guarantee.beside(counted.guarantee)


def targets_of(trial: Trial) -> list[SumsTarget]:
    """Targets of an audit: each regression's sums, at its part of the budget."""
    counter = None if KINDS[trial.agent].trust == "local" else settings_of(trial).counter
    return [SumsTarget(message, ask, counter) for message, ask in messages_of(trial)]


def messages_of(trial: Trial) -> list[tuple[MixtureMessage, Ask]]:
    """Message of one episode to each regression, and its part of the budget."""
    s = settings_of(trial)
    task = _task(trial, s, _world(trial.world, trial.params))
    return [(message, _ask(trial, share, gram_share)) for message, share, gram_share in _regressions(task, s)]


def cost_of(trial: Trial) -> tuple[Fraction | None, Fraction]:
    """Exact cost of all sums of the trial to one user (None without noise), and the claim; plays no episode."""
    _, guarantee = problem_of(trial, settings_of(trial), _world(trial.world, trial.params))
    return guarantee.rho, sum((asked_rho(ask) for _, ask in messages_of(trial)), Fraction(0))


def _task(trial: Trial, s: Settings, world: Mixture) -> linopt.MixtureTask:
    _, S, A = world.mdp.shape  # noqa: N806
    features = world.features
    if s.features == "dense" and features.psi is None:
        features = dense_one_hot(S, A)
    rewards = world.mdp.rewards
    if s.rewards == "learnt":
        rewards = linopt.LearntRewards(RewardFeatures(None, S, A), world.mdp.rewards.max((1, 2)))
    return linopt.MixtureTask(rewards, features, trial.episodes, s.unit)


def _regressions(task: linopt.MixtureTask, s: Settings) -> list[tuple[MixtureMessage, Fraction, float]]:
    """Messages, their shares of the budget, and those of their Gram matrices."""
    if s.rewards == "known":
        return [(transition_message(task), Fraction(1), s.gram_share)]
    part = Fraction(s.reward_share)
    return [(transition_message(task), 1 - part, s.gram_share), (reward_message(task), part, 0.5)]


def transition_message(task: linopt.MixtureTask) -> MixtureMessage:
    """Message of one episode to the transition counters; steps 0 .. H-2."""
    f, tops = task.features, task.tops
    ranges = np.maximum(tops[1:-1], _LEAST * tops[0])
    return MixtureMessage(f.blocks, f.dimension, f.stretch, tuple(ranges.tolist()), float(tops[0]), task.unit)


def reward_message(task: linopt.MixtureTask) -> MixtureMessage:
    """Message of one episode to the reward counters; every step."""
    if not isinstance(task.rewards, linopt.LearntRewards):
        raise ValueError("these rewards are known; nothing about them is released")
    f, most = task.rewards.features, np.maximum(task.most, _LEAST * task.tops[0])
    return MixtureMessage(f.blocks, f.dimension, 1.0, tuple(most.tolist()), float(most.max()), False, "rewards")


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
    trial: Trial, s: Settings, m: MixtureMessage, share: Fraction, gram_share: float, noise: SeededNoise
) -> CountedRegularizer:
    world, lam, trust = SimulatedWorld(trial.place), _lambda(s, m), KINDS[trial.agent].trust
    if trust == "none":
        return mixture_regularizer(m, trial.episodes, None, lam, world, noise)
    ask, counter, batches = _ask(trial, share, gram_share), None if trust == "local" else s.counter, None
    if trust == "joint" and s.leaf == "batch":
        batches = len(plan_starts(trial.episodes, s.growth))
    try:
        return mixture_regularizer(
            m, trial.episodes, ask, lam, world, noise, mechanism=counter, shift=s.shift, batches=batches, prior=s.prior
        )
    except ValueError as e:
        raise CardError(f"{trial.agent}: {e}") from None


def _lambda(s: Settings, m: MixtureMessage) -> float:
    """λ in the squared units of a row; the printed 1 is for values up to H, and so (V_max / H)^2."""
    if s.lam is None:
        return (1.0 if m.unit else m.value**2) / m.horizon**2
    return s.lam * (1.0 if s.unit else float(m.row_bound.max() ** 2))


def _radii(trial: Trial, s: Settings) -> tuple[linopt.Radii, linopt.Radii]:
    """Bonus of transitions and rewards, by paper and trust."""
    kind, c = KINDS[trial.agent], bonus_of(trial.agent, s)
    as_printed = s.constants == "paper"
    if kind.trust == "local":
        transitions = linopt.ldp(c)
        if as_printed and trial.epsilon is not None:
            transitions = linopt.ldp_theory(trial.epsilon, trial.delta or 0.1, c=c)
        return transitions, linopt.linopt_rewards(c)
    if kind.trust == "joint" or (as_printed and kind.page == "000"):
        return linopt.linopt(c), linopt.linopt_rewards(c)
    return linopt.ucrl_vtr(c, printed=as_printed), linopt.linopt_rewards(c)


def _registered(name: str) -> OnlineAgent:
    kind, defaults, unread = KINDS[name], defaults_of(name), partial(mixture_agent, reads=False)
    bare = OnlineAgent(mixture_agent, kind.trust, kind.plain, defaults=defaults, unread=unread)
    return bare if kind.trust == "none" else replace(bare, targets=targets_of, cost=cost_of)


AGENTS = {name: _registered(name) for name in KINDS}
