"""A trial's world as a deployment sees it: the card it would declare, values of policies, the proposal."""

# ruff: noqa: N806  (the letters of the paper)
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.arrays import Array
from pipeline.declaration.card import AnyCard, Card, LqCard
from pipeline.mdp.planning import occupancies, optimum, policy_value
from pipeline.online.plants import lost_by
from pipeline.online.registry import find
from pipeline.online.rollouts import place_of, world_of
from pipeline.online.trial import Trial, run_named
from pipeline.worlds.plants import LqSystem
from pipeline.worlds.synthetic import short, simulated_card
from pipeline.worlds.world import World


def proposal_of(trial: Trial) -> str | None:
    """A better choice here: counts in place of a linear mixture; one table for all steps, where they are alike."""
    if trial.agent in _COUNTS and trial.world != "random_mixture":
        return _COUNTS[trial.agent]
    defaults = find(trial.agent).defaults
    if "pooled" not in defaults or trial.agent in ("counts-shuffle", "sdp-pe") or trial.knobs.get("pooled"):
        return None
    if isinstance(place_of(trial.world, trial.params), LqSystem):
        return None
    mdp = world_of(trial)
    learnt = trial.knobs.get("rewards") == "learnt"
    alike = [mdp.transitions, *([mdp.rewards] if learnt else [])]
    if mdp.horizon < 2 or any((x != x[:1]).any() for x in alike):
        return None
    return (
        "every step of this world has the same transitions: with `pooled = true` under [agent] one table serves all "
        "steps, which leaves less noise at the same promise"
    )


_BETTER = (
    "in a world of states and actions {} learns from counts at the same promise; no constant of this agent's bonus "
    "came near it in a ladder of six states (docs/research.md)"
)
_COUNTS = {
    "private-linopt-vi": _BETTER.format("`dp-ucbvi-jdp`"),
    "private-linopt-po": _BETTER.format("`dp-ucbvi-jdp`"),
    "ldp-ucrl-vtr": "in a world of states and actions try `dp-ucbvi-ldp`, which sends counts: in a ladder of six "
    "states it lost about half as much at ε = 10; at ε = 1 neither learnt from 10,000 episodes (docs/research.md)",
}


class Worth:
    """Exact values in a trial's world."""

    def __init__(self, trial: Trial) -> None:
        place = place_of(trial.world, trial.params)
        self._world = place if isinstance(place, LqSystem) else world_of(trial)
        if isinstance(self._world, LqSystem):
            self.best = -self._world.expected_cost(self._world.optimal_gains())
        else:
            self.best = optimum(self._world)

    def read(self, policy: Sequence[Any] | None) -> Array:
        """An emitted policy as probabilities ``(H, S, A)`` or gains; uniform or zero for None."""
        if isinstance(self._world, LqSystem):
            # 0.0 + turns a minus zero into a zero
            return self._world.zero_gains() if policy is None else 0.0 + np.array(policy, dtype=np.float64)
        A = self._world.shape[2]
        if policy is None:
            return np.full(self._world.shape, 1 / A)
        actions = np.array(policy)
        return np.eye(A)[actions] if actions.ndim == 2 else actions

    def lost(self, policy: Array) -> float:
        """V* - V^pi, in reward units; of a plant J - J*."""
        if isinstance(self._world, LqSystem):
            lost = lost_by(self._world, policy)
        else:
            lost = self.best - policy_value(self._world, policy)
        # rounding is no loss
        return lost if abs(lost) > 1e-12 * max(1.0, abs(self.best)) else 0.0

    def visits(self, policy: Array) -> Array:
        """``(H, S, A)`` share of users who come there under the policy."""
        assert not isinstance(self._world, LqSystem)
        return occupancies(self._world, policy)

    def trivial(self) -> tuple[float, float]:
        """Least and most possible value of a policy of tables."""
        assert not isinstance(self._world, LqSystem)
        r = self._world.rewards
        return float(r.min((1, 2)).sum()), float(r.max((1, 2)).sum())


# nothing is charged: a lineage without people
_LINEAGE, _LONGEST = "simulated_", 63
_COLUMNS = {"user_id": "user", "episode_id": "episode", "step": "step"}
_VECTORS = _COLUMNS | {"next_observation": "next_observation"}
# where nothing is private
_DELTA = 1e-6


def declared_world(trial: Trial) -> AnyCard:
    """The card of a trial's world; K users are declared, who do not exist."""
    place = place_of(trial.world, trial.params)
    if isinstance(place, World):
        return Card.model_validate(_declared(trial, _tables(trial, place)))
    source = {"files": ["none.csv"], "columns": _VECTORS}
    return LqCard.model_validate(_declared(trial, plant_domain(place) | {"source": source}))


def lineage_of(trial: Trial) -> str:
    """Name of the lineage under which the ledger vouches for simulations in this world."""
    return (_LINEAGE + re.sub("[^a-z0-9]+", "_", str(run_named(trial.world)).lower()).strip("_"))[:_LONGEST]


def plant_domain(system: LqSystem) -> dict[str, Any]:
    """``[domain]`` and ``[cost]`` of a linear plant, as plain values of a card."""
    n, d = system.shape
    return {
        "domain": {
            "dynamics": "linear_quadratic",
            "horizon": system.horizon,
            "noise_covariance": system.covariance.tolist(),
            "parameter_norm": max(1.0, float(np.linalg.norm(np.hstack([system.A, system.B])))),
            "observation": {"column": "observation", "dimension": n, "radius": 1.0},
            "action": {"column": "action", "dimension": d, "radius": float(system.gamma)},
            "start": {"mean": system.start.tolist()},
        },
        "cost": {"Q": system.cost.Q.tolist(), "R": system.cost.R.tolist()},
    }


def plant_card(system: LqSystem, *, name: str, episodes: int, rho: float) -> dict[str, Any]:
    """Plain values of the card of a plant's log, one episode a user."""
    columns = _VECTORS | {"user_id": "user_id", "episode_id": "episode_id"}
    tables = plant_domain(system) | {"source": {"files": ["episodes-*.parquet"], "columns": columns}}
    return simulated_card(name, tables, episodes=episodes, rho=rho)


def _tables(trial: Trial, world: World) -> dict[str, Any]:
    mdp = world_of(trial)
    same = all((x == x[:1]).all() for x in (mdp.transitions, mdp.rewards))
    ends = ["end"] if mdp.horizon == 1 else []
    low, high = min(0.0, float(mdp.rewards.min())), float(mdp.rewards.max())
    columns = _COLUMNS | {"reward": "reward", "next_state": "next_state"}
    return {
        "domain": {
            "horizon": mdp.horizon,
            "dynamics": "stationary" if same and mdp.horizon > 1 else "per_step",
            "states": {"column": "state", "labels": short(_distinct(world.raw_labels)), "ends": ends},
            "actions": {"column": "action", "labels": short(_distinct(world.actions))},
        },
        "reward": {"kind": "estimate", "range": [low, high if high > low else low + 1.0]},
        "source": {"files": ["none.csv"], "columns": columns},
    }


def _declared(trial: Trial, tables: dict[str, Any]) -> dict[str, Any]:
    m, delta = trial.episodes_per_user, trial.delta or _DELTA
    name, K = lineage_of(trial), trial.episodes
    return simulated_card(name, tables, episodes=K, episodes_per_user=m, delta=delta, user="user")


def _distinct(labels: Sequence[str]) -> list[str]:
    """Distinct labels of raw states, none of them that of the end."""
    many = Counter(labels)
    return [f"{label} ({i})" if many[label] > 1 or label == "end" else label for i, label in enumerate(labels)]
