"""Online agents in simulated worlds: the runners, and exact regret.

What an agent asks for is public (who follows which policy); what it gets are whole episodes (:func:`play`), counts that
an interactive mechanism released (:func:`play_batches`), or private tables of one batch (:func:`play_batch_rollouts`).
Within a batch the policy is fixed, so its tables are drawn from the exact law, a chain of multinomials: a batch of 10^9
users costs what one of ten does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.toml import CardError
from pipeline.environments.count_tables import multinomials, sample_count_tables
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.mdp.policy import set_values
from pipeline.mdp.rollout import Agent, Batch, BatchRollout, Rollout, Trajectory
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.trial import Outcome, Trial
from pipeline.statistics.batch_counts import BatchLayout, BatchTables, NoisyTables, PrivateBatch
from pipeline.statistics.batch_privatizers import BatchPrivatizer
from pipeline.statistics.online_counts import InteractiveCounts, OnlineCounts, Tally

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Answer = TypeVar("Answer")
Asked = TypeVar("Asked")
Told = TypeVar("Told")


def drive(agent: Generator[Asked, Told, Answer], answer: Callable[[Asked], Told]) -> Answer:
    """Answer all that an agent asks for, until it returns.

    Parameters
    ----------
    agent
        Yields what it asks for, and is sent what came of it.
    answer
        Plays what is asked for.
    """
    ask = next(agent)
    while True:
        try:
            ask = agent.send(answer(ask))
        except StopIteration as end:
            return end.value


@dataclass(frozen=True)
class Played:
    """``regret (K,)``: V* - V^pi of each episode's policy, exactly, reward units; ``policy`` at the end, as agents
    return it: actions ``(H, S)`` or probabilities ``(H, S, A)``.
    """

    regret: Array
    policy: NDArray[Any]


def play(mdp: TabularMDP, agent: Agent, rng: np.random.Generator) -> Played:
    """Run an agent until it returns; ``rng`` belongs to the world alone, so that agents can share worlds.

    The world draws H + 1 numbers an episode, whatever the agent and however it asks; the choices of a stochastic policy
    come from a stream spawned off ``rng``.
    """
    world = Sampler(mdp, rng)
    best = float(mdp.start @ optimal_values(mdp)[1][0])
    regret, lost = list[Array](), 0.0
    last: Rollout | None = None

    def answer(ask: Rollout) -> Trajectory:
        nonlocal last, lost
        # one policy serves many episodes: it is valued once
        if ask is not last:
            p = ask.probabilities
            lost = best - policy_value(mdp, np.eye(mdp.shape[2])[ask.policy] if p is None else p)
        regret.append(np.full(ask.episodes or 1, lost))
        last = ask
        return world.episodes(ask)

    policy = drive(agent, answer)
    return Played(np.concatenate(regret), policy)


class Sampler:
    """Draws episodes by inverting the cumulated start ``(S,)`` and transitions ``(H, S, A, S)``."""

    def __init__(self, mdp: TabularMDP, rng: np.random.Generator) -> None:
        self._rng, self._choices = rng, rng.spawn(1)[0]
        self._start, self._moves, self._rewards = mdp.start.cumsum(), mdp.transitions.cumsum(-1), mdp.rewards

    def episodes(self, ask: Rollout) -> Trajectory:
        """What was asked for, one episode or several at once."""
        H, S, _ = self._rewards.shape  # noqa: N806
        n = ask.episodes or 1
        u = self._rng.random((n, H + 1))
        chosen = self._chosen(ask, n)
        states, actions = np.empty((n, H + 1), dtype=np.int64), np.empty((n, H), dtype=np.int64)
        # a cumulated row may end a rounding below 1
        states[:, 0] = np.minimum(self._start.searchsorted(u[:, 0], side="right"), S - 1)
        for h in range(H):
            s = states[:, h]
            actions[:, h] = a = chosen[h, s] if chosen.ndim == 2 else chosen[h, np.arange(n), s]
            if n == 1:
                states[0, h + 1] = min(int(self._moves[h, s[0], a[0]].searchsorted(u[0, h + 1], side="right")), S - 1)
            else:
                states[:, h + 1] = np.minimum((self._moves[h, s, a] <= u[:, h + 1, None]).sum(-1), S - 1)
        rewards = self._rewards[np.arange(H), states[:, :-1], actions]
        one = ask.episodes is None
        return Trajectory(states[0], actions[0], rewards[0]) if one else Trajectory(states, actions, rewards)

    def _chosen(self, ask: Rollout, n: int) -> Integers:
        """Actions ``(H, S)``, or ``(H, n, S)`` of a stochastic policy: what each episode would do in each state."""
        p = ask.probabilities
        if p is None:
            return ask.policy.astype(np.int64)
        u = self._choices.random((p.shape[0], n, 1, 1))
        return np.minimum((p.cumsum(-1)[:, None] <= u).sum(-1), p.shape[-1] - 1)


@dataclass(frozen=True)
class PlayedBatches(Generic[Answer]):
    """Of each batch its last episode and V* - V^pi of its policy, exactly, reward units; and the agent's answer."""

    ends: list[int]
    losses: list[float]
    answer: Answer


