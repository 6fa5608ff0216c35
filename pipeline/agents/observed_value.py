"""Value of a linear policy on observations, from released moments of held-out people.

Fitted-Q evaluation (Duan, Wang 2020) around the values Q0 of the policy's learner, with phi the declared features:

1.  G_h = sum phi phi', C_h = sum phi phi_next(pi)', e_h = sum phi [r + Q0_next(pi) - Q0], D_h = sum phi g', s = sum
    of first phi(pi): released, of the held-out people
2.  eta_h = G_h^-1 (e_h + C_h eta_{h+1}): Q = Q0 + phi.eta, the projected Bellman equation of the policy
3.  u_1 = G_1^-1 s,  u_{h+1} = G_{h+1}^-1 C_h' u_h: phi.u is the density ratio of the policy to practice, as far as
    the features express it
4.  beta_h = G_h^-1 D_h: the regression on the features of directions g that they leave out

These define people's scores: psi = Q_1(pi) + sum_h phi.u_h [r + Q_next(pi) - Q] is the influence function of 2, right
on average where Q is linear in the features, or the ratio of 3 is.  The noise of the moments moves its mean to
second order only, and :func:`noise_left` estimates by how much: the same noise, drawn many times on released values.
Sums of (g - phi.beta) [r + Q_next(pi) - Q] are 0 in the mean where Q is linear in the features, whatever g is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from pipeline.arrays import Array

# version of the arithmetic from moments to the next query: another version makes other queries
VERSION = 1
# ridge: part of the mean square of features, and of the edge of the spectrum of the noise
_RIDGE, _EDGE = 0.001, 1.0
# draws of the noise, and by how much more than these say it is taken to leave
_DRAWS, _SEED, _MORE = 60, 41, 2.0


@dataclass(frozen=True)
class Moments:
    """Step 1 in units of features of length 1 and ranges of a reward, each with the deviation of its noise.

    ``gram``, ``after`` ``(H, d, d)``, ``off`` ``(H, d)``, ``aside`` ``(H, d, K)``, ``first`` ``(d,)``.
    ``gram_sd``: of the diagonal; off it the noise is smaller by the root of 2.
    """

    gram: Array
    after: Array
    off: Array
    aside: Array
    first: Array
    gram_sd: float
    after_sd: float
    off_sd: float
    aside_sd: float
    first_sd: float


@dataclass(frozen=True)
class Fit:
    """Steps 2 to 4: ``eta``, ``weights`` ``(H, d)`` and ``spanned`` ``(H, d, K)``."""

    eta: Array
    weights: Array
    spanned: Array


def fit(m: Moments) -> Fit:
    """Steps 2 to 4, with a ridge against directions of noise alone."""
    H, d = m.off.shape
    e, E = _raised(m)
    inverse = (E / e[:, None, :]) @ E.transpose(0, 2, 1)
    eta, weights = np.zeros((H + 1, d)), np.zeros((H, d))
    for h in reversed(range(H)):
        eta[h] = inverse[h] @ (m.off[h] + m.after[h] @ eta[h + 1])
    weights[0] = inverse[0] @ m.first
    for h in range(1, H):
        weights[h] = inverse[h] @ (m.after[h - 1].T @ weights[h - 1])
    return Fit(eta[:H], weights, inverse @ m.aside)


def noise_left(m: Moments, people: float) -> tuple[float, float, Array]:
    """Effect of the noise of the moments on mean scores: bias and deviation of psi, and of the checks.

    The noise is drawn again on the released moments, made positive, and each fit is compared with that of the moments
    themselves.  Returns ranges of a reward, of the checks ``(K,)``.
    """
    H, d = m.off.shape
    e, E = _raised(m)
    truth = replace(m, gram=(E * e[:, None, :]) @ E.transpose(0, 2, 1))
    solved, rng = np.linalg.inv(truth.gram), np.random.default_rng(_SEED)
    exact = np.zeros((H + 1, d))
    for h in reversed(range(H)):
        exact[h] = solved[h] @ (truth.off[h] + truth.after[h] @ exact[h + 1])
    told = list[Array]()
    for _ in range(_DRAWS if m.gram_sd else 0):
        found = fit(_noisy(truth, rng))
        following = np.concatenate([found.eta[1:], np.zeros((1, d))])
        # residual of the Bellman equation of the true moments, a feature
        ahead, here = truth.after @ following[..., None], truth.gram @ found.eta[..., None]
        left = truth.off + (ahead - here)[..., 0]
        psi = float(truth.first @ (found.eta[0] - exact[0]) + (found.weights * left).sum())
        out = truth.aside - truth.gram @ found.spanned
        checks = (out * (solved @ left[..., None])).sum((0, 1))
        told.append(np.append(psi, checks) / people)
    if not told:
        return 0.0, 0.0, np.zeros(len(m.aside[0, 0]))
    drawn = np.array(told, dtype=np.float64)
    spread: Array = _MORE * np.sqrt((drawn[:, 1:] ** 2).mean(0))
    return float(drawn[:, 0].mean()), _MORE * float(drawn[:, 0].std()), spread


def _noisy(m: Moments, rng: np.random.Generator) -> Moments:
    """The moments with their noise once more."""
    H, d = m.off.shape
    half = np.triu(rng.normal(size=(H, d, d)) / math.sqrt(2), 1)
    gram = half + half.transpose(0, 2, 1) + np.eye(d) * rng.normal(size=(H, 1, d))
    return replace(
        m,
        gram=m.gram + m.gram_sd * gram,
        after=m.after + m.after_sd * rng.normal(size=m.after.shape),
        off=m.off + m.off_sd * rng.normal(size=m.off.shape),
        aside=m.aside + m.aside_sd * rng.normal(size=m.aside.shape),
        first=m.first + m.first_sd * rng.normal(size=d),
    )


def _raised(m: Moments) -> tuple[Array, Array]:
    """Eigenvalues ``(H, d)`` of Gram and ridge, none below half of the edge of the noise, and their vectors."""
    d = m.off.shape[1]
    # symmetric noise of deviation s off the diagonal has its spectrum within 2 s root d
    edge = _EDGE * math.sqrt(2 * d) * m.gram_sd
    e, E = np.linalg.eigh(m.gram)
    ridge = _RIDGE * np.maximum(e.mean(1, keepdims=True), 0.0) + edge
    return np.maximum(e + ridge, max(edge / 2, 1e-9)), E
