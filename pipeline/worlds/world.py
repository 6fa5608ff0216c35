"""Simulated worlds: known parameters, logging policies, and the card's labels of their raw states.

Count tables of a known world, drawn directly from their exact law: no episode is simulated.

The tables of n independent episodes are a chain of multinomials: the first states of n people, the actions of those in
each state, the successors of each action; the arrivals are the people in each state one step later.  A draw costs the
same for ten episodes and for a million million.
"""

# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration.card import Card, CardError
from pipeline.declaration.declared_features import StateFeatures, table_of_features
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import greedy, optimal_values

# steps of an episode where neither the world nor its user says
USUAL_HORIZON = 20
_NEAR_OPTIMAL = re.compile(r"near-optimal-(\d*\.?\d+)")


@dataclass(frozen=True)
class World:
    """A tabular world over S raw states and A raw actions, the same at every step or one for each of H steps.

    ``transition`` ``(S, A, S)``: or ``(H, S, A, S)`` where the step matters; rows sum to 1.
    ``visit_reward``, ``entry_reward`` ``(S, A)``: or ``(H, S, A)``, and ``(S,)``, reward units: a step from s by a into
    s' pays ``visit[s, a] + entry[s']``.
    ``start`` ``(S,)``: distribution of the first state.
    ``bin_values``: numeric columns that a card may bin by, each ``(S,)`` and exactly representable as float32.
    ``policies``: name -> probabilities ``(S, A)`` or ``(H, S, A)`` of a logging policy.
    ``action_labels``: text of each raw action; empty: ``"0" .. "A-1"``.
    ``horizon``: H where the definition fixes it; None where episodes may be cut anywhere.
    ``state_features``: name -> public numbers ``(S,)`` of each raw state, exactly representable as float32; a card may
    declare them.
    ``lattice``, ``most``: where ``lattice = (low, unit)`` is given, rewards are means: a step pays one of the two
    points low + k unit beside it, at random.  ``most`` then cuts what an episode may pay in sum.
    """

    name: str
    transition: Array
    visit_reward: Array
    entry_reward: Array
    start: Array
    raw_labels: list[str]
    bin_values: Mapping[str, Array]
    ends: Mapping[int, str]
    policies: Mapping[str, Array]
    action_labels: list[str] = field(default_factory=list[str])
    horizon: int | None = None
    binnings: Mapping[str, tuple[str, list[float]]] = field(default_factory=dict[str, tuple[str, list[float]]])
    lattice: tuple[float, float] | None = None
    most: float | None = None
    state_features: Mapping[str, Array] = field(default_factory=dict[str, Array])

    def __post_init__(self) -> None:
        depends = {len(x) for x, axes in ((self.transition, 4), (self.visit_reward, 3)) if x.ndim == axes}
        if depends - {self.horizon}:
            raise ValueError(f"world {self.name}: step-dependent arrays need horizon = {max(depends)}")

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A), raw."""
        return len(self.start), self.transition.shape[-2]

    @property
    def stationary(self) -> bool:
        """Whether no step differs from another."""
        return self.transition.ndim == 3 and self.visit_reward.ndim == 2

    @property
    def terminal(self) -> Bools:
        """``(S,)``: whether an episode stops on entering the state."""
        return np.isin(np.arange(len(self.start)), list(self.ends))

    @property
    def actions(self) -> list[str]:
        """Text of each raw action."""
        return self.action_labels or [str(a) for a in range(self.shape[1])]

    @property
    def expected_reward(self) -> Array:
        """``(S, A)`` or ``(H, S, A)`` mean reward of one step."""
        return self.visit_reward + self.transition @ self.entry_reward

    def steps(self, horizon: int | None = None) -> int:
        """The horizon: the asked one, else the world's own, else 20.

        Raises CardError if the world is defined for another horizon.
        """
        if horizon is not None and self.horizon is not None and horizon != self.horizon:
            raise CardError(f"world {self.name}: is defined for a horizon of {self.horizon} steps, not {horizon}")
        return horizon or self.horizon or USUAL_HORIZON

    def mdp(self, horizon: int) -> TabularMDP:
        """The world cut at ``horizon`` steps; broadcast views where the steps are alike, nothing is copied.

        Raises CardError if the world is defined for another horizon.
        """
        H, (S, A) = self.steps(horizon), self.shape  # noqa: N806
        reward = np.broadcast_to(self.expected_reward, (H, S, A))
        return TabularMDP(np.broadcast_to(self.transition, (H, S, A, S)), reward, self.start)

    def behaviours(self, name: str, horizon: int) -> Array:
        """Logging policy ``(H, S, A)`` by name, a broadcast view where the steps are alike.

        Besides :attr:`policies` every world knows ``near-optimal-E``: the optimal action, but uniform with probability
        E.

        Raises CardError if the world has no policy of that name.
        """
        shape = (self.steps(horizon), *self.shape)
        if name in self.policies:
            return np.broadcast_to(self.policies[name], shape)
        explore = _NEAR_OPTIMAL.fullmatch(name)
        if explore is None or float(explore[1]) > 1:
            names = ", ".join(self.policies)
            raise CardError(
                f"world {self.name}: no behaviour {name!r}; there are: {names}, and near-optimal-E with E from 0 to 1"
            )
        share = float(explore[1])
        return (1 - share) * greedy(optimal_values(self.mdp(horizon))[0]) + share / shape[-1]


def plain_world(
    name: str, transition: Array, rewards: Array, policies: Mapping[str, Array], horizon: int | None
) -> World:
    """A world without ends, where every episode starts in state 0 and rewards are those of visits.

    ``transition``, ``rewards`` ``([H, ]S, A, S)``: and ``([H, ]S, A)``.
    """
    states = transition.shape[-1]
    return World(
        name=name,
        transition=transition,
        visit_reward=rewards,
        entry_reward=np.zeros(states),
        start=np.eye(states)[0],
        raw_labels=[str(s) for s in range(states)],
        bin_values={},
        ends={},
        policies=policies,
        horizon=horizon,
    )


def declared_states(card: Card, world: World) -> Integers:
    """Index ``(S,)`` of each raw state among ``card.domain.state_labels``.

    Raises CardError if the card bins by a column the world lacks, or has no place for a state.
    """
    states, live = card.domain.states, len(card.domain.live_states)
    if states.product is not None:
        raise CardError(f"{card.name}: world {world.name} shows one column of states; `from` names several")
    other = live - 1 if states.other else -1
    if states.bins is not None:
        if not isinstance(states.bins.by, str) or states.bins.by not in world.bin_values:
            columns = ", ".join(world.bin_values) or "none"
            raise CardError(
                f"{card.name}: world {world.name} has no column {states.bins.by!r} to bin by; it has: {columns}"
            )
        values = world.bin_values[states.bins.by]
        # bins are closed on the left: [e0, e1)
        index = np.searchsorted(states.bins.edges, values, side="right").astype(np.int64)
    else:
        raw = states.raw_labels()
        index = np.array([raw.get(label, other) for label in world.raw_labels], dtype=np.int64)
    for state, label in world.ends.items():
        index[state] = live + states.ends.index(label) if label in states.ends else -1
    if (index < 0).any():
        missing = [world.ends.get(int(s), world.raw_labels[s]) for s in np.flatnonzero(index < 0)]
        raise CardError(f"{card.name}: domain.states has no label for the states {missing[:5]} of world {world.name}")
    return index


def declared_actions(card: Card, world: World) -> Integers:
    """Index ``(A,)`` of each raw action among ``card.domain.action_labels``.

    Raises CardError if the card has no label for an action.
    """
    actions, raw = card.domain.actions, card.domain.actions.raw_labels()
    other = len(card.domain.action_labels) - 1 if actions.other else -1
    index = np.array([raw.get(a, other) for a in world.actions], dtype=np.int64)
    if (index < 0).any():
        missing = [world.actions[a] for a in np.flatnonzero(index < 0)]
        raise CardError(f"{card.name}: domain.actions has no label for the actions {missing[:5]} of world {world.name}")
    return index


@dataclass(frozen=True)
class WorldFunction:
    """Decorator of a ``module:object`` function that returns a world or a linear plant."""

    build: Callable[..., Any]

    def __call__(self, *args: Any, **params: Any) -> Any:
        """The world of these parameters."""
        return self.build(*args, **params)


# file of the features beside a card
FEATURES = "states.parquet"


def world_features(world: World) -> StateFeatures | None:
    """The public features of a world's live states as a table beside a card; None where it has none."""
    live = np.flatnonzero(~world.terminal)
    if not world.state_features:
        return None
    values = np.stack([column[live] for column in world.state_features.values()], axis=1)
    return table_of_features(FEATURES, [world.raw_labels[s] for s in live], list(world.state_features), values)


