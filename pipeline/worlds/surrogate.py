"""Quality to expect before anything is spent: a card's declarations, simulated in a surrogate world.

A world is drawn that has the card's states, actions, ends, horizon and reward range, and nothing else of the dataset; a
log of so many people is drawn from it, released at the recipe's noise and planned on, as a run would.  Reads no rows.
"""

# ruff: noqa: N803, N806  (H, L, A, S as everywhere)
from dataclasses import dataclass

import numpy as np

from pipeline.agents.apvi import CountsPlanner, Plan, apvi
from pipeline.agents.pessimism import Constants, Penalty
from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card, task_of
from pipeline.declaration.domain import OTHER, States
from pipeline.mdp.features import FeatureMap
from pipeline.mdp.model import TabularMDP, Task, stationary_mdp
from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.count_layout import CountLayout, reward_lattice
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.planning_counts import prepare, private_counts, slack_of
from pipeline.statistics.private_sum import PrivateSum
from pipeline.worlds.world import sample_count_tables, sparse_rows

# sparse kernels, as real ones are: a dense one mixes at once, and then only the next reward counts
_SUCCESSORS = 3
STATES = (
    f"a made-up world: from each state and action to {_SUCCESSORS} states drawn at random, rewards drawn from the "
    "declared range, every action logged alike"
)
# of a card with observations: their number in the surrogate world, and the seed by which they are drawn
_PLACES, _PLACES_SEED = 64, 8
# share of an observation that stays after a step, the push of an action, and the spread; radii of the ball
_STAYS, _PUSH, _WIDTH = 0.8, 0.4, 0.3
OBSERVED = (
    f"a made-up world: {_PLACES} observations in the declared ball, each action pushes to one side, rewards affine in "
    "the observation, every action logged alike; its values are linear in no declared features"
)