def play_batches(
    mdp: TabularMDP, agent: Generator[Batch, OnlineCounts, Answer], counts: InteractiveCounts, rng: np.random.Generator
) -> PlayedBatches[Answer]:
    """Run an agent until it returns; ``rng`` belongs to the world alone, so that agents can share worlds."""
    best = float(mdp.start @ optimal_values(mdp)[1][0])
    highest = mdp.rewards.max((1, 2))
    ends, losses = list[int](), list[float]()

    def answer(ask: Batch) -> OnlineCounts:
        losses.append(best - policy_value(mdp, ask.policy))
        ends.append(ask.episodes + (ends[-1] if ends else 0))
        people = walked(mdp, ask.policy, ask.episodes, rng) if counts.protocol else None
        if people is None:
            n_sas = sample_count_tables(mdp, ask.policy, ask.episodes, rng).n_sas
        else:
            n_sas = visits_of(people, mdp.shape)
            people = replace(people, rewards=people.rewards / np.where(highest > 0, highest, 1.0))
        bits = rounded_rewards(n_sas.sum(-1), mdp.rewards, highest, rng) if counts.layout.rewards else None
        counts.add(Tally(ask.episodes, n_sas, bits, people, ask.policy > 0))
        return counts.counts()

    return PlayedBatches(ends, losses, drive(agent, answer))


def walked(mdp: TabularMDP, policy: NDArray[Any], episodes: int, rng: np.random.Generator) -> Trajectory:
    """Whole episodes of users who follow one policy, one row each."""
    return Sampler(mdp, rng).episodes(Rollout(policy, episodes))


def visits_of(people: Trajectory, shape: tuple[int, int, int]) -> Integers:
    """Transitions ``(H, S, A, S)`` of whole episodes, summed."""
    H, S, A = shape  # noqa: N806
    n_sas = np.zeros((H, S, A, S), dtype=np.int64)
    states = people.states
    np.add.at(
        n_sas, (np.broadcast_to(np.arange(H), people.actions.shape), states[:, :-1], people.actions, states[:, 1:]), 1
    )
    return n_sas


def rounded_rewards(visits: Integers, rewards: Array, highest: Array, rng: np.random.Generator) -> Integers:
    """Sum of -1 or +1 a visit ``(H, S, A)``: each reward in [0, highest] rounded at random to an end of its range."""
    top = np.where(highest > 0, highest, 1.0)[:, None, None]
    return 2 * rng.binomial(visits, np.clip(rewards / top, 0.0, 1.0)) - visits


@dataclass(frozen=True)
class PlayedBatch:
    """One batch that was played: its users, what was kept of them, their mean loss V* - V^pi (reward units), and the
    noisy sums that left it.
    """

    users: int
    layout: BatchLayout
    loss: float
    noisy: NoisyTables


@dataclass(frozen=True)
class PlayedRollouts(Generic[Answer]):
    """All batches in order, and what the agent answered in the end."""

    batches: list[PlayedBatch]
    answer: Answer


