"""What every simulated world offers: known parameters, logging policies, and how a card sees its raw states."""

# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import Card, CardError
from pipeline.declaration.declared_features import StateFeatures, table_of_features
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import greedy, optimal_values

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

# steps of an episode where neither the world nor its user says
USUAL_HORIZON = 20
_NEAR_OPTIMAL = re.compile(r"near-optimal-(\d*\.?\d+)")


@dataclass(frozen=True)
class World:
    """A tabular world over S raw states and A raw actions, the same at every step or one for each of H steps.

    Parameters
    ----------
    name
        What messages, logs and reports call it.
    transition
        ``(S, A, S)``, or ``(H, S, A, S)`` where the step matters; rows sum to 1.
    visit_reward, entry_reward
        ``(S, A)`` or ``(H, S, A)``, and ``(S,)``, reward units: a step from s by a into s' pays
        ``visit[s, a] + entry[s']``.
    start
        ``(S,)`` distribution of the first state.
    raw_labels
        Text of each raw state, as a log's state column holds it.  Two raw states may share a label (a state entered at
        two prices is two raw states), and then behave alike from there on.
    bin_values
        Numeric columns that a card may bin by, each ``(S,)`` and exactly representable as float32.
    ends
        Terminal raw state -> the end label a card knows it by; an episode stops on entering one.
    policies
        Name -> probabilities ``(S, A)`` or ``(H, S, A)`` of a logging policy.
    action_labels
        Text of each raw action; empty: ``"0" .. "A-1"``.
    horizon
        H where the definition fixes it; None where episodes may be cut anywhere.
    binnings
        Name -> (column, edges): the ways to bin that the definition offers, the usual one first; none: no bins.
    state_features
        Name -> public numbers ``(S,)`` of each raw state, exactly representable as float32; a card may declare them.
    lattice, most
        Where ``lattice = (low, unit)`` is given, rewards are means: a step pays one of the two points low + k unit
        beside it, at random.  ``most`` then cuts what an episode may pay in sum.
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
    def terminal(self) -> NDArray[np.bool_]:
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

        Raises
        ------
        CardError
            If the world is defined for another horizon.
        """
        if horizon is not None and self.horizon is not None and horizon != self.horizon:
            raise CardError(f"world {self.name}: is defined for a horizon of {self.horizon} steps, not {horizon}")
        return horizon or self.horizon or USUAL_HORIZON

    def mdp(self, horizon: int) -> TabularMDP:
        """The world cut at ``horizon`` steps; broadcast views where the steps are alike, nothing is copied.

        Raises
        ------
        CardError
            If the world is defined for another horizon.
        """
        H, (S, A) = self.steps(horizon), self.shape  # noqa: N806
        reward = np.broadcast_to(self.expected_reward, (H, S, A))
        return TabularMDP(np.broadcast_to(self.transition, (H, S, A, S)), reward, self.start)

    def behaviours(self, name: str, horizon: int) -> Array:
        """Logging policy ``(H, S, A)`` by name, a broadcast view where the steps are alike.

        Besides :attr:`policies` every world knows ``near-optimal-E``: the optimal action, but uniform with probability
        E.

        Raises
        ------
        CardError
            If the world has no policy of that name.
        """
        shape = (self.steps(horizon), *self.shape)
        if name in self.policies:
            return np.broadcast_to(self.policies[name], shape)
        explore = _NEAR_OPTIMAL.fullmatch(name)
        if explore is None or float(explore[1]) > 1:
            known = ", ".join(self.policies)
            raise CardError(
                f"world {self.name}: no behaviour {name!r}; there are: {known}, and near-optimal-E with E from 0 to 1"
            )
        share = float(explore[1])
        return (1 - share) * greedy(optimal_values(self.mdp(horizon))[0]) + share / shape[-1]


def plain_world(
    name: str, transition: Array, rewards: Array, policies: Mapping[str, Array], horizon: int | None
) -> World:
    """A world without ends, where everybody starts in state 0 and rewards are those of visits.

    Parameters
    ----------
    name
        What reports call it.
    transition, rewards
        ``([H, ]S, A, S)`` and ``([H, ]S, A)``.
    policies, horizon
        See :class:`World`.
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


def declared_states(card: Card, world: World) -> Ints:
    """Index ``(S,)`` of each raw state among ``card.domain.state_labels``.

    Parameters
    ----------
    card
        Declares bins or labels, and which label each end has.
    world
        Over S raw states.

    Raises
    ------
    CardError
        If the card bins by a column the world lacks, or has no place for a state.
    """
    states, live = card.domain.states, len(card.domain.live_states)
    other = live - 1 if states.other else -1
    if states.bins is not None:
        if not isinstance(states.bins.by, str) or states.bins.by not in world.bin_values:
            known = ", ".join(world.bin_values) or "none"
            raise CardError(
                f"{card.name}: world {world.name} has no column {states.bins.by!r} to bin by; it has: {known}"
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


def declared_actions(card: Card, world: World) -> Ints:
    """Index ``(A,)`` of each raw action among ``card.domain.action_labels``.

    Raises
    ------
    CardError
        If the card has no label for an action.
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
    """A function that returns a world, or a linear plant, and says so: the decorator of ``module:object`` worlds.

    Parameters
    ----------
    build
        From the parameters of a recipe's ``[world]`` or of ``--param`` to a :class:`World` (or an ``LqSystem``).
    """

    build: Callable[..., Any]

    def __call__(self, *args: Any, **params: Any) -> Any:
        """The world of these parameters."""
        return self.build(*args, **params)


# its file beside a card
FEATURES = "states.parquet"


def world_features(world: World) -> StateFeatures | None:
    """The public features of a world's live states as a table beside a card; None where it has none."""
    live = np.flatnonzero(~world.terminal)
    if not world.state_features:
        return None
    values = np.stack([column[live] for column in world.state_features.values()], axis=1)
    return table_of_features(FEATURES, [world.raw_labels[s] for s in live], list(world.state_features), values)
