"""What LinOpt-VI and LinOpt-PO share: the task, the optimistic backup, and what episodes add to its regressions."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.optimism import Moment, Radii
from pipeline.mdp.features import MixtureFeatures, RewardFeatures
from pipeline.mdp.rollout import Trajectory
from pipeline.statistics.mixture_message import Message, Regularizer, Ridge, Visits

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# up to this many coordinates a block is inverted once, beyond it is solved for each step
_SMALL = 32
# of a whole episode: what is still declared where nothing can be won, so that units exist
_LEAST = 2**-30


@dataclass(frozen=True)
class LearntRewards:
    """Rewards to be learnt: r_h(s, a) = <phi_r(s, a), theta_{h,r}> in ``[0, most_h]``, ``most (H,)`` declared.

    Parameters
    ----------
    features
        φ_r of every (step, state, action).
    """

    features: RewardFeatures
    most: Array


@dataclass(frozen=True)
class MixtureTask:
    """What is declared: rewards, features, the number of episodes, and whether rows are ``unit``.

    Parameters
    ----------
    rewards
        Known ``(H, S, A)``, at least 0, reward units per step; or learnt.
    features
        φ of every (state, action, next state), S and A with them.
    episodes
        K, declared.
    unit
        Whether every regression row is scaled to length 1 (no theorem; less noise).
    """

    rewards: Array | LearntRewards
    features: MixtureFeatures
    episodes: int
    unit: bool

    @property
    def known(self) -> Array | None:
        """The known rewards."""
        return None if isinstance(self.rewards, LearntRewards) else self.rewards

    @property
    def most(self) -> Array:
        """Largest reward of each step ``(H,)``."""
        return self.rewards.most if isinstance(self.rewards, LearntRewards) else self.rewards.max((1, 2))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, S, A)."""
        return len(self.most), self.features.states, self.features.actions

    @property
    def tops(self) -> Array:
        """Most that can be won from step h on ``(H+1,)``, whatever the world does."""
        return np.append(np.cumsum(self.most[::-1])[::-1], 0.0)

    @property
    def message(self) -> Message:
        """What one episode adds to the transition counters; steps 0 .. H-2."""
        f, tops = self.features, self.tops
        ranges = np.maximum(tops[1:-1], _LEAST * tops[0])
        return Message(f.blocks, f.dimension, f.stretch, tuple(ranges.tolist()), float(tops[0]), self.unit)

    @property
    def reward_message(self) -> Message:
        """What one episode adds to the reward counters; every step."""
        if not isinstance(self.rewards, LearntRewards):
            raise ValueError("these rewards are known; nothing about them is released")
        f, most = self.rewards.features, np.maximum(self.most, _LEAST * self.tops[0])
        return Message(f.blocks, f.dimension, 1.0, tuple(most.tolist()), float(most.max()), False, "rewards")


@dataclass(frozen=True)
class Regression:
    """Released statistics and the radii of their bonus.

    Parameters
    ----------
    regularizer
        The growing least-squares problem, seen through its noise.
    radii
        Radius of the bonus at each step, a function of released and declared values.
    """

    regularizer: Regularizer
    radii: Radii


@dataclass(frozen=True)
class Problem:
    """A task with what is released about it.

    Parameters
    ----------
    rewards
        Where the task's rewards are learnt.
    task
        What is declared.
    transitions
        The regression of next values.
    """

    task: MixtureTask
    transitions: Regression
    rewards: Regression | None = None

    def __post_init__(self) -> None:
        if (self.rewards is None) == isinstance(self.task.rewards, LearntRewards):
            raise ValueError("rewards are either known to the task or learnt by a regression")

    def observe(self, rows: Rows, trajectory: Trajectory) -> None:
        """Hand a batch of episodes, played with the V of ``rows``, to every counter."""
        self.transitions.regularizer.observe(rows.transitions(trajectory))
        if self.rewards is not None:
            self.rewards.regularizer.observe(rows.rewards(trajectory))


@dataclass(frozen=True)
class Optimistic:
    """``Q (H, S, A)``, the same before it was cut ``free (H, S, A)``, and ``V (H+1, S)``."""

    Q: Array
    free: Array
    V: Array


def optimistic(problem: Problem, value: Callable[[int, Array], Array]) -> Optimistic:
    """Values from the statistics released so far, from the last step to the first.

    Parameters
    ----------
    value
        V_h ``(S,)`` from h and Q_h ``(S, A)``: what distinguishes the algorithms.
    """
    task, regression = problem.task, problem.transitions
    H, S, A = task.shape
    tops, ridge = task.tops, regression.regularizer.ridge()
    reach = np.ones(H - 1) if task.unit else tops[1:-1]
    bonus = _radii(task, regression, ridge, (tops[1:-1], reach), task.features.unknowns)
    reward, predictor = _rewards(problem), Predictor(task.features, ridge)
    Q, free, V = np.zeros((H, S, A)), reward.copy(), np.zeros((H + 1, S))
    for h in reversed(range(H)):
        if h < H - 1:
            free[h] += predictor.ahead(h, V[h + 1], bonus[h])
        Q[h] = np.minimum(np.maximum(free[h], 0.0), tops[h])
        V[h] = value(h, Q[h])
    return Optimistic(Q, free, V)


