"""Known worlds to plan on, each as a card, a task and a process: a river, and a ward of fifty states."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.mdp.model import TabularMDP, Task, stationary_mdp
from pipeline.privacy.release import Mechanism
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.count_layout import reward_lattice
from pipeline.statistics.layout import ExactSums
from pipeline.worlds.catalog import riverswim
from pipeline.worlds.world import sample_count_tables
from tests.conftest import card_dict, domain_dict

Array = NDArray[np.float64]
_MECHANISMS: dict[tuple[str, str, str], tuple[Mechanism, ...]] = {}


@dataclass(frozen=True)
class Setting:
    """One world, its logging policy and its card; an estimated reward is 0 or 1 with the cell's mean."""

    name: str
    card: Card
    task: Task
    mdp: TabularMDP
    behaviour: Array

    def mechanisms(self, ask: Ask) -> tuple[Mechanism, ...]:
        """What a release of these tables draws; computed once for all draws of a kind of world."""
        key = (self.name, self.card.reward.kind, repr(ask))
        if key not in _MECHANISMS:
            _MECHANISMS[key] = count_sum(self.card, ask).mechanisms
        return _MECHANISMS[key]

    def counts(self, episodes: int, rng: np.random.Generator) -> ExactSums:
        """Exact tables of a fresh log; reward sums on the card's lattice where rewards are estimated."""
        n_sas = sample_count_tables(self.mdp, self.behaviour, episodes, rng)
        n_sa = n_sas.sum(-1)
        tables = {"n_sa": n_sa, "n_sas": n_sas}
        if self.card.reward.kind == "estimate":
            lattice, ones = reward_lattice(self.card), rng.binomial(n_sa, self.mdp.rewards)
            tables["r_sa"] = ones * lattice.integer(np.array(1)) + (n_sa - ones) * lattice.integer(np.array(0))
        return ExactSums(self.card.name, "synthetic", "per_step", tables)


def declared(name: str, mdp: TabularMDP, behaviour: Array, *, estimate: bool = False) -> Setting:
    """The world under a card that declares its start, and its rewards unless they are to be estimated."""
    H, S, A = mdp.shape
    reward = {"kind": "estimate", "steps": 1} if estimate else {"kind": "table", "steps": 200}
    reward |= {} if estimate else {"table": mdp.rewards[-1].tolist()}
    values = card_dict(
        name="".join(c if c.isalnum() else "-" for c in name),
        unit={"user": "user_id", "users_public": 1},
        domain=domain_dict(H, S, A, start={str(s): float(p) for s, p in enumerate(mdp.start)}),
        reward=reward | {"range": [0.0, 1.0]},
        budget={"rho": 1.0},
    )
    known = None if estimate else mdp.rewards
    task = Task(H, (0.0, 1.0), np.ones((S, A), dtype=bool), known, can_end=False)
    return Setting(name, Card.model_validate(values), task, mdp, behaviour)


def river() -> Setting:
    world = riverswim(6)
    return declared("riverswim 6x20", world.mdp(20), world.behaviours("right-0.8", 20))


def ward(seed: int, *, drifting: bool = False, estimate: bool = False) -> Setting:
    """50 states, 5 actions, 10 steps: 8 random successors a cell, a reward at the last step only.

    The reward of the last step is a chance of survival that depends on the state alone, so that planning without data
    is worth no more than the uniform policy.  Behaviour: a preferred action of each state with probability 0.6, the
    others 0.1 each.  ``drifting``: a new kernel at every step, otherwise the same one.
    """
    S, A, H = 50, 5, 10
    rng = np.random.default_rng([seed, 50510])
    P = np.zeros((H if drifting else 1, S, A, S))
    successors = rng.random(P.shape).argpartition(8, axis=-1)[..., :8]
    np.put_along_axis(P, successors, rng.dirichlet(np.ones(8), size=P.shape[:3]), axis=-1)
    reward = np.zeros((H, S, A))
    reward[-1] = rng.random(S)[:, None]
    pi = np.full((S, A), 0.1)
    pi[np.arange(S), rng.integers(A, size=S)] = 0.6
    start = np.full(S, 1 / S)
    P = P if drifting else stationary_mdp(P[0], reward[0], start, H).transitions
    name = "ward drifting" if drifting else "ward"
    return declared(name, TabularMDP(P, reward, start), np.broadcast_to(pi, (H, S, A)), estimate=estimate)
