"""Private adaptive LQR: our controller beside paper 004's, for budgets at which optimism cannot leave zero.

Epochs of doubling length.  Nobody is in two of them, so each epoch's one release has the whole budget.  What is
released, what is played and how much is explored follow from what earlier epochs released: post-processing.

| code | shape | meaning |
|---|---|---|
| ``belief`` | | normal law of the plant [A, B]: :class:`~pipeline.agents.lq_belief.Belief` |
| ``gains`` | (H, d, n) | u = K_h x + xi, xi uniform on the sphere of ``explore`` |
| ``question`` | | centre, frame and radius of the residual sums that the epoch releases |

What makes it learn where sums of squares do not
    * controls are the server's own randomness and the plant's noise is declared: no Gram matrix is released;
    * an episode sends *one* matrix, cut as a whole: its length grows with the root of H;
    * it holds residuals of the prediction so far, of the length of the plant's noise instead of the states';
    * the frame weighs directions by what an error in them would cost under optimal control;
    * the estimate is shrunk (an empirical prior a block), and gains are those of the plant under its own uncertainty;
    * gains leave zero only while their expected gain exceeds ``certainty`` standard deviations of what is not known;
    * exploration is planned: the radius whose expected total cost over the rest of the run is least, 0 among them;
    * where a release is so long that much was cut, it counts less, gains rest for an epoch, and later balls are wider.

No theorem is claimed; the guarantee rests on the cut alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.lq_belief import Answer, Belief, Question, information, learnt, prior
from pipeline.agents.ofu_rl import LqControl
from pipeline.mdp.riccati import cautious_gains, clip_norm, expected_costs, occupancies, simulated_episodes
from pipeline.mdp.rollout import LinearRollout, LqAgent, LqBatch, play_every

Array = NDArray[np.float64]

# privatizes the residual sums of one epoch's episodes: ``(D, n)``
Release = Callable[[Question, Sequence[LqBatch]], Array]

# made-up plants: for the radius of a question, for the guard, for the value of exploring, for the frame
_FOR_RADIUS, _FOR_GUARD, _FOR_VALUE = 400, 200, 24
_TURNS = (1.0, 0.75, 0.5, 0.25)


@dataclass(frozen=True)
class AdaptiveConstants:
    """Constants of the planner, chosen on other systems than those that are reported.

    Parameters
    ----------
    first
        Length of the first epoch, in roots of K; each later one is ``growth`` times as long.
    radii
        Radii of exploration that are weighed, as parts of gamma.
    certainty
        Standard deviations by which gains must be better than none before they are played.
    kept
        Share of made-up episodes whose matrix is within the ball to which matrices are cut.
    longest
        Length of a release, in parts of what its cut allows, above which much was cut.
    doubt
        Standard deviation of what such a cut may have taken from an entry of a release, in parts of its length.
    norm
        Declared bound on the Frobenius norm of [A, B].
    """

    first: float = 5.0
    growth: float = 2.0
    radii: tuple[float, ...] = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)
    certainty: float = 1.5
    kept: float = 0.95
    longest: float = 0.65
    doubt: float = 0.02
    norm: float = 1.0


@dataclass(frozen=True)
class Epoch:
    """One epoch as it was played.

    Parameters
    ----------
    first
        Its first episode, from 1 on.
    rollout
        Gains and exploration.
    """

    first: int
    rollout: LinearRollout


def adaptive_lqr(
    task: LqControl,
    episodes: int,
    release: Release,
    spread: float,
    c: AdaptiveConstants,
    rng: np.random.Generator,
) -> LqAgent:
    """Play ``episodes`` episodes and return every :class:`Epoch`, in order.

    Parameters
    ----------
    task
        What is declared.
    episodes
        K.
    release
        Privatizes the sums of an epoch; called once for each but the last.
    spread
        Standard deviation of its noise in one entry, in radii of the question; 0 without privacy.
    c
        Constants.
    rng
        Public randomness of the planner; none of it protects anybody.
    """
    planner = _Planner(task, c, spread, rng)
    belief, answers, epochs, played = prior(task, c.norm), list[Answer](), list[Epoch](), 0
    length, cut = max(1, round(c.first * math.sqrt(episodes))), False
    while played < episodes:
        length = min(length, episodes - played)
        gains, rest = planner.gains(belief), episodes - played - length
        if cut:
            gains = np.zeros_like(gains)
        explore = planner.radius(belief, gains, length, rest)
        rollout = LinearRollout(gains, length, explore)
        epochs.append(Epoch(played + 1, rollout))
        played += length
        question = planner.question(belief, rollout) if rest else None
        batches = yield from play_every(rollout)
        if question is not None:
            total = release(question, batches)
            size, variance = float(np.linalg.norm(total)), (spread * question.radius) ** 2
            if cut := size > c.longest * rollout.episodes * question.radius:
                planner, variance = replace(planner, widen=2 * planner.widen), variance + (c.doubt * size) ** 2
            answers.append(Answer(rollout, question, total, variance))
            belief = learnt(task, belief, answers, c.norm)
        length = math.ceil(length * c.growth)
    return epochs


def recentred_lqr(
    task: LqControl,
    parts: Sequence[int],
    explore: float,
    release: Release,
    spread: float,
    c: AdaptiveConstants,
    rng: np.random.Generator,
) -> LqAgent:
    """The same offline: exploring episodes in disjoint parts, each recentred on what the parts before released.

    Parameters
    ----------
    task, release, spread, c, rng
        As of :func:`adaptive_lqr`.
    parts
        Episodes of each part; nobody is in two.
    explore
        Radius of the sphere on which all controls are drawn: that is declared, so no Gram matrix is released.

    Returns
    -------
    Gains ``(H, d, n)``.
    """
    planner, belief, answers = _Planner(task, c, spread, rng), prior(task, c.norm), list[Answer]()
    none = np.zeros((task.cost.horizon, len(task.cost.R), len(task.start)))
    for episodes in parts:
        rollout = LinearRollout(none, episodes, explore)
        question = planner.question(belief, rollout)
        total = release(question, (yield from play_every(rollout)))
        answers.append(Answer(rollout, question, total, (spread * question.radius) ** 2))
        belief = learnt(task, belief, answers, c.norm)
    return planner.gains(belief)


@dataclass(frozen=True)
class _Planner:
    """What is done with a belief: nothing here sees a person."""

    task: LqControl
    c: AdaptiveConstants
    spread: float
    rng: np.random.Generator
    widen: float = 1.0

    def gains(self, belief: Belief) -> Array:
        """Cautious gains, made smaller until they are better than none by enough; zero if they never are."""
        found = self._cautious(belief.mean[None], belief.error[None])[0]
        plants = belief.draw(_FOR_GUARD, self.rng)
        idle = self._cost(plants, np.zeros_like(found))
        for part in _TURNS:
            better = idle - self._cost(plants, part * found)
            if better.mean() > self.c.certainty * better.std():
                return part * found
        return np.zeros_like(found)

    def radius(self, belief: Belief, gains: Array, length: int, rest: int) -> float:
        """The exploration of least expected cost: that of this epoch, and of ``rest`` episodes with what it teaches."""
        room = self.task.gamma - float(np.linalg.norm(gains, 2, axis=(1, 2)).max())
        radii = [r * self.task.gamma for r in self.c.radii if r * self.task.gamma <= room]
        if not rest or not radii:
            return 0.0
        plants = belief.draw(_FOR_VALUE, self.rng, self.c.norm)
        errors = self.rng.normal(size=plants.shape)
        return min(radii, key=lambda r: self._expected(belief, plants, errors, LinearRollout(gains, length, r), rest))

    def question(self, belief: Belief, rollout: LinearRollout) -> Question:
        """Residuals of the belief's mean, in the frame that weighs them best, cut to what made-up episodes need."""
        frame, plants = self._frame(belief, rollout), belief.draw(_FOR_RADIUS, self.rng, self.c.norm)
        task = self.task
        z, following = simulated_episodes(plants, rollout.gains, rollout.explore, task.start, task.covariance, self.rng)
        residuals = following - z @ belief.mean.T
        lengths = np.linalg.norm(frame @ (z.swapaxes(1, 2) @ residuals), axis=(1, 2))
        return Question(belief.mean, frame, self.widen * float(np.quantile(lengths, self.c.kept)))

    def _expected(self, belief: Belief, plants: Array, errors: Array, rollout: LinearRollout, rest: int) -> float:
        now = self._cost(plants, rollout.gains, rollout.explore)
        question, M = self.question(belief, rollout), self._occupancy(plants, rollout).mean(axis=0)
        told = information(question, rollout.episodes, M, (self.spread * question.radius) ** 2, self.task)[0]
        error = belief.after(told)
        # an estimate lies between the belief and the plant, as far from it as its own error says
        near = plants + errors @ np.linalg.cholesky(error + 1e-15 * np.eye(len(error))).T
        share = np.eye(len(error)) - error @ np.linalg.inv(belief.error)
        estimates = belief.mean + (near - belief.mean) @ share.T
        gains = self._cautious(estimates, np.broadcast_to(error, (len(plants), *error.shape)))
        return float((rollout.episodes * now + rest * self._cost(plants, gains)).mean())

    def _frame(self, belief: Belief, rollout: LinearRollout) -> Array:
        """F with the noise least where errors cost most: (M^-1/2 L M^-1/2)^1/4 M^-1/2, L is M of optimal play."""
        plants = belief.draw(_FOR_VALUE, self.rng, self.c.norm)
        D = plants.shape[2]
        best = LinearRollout(self._cautious(plants, np.zeros((len(plants), D, D))), 1)
        M, sought = (self._occupancy(plants, r).mean(axis=0) for r in (rollout, best))
        sought += np.eye(D) * (1e-3 * np.trace(sought) / D)
        values, vectors = np.linalg.eigh(M)
        inverse = vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1])) @ vectors.T
        values, vectors = np.linalg.eigh(inverse @ sought @ inverse)
        return vectors * np.maximum(values, 1e-12) ** 0.25 @ vectors.T @ inverse

    def _cautious(self, theta: Array, error: Array) -> Array:
        return clip_norm(cautious_gains(theta, error, self.task.cost), self.task.gamma)

    def _cost(self, plants: Array, gains: Array, explore: float = 0.0) -> Array:
        return expected_costs(plants, gains, self.task.cost, self.task.start, self.task.covariance, explore)

    def _occupancy(self, plants: Array, rollout: LinearRollout) -> Array:
        task = self.task
        return occupancies(plants, rollout.gains, task.cost.horizon, task.start, task.covariance, rollout.explore)
