"""What noisy residual sums say of an unknown linear plant: a normal law of [A, B] that is public.

An answer to (frame F, centre c) after K episodes is ``F K M (theta - c)'`` plus noise, where M is the occupancy
E sum_h z z'.  M is not released: the first state, the plant's noise and the controls are declared or drawn by the
server, so M is a known function of theta, and the estimate is a fixed point.

| code | shape | meaning |
|---|---|---|
| ``mean`` | (n, D) | [A, B] |
| ``error`` | (D, D) | covariance of each row of [A, B] |
| ``M`` | (D, D) | occupancy of one episode |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.ofu_rl import LqControl
from pipeline.mdp.riccati import occupancies
from pipeline.mdp.rollout import LinearRollout

Array = NDArray[np.float64]

_ROUNDS, _CLOSE = 30, 1e-6


@dataclass(frozen=True)
class Question:
    """What is asked of the episodes of one rollout, public before they are played.

    Parameters
    ----------
    centre
        ``(n, D)``: the prediction of [A, B] that is subtracted.
    frame
        ``(D, D)``: what multiplies z.
    radius
        Length to which an episode's matrix is cut.
    """

    centre: Array
    frame: Array
    radius: float


@dataclass(frozen=True)
class Answer:
    """The noisy sum over all episodes of a rollout.

    Parameters
    ----------
    rollout, question
        How they were played, and what was asked.
    total
        ``(D, n)``: sum of frame z (x_next - centre z)', in real units.
    variance
        Of the noise of one entry; 0 without privacy.
    """

    rollout: LinearRollout
    question: Question
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
        found = self.mean + rng.normal(size=(models, *self.mean.shape)) @ root.T
        return found / np.maximum(np.linalg.norm(found, axis=(1, 2), keepdims=True) / norm, 1.0)

    def after(self, information: Array) -> Array:
        """The covariance once so much ``information (D, D)`` is added."""
        found = np.linalg.inv(np.linalg.inv(self.error) + information)
        return (found + found.T) / 2


def prior(task: LqControl, norm: float) -> Belief:
    """Every entry of [A, B] normal, of one variance: their squares sum to half of ``norm**2`` on average."""
    n = len(task.start)
    D = n + len(task.cost.R)
    return Belief(np.zeros((n, D)), np.eye(D) * (norm**2 / (2 * n * D)))


def information(question: Question, episodes: int, M: Array, variance: float, task: LqControl) -> tuple[Array, Array]:
    """What the answer to a question tells of each row of [A, B]: ``(D, D)``, and the map ``(D, D)`` from answers to it.

    Parameters
    ----------
    question, episodes, M
        What is asked, of how many, and their occupancy.
    variance
        Of the noise of an entry that privacy adds.
    task
        Its ``covariance`` is the plant's own noise.
    """
    seen = episodes * question.frame @ M
    own = float(np.trace(task.covariance)) / len(task.covariance)
    # where neither noise is there, a floor keeps what is exact from being infinitely so
    noise = (variance + 1e-12) * np.eye(len(M)) + own * episodes * question.frame @ M @ question.frame.T
    weighed = np.asarray(np.linalg.solve(noise, seen).T, dtype=np.float64)
    return weighed @ seen, weighed


def learnt(task: LqControl, before: Belief, answers: Sequence[Answer], norm: float) -> Belief:
    """The law of the plant after all answers: least squares against the prior, occupancies those of its own mean.

    The prior's variances of A and of B shrink to what the answers show (James and Stein's rule, a block each).

    Parameters
    ----------
    task
        What is declared.
    before
        Where the fixed point begins: the law before the last answer.
    answers
        All of them.
    norm
        Declared bound on the Frobenius norm of [A, B].
    """
    first = prior(task, norm)
    n, D = first.mean.shape
    precision, mean, error = np.linalg.inv(first.error), before.mean, before.error
    for _ in range(_ROUNDS):
        total, weighed = precision.copy(), np.zeros((D, n))
        for answer in answers:
            r, q = answer.rollout, answer.question
            M = occupancies(mean[None], r.gains, task.cost.horizon, task.start, task.covariance, r.explore)[0]
            found, of_answer = information(q, r.episodes, M, answer.variance, task)
            total += found
            weighed += of_answer @ answer.total + found @ q.centre.T
        error = np.asarray(np.linalg.inv(total), dtype=np.float64)
        fresh = np.asarray(np.linalg.solve(total, weighed).T, dtype=np.float64)
        fresh /= max(1.0, float(np.linalg.norm(fresh)) / norm)
        moved = float(np.abs(fresh - mean).max())
        # halfway: occupancies answer to the mean more than linearly
        mean = (mean + fresh) / 2
        precision = _shrunk(first, fresh, error)
        if moved < _CLOSE:
            break
    return Belief(mean, (error + error.T) / 2)


def _shrunk(first: Belief, mean: Array, error: Array) -> Array:
    n, D = mean.shape
    declared, size = float(first.error[0, 0]), (mean**2).mean(axis=0) + error.diagonal()
    blocks = [min(declared, max(float(part.mean()), declared * 1e-4)) for part in (size[:n], size[n:])]
    return np.diag(1 / np.repeat(blocks, (n, D - n)))
