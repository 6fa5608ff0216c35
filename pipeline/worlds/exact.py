"""Values of policies in a known world, and the binned process that a card's tables estimate.

A card sees a world through its labels: raw states fall into bins or labels, and the world's own dynamics within a bin
are hidden.  The tables then estimate the *binned process* of the logging policy, which is the world itself only where
the labels are Markov.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card, task_of
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import greedy, occupancies, optimal_values, optimum, policy_value
from pipeline.mdp.policy import Policy
from pipeline.worlds.world import World, declared_actions, declared_states

Dynamics = Literal["per_step", "stationary"]


def lift(probabilities: Array, world: World, card: Card) -> Array:
    """A policy over live labels, as the world would run it.

    ``probabilities`` ``(H, L, A)``: over the card's live states and actions.
    Returns ``(H, S_raw, A_raw)``: each raw state takes the row of its label, an action label is spread evenly over the
    raw actions it stands for, and terminal states are uniform.
    Raises ValueError if the shape is not the card's, or an action without a raw one has a positive probability.
    """
    live, actions = len(card.domain.live_states), len(card.domain.action_labels)
    if probabilities.shape[1:] != (live, actions):
        raise ValueError(f"probabilities must be (H, {live}, {actions}); got {probabilities.shape}")
    stands_for = np.eye(actions)[declared_actions(card, world)]
    size = stands_for.sum(0)
    if (probabilities[..., size == 0] > 0).any():
        raise ValueError(f"world {world.name} has no action for a label that the policy uses")
    raw = probabilities @ (stands_for / np.maximum(size, 1)).T
    out = np.full((len(probabilities), *world.shape), 1 / world.shape[1])
    out[:, ~world.terminal] = raw[:, declared_states(card, world)[~world.terminal]]
    return out


def add_up(x: Array, labels: Integers, count: int, axis: int) -> Array:
    """Sum the entries along an axis by their labels ``0 .. count - 1``."""
    order = np.argsort(labels, kind="stable")
    present, first = np.unique(labels[order], return_index=True)
    # 100 MB of a world whose labels are its states need not be moved
    parts = x if (labels[1:] > labels[:-1]).all() else np.take(x, order, axis)
    if len(present) < len(order):
        parts = np.add.reduceat(parts, first, axis)
    if len(present) == count:
        return parts
    out = np.zeros((*x.shape[:axis], count, *x.shape[axis:][1:]))
    out[(slice(None),) * (axis % x.ndim) + (present,)] = parts
    return out


def binned_process(card: Card, world: World, behaviour: str | Array, dynamics: Dynamics | None = None) -> TabularMDP:
    """The process over ``card.domain.state_labels`` that tables logged by ``behaviour`` estimate, before any cap.

    ``P(s'|s,a) = E[n_sas] / E[n_sa]`` and ``r(s,a) = E[r_sa] / E[n_sa]`` (or the card's reward table), expectations
    under the logging policy in the true world: step by step, or summed over steps where the dynamics are stationary.
    Ends absorb and pay 0.  A cell the logging policy never visits keeps its state and pays 0 (or the table's reward);
    it is not reached by any policy that stays where the logging policy goes.  Rewards are not put on the lattice.

    ``card``: declares labels, dynamics, start and perhaps a reward table (design §5.3).
    ``behaviour``: name of one of the world's logging policies, or probabilities ``(H, S_raw, A_raw)``.
    Returns (H, S, A, S) transitions, (H, S, A) rewards and (S,) start, as declared or the true one seen through the
    labels.
    """
    d = card.domain
    H, pooled = d.horizon, (dynamics or d.dynamics) == "stationary"
    L, A, S = len(d.live_states), len(d.action_labels), len(d.state_labels)
    labels, live = declared_states(card, world), ~world.terminal
    actions = declared_actions(card, world)

    visits = occupancies(world.mdp(H), _probabilities(world, behaviour, H))[:, live]
    onto = add_up(world.transition[..., live, :, :], labels, S, -1)
    mean = world.expected_reward[..., live, :]
    if pooled and world.stationary:
        # one product instead of H
        visits = visits.sum(0, keepdims=True)

    def fold(x: Array) -> Array:
        """Sum (G, S_live, A_raw, k) over the raw states and actions of each label: (G, L, A, k)."""
        folded = add_up(add_up(x, labels[live], L, -3), actions, A, -2)
        return folded.sum(0, keepdims=True) if pooled and not world.stationary else folded

    n_sas = fold(visits[..., None] * onto)
    n_sa = n_sas.sum(-1)
    r_sa = fold((visits * mean)[..., None])[..., 0]
    visited = n_sa > 0

    P = np.empty((len(n_sa), S, A, S))
    P[:, L:] = np.eye(S)[L:, None]
    np.divide(n_sas, n_sa[..., None], out=P[:, :L], where=visited[..., None])
    g, s, a = np.nonzero(~visited)
    P[g, s, a] = 0.0
    P[g, s, a, s] = 1.0
    r = np.zeros((len(n_sa), S, A))
    r[:, :L][visited] = r_sa[visited] / n_sa[visited]
    if (declared := task_of(card).expected(P[:, :L])) is not None:
        r = np.zeros((len(declared), S, A))
        r[:, :L] = declared
    return TabularMDP(
        np.broadcast_to(P, (H, S, A, S)), np.broadcast_to(r, (H, S, A)), _start(card, add_up(world.start, labels, S, 0))
    )


def binned_behaviour(card: Card, world: World, behaviour: str | Array) -> Array:
    """Action probabilities of a logging policy given a card's labels instead of raw states, step by step.

    ``behaviour``: name of one of the world's logging policies, or probabilities ``(H, S_raw, A_raw)``.
    Returns ``(H, S, A)`` over ``card.domain.state_labels``: how often it takes each action there; uniform where it
    never is.
    """
    H, S, A = card.domain.horizon, len(card.domain.state_labels), len(card.domain.action_labels)
    raw = occupancies(world.mdp(H), _probabilities(world, behaviour, H))
    visits = add_up(add_up(raw, declared_states(card, world), S, 1), declared_actions(card, world), A, 2)
    total = visits.sum(-1, keepdims=True)
    return np.where(total > 0, visits / np.where(total > 0, total, 1.0), 1 / A)


def truth(card: Card, world: World, behaviour: str | Array, policy: Policy) -> dict[str, float]:
    """True values for the report of a simulated run, in reward units per episode.

    ``behaviour``: the logging policy: a name, or probabilities ``(H, S_raw, A_raw)``.
    Returns ``v_star``, ``v_policy``, ``v_behavior`` and ``v_uniform`` in the raw world; ``v_policy_model`` in the
    binned process; ``suboptimality = v_star - v_policy``.
    """
    H = card.domain.horizon
    mdp = world.mdp(H)
    v_star, v_policy = best_value(world, H), true_value(card, world, behaviour, policy)
    binned = binned_behaviour(card, world, behaviour)[:, : len(card.domain.live_states)]
    return {
        "v_star": v_star,
        "v_policy": v_policy,
        "v_policy_model": policy_value(binned_process(card, world, behaviour), _with_ends(policy.beside(binned), card)),
        "suboptimality": v_star - v_policy,
        "v_behavior": policy_value(mdp, _probabilities(world, behaviour, H)),
        "v_uniform": policy_value(mdp, world.behaviours("uniform", H)),
    }


def best_value(world: World, horizon: int) -> float:
    """Value of the best policy in the raw world."""
    return optimum(world.mdp(horizon))


def true_value(card: Card, world: World, behaviour: str | Array, policy: Policy) -> float:
    """Value of a policy in the raw world; where it abstains, the logging policy goes on."""
    H = card.domain.horizon
    return policy_value(world.mdp(H), _followed(policy, world, card, _probabilities(world, behaviour, H)))


def _followed(policy: Policy, world: World, card: Card, practice: Array) -> Array:
    """Action probabilities in each raw state ``(H, S_raw, A_raw)``: as recommended, else as practised there."""
    live = ~world.terminal
    followed = lift(policy.beside(card.domain.allowed / card.domain.allowed.sum(1, keepdims=True)), world, card)
    silent = policy.abstains[:, declared_states(card, world)[live]]
    followed[:, live] = np.where(silent[..., None], practice[:, live], followed[:, live])
    return followed


def world_values(world: World, horizon: int) -> dict[str, float]:
    """Exact values of one episode: ``optimal``, then each of the world's logging policies, by dynamic programming.

    Returns name -> expected summed reward of an episode, from the start distribution.
    """
    mdp = world.mdp(horizon)
    logging = {name: policy_value(mdp, world.behaviours(name, horizon)) for name in world.policies}
    return {"optimal": best_value(world, horizon), **logging}


def best_bin_policy(card: Card, world: World, behaviour: str | Array, dynamics: Dynamics | None = None) -> Array:
    """Optimal allowed policy ``(H, L, A)`` of the binned process, as learnt from exact tables of ``behaviour``.

    ``behaviour``: the logging policy: a name, or probabilities ``(H, S_raw, A_raw)``.
    """
    d, L = card.domain, len(card.domain.live_states)
    process = binned_process(card, world, behaviour, dynamics=dynamics)
    rewards = process.rewards.copy()
    # a barred action costs more than a whole episode can pay
    rewards[:, :L][:, ~d.allowed] -= 1 + d.horizon * (np.abs(process.rewards).max() + 1)
    return greedy(optimal_values(TabularMDP(process.transitions, rewards, process.start))[0][:, :L])


def best_bin_policy_value(card: Card, world: World, behaviour: str | Array, dynamics: Dynamics | None = None) -> float:
    """Value in the raw world of :func:`best_bin_policy`: the ceiling that binning leaves to a learner.

    ``behaviour``: the logging policy: a name, or probabilities ``(H, S_raw, A_raw)``.
    """
    policy = best_bin_policy(card, world, behaviour, dynamics)
    return policy_value(world.mdp(card.domain.horizon), lift(policy, world, card))


def _probabilities(world: World, behaviour: str | Array, horizon: int) -> Array:
    return world.behaviours(behaviour, horizon) if isinstance(behaviour, str) else behaviour


def _start(card: Card, true_start: Array) -> Array:
    declared = card.domain.start
    if declared == "released":
        return true_start
    return np.array([declared.get(label, 0.0) for label in card.domain.state_labels])


def _with_ends(probabilities: Array, card: Card) -> Array:
    """Rows for the ends, where nothing depends on the action."""
    H, _, A = probabilities.shape
    return np.concatenate([probabilities, np.full((H, len(card.domain.states.ends), A), 1 / A)], axis=1)
