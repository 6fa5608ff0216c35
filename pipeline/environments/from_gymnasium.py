"""Worlds of gymnasium that publish their transition table: FrozenLake, Taxi, CliffWalking (package extra ``worlds``).

Definition.  ``env.unwrapped.P[s][a]`` lists (probability, s', reward, terminated) and ``initial_state_distrib`` says
where episodes start.  Live states are those an episode can be in; every terminated outcome enters an end, worth 0 from
then on.  Rewards stay in the environment's units: nothing is rescaled.

A reward may depend on the outcome, not only on (s, a, s'): on a slippery cliff the same move ends in the same state
at -1 or, after a fall, at -100.  The most probable reward of (s, a) is its visit reward; an outcome that pays
otherwise enters a twin of its state that pays the difference, with the same label and the same future.  The world is
thus exact, whatever the rewards depend on.

What is not exactly right: episodes are cut at H steps, which gymnasium's time limits do elsewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.declaration.card import CardError
from pipeline.environments.world import World

END_LABEL = "end"
Outcomes = Sequence[tuple[float, int, float, bool]]
# a raw state: the environment's number (None: over) and what entering it pays beyond the visit reward
_Raw = tuple[int | None, float]


def from_gymnasium(env_id: str, **kwargs: Any) -> World:
    """Build the world of an environment; its behaviour is ``uniform``.

    Parameters
    ----------
    kwargs
        Passed to ``gymnasium.make``, e.g. ``is_slippery = False``.

    Raises
    ------
    CardError
        If gymnasium is missing, does not know the environment, or the environment publishes no transition table.
    """
    try:
        import gymnasium
    except ImportError:
        raise CardError(f"world gymnasium:{env_id}: needs gymnasium; pip install 'reticent[worlds]'") from None
    try:
        env = gymnasium.make(env_id, **kwargs).unwrapped
    except (gymnasium.error.Error, TypeError, ValueError, KeyError, AssertionError) as e:
        raise CardError(f"world gymnasium:{env_id}: gymnasium cannot make it: {e}") from None
    table, start = getattr(env, "P", None), getattr(env, "initial_state_distrib", None)
    if table is None or start is None:
        raise CardError(
            f"world gymnasium:{env_id}: publishes no transition table (env.unwrapped.P) and start distribution, so its "
            "values are unknown; FrozenLake-v1, FrozenLake8x8-v1, Taxi-v4 and CliffWalking-v1 do"
        )
    return from_table(f"gymnasium:{env_id}", table, np.asarray(start, dtype=np.float64))


def from_table(name: str, table: Mapping[int, Mapping[int, Outcomes]], start: np.ndarray) -> World:
    """The world of a table ``P[s][a] = [(probability, s', reward, terminated), ...]`` and a start ``(S,)``."""
    actions = len(table[0])
    usual = {(s, a): _usual_reward(outcomes) for s, row in table.items() for a, outcomes in row.items()}
    index: dict[_Raw, int] = {(int(s), 0.0): i for i, s in enumerate(np.flatnonzero(start))}
    moves: list[tuple[int, int, int, float]] = []
    queue = list(index)
    for raw in queue:
        number, _ = raw
        if number is None:
            continue
        for a, outcomes in table[number].items():
            for probability, after, reward, over in outcomes:
                if probability > 0:
                    entered: _Raw = (None if over else int(after), float(reward - usual[number, a]))
                    if entered not in index:
                        index[entered] = len(index)
                        queue.append(entered)
                    moves.append((index[raw], a, index[entered], probability))
    # an end that pays on entering leads to one that does not
    index.setdefault((None, 0.0), len(index))
    order = sorted(index, key=lambda raw: (raw[0] is None, raw[0] or 0, -raw[1]))
    place = {index[raw]: i for i, raw in enumerate(order)}
    live = [number for number, _ in order if number is not None]
    size = len(order)
    transition, visit = np.zeros((size, actions, size)), np.zeros((size, actions))
    for before, a, after, probability in moves:
        transition[place[before], a, place[after]] += probability
    visit[: len(live)] = [[usual[s, a] for a in range(actions)] for s in live]
    transition[len(live) :, :, place[index[None, 0.0]]] = 1.0
    begin = np.array([start[s] if s is not None and extra == 0 else 0.0 for s, extra in order])
    return World(
        name=name,
        transition=transition / transition.sum(-1, keepdims=True),
        visit_reward=visit,
        entry_reward=np.array([extra for _, extra in order]),
        start=begin / begin.sum(),
        raw_labels=[END_LABEL if s is None else str(s) for s, _ in order],
        bin_values={},
        ends={i: END_LABEL for i, (s, _) in enumerate(order) if s is None},
        policies={"uniform": np.full((size, actions), 1 / actions)},
    )


def _usual_reward(outcomes: Outcomes) -> float:
    """The most probable reward, the smaller of two alike."""
    chance: defaultdict[float, float] = defaultdict(float)
    for probability, _, reward, _ in outcomes:
        chance[float(reward)] += probability
    return min(chance, key=lambda r: (-round(chance[r], 12), r))
