"""An offline counts agent in a known world: a log drawn as tables, one release, one plan (paper 003, simulated).

Tables are drawn from the exact law of whole episodes, never row by row, so that a log of 10^8 people costs what one of
10^3 does.  A card's cap on one person's steps in a cell is charged, as always, but cannot be applied to tables: what
it drops of a real log stays in here.  Seeded noise: nothing is private.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.apvi import CountsPlanner, Plan, apvi
from pipeline.agents.pessimism import Constants, Penalty
from pipeline.declaration.card import Card
from pipeline.environments.count_tables import sample_count_tables
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import Policy
from pipeline.mdp.task import Task
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Mechanism
from pipeline.statistics.count_layout import CountLayout, reward_lattice
from pipeline.statistics.counts import Slack, private_counts
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.private_sum import PrivateSum

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Logged:
    """What is declared, what is released, and the world behind it.

    Parameters
    ----------
    card
        Synthetic, with L live states first among the S states of ``mdp``; the rest are its ends.
    behaviour
        ``(H, S, A)`` probabilities of the logging policy.
    mechanisms
        What one release of the card's tables draws.
    """

    card: Card
    task: Task
    mdp: TabularMDP
    behaviour: Array
    mechanisms: tuple[Mechanism, ...]
    constants: Constants
    penalty: Penalty = "bernstein"
    slack: Slack = "zero"
    failure: float = 0.1
    planner: CountsPlanner = apvi

    def visits_and_rewards(self, episodes: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Transitions ``(H, L, A, S)`` of a fresh log of whole episodes, and summed lattice steps ``(H, L, A)`` of its
        rewards above the least one: each is rounded at random to a point beside its mean.
        """
        n_sas = sample_count_tables(self.mdp, self.behaviour, episodes, rng).n_sas[:, : self.task.allowed.shape[0]]
        n_sa, lattice, steps = n_sas.sum(-1), reward_lattice(self.card), self.card.reward.steps
        at = (self.mdp.rewards[:, : n_sa.shape[1]] - lattice.low) / (lattice.high - lattice.low) * steps
        below = np.clip(np.floor(at + 1e-9), 0, steps)
        return n_sas, n_sa * below.astype(np.int64) + rng.binomial(n_sa, np.clip(at - below, 0.0, 1.0))

    def counts(self, episodes: int, rng: np.random.Generator) -> ExactSums:
        """Exact tables of a fresh log of ``episodes`` whole episodes."""
        n_sas, k = self.visits_and_rewards(episodes, rng)
        n_sa = n_sas.sum(-1)
        tables = {"n_0": n_sa[0].sum(-1), "n_sa": self._folded(n_sa), "n_sas": self._folded(n_sas)}
        if self.card.reward.kind == "estimate":
            centred = reward_lattice(self.card).centred
            tables["r_sa"] = self._folded(2 * k - self.card.reward.steps * n_sa if centred else k)
        return ExactSums(self.card.name, "synthetic", self.card.domain.dynamics, tables)

    def plan(self, counts: ExactSums, noise: SeededNoise, rng: np.random.Generator) -> Plan:
        """Release the tables once and plan on what was released."""
        release = PrivateSum(CountLayout(self.card), self.mechanisms).draw(counts, noise)
        seen = private_counts(release, self.card, slack=self.slack, failure=self.failure)
        return self.planner(seen, self.task, self.constants, rng, self.penalty)

    def value(self, policy: Policy) -> float:
        """Exact value of a policy over the live states."""
        H, S, A = self.mdp.shape  # noqa: N806
        whole = np.full((H, S, A), 1 / A)
        whole[:, : policy.probabilities.shape[1]] = policy.probabilities
        return policy_value(self.mdp, whole)

    def _folded(self, table: Integers) -> Integers:
        """All steps in one table where the card declares them alike."""
        return table.sum(0, keepdims=True) if self.card.domain.dynamics == "stationary" else table