def _rewards(problem: Problem) -> Array:
    """Rewards ``(H, S, A)``: the known ones, or optimistic estimates inside their declared range."""
    rewards, regression = problem.task.rewards, problem.rewards
    if regression is None or not isinstance(rewards, LearntRewards):
        return np.asarray(rewards)
    f, ridge, most = rewards.features, regression.regularizer.ridge(), problem.task.most
    phi, beta = f.phi(), _radii(problem.task, regression, ridge, (most, most), f.blocks * f.dimension)
    inverse = np.linalg.inv(ridge.Lambda)
    theta = (inverse @ ridge.U[..., None])[..., 0]
    spread = np.einsum("bnd,hbde,bne->hbn", phi, inverse, phi)
    found = np.einsum("bnd,hbd->hbn", phi, theta) + beta[:, None, None] * np.sqrt(np.maximum(spread, 0.0))
    return np.clip(found.reshape(problem.task.shape), 0.0, most[:, None, None])


def _radii(
    task: MixtureTask, regression: Regression, ridge: Ridge, ranges: tuple[Array, Array], unknowns: int
) -> Array:
    r = regression.regularizer
    return regression.radii(Moment(r.seen + 1, task.episodes, unknowns, *ranges, ridge, r.bounds))


class Predictor:
    """<phi, theta> + beta ||phi||_{Lambda^-1} of every (s, a)."""

    def __init__(self, features: MixtureFeatures, ridge: Ridge) -> None:
        self._features, self._ridge = features, ridge
        self._inverse = np.linalg.inv(ridge.Lambda) if features.dimension <= _SMALL else None
        self._theta = None if self._inverse is None else (self._inverse @ ridge.U[..., None])[..., 0]

    def ahead(self, h: int, V: Array, beta: float) -> Array:
        """``(S, A)`` for V of the next step."""
        # one-hot rows are V itself in every block
        phi = V[None, None] if self._features.psi is None else self._features.phi(V)
        if self._inverse is None or self._theta is None:
            sides = np.concatenate([phi.swapaxes(-1, -2), self._ridge.U[h][..., None]], axis=-1)
            solved = np.linalg.solve(self._ridge.Lambda[h], sides)
            theta, half = solved[..., -1], solved[..., :-1].swapaxes(-1, -2)
        else:
            theta, half = self._theta[h], phi @ self._inverse[h]
        spread = (half * phi).sum(-1)
        found = (phi @ theta[..., None])[..., 0] + beta * np.sqrt(np.maximum(spread, 0.0))
        return found.reshape(self._features.states, self._features.actions)


class Rows:
    """Regression rows of the episodes that are played with one V: computed once, read by (s, a)."""

    def __init__(self, task: MixtureTask, V: Array) -> None:
        self._task, self._features = task, task.features
        phi = task.features.phi(V[1:-1])
        weight = np.ones(len(phi))
        if task.unit:
            # public: a function of V alone; 1 where V = 0, whose rows are 0
            weight = np.maximum(V[1:-1].max(-1), np.linalg.norm(phi, axis=-1).max((1, 2)))
            weight = np.where(weight > 0, weight, 1.0)
        self._phi, self._V = phi / weight[:, None, None, None], V[1:-1] / weight[:, None]

    def transitions(self, trajectory: Trajectory) -> Visits:
        """Rows phi with responses V(s'), equal ones together; nothing at the last step, where V = 0."""
        _, S, A = self._task.shape
        states, actions = np.atleast_2d(trajectory.states), np.atleast_2d(trajectory.actions)
        cells = states[:, :-2] * A + actions[:, :-1] + S * A * np.arange(len(self._V))
        code, count = np.unique(cells * S + states[:, 1:-1], return_counts=True)
        at, after = np.divmod(code, S)
        step, cell = np.divmod(at, S * A)
        block, row = self._features.place(cell)
        return Visits(step, block, self._phi[step, block, row], self._V[step, after], count, len(states))

    def rewards(self, trajectory: Trajectory) -> Visits:
        """Rows phi_r with responses r, one a step and episode."""
        learnt = self._task.rewards
        assert isinstance(learnt, LearntRewards)
        H, _, A = self._task.shape
        states, actions = np.atleast_2d(trajectory.states), np.atleast_2d(trajectory.actions)
        cell = (states[:, :-1] * A + actions).ravel()
        step, (block, row) = np.tile(np.arange(H), len(states)), learnt.features.place(cell)
        phi = learnt.features.phi()[block, row]
        response, once = np.atleast_2d(trajectory.rewards).ravel(), np.ones(len(cell), dtype=np.int64)
        return Visits(step, block, phi, response, once, len(states))