def sparse_rows(cells: tuple[int, ...], states: int, successors: int, rng: np.random.Generator) -> Array:
    """``(*cells, states)`` distributions, each over so many states drawn at random.

    ``successors``: that a row reaches, at most ``states``.
    """
    reached = rng.random((*cells, states)).argpartition(successors - 1, axis=-1)[..., :successors]
    rows = np.zeros((*cells, states))
    np.put_along_axis(rows, reached, rng.dirichlet(np.ones(successors), size=cells), axis=-1)
    return rows


# the float arithmetic inside a binomial draw keeps every bit of an integer count well below 2^53
MOST_EPISODES = 10**12


def sample_count_tables(mdp: TabularMDP, behaviour: Array, episodes: int, rng: np.random.Generator) -> Integers:
    """Transitions ``(H, S, A, S)`` of ``episodes`` independent episodes of a world under a logging policy.

    Arrivals at a step are the visits of the next one, and each step holds every episode once.

    ``behaviour`` ``(H, S, A)``: action probabilities.
    ``rng``: simulation only; the order of its draws is pinned by tests.
    Raises ValueError if the behaviour's shape is not the world's, or there are too many episodes.
    """
    H, S, A = mdp.shape  # noqa: N806
    if behaviour.shape != (H, S, A):
        raise ValueError(f"behaviour must be {(H, S, A)}; got {behaviour.shape}")
    if not 0 <= episodes <= MOST_EPISODES:
        raise ValueError(f"episodes must be between 0 and {MOST_EPISODES:g}; got {episodes}")
    n_sas = np.zeros((H, S, A, S), np.int64)
    chosen, moved = _ordered(behaviour), _ordered(mdp.transitions)
    people = multinomials(np.asarray(episodes), mdp.start, rng)
    for h in range(H):
        visits = _drawn(people, chosen[0][h], chosen[1][h], rng)
        n_sas[h] = _drawn(visits, moved[0][h], moved[1][h], rng)
        people = n_sas[h].sum((0, 1))
    return n_sas


