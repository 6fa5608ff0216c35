"""From a card to the decision process that a planner needs: all of it declared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import OTHER, Card
from pipeline.mdp.task import Task

Array = NDArray[np.float64]


def task_of(card: Card) -> Task:
    """The declared decision process as the planner needs it."""
    d = card.domain
    live, actions = d.live_states, d.action_labels
    banned = {(str(s), str(a)) for s, a in d.vetoes}
    allowed = np.array([[(s, a) not in banned and a != OTHER for a in actions] for s in live])
    rewards = None if card.reward.table is None else np.asarray(card.reward.table, dtype=np.float64)
    return Task(d.horizon, card.reward.range, allowed, rewards, can_end=bool(d.states.ends))


def declared_start(card: Card) -> Array | None:
    """Declared first-state distribution ``(L,)``, or None where it comes from the release."""
    start = card.domain.start
    return None if start == "released" else np.array([start.get(s, 0.0) for s in card.domain.live_states])
