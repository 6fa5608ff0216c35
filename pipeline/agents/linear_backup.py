"""One step of pessimistic linear planning: a ridge, its width, and the clipped greedy backup they define.

| code | paper 003 | shape | meaning |
|---|---|---|---|
| ``Lambda`` | Λ̃_h (or Σ̃_h) | (d, d) | noisy Gram matrix + (λ + shift) I |
| ``w`` | w̃_h | (d,) | regression weights, per real unit of φ |
| ``width`` | Γ_h | (…) | C √d (φᵀ Λ̃⁻¹ φ)^½ + D/K |
| ``offset`` | – | scalar | subtracted from every target by the mechanism; added back to every value |

Of one-shot statistics (:func:`one_shot`) the same backups as :mod:`pipeline.agents.vapvi` with σ² = 1 need no further
query: the sums of φ·(r + V - offset) are *combinations of released columns*.  So any C, λ or penalty, bounds of a fixed
policy, and the optimistic recursion, cost nothing after the release.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np

from pipeline.arrays import Array, Bools
from pipeline.mdp.policy import Policy, best_actions
from pipeline.statistics.linear_plan import LinearPlan
from pipeline.statistics.regression import OneShot, PrivateRegression, floored


@dataclass(frozen=True, eq=False)
class LinearTask:
    """Declared horizon, reward range, public number of episodes, lattice of values, and features.

    ``reference (M, A, d)`` are integer features of all states of a finite map, or of a public sample of observations;
    ``unit`` is the length of one integer step; ``allowed (M, A)`` may veto actions in a finite map, ``(1, A)`` in any.

    ``bounds``: least and largest reward of a step, reward units.
    ``can_end``: whether an episode may end before H, worth 0 from then on.
    """

    horizon: int
    bounds: tuple[float, float]
    episodes: int
    reference: Array
    unit: float
    lattice: int = 1024
    can_end: bool = False
    allowed: Bools | None = None

    @property
    def dimension(self) -> int:
        """Number of features d."""
        return self.reference.shape[-1]

    def value_range(self, h: int) -> tuple[float, float]:
        """Least and largest value to go at 0-based step ``h``."""
        low, high = self.bounds
        if self.can_end:
            low, high = min(low, 0.0), max(high, 0.0)
        return (self.horizon - h) * low, (self.horizon - h) * high


def linear_task(plan: LinearPlan) -> LinearTask:
    """The task a plan declares."""
    d, f = plan.domain, plan.features
    reference = f.integers.astype(np.float64)
    return LinearTask(d.horizon, d.bounds, d.taught, reference, f.unit, plan.terms.value_steps, d.can_end)


@dataclass(frozen=True)
class LinearConstants:
    """Constants of one run; with an adaptive mechanism they are part of the mechanism (privacy.md §0.1-4).

    ``C``, ``D``: pessimism: width C √d ‖φ‖ + D/K.  The paper leaves C "universal" and a D that clips everything before
    K = 10⁸.
    ``ridge``: λ, relative to features of norm at most 1.
    ``shift``: ``paper``: E/2 of Algorithm 2 (c1 = c2 = 1); ``edge``: 2 √d times the noise's standard deviation, the
    edge of the spectrum of symmetric noise.  Both vanish without noise.
    ``failure``: δ, in E only.
    """

    C: float = 0.1
    D: float = 0.0
    ridge: float = 0.01
    shift: Literal["paper", "edge"] = "edge"
    failure: float = 0.1


def shift_of(gram_sd: float, d: int, horizon: int, c: LinearConstants) -> float:
    """Shift of every eigenvalue that keeps the matrix positive under noise of ``gram_sd`` off the diagonal.

    ``c``: ``shift`` names the formula, ``failure`` its probability.
    """
    if c.shift == "edge":
        return 2 * math.sqrt(d) * gram_sd
    # E/2 = sqrt(d / (2 rho_0)) (2 + ...), and the noise has variance 1 / (4 rho_0)
    return math.sqrt(2 * d) * gram_sd * (2 + (math.log(5 * horizon / c.failure) / d) ** (2 / 3))


@dataclass(frozen=True)
class Ridge:
    """Λ̃ by its eigenvectors: never indefinite, for any noise."""

    eigenvalues: Array
    vectors: Array

    def solve(self, target: Array) -> Array:
        """Λ̃⁻¹ target."""
        return self.vectors @ ((self.vectors.T @ target) / self.eigenvalues)

    def inverse(self) -> Array:
        """Λ̃⁻¹ ``(d, d)``."""
        return (self.vectors / self.eigenvalues) @ self.vectors.T


def ridge(gram: Array, gram_sd: float, horizon: int, c: LinearConstants) -> Ridge:
    """Gram + (λ + shift) I; an eigenvalue the noise pushed below λ is set to λ."""
    e, E = np.linalg.eigh(gram)
    return Ridge(np.maximum(e + c.ridge + shift_of(gram_sd, len(e), horizon, c), c.ridge), E)


@dataclass(frozen=True)
class Backup:
    """Q̂ and V̂ of one step as functions of integer features: weights, width and clip.

    ``multiplier`` is C √d (or PEVI's β); calling it with ``(..., A, d)`` gives the floored greedy value ``(...)`` over
    the ``allowed (M, A)`` actions; where some are vetoed it is called with all M states of the finite map, unless
    ``allowed`` is ``(1, A)``.
    """

    w: Array
    inverse: Array
    offset: float
    multiplier: float
    constant: float
    clip: tuple[float, float]
    unit: float
    lattice: int
    sign: int = -1
    allowed: Bools | None = None

    def q(self, features: Array, norm: Array | None = None) -> tuple[Array, Array]:
        """Unclipped and clipped Q̂ ``(..., A)`` (003 Algorithm 2, lines 11-13).

        ``norm``: :func:`norm_of` these features, where it is known already.
        """
        phi = features * self.unit
        norm = norm_of(phi, self.inverse) if norm is None else norm
        Q = np.einsum("...d,d->...", phi, self.w) + self.offset + self.sign * (self.multiplier * norm + self.constant)
        return Q, np.clip(Q, *self.clip)

    def __call__(self, features: Array) -> Array:
        """V̂ ``(...)`` on the lattice (line 14)."""
        clipped = self.q(features)[1]
        if self.allowed is not None:
            clipped = np.where(self.allowed, clipped, -np.inf)
        return floored(clipped.max(-1), self.lattice)

    def evidence(self, features: Array) -> Array:
        """Evidence of each direction; see :func:`evidence_of`."""
        return evidence_of(features * self.unit, self.inverse)


def norm_of(phi: Array, inverse: Array) -> Array:
    """(φᵀ Λ̃⁻¹ φ)^½ ``(...)``."""
    # einsum: a BLAS product rounds a row by its place in the batch, and one person's value by who stands before
    return np.sqrt(np.maximum(np.einsum("...d,...d->...", np.einsum("...d,de->...e", phi, inverse), phi), 0.0))


def evidence_of(phi: Array, inverse: Array) -> Array:
    """Rows of length 1 that a Gram matrix holds of a direction, ridge and shift included: ``|φ|² / φᵀΛ̃⁻¹φ (...)``.

    A short φ has no evidence of its own: without data this is ridge and shift, whatever its length.

    ``phi`` ``(..., d)``: the direction of 0 has no evidence.
    ``inverse`` ``(d, d)``: λ̃⁻¹.
    """
    return (phi**2).sum(-1) / np.maximum(((phi @ inverse) * phi).sum(-1), 1e-300)


def backup_of(
    s: PrivateRegression, h: int, task: LinearTask, c: LinearConstants, multiplier: float, Lambda: Ridge | None = None
) -> Backup:
    """Backup of step ``h`` from its regression; ``Lambda``: its ridge, where it is known already."""
    Lambda = ridge(s.gram, s.gram_sd, task.horizon, c) if Lambda is None else Lambda
    clip = task.value_range(h)
    w = Lambda.solve(s.targets[0])
    constant, unit = c.D / task.episodes, task.unit
    return Backup(w, Lambda.inverse(), s.offset, multiplier, constant, clip, unit, task.lattice, allowed=task.allowed)


@dataclass(frozen=True)
class LinearResult:
    """A linear policy: one backup a step, and its actions on the reference states.

    ``V`` ``(H+1, M)``: pessimistic value there.
    ``tied`` ``(H, M)``: where clipping left several best actions.
    ``weighted`` ``(H,)``: whether the variance step was taken; it is skipped where σ² is provably 1.
    ``backups``: one a step: Q̂ and V̂ as functions of integer features.
    """

    policy: Policy
    backups: list[Backup]
    V: Array
    tied: Bools
    weighted: Bools


def greedy_step(
    backup: Backup, task: LinearTask, rng: np.random.Generator, least: float = -math.inf
) -> tuple[Array, Array, Bools]:
    """Choice probabilities ``(M, A)``, value ``(M,)`` and ties of one step on the reference states.

    Ties of the clipped Q̂ go to the unclipped one, then to chance: everything clipped to 0 must not mean action 0.
    Actions with at most ``least`` evidence are left out wherever another one has more.
    """
    Q, clipped = backup.q(task.reference)
    allowed = np.ones(Q.shape, dtype=bool) if task.allowed is None else np.broadcast_to(task.allowed, Q.shape)
    seen = allowed & (backup.evidence(task.reference) > least)
    may = np.where(seen.any(axis=1, keepdims=True), seen, allowed)
    best, tied = best_actions(clipped, Q, may, rng, max(map(abs, task.value_range(0))))
    most = np.where(may, clipped, -np.inf).max(axis=1)
    return np.eye(Q.shape[1])[best], floored(most, task.lattice), tied


def regression_of(released: OneShot, h: int, V: Array) -> PrivateRegression:
    """Sums of φ·(r + V(s') - offset) at step ``h`` for any ``V (S',)``, offset at mid-range."""
    middle = (V.max() + V.min()) / 2
    around = released.onto @ (V - middle)
    target = released.rewards[h] + around @ released.successors[h]
    offset = released.middle + float(middle)
    return PrivateRegression(released.gram[h], target[None], offset, float("inf"), released.gram_sd)


def one_shot(
    released: OneShot, task: LinearTask, c: LinearConstants, rng: np.random.Generator, least: float = -math.inf
) -> LinearResult:
    """Pessimistic plan on one release; repeated calls are free."""
    H, (S, A, _) = task.horizon, task.reference.shape
    probabilities, V = np.zeros((H, S, A)), np.zeros((H + 1, S))
    tied, backups = np.zeros((H, S), bool), list[Backup]()
    for h in reversed(range(H)):
        s = regression_of(released, h, successor_values(V[h + 1], task))
        backups.insert(0, backup_of(s, h, task, c, c.C * math.sqrt(task.dimension)))
        probabilities[h], V[h], tied[h] = greedy_step(backups[0], task, rng, least)
    return LinearResult(Policy(probabilities, np.zeros((H, S), bool)), backups, V, tied, np.zeros(H, bool))


def policy_bound(released: OneShot, task: LinearTask, c: LinearConstants, policy: Policy, sign: int) -> Array:
    """Value ``(H+1, S)`` of a fixed policy with the width subtracted (``sign`` -1) or added (+1): free, a bound only
    where the width holds.

    ``policy`` ``(H, S, A)``: probabilities, fixed beforehand.
    """
    V = np.zeros((task.horizon + 1, task.reference.shape[0]))
    for h in reversed(range(task.horizon)):
        V[h] = (policy.probabilities[h] * _clipped(released, task, c, h, V[h + 1], sign)).sum(axis=1)
    return V


def optimal_upper(released: OneShot, task: LinearTask, c: LinearConstants) -> Array:
    """Upper value ``(H+1, S)`` of the best policy: the recursion with + Γ and a maximum."""
    V = np.zeros((task.horizon + 1, task.reference.shape[0]))
    for h in reversed(range(task.horizon)):
        Q = _clipped(released, task, c, h, V[h + 1], +1)
        V[h] = (Q if task.allowed is None else np.where(task.allowed, Q, -np.inf)).max(axis=1)
    return V


def _clipped(released: OneShot, task: LinearTask, c: LinearConstants, h: int, V: Array, sign: int) -> Array:
    s = regression_of(released, h, successor_values(V, task))
    Lambda, norm = _ridges(released, task, c)[h]
    b = backup_of(s, h, task, c, c.C * math.sqrt(task.dimension), Lambda)
    return replace(b, sign=sign).q(task.reference, norm)[1]


@lru_cache(maxsize=1)
def _ridges(released: OneShot, task: LinearTask, c: LinearConstants) -> list[tuple[Ridge, Array]]:
    """Ridge and norms ``(M, A)`` of each step: the same for every policy that is valued on one release."""
    ridges = [ridge(gram, released.gram_sd, task.horizon, c) for gram in released.gram]
    return [(Lambda, norm_of(task.reference * task.unit, Lambda.inverse())) for Lambda in ridges]


def successor_values(V: Array, task: LinearTask) -> Array:
    """Values ``(S',)`` of all successors: the END's 0 follows where an episode may end."""
    return np.append(V, 0.0) if task.can_end else V