def play_batch_rollouts(
    mdp: TabularMDP,
    agent: Generator[BatchRollout, PrivateBatch, Answer],
    privatizer: BatchPrivatizer,
    rng: np.random.Generator,
    noise: SeededNoise,
    *,
    protocol: bool = False,
) -> PlayedRollouts[Answer]:
    """Run a batched agent until it returns; ``rng`` belongs to the world alone.

    Parameters
    ----------
    mdp, agent, privatizer, rng, noise
        Who plays where, and who makes its counts private.
    protocol
        Whether every user walks alone and sends messages of their own, where the privatizer shuffles them.

    Raises
    ------
    ValueError
        If rewards are not in [0, 1]: they travel as bits.
    """
    if mdp.rewards.min() < 0 or mdp.rewards.max() > 1:
        raise ValueError("rewards must be in [0, 1]: a user sends each as one bit, rounded at random")
    best = float(mdp.start @ optimal_values(mdp)[1][0])
    batches = list[PlayedBatch]()

    def answer(ask: BatchRollout) -> PrivateBatch:
        played, (first, stop) = ask.episodes > 0, ask.steps
        policies, episodes = ask.policies[played], ask.episodes[played]
        layout = BatchLayout((stop - first, *mdp.shape[1:]), ask.lean, ask.rewards, ends=stop == mdp.horizon)
        earned = set_values(mdp.transitions, mdp.rewards, mdp.start, policies)
        users = int(episodes.sum())
        whole, people = sample_batch(mdp, policies, episodes, rng), None
        if protocol:
            each = [walked(mdp, p, int(n), rng) for p, n in zip(policies, episodes, strict=True)]
            people = [v for walk in each for v in layout.values(_between(walk, first, stop))]
            n_sas = np.sum([visits_of(walk, mdp.shape) for walk in each], axis=0)
            whole = BatchTables(users, n_sas, rng.binomial(n_sas.sum(-1), mdp.rewards))
        kept = BatchTables(users, whole.n_sas[first:stop], whole.r_sa[first:stop], people)
        private = privatizer.release(kept, layout, noise)
        batches.append(PlayedBatch(users, layout, best - float(episodes @ earned) / users, private.noisy))
        return private

    return PlayedRollouts(batches, drive(agent, answer))


def _between(people: Trajectory, first: int, stop: int) -> Trajectory:
    return Trajectory(people.states[:, first : stop + 1], people.actions[:, first:stop], people.rewards[:, first:stop])


def sample_batch(mdp: TabularMDP, policies: Integers, episodes: Integers, rng: np.random.Generator) -> BatchTables:
    """Tables of all steps when ``episodes (M,)`` users follow each of ``policies (M, H, S)``; rewards as bits."""
    H, S, A = mdp.shape  # noqa: N806
    n_sas, states = np.zeros((H, S, A, S), dtype=np.int64), np.arange(S)
    people = multinomials(episodes, np.broadcast_to(mdp.start, (len(episodes), S)), rng)
    for h in range(H):
        a = policies[:, h]
        moved = multinomials(people, mdp.transitions[h][states, a], rng)
        np.add.at(n_sas[h], (np.broadcast_to(states, a.shape), a), moved)
        people = moved.sum(1)
    return BatchTables(int(episodes.sum()), n_sas, rng.binomial(n_sas.sum(-1), mdp.rewards))


def as_printed(trial: Trial) -> bool:
    """Whether the trial asks for the constants that a paper prints.

    Parameters
    ----------
    trial
        Of an agent with option ``constants``.

    Raises
    ------
    CardError
        If the option is neither ``practical`` nor ``paper``.
    """
    if (said := trial.knobs.get("constants", "practical")) not in ("practical", "paper"):
        raise CardError(f"{trial.agent}: constants is one of practical, paper; got {said!r}")
    return said == "paper"


def emitted(policy: NDArray[np.float64]) -> list[Any]:
    """A policy ``(H, S, A)`` as an outcome holds it: actions where it never draws.

    Parameters
    ----------
    policy
        Probabilities of the actions.
    """
    return (policy.argmax(-1) if np.isin(policy, (0, 1)).all() else policy).tolist()


def as_control(found: Outcome, of: str) -> Outcome:
    """The outcome of an agent that was kept from its data, as a row of a control."""
    more = {"trust": "none", "variant": "control", "of": of, "true_rho": None, "true_epsilon": None}
    return replace(found, facts={**found.facts, **more}, release=None)
