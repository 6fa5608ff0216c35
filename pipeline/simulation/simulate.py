"""Simulated logs of known worlds: rows, and count tables for studies.

Everything here is a simulation of a world whose parameters are public; no person is behind a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.environments.world import Array, Ints, World, declared_actions, declared_states
from pipeline.logs.aggregate import count_rows
from pipeline.mdp.model import TabularMDP, is_stationary
from pipeline.statistics.layout import ExactSums

# episodes simulated at once: bounds memory, and is part of what a seed means
_CHUNK = 200_000


@dataclass(frozen=True)
class LogRows:
    """One row a step, sorted by (user, step); N rows.  Users are numbered from 0 and have one episode each here.

    Attributes
    ----------
    user, step, state, action, next_state
        ``(N,)`` integers: raw states and actions, 0-based steps.
    reward
        ``(N,)`` reward units.
    last
        ``(N,)`` bool: the row ends its episode.
    """

    user: Ints
    step: Ints
    state: Ints
    action: Ints
    reward: Array
    next_state: Ints
    last: NDArray[np.bool_]


@dataclass(frozen=True)
class _Draws:
    """Categorical distributions of many rows, as one running sum over their positive entries."""

    column: Ints
    running: Array
    first: Ints
    end: Ints

    def sample(self, rows: Ints, rng: np.random.Generator) -> Ints:
        """One column for each of ``rows``, with that row's probabilities."""
        low = np.where(self.first[rows] > 0, self.running[self.first[rows] - 1], 0.0)
        high = self.running[self.end[rows] - 1]
        found = np.searchsorted(self.running, low + rng.random(len(rows)) * (high - low), side="right")
        # rounding may step over the edge of a row
        return self.column[np.clip(found, self.first[rows], self.end[rows] - 1)]


def _draws(table: Array) -> _Draws:
    """Of the rows of ``table (R, C)``."""
    row, column = np.nonzero(table)
    end = np.cumsum(np.bincount(row, minlength=len(table)))
    return _Draws(column, np.cumsum(table[row, column]), np.concatenate([[0], end[:-1]]), end)


def sample_log(world: World, behaviour: str | Array, horizon: int, episodes: int, rng: np.random.Generator) -> LogRows:
    """Simulate ``episodes`` episodes; each stops on entering a terminal state or after ``horizon`` steps.

    Parameters
    ----------
    world
        The world whose law the rows follow.
    rng
        All randomness of the log.
    behaviour
        Name of one of the world's logging policies, or probabilities ``(H, S, A)`` over raw states and actions.
    """
    chunks = list(simulate_chunks(world, behaviour, horizon, episodes, rng))
    return LogRows(*(np.concatenate([getattr(c, f.name) for c in chunks]) for f in fields(LogRows)))


def sample_counts(
    card: Card, world: World, behaviour: str | Array, episodes: int, rng: np.random.Generator
) -> ExactSums:
    """Count tables of a simulated log, without writing it: the rows of :func:`sample_log`, summed as a snapshot's are.

    Marked synthetic whatever the card says, for no person is behind them.
    """
    states, actions = declared_states(card, world), declared_actions(card, world)
    tables: dict[str, NDArray[np.int64]] = {}
    for rows in simulate_chunks(world, behaviour, card.domain.horizon, episodes, rng):
        for name, table in count_rows(canonical(rows, states, actions), card).items():
            tables[name] = tables[name] + table if name in tables else table
    return ExactSums(card.name, "synthetic", card.domain.dynamics, tables)