def multinomials(trials: Integers, probabilities: Array, rng: np.random.Generator) -> Integers:
    """One multinomial draw ``(..., C)`` for each of ``trials (...)`` with its own ``probabilities (..., C)``.

    numpy gives what rounding loses to the last category, though it be impossible: at 10^12 trials about one draw in
    30 000 does so.  Here the likeliest category stands last.
    """
    return _drawn(trials, *_ordered(probabilities), rng)


def _ordered(probabilities: Array) -> tuple[Array, Integers]:
    """Probabilities ``(..., C)`` with the likeliest last, and which category ``(...)`` that is."""
    likely = probabilities.argmax(-1)
    return _swap_with_last(probabilities / probabilities.sum(-1, keepdims=True), likely), likely


def _drawn(trials: Integers, ordered: Array, likely: Integers, rng: np.random.Generator) -> Integers:
    return _swap_with_last(rng.multinomial(trials, ordered), likely)


def _swap_with_last(x: NDArray[Any], column: Integers) -> NDArray[Any]:
    """A copy of ``x (..., C)`` in which entry ``column (...)`` and the last one have changed places."""
    out = x.reshape(-1, x.shape[-1]).copy()
    index = np.arange(len(out)), column.reshape(-1)
    moved = out[index]
    out[index] = out[:, -1]
    out[:, -1] = moved
    return out.reshape(x.shape)
