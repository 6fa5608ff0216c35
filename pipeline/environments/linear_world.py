"""A linear MDP with continuous observations, any d = 2 G A, and a known optimal value.

An observation is (group one-hot, z): the state sits in one of G groups at a position z in [0, 1].  Barycentric
x = e_g ⊗ (1 - z, z) has 2G entries; phi(x, a) = e_a ⊗ x, ||phi|| <= 1.  The reward is theta_a · x; the next group is
drawn from the mixture sum_i x_i Q[a, i, ·] and the next z is uniform on [0, 1].  P and r are linear in phi, hence so is
every Q-function; V* is piecewise linear in z, and its mean over z is exact: the upper envelope of A lines is linear
between their crossings.  With G = 8 and A = 4, d = 64.

What is not exactly right: z arrives as float32 and the features are truncated to their lattice, so the map that the
planner sees differs from the true one by at most 1/steps a coordinate.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.features import ObservationMap

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
# observations (n, G + 1), step -> actions (n,)
Chooser = Callable[[Array, int], Integers]


@dataclass(frozen=True)
class ContinuousWorld:
    """``theta (H, A, 2G)`` in [0, 1] and ``mixture (H, A, 2G, G)`` rows that sum to 1."""

    theta: Array
    mixture: Array

    @property
    def horizon(self) -> int:
        """H."""
        return len(self.theta)

    @property
    def groups(self) -> int:
        """G."""
        return self.mixture.shape[-1]

    @property
    def actions(self) -> int:
        """A."""
        return self.theta.shape[1]

    def features(self, steps: int = 256) -> ObservationMap:
        """The public map of observations ``(n, G + 1)`` and actions to d = 2 G A features."""
        G, A = self.groups, self.actions

        def lift(observations: Array, actions: Integers) -> Array:
            phi = np.zeros((len(observations), A, 2 * G))
            phi[np.arange(len(observations)), actions] = barycentric(observations)
            return phi.reshape(len(observations), -1)

        return ObservationMap(lift, G + 1, A, 2 * G * A, steps)

    def optimal_value(self) -> float:
        """v*, exactly; the first group is uniform."""
        mean = np.zeros(self.groups)
        for h in reversed(range(self.horizon)):
            Q = self.theta[h] + self.mixture[h] @ mean
            mean = envelope_mean(Q.reshape(self.actions, self.groups, 2))
        return float(mean.mean())

    def value(self, choose: Chooser, grid: int = 512) -> float:
        """Value of a policy by the midpoint rule in z, ``grid`` points a group."""
        G = self.groups
        z = (np.arange(grid) + 0.5) / grid
        seen = np.column_stack([np.repeat(np.eye(G), grid, axis=0), np.tile(z, G)])
        x, mean = barycentric(seen), np.zeros(G)
        for h in reversed(range(self.horizon)):
            Q = self.theta[h] + self.mixture[h] @ mean
            chosen = (x * Q[choose(seen, h)]).sum(axis=1)
            mean = chosen.reshape(G, grid).mean(axis=1)
        return float(mean.mean())

    def log(
        self, episodes: int, rng: np.random.Generator, batch: int = 65_536
    ) -> Iterator[tuple[Array, Integers, Array]]:
        """Uniformly logged episodes, a batch of people at a time.

        Yields
        ------
        observations ``(n, H + 1, G + 1)`` (the last is where the last step led), actions ``(n, H)`` and rewards ``(n,
        H)``; z is rounded to float32, as a log holds it.
        """
        H, G = self.horizon, self.groups
        for start in range(0, episodes, batch):
            n = min(batch, episodes - start)
            seen = np.zeros((n, H + 1, G + 1))
            actions, rewards = rng.integers(self.actions, size=(n, H)), np.zeros((n, H))
            z = rng.random((n, H + 1)).astype(np.float32)
            seen[np.arange(n), 0, rng.integers(G, size=n)] = 1
            seen[..., -1] = z
            for h in range(H):
                x, a = barycentric(seen[:, h]), actions[:, h]
                rewards[:, h] = (x * self.theta[h, a]).sum(axis=1)
                cdf = np.einsum("ni,nig->ng", x, self.mixture[h, a]).cumsum(axis=1)
                group = (rng.random(n)[:, None] > cdf).sum(axis=1).clip(max=G - 1)
                seen[np.arange(n), h + 1, group] = 1
            yield seen, actions, rewards


def barycentric(observations: Array) -> Array:
    """Coordinates e_g ⊗ (1 - z, z): ``(n, G + 1)`` to ``(n, 2G)``."""
    group, z = observations[:, :-1], observations[:, -1:]
    return np.stack([group * (1 - z), group * z], axis=-1).reshape(len(observations), -1)


def envelope_mean(ends: Array) -> Array:
    """Mean over z in [0, 1] of max_a (1 - z) ends[a, g, 0] + z ends[a, g, 1], exactly: ``(A, G, 2)`` to ``(G,)``."""
    a0, slope = ends[..., 0], ends[..., 1] - ends[..., 0]
    rise, gap = slope[:, None] - slope[None], a0[None] - a0[:, None]
    parallel = rise == 0
    crossing = np.where(parallel, 0.0, gap / np.where(parallel, 1.0, rise))
    z = np.clip(crossing, 0.0, 1.0).reshape(-1, ends.shape[1])
    z = np.sort(np.vstack([np.zeros((1, z.shape[1])), z, np.ones((1, z.shape[1]))]), axis=0)
    top = (a0[:, None] + slope[:, None] * z[None]).max(axis=0)
    return ((top[1:] + top[:-1]) / 2 * np.diff(z, axis=0)).sum(axis=0)


def linear_world(seed: int, *, groups: int = 8, actions: int = 4, horizon: int = 5) -> ContinuousWorld:
    """Draw an instance: rewards uniform in [0, 1], transitions from a sparse Dirichlet."""
    rng = np.random.default_rng(seed)
    theta = rng.random((horizon, actions, 2 * groups))
    return ContinuousWorld(theta, rng.dirichlet(np.full(groups, 0.3), size=(horizon, actions, 2 * groups)))
