"""What quality to expect before anything is spent: a card's declarations, simulated in a world made up for them.

A world is drawn that has the card's states, actions, ends, horizon and reward range, and nothing else of the dataset; a
log of so many people is drawn from it, released at the recipe's noise and planned on, as a run would.  Reads no rows.
"""

# ruff: noqa: N803, N806  (H, L, A, S as everywhere)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import Card, task_of
from pipeline.declaration.domain import OTHER, States
from pipeline.mdp.features import FeatureMap
from pipeline.mdp.model import TabularMDP, Task, stationary_mdp
from pipeline.mdp.planning import optimal_values
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.logged_trials import Logged

Array = NDArray[np.float64]
# sparse kernels, as real ones are: a dense one mixes at once, and then only the next reward counts
_SUCCESSORS = 3
STATES = (
    f"a made-up world: from each state and action to {_SUCCESSORS} states drawn at random, rewards drawn from the "
    "declared range, every action logged alike"
)
# of a card with observations: how many there are in the made-up world, and the seed by which they are drawn
_PLACES, _PLACES_SEED = 64, 8
# what stays of an observation after a step, how far an action pushes it, and how wide it lands; radii of the ball
_STAYS, _PUSH, _WIDTH = 0.8, 0.4, 0.3
OBSERVED = (
    f"a made-up world: {_PLACES} observations in the declared ball, each action pushes to one side, rewards affine in "
    "the observation, every action logged alike; its values are linear in no declared features"
)


@dataclass(frozen=True)
class Drawn:
    """One simulated run: what its policy, the same without noise, and uniform choice lose against the best policy.

    Parameters
    ----------
    loss, exact, reference
        v* - v of the policy, of the same planner without noise, and of uniform choice; reward units.
    optimum
        v* of the drawn world.
    abstains
        Share of (step, state) in which the policy recommends nothing.
    """

    loss: float
    exact: float
    reference: float
    optimum: float
    abstains: float


@dataclass(frozen=True)
class Places:
    """Finitely many public observations that stand for a card's states.

    Parameters
    ----------
    card
        The same declarations, with a live state an observation.
    features
        Theirs.
    ball
        ``(M, p)``: the observations over the declared radius.
    """

    card: Card
    features: FeatureMap
    ball: Array


def places_of(card: Card) -> Places:
    """The declared first observations and a draw in the ball, in the live states by turns.

    Parameters
    ----------
    card
        With ``domain.observation`` and features of it.
    """
    d, r, declared = card.domain, card.reward, card.features
    assert d.observation is not None and declared is not None
    rng, p, live = np.random.default_rng(_PLACES_SEED), d.observation.size, len(d.live_states)
    map_ = declared.observed(live, len(d.action_labels), d.observation)
    first = np.array(d.first_observations or [[0.0] * p]) / np.array(d.observation.scales)
    drawn = rng.normal(size=(_PLACES, p))
    drawn *= map_.radius * rng.random((_PLACES, 1)) ** (1 / p) / np.linalg.norm(drawn, axis=1, keepdims=True)
    x, at = np.concatenate([first, drawn])[:_PLACES], np.arange(_PLACES) % live
    labels = [f"place {i}" for i in range(_PLACES)]
    never = [a for a, may in zip(d.action_labels, d.allowed[0], strict=True) if not may and a != OTHER]
    told = {
        "states": States(column="place", labels=[*labels], ends=d.states.ends),
        "observation": None,
        "first_observations": None,
        "start": {label: 1 / len(first) for label in labels[: len(first)]},
        "vetoes": [(label, a) for label in labels for a in never],
    }
    tables = [[table[s] for s in at] for table in r.tables]
    paid = r.model_copy(update={"table": tables[0] if len(tables) == 1 else tables or None})
    finite = card.model_copy(update={"domain": d.model_copy(update=told), "reward": paid}).placed(card.folder)
    return Places(finite, map_.at(x, at), map_.inside(x))


