"""The worlds of the constants study, each as a card, a task and a known process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.environments.count_tables import sample_count_tables
from pipeline.environments.riverswim import riverswim
from pipeline.mdp.model import TabularMDP, Task, stationary_mdp
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.privacy.release import Mechanism
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.count_layout import reward_lattice
from pipeline.statistics.layout import ExactSums

Array = NDArray[np.float64]
_MECHANISMS: dict[tuple[str, str, str], tuple[Mechanism, ...]] = {}


@dataclass(frozen=True)
class Setting:
    """One world, its logging policy and what is declared about it.

    ``coins``: a reward is 0 or 1 with the cell's mean; otherwise it is the mean itself.
    """

    name: str
    card: Card
    task: Task
    mdp: TabularMDP
    behaviour: Array
    coins: bool

    @property
    def optimum(self) -> float:
        """v*."""
        return float(self.mdp.start @ optimal_values(self.mdp)[1][0])

    @property
    def even(self) -> float:
        """Value of the uniform policy."""
        return policy_value(self.mdp, np.full(self.mdp.shape, 1 / self.mdp.shape[2]))

    def mechanisms(self, ask: Ask) -> tuple[Mechanism, ...]:
        """What a release of these tables draws; computed once for all draws of a kind of world."""
        key = (self.name, self.card.reward.kind, repr(ask))
        if key not in _MECHANISMS:
            _MECHANISMS[key] = count_sum(self.card, ask).mechanisms
        return _MECHANISMS[key]

    def counts(self, episodes: int, rng: np.random.Generator) -> ExactSums:
        """Exact tables of a fresh log; reward sums on the card's lattice where rewards are estimated."""
        t = sample_count_tables(self.mdp, self.behaviour, episodes, rng)
        tables = {"n_sa": t.n_sa, "n_sas": t.n_sas}
        if self.card.reward.kind == "estimate":
            lattice = reward_lattice(self.card)
            if self.coins:
                ones = rng.binomial(t.n_sa, self.mdp.rewards)
                tables["r_sa"] = ones * lattice.integer(np.array(1)) + (t.n_sa - ones) * lattice.integer(np.array(0))
            else:
                tables["r_sa"] = t.n_sa * lattice.integer(lattice.index(self.mdp.rewards))
        return ExactSums(self.card.name, "synthetic", "per_step", tables)


def setting(world: str, seed: int, *, rewards: str = "table") -> Setting:
    """``riverswim`` (always the same) or ``icu-like`` / ``icu-like drifting`` of one seed.

    ``rewards``: ``table`` (declared, as the paper has it) or ``estimate`` (a third private table).
    """
    if world == "riverswim":
        river = riverswim(5)
        mdp, behaviour = river.mdp(10), river.behaviours("right-0.8", 10)
    else:
        mdp, behaviour = icu_like(seed, drifting=world.endswith("drifting"))
    H, S, A = mdp.shape
    reward = {"kind": "table", "table": mdp.rewards[-1].tolist()} if rewards == "table" else {"kind": "estimate"}
    card = Card.model_validate(
        {
            "schema_version": 1,
            "name": world.replace(" ", "-"),
            "kind": "synthetic",
            "unit": {"user": "u", "users_public": 1},
            "domain": {
                "horizon": H,
                "states": {"column": "s", "labels": S},
                "actions": {"column": "a", "labels": A},
                "start": {str(s): float(p) for s, p in enumerate(mdp.start)},
            },
            "reward": reward | {"range": [0.0, 1.0], "steps": 200 if world == "riverswim" else 1},
            "source": {
                "files": ["none.csv"],
                "columns": {"user_id": "u", "episode_id": "e", "step": "h", "reward": "r"},
            },
            "budget": {"rho": 1.0},
        }
    )
    known = mdp.rewards if rewards == "table" else None
    task = Task(H, (0.0, 1.0), np.ones((S, A), dtype=bool), known, can_end=False)
    return Setting(world, card, task, mdp, behaviour, coins=world != "riverswim")


def icu_like(seed: int, drifting: bool) -> tuple[TabularMDP, Array]:
    """50 states, 5 actions, 10 steps: 8 random successors a cell, a reward at the last step only.

    The reward of the last step is a chance of survival that depends on the state alone, so that planning without data
    is worth no more than the uniform policy.  Behaviour: a preferred action of each state with probability 0.6, the
    others 0.1 each.  ``drifting``: a new kernel at every step, otherwise the same one.
    """
    S, A, H = 50, 5, 10
    rng = np.random.default_rng([seed, 50510])
    kernels = H if drifting else 1
    P = np.zeros((kernels, S, A, S))
    successors = rng.random(P.shape).argpartition(8, axis=-1)[..., :8]
    np.put_along_axis(P, successors, rng.dirichlet(np.ones(8), size=P.shape[:3]), axis=-1)
    reward = np.zeros((H, S, A))
    reward[-1] = rng.random(S)[:, None]
    pi = np.full((S, A), 0.1)
    pi[np.arange(S), rng.integers(A, size=S)] = 0.6
    start = np.full(S, 1 / S)
    if drifting:
        return TabularMDP(P, reward, start), np.broadcast_to(pi, (H, S, A))
    still = stationary_mdp(P[0], reward[0], start, H)
    return TabularMDP(still.transitions, reward, start), np.broadcast_to(pi, (H, S, A))
