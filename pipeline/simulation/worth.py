"""What policies are worth in a trial's world: exactly, by planning in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.environments.lq_systems import LqSystem
from pipeline.mdp.planning import occupancies, policy_value
from pipeline.simulation.control_trials import optimum, world_of
from pipeline.simulation.lq_rollouts import lost_by
from pipeline.simulation.places import place_of
from pipeline.simulation.trial import Trial

Array = NDArray[np.float64]


class Worth:
    """Exact values in a trial's world.

    Parameters
    ----------
    trial
        Names the world.
    """

    def __init__(self, trial: Trial) -> None:
        self._plant = found if isinstance(found := place_of(trial.world, trial.params), LqSystem) else None
        self._mdp = None if self._plant is not None else world_of(trial)
        self.best = (
            -self._plant.expected_cost(self._plant.optimal_gains())
            if self._plant is not None
            else optimum(world_of(trial))
        )

    def read(self, policy: Sequence[Any] | None) -> Array:
        """An emitted policy as probabilities ``(H, S, A)`` or gains; one that is not told is uniform, or zero."""
        if self._plant is not None:
            # 0.0 + turns a minus zero into a zero
            return self._plant.zero_gains() if policy is None else 0.0 + np.array(policy, dtype=np.float64)
        assert self._mdp is not None
        A = self._mdp.shape[2]  # noqa: N806
        if policy is None:
            return np.full(self._mdp.shape, 1 / A)
        found = np.array(policy)
        return np.eye(A)[found] if found.ndim == 2 else found

    def lost(self, policy: Array) -> float:
        """V* - V^pi, in reward units; of a plant J - J*."""
        if self._plant is not None:
            return lost_by(self._plant, policy)
        assert self._mdp is not None
        return self.best - policy_value(self._mdp, policy)

    def visits(self, policy: Array) -> Array:
        """``(H, S, A)`` share of users who come there under the policy."""
        assert self._mdp is not None
        return occupancies(self._mdp, policy)

    def trivial(self) -> tuple[float, float]:
        """Least and most that any policy can have, or that is known of it."""
        if self._plant is not None:
            worst = -self._plant.expected_cost(self._plant.zero_gains())
            return min(worst, self.best), 0.0
        assert self._mdp is not None
        r = self._mdp.rewards
        return float(r.min((1, 2)).sum()), float(r.max((1, 2)).sum())