def draw_surrogate(card: Card, rng: np.random.Generator, ball: Array | None = None) -> TabularMDP:
    """A random world of the declared size over ``card.domain.state_labels``, ends last and absorbing.

    An episode ends at each step with chance 1 / H where the card declares ends.

    Parameters
    ----------
    card
        Declares states, actions and rewards.
    rng
        Draws the world.
    ball
        ``(L, p)`` observations of the live states, in the unit ball: then what an action does follows from them.
    """
    d = card.domain
    H, L, A, S = d.horizon, len(d.live_states), len(d.action_labels), len(d.state_labels)
    G, live, worth = d.table_steps, *(_sparse(d.table_steps, L, A, rng) if ball is None else _pushed(ball, A, rng))
    P = np.zeros((G, S, A, S))
    over = 1 / H if S > L else 0.0
    P[:, :L, :, :L] = (1 - over) * live
    P[:, :L, :, L:] = over / max(1, S - L)
    P[:, range(L, S), :, range(L, S)] = 1.0
    declared = task_of(card).expected(P[:, :L])
    drawn = _rewards(card, worth) if declared is None else declared
    r = np.zeros((len(drawn), S, A))
    r[:, :L] = drawn
    first = np.full(L, 1 / L) if d.start == "released" else np.array([d.start.get(s, 0.0) for s in d.live_states])
    start = np.append(first, np.zeros(S - L))
    if G == len(r) == 1:
        return stationary_mdp(P[0], r[0], start, H)
    return TabularMDP(np.broadcast_to(P, (H, *P.shape[1:])), np.broadcast_to(r, (H, S, A)), start)


def _sparse(G: int, L: int, A: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Transitions ``(G, L, A, L)`` to few states drawn at random, and shares of the reward range ``(G, L, A)``."""
    reached = min(_SUCCESSORS, L)
    onto = rng.random((G, L, A, L)).argpartition(reached - 1, axis=-1)[..., :reached]
    live = np.zeros((G, L, A, L))
    np.put_along_axis(live, onto, rng.dirichlet(np.ones(reached), size=(G, L, A)), axis=-1)
    return live, rng.random((G, L, A))


def _pushed(ball: Array, A: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The same, ``(1, L, A, L)`` and ``(1, L, A)``, where each action has a direction to push to, and one it is for."""
    push, liked = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in rng.normal(size=(2, A, ball.shape[1])))
    landing = _STAYS * ball[:, None] + _PUSH * push
    squares = (landing**2).sum(-1)[..., None] + (ball**2).sum(-1) - 2 * landing @ ball.T
    near = np.exp(-(squares - squares.min(-1, keepdims=True)) / (2 * _WIDTH**2))
    return (near / near.sum(-1, keepdims=True))[None], (1 + ball @ liked.T)[None] / 2


def _rewards(card: Card, worth: Array) -> Array:
    """Means at these shares of the range, small enough for a declared total."""
    low, high = card.reward.range
    total, most = card.reward.total, card.domain.horizon * max(high, 0.0)
    share = 1.0 if total is None or most <= total else total / most
    return low + share * (high - low) * worth


def draw_runs(
    setting: Callable[[np.random.Generator], tuple[Logged, Logged]], episodes: int, draws: Sequence[int]
) -> list[Drawn]:
    """A simulated run for each seed of ``draws``; ``setting`` gives the recipe's and the one without noise.

    Both meet the same world and the same log.
    """
    found: list[Drawn] = []
    for seed in draws:
        of_world, of_log, of_noise, of_ties = np.random.SeedSequence((seed,)).spawn(4)
        asked, exact = setting(np.random.default_rng(of_world))
        counts = asked.counts(episodes, np.random.default_rng(of_log))
        policies = [
            s.plan(counts, SeededNoise(of_noise), np.random.default_rng(of_ties)).policy for s in (asked, exact)
        ]
        best = best_allowed(asked.mdp, asked.task)
        losses = [best - asked.value(p) for p in policies]
        even = best - asked.value(evenly(asked.task))
        found.append(Drawn(losses[0], losses[1], even, best, float(policies[0].abstains.mean())))
    return found


def evenly(task: Task) -> Policy:
    """Uniform choice among allowed actions."""
    H, (L, A) = task.horizon, task.allowed.shape
    rows = task.allowed / task.allowed.sum(1, keepdims=True)
    return Policy(np.broadcast_to(rows, (H, L, A)).copy(), np.zeros((H, L), dtype=bool))


def best_allowed(mdp: TabularMDP, task: Task) -> float:
    """v* among policies that stay with allowed actions.

    Parameters
    ----------
    mdp
        The world, whose first states are the live ones.
    task
        Names the allowed actions ``(L, A)``.
    """
    L = task.allowed.shape[0]
    rewards = mdp.rewards.copy()
    # a barred action costs more than a whole episode can pay
    rewards[:, :L][:, ~task.allowed] -= 1 + task.horizon * (np.abs(mdp.rewards).max() + 1)
    return float(mdp.start @ optimal_values(TabularMDP(mdp.transitions, rewards, mdp.start))[1][0])
