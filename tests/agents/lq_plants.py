"""Plants beyond the paper's: three states, two controls, unstable ones; and what a run of the learner costs there."""

import math
from dataclasses import dataclass

import numpy as np

from pipeline.agents.adaptive_lqr import AdaptiveConstants, adaptive_lqr
from pipeline.agents.ofu_rl import LqControl
from pipeline.mdp.riccati import QuadraticCost, clip_norm, expected_costs, riccati
from pipeline.mdp.rollout import LinearRollout, LqBatch
from pipeline.privacy.budget import rho_from_epsilon
from pipeline.statistics.lq import ResidualMessage

EPISODES = 10_000
# replace-one: an episode moves the sum by two radii
SPREAD = 2 / math.sqrt(2 * rho_from_epsilon(1.0, 1e-5))


@dataclass(frozen=True)
class Plant:
    """A plant that needs no assumption: it may be unstable, and states may be long."""

    A: np.ndarray
    B: np.ndarray
    control: LqControl

    @property
    def theta(self) -> np.ndarray:
        return np.hstack([self.A, self.B])[None]

    def play(self, ask: LinearRollout, rng: np.random.Generator) -> LqBatch:
        n, d = self.B.shape
        states, controls = np.empty((ask.episodes, len(ask.gains) + 1, n)), np.empty((ask.episodes, len(ask.gains), d))
        states[:, 0] = self.control.start
        root = np.linalg.cholesky(self.control.covariance)
        for h, K in enumerate(ask.gains):
            push = rng.normal(size=(ask.episodes, d))
            push *= ask.explore / np.linalg.norm(push, axis=1, keepdims=True)
            controls[:, h] = states[:, h] @ K.T + push
            states[:, h + 1] = states[:, h] @ self.A.T + controls[:, h] @ self.B.T
            states[:, h + 1] += rng.normal(size=(ask.episodes, n)) @ root.T
        return LqBatch(states, controls, ask.episodes)

    def cost(self, ask: LinearRollout) -> float:
        c = self.control
        return float(expected_costs(self.theta, ask.gains, c.cost, c.start, c.covariance, ask.explore)[0])


def plant(n: int, d: int, largest: float, seed: int) -> Plant:
    """Eigenvalues of A between -.4 and ``largest``; [A, B] of Frobenius norm below 1.6, which is declared."""
    # which plant is an example, no chance
    rng = np.random.Generator(np.random.PCG64(seed))
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    B = rng.normal(size=(n, d))
    cost, start = QuadraticCost(np.eye(n), 0.1 * np.eye(d), 8), np.zeros(n)
    start[0] = 0.5
    A = basis * np.linspace(-0.4, largest, n) @ basis.T
    return Plant(A, B * (0.6 / np.linalg.norm(B, 2)), LqControl(cost, 2.0, 0.3, start, 0.01 * np.eye(n)))


def regret(one: Plant, spread: float, seed: int, *, example: bool = False) -> float:
    """Over zero's; of an example the seed is no chance."""

    def rng(*of: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(of)) if example else np.random.default_rng(of)

    world, noise = rng(seed, 1), rng(seed, 2)

    def release(question, batches):
        message = ResidualMessage(question.centre, question.frame, question.radius, one.control.cost.horizon)
        total = np.sum([message.integers(b) for b in batches], axis=0).astype(float)
        return message.matrix(total + noise.normal(size=total.shape) * spread * message.steps)

    c = AdaptiveConstants(norm=1.6)
    agent = adaptive_lqr(one.control, EPISODES, release, spread, c, rng(seed, 3))
    best = one.cost(LinearRollout(clip_norm(riccati(one.A, one.B, one.control.cost)[0], one.control.gamma), 1))
    idle = one.cost(LinearRollout(np.zeros((8, one.B.shape[1], len(one.A))), 1)) - best
    total, ask = 0.0, next(agent)
    while True:
        total += ask.episodes * (one.cost(ask) - best)
        try:
            ask = agent.send(one.play(ask, world))
        except StopIteration:
            return total / (EPISODES * idle)
