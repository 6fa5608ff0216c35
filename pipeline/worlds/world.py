"""Simulated worlds: known parameters, logging policies, and the card's labels of their raw states.

Count tables of a known world, drawn directly from their exact law: no episode is simulated.

The tables of n independent episodes are a chain of multinomials: the first states of n people, the actions of those in
each state, the successors of each action; the arrivals are the people in each state one step later.  A draw costs the
same for ten episodes and for a million million.

Values of policies in a known world, and the binned process that a card's tables estimate: a card sees a world through
its labels, raw states fall into bins or labels, and the world's own dynamics within a bin are hidden.  The tables then
estimate the *binned process* of the logging policy, which is the world itself only where the labels are Markov.
"""

# pyright: reportUnknownArgumentType=false
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pipeline.arrays import AnyArray, Array, Bools, Integers
from pipeline.declaration.card import Card, CardError, task_of
from pipeline.declaration.domain import StateFeatures, table_of_features
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import greedy, occupancies, optimal_values, optimum, policy_value
from pipeline.mdp.policy import Policy

# steps of an episode where neither the world nor its user says
USUAL_HORIZON = 20
Dynamics = Literal["per_step", "stationary"]
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
        H, (S, A) = self.steps(horizon), self.shape
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
    H, S, A = mdp.shape
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


def _swap_with_last(x: AnyArray, column: Integers) -> AnyArray:
    """A copy of ``x (..., C)`` in which entry ``column (...)`` and the last one have changed places."""
    out = x.reshape(-1, x.shape[-1]).copy()
    index = np.arange(len(out)), column.reshape(-1)
    moved = out[index]
    out[index] = out[:, -1]
    out[:, -1] = moved
    return out.reshape(x.shape)


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
    process = barred(binned_process(card, world, behaviour, dynamics=dynamics), card.domain.allowed)
    return greedy(optimal_values(process)[0][:, : len(card.domain.live_states)])


def barred(mdp: TabularMDP, allowed: Bools) -> TabularMDP:
    """The process in which an action that is not ``allowed (L, A)`` costs more than a whole episode can pay."""
    rewards = mdp.rewards.copy()
    rewards[:, : len(allowed)][:, ~allowed] -= 1 + mdp.horizon * (np.abs(mdp.rewards).max() + 1)
    return TabularMDP(mdp.transitions, rewards, mdp.start)


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
