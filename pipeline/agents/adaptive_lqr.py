"""Private adaptive LQR: our controller beside paper 004's, for budgets at which optimism cannot leave zero.

Epochs of doubling length.  No person is in two of them, so each epoch's one release has the whole budget.  Queries,
gains and exploration follow from earlier releases: post-processing.

| code | shape | meaning |
|---|---|---|
| ``belief`` | | normal law of the plant [A, B]: :class:`~pipeline.agents.adaptive_lqr.Belief` |
| ``gains`` | (H, d, n) | u = K_h x + xi, xi uniform on the sphere of ``explore`` |
| ``question`` | | centre, frame and radius of the residual sums that the epoch releases |

Reasons why it learns where sums of squares do not
    * controls are the server's own randomness and the plant's noise is declared: no Gram matrix is released;
    * an episode sends *one* matrix, cut as a whole: its length grows with the root of H;
    * it holds residuals of the prediction so far, of the length of the plant's noise instead of the states';
    * the frame weighs directions by the cost of an error in them under optimal control;
    * the estimate is shrunk (an empirical prior a block), and gains are those of the plant under its own uncertainty;
      a block shrinks no further than the answers decide: B without an answer stays worth exploring;
    * gains leave zero only while their expected gain exceeds ``certainty`` of its standard deviations;
    * exploration is planned: the radius whose expected total cost over the rest of the run is least, 0 among them;
    * the first ball is wide and its epoch short: it finds A, and the balls around it can be small;
    * where a release is so long that much was cut, it counts less, gains rest for an epoch, and later balls are wider.

No theorem is claimed; the guarantee rests on the cut alone.

The public belief: a normal law of [A, B], from noisy residual sums of an unknown linear plant.

An answer to (frame F, centre c) after K episodes is ``F K M (theta - c)'`` plus noise, where M is the occupancy
E sum_h z z'.  M is not released: the first state, the plant's noise and the controls are declared or drawn by the
server, so M is a known function of theta, and the estimate is the plant whose expected answers are nearest.

| code | shape | meaning |
|---|---|---|
| ``mean`` | (n, D) | [A, B] |
| ``error`` | (D, D) | covariance of each row of [A, B] |
| ``M`` | (D, D) | occupancy of one episode |
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline.agents.ofu_rl import LqControl
from pipeline.arrays import Array
from pipeline.mdp.riccati import cautious_gains, clip_norm, expected_costs, occupancies, simulated_episodes
from pipeline.mdp.rollout import LinearRollout, LqAgent, LqBatch, play_every

# rounds of the prior's variances, and steps of a fit in each
_ROUNDS, _STEPS, _CLOSE, _SLOPE = 10, 20, 1e-6, 1e-6
# made-up episodes for the spread of an answer, and plants from which a fit begins
_FOR_NOISE, _STARTS = 200, 6
# parts of an answer's sharpness, one fit after the other
_COOLING = 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0
# times the length of made-up episodes: without noise nothing needs to be cut
_UNCUT = 50.0


@dataclass(frozen=True)
class ResidualQuery:
    """Query to the episodes of one rollout, public before they are played.

    ``centre`` ``(n, D)``: the prediction of [A, B] that is subtracted.
    ``frame`` ``(D, D)``: multiplies z.
    ``radius``: length to which an episode's matrix is cut.
    """

    centre: Array
    frame: Array
    radius: float


@dataclass(frozen=True)
class ResidualSum:
    """The noisy sum over all episodes of a rollout.

    ``total`` ``(D, n)``: sum of frame z (x_next - centre z)', in real units.
    ``variance``: of the noise of one entry; 0 without privacy.
    """

    rollout: LinearRollout
    question: ResidualQuery
    total: Array
    variance: float


@dataclass(frozen=True)
class Belief:
    """A normal law of the plant: rows of [A, B] independent, ``mean (n, D)``, each with covariance ``error (D, D)``."""

    mean: Array
    error: Array

    def draw(self, models: int, rng: np.random.Generator, norm: float = np.inf) -> Array:
        """Plants ``(models, n, D)``; one of Frobenius norm beyond ``norm`` is shrunk to it."""
        root = np.linalg.cholesky(self.error + 1e-12 * np.eye(len(self.error)))
        plants = self.mean + rng.normal(size=(models, *self.mean.shape)) @ root.T
        return plants / np.maximum(np.linalg.norm(plants, axis=(1, 2), keepdims=True) / norm, 1.0)

    def after(self, information: Array) -> Array:
        """The covariance after ``information (D, D)`` is added."""
        covariance = _inverse(_inverse(self.error) + information)
        return (covariance + covariance.T) / 2


def prior(task: LqControl, norm: float) -> Belief:
    """Every entry of [A, B] normal, of one variance: their squares sum to half of ``norm**2`` on average."""
    n = len(task.start)
    D = n + len(task.cost.R)
    return Belief(np.zeros((n, D)), np.eye(D) * (norm**2 / (2 * n * D)))


def information(
    question: ResidualQuery, episodes: int, M: Array, variance: float, task: LqControl
) -> tuple[Array, Array]:
    """Information ``(D, D)`` of an answer about each row of [A, B], and the map ``(D, D)`` from answers to it."""
    response = episodes * question.frame @ M
    plant_noise = float(np.trace(task.covariance)) / len(task.covariance)
    # without either noise, a floor keeps the information finite
    noise = (variance + 1e-12) * np.eye(len(M)) + plant_noise * episodes * question.frame @ M @ question.frame.T
    map_from_answers = np.asarray(np.linalg.solve(noise, response).T, dtype=np.float64)
    return map_from_answers @ response, map_from_answers


def learnt(task: LqControl, before: Belief, answers: Sequence[ResidualSum], norm: float) -> Belief:
    """The law of the plant after all answers: the likeliest plant and its covariance.

    Gauss-Newton steps on the expected answers of a plant, with its own occupancies.  The prior's
    variances of A and of B shrink towards the answers (James and Stein's rule, a block each), and never below their
    remaining variance: an answer that is noise does not make a block zero.
    """
    declared = prior(task, norm)
    n, D = declared.mean.shape
    mean, blocks = before.mean, declared.error.diagonal()
    hessian = np.eye(n * D)
    # several plants may explain an answer, so the search has several starts
    starts = [mean, *declared.draw(_STARTS, np.random.default_rng(0), norm)]
    starts.append(_cooled(task, mean, answers, np.sqrt(1 / blocks), norm))
    for _ in range(_ROUNDS):
        whiten = _whitened(task, mean, answers)
        fits = [_likeliest(task, start, answers, whiten, np.sqrt(1 / blocks), norm) for start in starts]
        _, likeliest, information_of = min(fits, key=lambda f: f[0])
        variances = declared.error.diagonal(), blocks
        undecided, hessian = (_inverse(information_of + np.diag(np.tile(1 / v, n))) for v in variances)
        undecided_of_row, error = (_of_rows(M, n, D).diagonal() for M in (undecided, hessian))
        size = np.maximum((likeliest**2).mean(axis=0) + error, undecided_of_row)
        shrunk = [min(declared.error[0, 0], float(block.mean())) for block in (size[:n], size[n:])]
        change = float(np.abs(likeliest - mean).max())
        mean, blocks, starts = likeliest, np.repeat(shrunk, (n, D - n)), [likeliest]
        if change < _CLOSE:
            break
    return Belief(mean, _of_rows(hessian, n, D))


def _cooled(task: LqControl, theta: Array, answers: Sequence[ResidualSum], weights: Array, norm: float) -> Array:
    """A plant ``(n, D)`` near the likeliest, by fits to answers that are taken to be less and less noisy.

    Sums without noise are so sharp that a search from elsewhere ends at the edge of what ``norm`` allows.
    """
    for part in _COOLING:
        whiten = [part * W for W in _whitened(task, theta, answers)]
        theta = _likeliest(task, theta, answers, whiten, weights, norm)[1]
    return theta


def _whitened(task: LqControl, mean: Array, answers: Sequence[ResidualSum]) -> list[Array]:
    roots = (np.linalg.cholesky(_inverse(_noise(task, mean, answer))).T for answer in answers)
    return [np.asarray(W, dtype=np.float64) for W in roots]


def _inverse(M: Array) -> Array:
    return np.asarray(np.linalg.inv(M), dtype=np.float64)


def _of_rows(covariance: Array, n: int, D: int) -> Array:
    """Covariance ``(D, D)`` of a row of [A, B], mean over rows, of that of all entries ``(n D, n D)``."""
    mean = np.einsum("iaib->ab", covariance.reshape(n, D, n, D)) / n
    return (mean + mean.T) / 2


def _expected_answers(task: LqControl, theta: Array, answers: Sequence[ResidualSum]) -> Array:
    """Expected answers ``(m, s, D, n)`` of plants ``(s, n, D)``, all in one recursion."""
    s, gains = len(theta), np.stack([a.rollout.gains for a in answers])
    explore = np.repeat([a.rollout.explore for a in answers], s)[:, None, None]
    plants_and_gains = np.tile(theta, (len(answers), 1, 1)), np.repeat(gains, s, axis=0)
    M = occupancies(*plants_and_gains, task.cost.horizon, task.start, task.covariance, explore)
    frames = np.stack([a.rollout.episodes * a.question.frame for a in answers])[:, None]
    distance = theta - np.stack([a.question.centre for a in answers])[:, None]
    return frames @ M.reshape(len(answers), s, *M.shape[1:]) @ distance.swapaxes(2, 3)


def _noise(task: LqControl, mean: Array, answer: ResidualSum) -> Array:
    """Covariance ``(D, D)`` of a column of an answer: the mechanism's, the plant's, and that of the episodes met."""
    r, q = answer.rollout, answer.question
    plants, rng = np.broadcast_to(mean, (_FOR_NOISE, *mean.shape)), np.random.default_rng(0)
    z, following = simulated_episodes(plants, r.gains, r.explore, task.start, task.covariance, rng)
    sums = q.frame @ (z.swapaxes(1, 2) @ (following - z @ q.centre.T))
    deviations = sums - sums.mean(axis=0)
    D = len(q.frame)
    per_episode = np.einsum("sai,sbi->ab", deviations, deviations) / (_FOR_NOISE * mean.shape[0])
    # without either noise, a floor keeps the information finite
    total = r.episodes * per_episode
    return total + (answer.variance + 1e-12) * np.eye(D) + 1e-9 * r.episodes * np.trace(per_episode) * np.eye(D)


def _likeliest(
    task: LqControl, start: Array, answers: Sequence[ResidualSum], whiten: Sequence[Array], weights: Array, norm: float
) -> tuple[float, Array, Array]:
    """Objective of the likeliest plant near ``start``, that plant ``(n, D)``, and the information ``(n D, n D)``."""
    n, D = start.shape
    whitening, totals = np.stack(whiten)[:, None], np.stack([a.total for a in answers])[:, None]

    def standard_residuals(theta: Array) -> Array:
        """Residuals ``(s, k)`` of plants ``(s, n, D)`` in standard deviations of each answer."""
        standardised = whitening @ (_expected_answers(task, theta, answers) - totals)
        return standardised.swapaxes(0, 1).reshape(len(theta), -1)

    def objective(theta: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            penalties = (standard_residuals(theta) ** 2).sum(axis=1) + ((theta * weights) ** 2).sum(axis=(1, 2))
        return np.where(np.isfinite(penalties), penalties, np.inf)

    theta, fisher, damping = start, np.zeros((n * D, n * D)), 1e-3
    proposals: Array
    steps, prior_weights = np.eye(n * D).reshape(-1, n, D) * _SLOPE, np.tile(weights**2, n)
    for _ in range(_STEPS):
        residuals = standard_residuals(np.concatenate([theta[None], theta + steps]))
        slopes = (residuals[1:] - residuals[0]) / _SLOPE
        fisher = slopes @ slopes.T
        uphill = slopes @ residuals[0] + prior_weights * theta.ravel()
        dampings = damping * 10.0 ** np.arange(-1, 7)
        curved = fisher + np.diag(prior_weights)
        damped = curved + dampings[:, None, None] * np.diag(curved.diagonal())
        uphills = np.broadcast_to(uphill[:, None], (len(dampings), n * D, 1))
        moves: Array = np.asarray(np.linalg.solve(damped, uphills), dtype=np.float64)
        proposals = theta - moves.reshape(-1, n, D)
        proposals /= np.maximum(1.0, np.linalg.norm(proposals, axis=(1, 2), keepdims=True) / norm)
        costs = objective(np.concatenate([theta[None], proposals]))
        if (best := int(costs.argmin())) == 0:
            break
        before, theta, damping = theta, np.asarray(proposals[best - 1], dtype=np.float64), float(dampings[best - 1])
        change = float(np.abs(theta - before).max())
        if change < _CLOSE:
            break
    return float(objective(theta[None])[0]), theta, fisher


# privatizes the residual sums of one epoch's episodes: ``(D, n)``
Release = Callable[[ResidualQuery, Sequence[LqBatch]], Array]

# made-up plants: for the radius of a query, for the guard, for the value of exploring, for the frame
_FOR_RADIUS, _FOR_GUARD, _FOR_VALUE = 400, 200, 24
_TURNS = (1.0, 0.75, 0.5, 0.25)


@dataclass(frozen=True)
class AdaptiveConstants:
    """Constants of the planner, chosen on other systems than those that are reported.

    ``first``: length of the first epoch, in roots of K; each later one is ``growth`` times as long.
    ``certainty``: standard deviations by which gains must be better than none before they are played.
    ``quantile``: of the lengths of made-up episodes, to which an episode's matrix is cut.
    ``longest``: length of a release, in parts of its largest, above which much was cut.
    ``doubt``: standard deviation of the effect of such a cut on an entry of a release, in parts of its length.
    ``norm``: declared bound on the Frobenius norm of [A, B].
    ``wide``: times by which the first ball is wider than made-up episodes need, and by which one that cut grows.
    ``scout``: most exploration, in parts of gamma, in the first epoch: noise would hide its information about B.
    ``shade``: part of the planned exploration that is played while epochs remain that can explore more.
    """

    first: float = 2.5
    growth: float = 2.0
    radii: tuple[float, ...] = (0.0, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2)
    certainty: float = 1.5
    quantile: float = 0.95
    longest: float = 0.65
    doubt: float = 0.02
    norm: float = 1.0
    wide: float = 4.0
    scout: float = 0.01
    shade: float = 0.4


@dataclass(frozen=True)
class Epoch:
    """One epoch as it was played.

    ``first``: its first episode, from 1 on.
    """

    first: int
    rollout: LinearRollout


def adaptive_lqr(
    task: LqControl, episodes: int, release: Release, spread: float, c: AdaptiveConstants, rng: np.random.Generator
) -> LqAgent:
    """Play ``episodes`` episodes and return every :class:`Epoch`, in order.

    ``spread``: standard deviation of its noise in one entry, in radii of the question; 0 without privacy.
    """
    planner = _Planner(task, c, spread, rng, c.wide if spread else _UNCUT)
    belief, answers, epochs, played = prior(task, c.norm), list[ResidualSum](), list[Epoch](), 0
    length, cut = max(1, round(c.first * math.sqrt(episodes))), False
    while played < episodes:
        length = min(length, episodes - played)
        gains, rest = planner.gains(belief), episodes - played - length
        if cut:
            gains = np.zeros_like(gains)
        explore = planner.radius(belief, gains, length, rest)
        if not answers:
            explore = min(explore, c.scout * task.gamma)
        if spread and rest > length * c.growth:
            explore *= c.shade
        rollout = LinearRollout(gains, length, explore)
        epochs.append(Epoch(played + 1, rollout))
        played += length
        question = planner.question(belief, rollout) if rest else None
        batches = yield from play_every(rollout)
        if question is not None:
            total = release(question, batches)
            size, variance = float(np.linalg.norm(total)), (spread * question.radius) ** 2
            if cut := size > c.longest * rollout.episodes * question.radius:
                planner, variance = replace(planner, widen=c.wide * planner.widen), variance + (c.doubt * size) ** 2
            elif spread:
                planner = replace(planner, widen=1.0)
            # without noise a cut sum has no variance, so it is left out
            if spread or not cut:
                answers.append(ResidualSum(rollout, question, total, variance))
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
    """The same offline: exploring episodes in disjoint parts, each recentred on the releases of earlier parts.

    ``explore``: declared radius of the sphere on which all controls are drawn, so no Gram matrix is released.
    Returns gains ``(H, d, n)``.
    """
    planner, belief, answers = _Planner(task, c, spread, rng, c.wide), prior(task, c.norm), list[ResidualSum]()
    none = np.zeros((task.cost.horizon, len(task.cost.R), len(task.start)))
    for episodes in parts:
        rollout = LinearRollout(none, episodes, explore)
        question = planner.question(belief, rollout)
        total = release(question, (yield from play_every(rollout)))
        answers.append(ResidualSum(rollout, question, total, (spread * question.radius) ** 2))
        belief, planner = learnt(task, belief, answers, c.norm), replace(planner, widen=1.0)
    return planner.gains(belief)


@dataclass(frozen=True)
class _Planner:
    """Decisions from a belief: post-processing, reads no episode."""

    task: LqControl
    c: AdaptiveConstants
    spread: float
    rng: np.random.Generator
    widen: float = 1.0

    def gains(self, belief: Belief) -> Array:
        """Cautious gains, made smaller until they are better than none by enough; zero if they never are."""
        cautious = self._cautious(belief.mean[None], belief.error[None])[0]
        plants = belief.draw(_FOR_GUARD, self.rng)
        idle = self._cost(plants, np.zeros_like(cautious))
        for part in _TURNS:
            improvement = idle - self._cost(plants, part * cautious)
            if improvement.mean() > self.c.certainty * improvement.std():
                return part * cautious
        return np.zeros_like(cautious)

    def radius(self, belief: Belief, gains: Array, length: int, rest: int) -> float:
        """The exploration of least expected cost: that of this epoch, and of ``rest`` episodes after it."""
        room = self.task.gamma - float(np.linalg.norm(gains, 2, axis=(1, 2)).max())
        radii = [r * self.task.gamma for r in self.c.radii if r * self.task.gamma <= room]
        if not rest or not radii:
            return 0.0
        plants = belief.draw(_FOR_VALUE, self.rng, self.c.norm)
        errors = self.rng.normal(size=plants.shape)
        return min(radii, key=lambda r: self._expected(belief, plants, errors, LinearRollout(gains, length, r), rest))

    def question(self, belief: Belief, rollout: LinearRollout) -> ResidualQuery:
        """Residuals of the belief's mean, in the frame that weighs them best, cut to a length of made-up episodes."""
        frame, plants = self._frame(belief, rollout), belief.draw(_FOR_RADIUS, self.rng, self.c.norm)
        task = self.task
        z, following = simulated_episodes(plants, rollout.gains, rollout.explore, task.start, task.covariance, self.rng)
        residuals = following - z @ belief.mean.T
        lengths = np.linalg.norm(frame @ (z.swapaxes(1, 2) @ residuals), axis=(1, 2))
        return ResidualQuery(belief.mean, frame, self.widen * float(np.quantile(lengths, self.c.quantile)))

    def _expected(self, belief: Belief, plants: Array, errors: Array, rollout: LinearRollout, rest: int) -> float:
        now = self._cost(plants, rollout.gains, rollout.explore)
        question, M = self.question(belief, rollout), self._occupancy(plants, rollout).mean(axis=0)
        variance = (self.spread * question.radius) ** 2
        error = belief.after(information(question, rollout.episodes, M, variance, self.task)[0])
        # an estimate lies between the belief and the plant, at a distance of its own error
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
        M, optimal_occupancy = (self._occupancy(plants, r).mean(axis=0) for r in (rollout, best))
        optimal_occupancy += np.eye(D) * (1e-3 * np.trace(optimal_occupancy) / D)
        values, vectors = np.linalg.eigh(M)
        inverse = vectors / np.sqrt(np.maximum(values, 1e-9 * values[-1])) @ vectors.T
        values, vectors = np.linalg.eigh(inverse @ optimal_occupancy @ inverse)
        return vectors * np.maximum(values, 1e-12) ** 0.25 @ vectors.T @ inverse

    def _cautious(self, theta: Array, error: Array) -> Array:
        return clip_norm(cautious_gains(theta, error, self.task.cost), self.task.gamma)

    def _cost(self, plants: Array, gains: Array, explore: float = 0.0) -> Array:
        return expected_costs(plants, gains, self.task.cost, self.task.start, self.task.covariance, explore)

    def _occupancy(self, plants: Array, rollout: LinearRollout) -> Array:
        task = self.task
        return occupancies(plants, rollout.gains, task.cost.horizon, task.start, task.covariance, rollout.explore)