def sample_people(
    card: Card, mdp: TabularMDP, behaviour: Array, episodes: int, rng: np.random.Generator
) -> list[pl.DataFrame]:
    """Canonical rows of people who do not exist, one episode each, from a process over a card's labels.

    Parameters
    ----------
    card
        Its L live states are the first of the process; the rest are ends.
    mdp
        Mean rewards: where rows tell rewards, a step pays one of the lattice's two points beside the mean.
    behaviour
        ``(H, S, A)`` probabilities of the logging policy.
    episodes, rng
        How many people, and all their randomness.

    Returns
    -------
    Whole people, some in each frame.
    """
    d, r = card.domain, card.reward
    alike = mdp.transitions.strides[0] == 0 and mdp.rewards.strides[0] == 0
    world = World(
        name=card.name,
        transition=mdp.transitions[0] if alike else mdp.transitions,
        visit_reward=mdp.rewards[0] if alike else mdp.rewards,
        entry_reward=np.zeros(len(d.state_labels)),
        start=mdp.start,
        raw_labels=d.state_labels,
        bin_values={},
        ends={i: d.state_labels[i] for i in range(d.states.first_terminal, len(d.state_labels))},
        policies={},
        horizon=None if alike else d.horizon,
        lattice=(r.range[0], r.unit) if r.kind == "estimate" else None,
        most=r.total,
    )
    states, actions = (np.arange(n, dtype=np.int64) for n in world.shape)
    chunks = simulate_chunks(world, behaviour, d.horizon, episodes, rng)
    return [canonical(rows, states, actions) for rows in chunks]


def canonical(rows: LogRows, states: Ints, actions: Ints) -> pl.DataFrame:
    """The columns that sums read, with raw states and actions by index of their labels.

    Parameters
    ----------
    rows
        As the world made them.
    states, actions
        Label of each raw state and action.
    """
    return pl.DataFrame(
        {
            "user_id": rows.user,
            "episode_id": np.zeros(len(rows.user), dtype=np.int64),
            "step": rows.step,
            "state": states[rows.state],
            "action": actions[rows.action],
            "reward": rows.reward,
            "next_state": states[rows.next_state],
            "terminated": np.zeros(len(rows.user), dtype=bool),
        }
    )


def simulate_chunks(
    world: World,
    behaviour: str | Array,
    horizon: int,
    episodes: int,
    rng: np.random.Generator,
    chunk: int | None = None,
) -> Iterator[LogRows]:
    """Rows of at most ``chunk`` episodes at a time; arguments as of :func:`sample_log`."""
    states, actions = world.shape
    policy = world.behaviours(behaviour, horizon) if isinstance(behaviour, str) else behaviour
    if policy.shape != (horizon, states, actions):
        raise ValueError(f"behaviour must be {(horizon, states, actions)}; got {policy.shape}")
    act = _draws_of_steps(policy, horizon)
    move = _draws_of_steps(world.transition.reshape(-1, states * actions, states), horizon)
    visit = np.broadcast_to(world.visit_reward, (horizon, states, actions))
    terminal, begin = world.terminal, _draws(world.start[None])
    size = chunk or _CHUNK
    for first in range(0, episodes, size):
        user = np.arange(first, min(first + size, episodes))
        state = begin.sample(np.zeros(len(user), dtype=np.int64), rng)
        left = np.full(len(user), np.inf if world.most is None else world.most)
        steps: list[LogRows] = []
        for h in range(horizon):
            action = act[h].sample(state, rng)
            after = move[h].sample(state * actions + action, rng)
            reward = visit[h, state, action] + world.entry_reward[after]
            if world.lattice is not None:
                reward = np.minimum(_beside(reward, *world.lattice, rng), left)
                left = left - reward
            last = terminal[after] | (h == horizon - 1)
            steps.append(LogRows(user, np.full(len(user), h), state, action, reward, after, last))
            user, state, left = user[~last], after[~last], left[~last]
        order = np.argsort(np.concatenate([s.user for s in steps]), kind="stable")
        yield LogRows(*(np.concatenate([getattr(s, f.name) for s in steps])[order] for f in fields(LogRows)))


def _draws_of_steps(tables: Array, horizon: int) -> list[_Draws]:
    """Of tables ``(G, R, C)``, one a step; steps that are alike share theirs."""
    return [_draws(tables[0])] * horizon if is_stationary(tables) else [_draws(table) for table in tables]


def _beside(mean: Array, low: float, unit: float, rng: np.random.Generator) -> Array:
    """A lattice point next to each mean, drawn so that the mean stays."""
    at = (mean - low) / unit
    below = np.floor(at + 1e-9)
    return low + unit * (below + (rng.random(len(mean)) < at - below))
