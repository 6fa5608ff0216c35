"""What every simulated world offers: known parameters, logging policies, and how a card sees its raw states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.card import Card, CardError
from pipeline.mdp.model import TabularMDP, stationary_mdp

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """A time-homogeneous tabular world over S raw states and A raw actions.

    Parameters
    ----------
    transition
        ``(S, A, S)``, rows sum to 1.
    visit_reward, entry_reward
        ``(S, A)`` and ``(S,)``, reward units: a step from s by a into s' pays ``visit[s, a] + entry[s']``.
    start
        ``(S,)`` distribution of the first state.
    raw_labels
        Text of each raw state, as a log's state column holds it; raw actions are ``"0" .. "A-1"``.
    bin_values
        Numeric columns that a card may bin by, each ``(S,)`` and exactly representable as float32.
    ends
        Terminal raw state -> the end label a card knows it by; an episode stops on entering one.
    policies
        Name -> probabilities ``(S, A)`` of a stationary logging policy.
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

    @property
    def shape(self) -> tuple[int, int]:
        """(S, A), raw."""
        return len(self.start), self.transition.shape[1]

    @property
    def terminal(self) -> NDArray[np.bool_]:
        """``(S,)``: whether an episode stops on entering the state."""
        return np.isin(np.arange(len(self.start)), list(self.ends))

    @property
    def expected_reward(self) -> Array:
        """``(S, A)`` mean reward of one step."""
        return self.visit_reward + self.transition @ self.entry_reward

    def mdp(self, horizon: int) -> TabularMDP:
        """The world cut at ``horizon`` steps; broadcast views, nothing is copied per step."""
        return stationary_mdp(self.transition, self.expected_reward, self.start, horizon)

    def behaviours(self, name: str, horizon: int) -> Array:
        """Logging policy ``(H, S, A)`` by name, a broadcast view.

        Raises
        ------
        CardError
            If the world has no policy of that name.
        """
        if name not in self.policies:
            raise CardError(f"world {self.name}: no behaviour {name!r}; there are: {', '.join(self.policies)}")
        return np.broadcast_to(self.policies[name], (horizon, *self.shape))


def declared_states(card: Card, world: World) -> Ints:
    """Index ``(S,)`` of each raw state among ``card.domain.state_labels``.

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
    index = np.array([raw.get(str(a), other) for a in range(world.shape[1])], dtype=np.int64)
    if (index < 0).any():
        missing = [str(a) for a in np.flatnonzero(index < 0)]
        raise CardError(f"{card.name}: domain.actions has no label for the actions {missing[:5]} of world {world.name}")
    return index