@dataclass(frozen=True)
class Logged:
    """Declarations, mechanisms and the true world of a simulated log.

    ``constants``, ``penalty``, ``failure``: of the planner's bonus, and the probability with which its noise bounds may
    fail; the preset also says how counts are prepared.
    ``behaviour`` ``(H, S, A)``: probabilities of the logging policy.
    """

    card: Card
    task: Task
    mdp: TabularMDP
    behaviour: Array
    mechanisms: tuple[Mechanism, ...]
    constants: Constants
    penalty: Penalty = "bernstein"
    failure: float = 0.1
    planner: CountsPlanner = apvi

    def visits_and_rewards(self, episodes: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Transitions ``(H, L, A, S)`` of a fresh log of whole episodes, and summed lattice steps ``(H, L, A)`` of its
        rewards above the least one: each is rounded at random to a point beside its mean.
        """
        n_sas = sample_count_tables(self.mdp, self.behaviour, episodes, rng)[:, : self.task.allowed.shape[0]]
        n_sa, lattice, steps = n_sas.sum(-1), reward_lattice(self.card), self.card.reward.steps
        position = (self.mdp.rewards[:, : n_sa.shape[1]] - lattice.low) / (lattice.high - lattice.low) * steps
        below = np.clip(np.floor(position + 1e-9), 0, steps)
        return n_sas, n_sa * below.astype(np.int64) + rng.binomial(n_sa, np.clip(position - below, 0.0, 1.0))

    def counts(self, episodes: int, rng: np.random.Generator) -> ExactSums:
        """Exact tables of a fresh log of ``episodes`` whole episodes."""
        n_sas, k = self.visits_and_rewards(episodes, rng)
        n_sa = n_sas.sum(-1)
        tables = {"n_0": n_sa[0].sum(-1), "n_sa": self._folded(n_sa), "n_sas": self._folded(n_sas)}
        if self.card.reward.kind == "estimate":
            centred = reward_lattice(self.card).centred
            tables["r_sa"] = self._folded(2 * k - self.card.reward.steps * n_sa if centred else k)
        return ExactSums(self.card.name, "synthetic", self.card.domain.dynamics, tables)

    def released(self, counts: ExactSums, noise: SeededNoise) -> Release:
        """Release the tables once."""
        return PrivateSum(CountLayout(self.card), self.mechanisms).draw(counts, noise)

    def plan(self, counts: ExactSums, noise: SeededNoise, rng: np.random.Generator) -> Plan:
        """Release the tables once and plan on the release."""
        return self.learn(self.released(counts, noise), rng)

    def learn(self, release: Release, rng: np.random.Generator) -> Plan:
        """Plan on a release."""
        preset = self.constants.preset
        counts = private_counts(release, self.card, slack=slack_of(preset), failure=self.failure)
        prepared = prepare(counts, self.card, preset).counts
        return self.planner(prepared, self.task, self.constants, rng, self.penalty)

    def whole(self, policy: Policy) -> Array:
        """A policy over the live states ``(H, S, A)``; where it abstains, the logging policy goes on."""
        L = policy.probabilities.shape[1]
        full = self.behaviour.copy()
        full[:, :L] = policy.beside(self.behaviour[:, :L])
        return full

    def value(self, policy: Policy) -> float:
        """Exact value of a policy over the live states; where it abstains, the logging policy goes on."""
        return policy_value(self.mdp, self.whole(policy))

    def _folded(self, table: Integers) -> Integers:
        """All steps in one table where the card declares them alike."""
        return table.sum(0, keepdims=True) if self.card.domain.dynamics == "stationary" else table


@dataclass(frozen=True)
class SimulatedRun:
    """Suboptimality in one simulated run: of its policy, of the same without noise, and of uniform choice.

    ``loss``, ``exact``, ``reference``: v* - v of the policy, of the same planner without noise, and of uniform choice;
    reward units.
    """

    loss: float
    exact: float
    reference: float
    optimum: float
    abstains: float


@dataclass(frozen=True)
class Places:
    """Finitely many public observations that stand for a card's states.

    ``ball`` ``(M, p)``: the observations over the declared radius.
    """

    card: Card
    features: FeatureMap
    ball: Array


def places_of(card: Card) -> Places:
    """The declared first observations and a draw in the ball, in the live states by turns."""
    d, r, declared = card.domain, card.reward, card.features
    assert d.observation is not None and declared is not None
    rng, p, live = np.random.default_rng(_PLACES_SEED), d.observation.size, len(d.live_states)
    map_ = declared.observed(live, len(d.action_labels), d.observation)
    first = np.array(d.first_observations or [[0.0] * p]) / np.array(d.observation.scales)
    drawn = rng.normal(size=(_PLACES, p))
    drawn *= map_.radius * rng.random((_PLACES, 1)) ** (1 / p) / np.linalg.norm(drawn, axis=1, keepdims=True)
    x, states = np.concatenate([first, drawn])[:_PLACES], np.arange(_PLACES) % live
    labels = [f"place {i}" for i in range(_PLACES)]
    vetoed = [a for a, may in zip(d.action_labels, d.allowed[0], strict=True) if not may and a != OTHER]
    changes = {
        "states": States(column="place", labels=[*labels], ends=d.states.ends),
        "observation": None,
        "first_observations": None,
        "start": {label: 1 / len(first) for label in labels[: len(first)]},
        "vetoes": [(label, a) for label in labels for a in vetoed],
    }
    tables = [[table[s] for s in states] for table in r.tables]
    paid = r.model_copy(update={"table": tables[0] if len(tables) == 1 else tables or None})
    finite = card.model_copy(update={"domain": d.model_copy(update=changes), "reward": paid}).placed(card.folder)
    return Places(finite, map_.at(x, states), map_.inside(x))


def draw_surrogate(card: Card, rng: np.random.Generator, ball: Array | None = None) -> TabularMDP:
    """A random world of the declared size over ``card.domain.state_labels``, ends last and absorbing.

    An episode ends at each step with chance 1 / H where the card declares ends.

    ``ball`` ``(L, p)``: observations of the live states, in the unit ball, which then determine the dynamics.
    """
    d = card.domain
    H, L, A, S = d.horizon, len(d.live_states), len(d.action_labels), len(d.state_labels)
    G = d.table_steps
    if ball is None:
        live, worth = sparse_rows((G, L, A), L, min(_SUCCESSORS, L), rng), rng.random((G, L, A))
    else:
        live, worth = _pushed(ball, A, rng)
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


def _pushed(ball: Array, A: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Transitions ``(1, L, A, L)`` and shares of the reward range ``(1, L, A)``.

    Each action has a direction to push to, and one it is for.
    """
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


def evenly(task: Task) -> Policy:
    """Uniform choice among allowed actions."""
    H, (L, A) = task.horizon, task.allowed.shape
    rows = task.allowed / task.allowed.sum(1, keepdims=True)
    return Policy(np.broadcast_to(rows, (H, L, A)).copy(), np.zeros((H, L), dtype=bool))
