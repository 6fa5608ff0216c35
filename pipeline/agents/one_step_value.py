"""What a one-step policy is worth, from released sums over people who did not make it: doubly robust, step by step.

People are split; one part proposed a policy.  Of the other part are released rows that follow it, moments of five
features, and at last sums over people of

    psi = V_0(s_0) + sum_t  w_t(s_t) ratio_t [ r_t + V_{t+1}(s_{t+1}) - V_t(s_t) ],

right on average if either V (what the policy is worth from a step on) or the weights are right: ratio_t = 1 / p(s_t)
on rows that follow the policy, 0 on others, and w_t(s) how much more often than practice the policy is in s at step t
(Kallus, Uehara 2020, double reinforcement learning; marginalised weights of Xie, Ma, Wang 2019).

1.  p(s) <- rows that follow / rows; the policy keeps only cells where both are plain                     [follow]
2.  phi(s): 1, gain, V, p, gain x V, orthonormal over rows and cut in length, from earlier answers
3.  Under the policy: G = sum w phi phi', C = sum w phi phi_next', e = sum w phi TD; of practice G_mu, C_mu  [moments]
4.  V_t = V + phi eta_t,  eta_t = G^-1 (e + C eta_{t+1}): the projected Bellman equation of the policy
5.  w_t = 1 + phi G_mu^-1 (a_t - b_t),  a_{t+1} = C' G^-1 a_t and b_{t+1} = C_mu' G_mu^-1 b_t: mean features at step t

Everything is in parts of the declared range of returns; an end is worth 0.  Chosen constants stand at the top.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

# of the arithmetic that turns answers into the next question: another one asks another question
VERSION = 2
# standard deviations of noise that rows which follow must exceed, rows of any cell, and their least share of rows
_SURE, _FEW, _LEAST_SHARE = 2.5, 10.0, 0.08
# standard deviations at which a feature is cut, length at which all of them are, and what keeps their inverse finite
_CUT, _LONGEST, _SINGULAR = 3.0, 1.5, 1e-9
# a feature that is nowhere larger is none: fewer cells than features, or two features that are one
_NOWHERE = 0.01
# ridge: part of the mean square of features, and standard deviations of noise
_RIDGE, _OF_NOISE = 0.002, 2.0
_BEYOND = 0.2
_WEIGHTS = 0.1, 2.5
# added to an interval, in ranges of returns: no multiple of a standard error absorbs a constant bias; and which part of
# what it reaches below 0
BIAS, WORSE = 0.006, 0.5
# the largest gain that hidden state made, in means of the placebo: the clinicians' log told by 16 bins
HIDDEN = 22.0


@dataclass(frozen=True)
class Proposal:
    """What was learnt on the other part; K cells.

    Parameters
    ----------
    action
        ``(K,)``: -1 where practice goes on.
    value
        ``(K,)``: of practice.
    gain
        ``(K,)``: posterior of what the action gains over practice; 0 where practice goes on.
    rows
        ``(K,)``: noisy rows of the learning part, by which cells weigh.
    low, high
        Ends of the declared returns.
    """

    action: Integers
    value: Array
    gain: Array
    rows: Array
    low: float
    high: float


@dataclass(frozen=True)
class Confirmed:
    """The proposal where people of the other part show it.

    Parameters
    ----------
    proposal
        With practice wherever it was not confirmed.
    chance
        ``(K,)``: of the action under practice; 1 where practice goes on.
    rows
        ``(K,)``: noisy number of rows.
    sd
        Of the noise of rows that follow, and of rows that do not.
    """

    proposal: Proposal
    chance: Array
    rows: Array
    sd: float

    @property
    def ratio(self) -> Array:
        """``(K,)``: of a row that follows."""
        return 1 / self.chance


@dataclass(frozen=True)
class Moments:
    """Step 3 as released, in units of features of length 1 and weights of 1.

    Parameters
    ----------
    gram, after, error
        ``(d, d)``, ``(d, d)`` and ``(d,)``: G, C and e.
    practice
        ``(d, d)``, ``(d, d)`` and ``(d,)``: G_mu, C_mu and the sum of first features; None where they are not
        released, and w is 1.
    sd
        Of the noise of each.
    """

    gram: Array
    after: Array
    error: Array
    practice: tuple[Array, Array, Array] | None
    sd: float

    def only(self, used: Bools) -> Moments:
        """Of some of the features, ``(d,)``."""
        both = np.ix_(used, used)
        of = self.practice and (self.practice[0][both], self.practice[1][both], self.practice[2][used])
        return replace(self, gram=self.gram[both], after=self.after[both], error=self.error[used], practice=of)


@dataclass(frozen=True)
class Model:
    """V and the weights of rows that follow.

    Parameters
    ----------
    values
        ``(H + 1, K)``: V_t.
    weights
        ``(H, K)``: w_t.
    """

    values: Array
    weights: Array


def confirm(proposal: Proposal, rows: Array, sd: float) -> Confirmed:
    """Step 1: keep what is done often enough to be measured; no reward is looked at.

    Parameters
    ----------
    proposal
        As it was learnt.
    rows
        ``(2, K)``: noisy rows that do not follow it, and that do.
    sd
        Of their noise.
    """
    all_rows = rows[0] + rows[1]
    share = rows[1] / np.maximum(all_rows, 1.0)
    kept = (proposal.action >= 0) & (rows[1] > max(_SURE * sd, _FEW)) & (share >= _LEAST_SHARE)
    confirmed = replace(proposal, action=np.where(kept, proposal.action, -1), gain=np.where(kept, proposal.gain, 0.0))
    return Confirmed(confirmed, np.where(kept, np.minimum(share, 1.0), 1.0), all_rows, sd)


def spread(confirmed: Confirmed) -> float:
    """Ranges of returns that a score may be from the middle: for how many rows one that counts speaks, on average.

    Narrower clips cut those who follow where few do, and with them what they gain; wider ones add noise.

    Parameters
    ----------
    confirmed
        Of :func:`confirm`.
    """
    weight = np.maximum(confirmed.proposal.rows, 0.0)
    return float(np.ceil(weight @ confirmed.ratio / max(float(weight.sum()), 1.0)))


def first_values(proposal: Proposal) -> Array:
    """What the policy is thought to be worth from a cell on, before people were asked ``(K,)``."""
    return np.clip(proposal.value + proposal.gain, proposal.low, proposal.high)


def features(confirmed: Confirmed) -> Array:
    """Step 2: phi ``(K, 5)``, at most 1 long.

    Orthonormal over the rows of the learning part, then cut in length: features of one direction, or a cell that is
    far out, would leave all others to the noise.
    """
    p = confirmed.proposal
    weight = np.maximum(p.rows, 0.0) + 1.0
    weight /= weight.sum()

    def standard(x: Array) -> Array:
        off = x - float(weight @ x)
        return np.clip(off / max(float(np.sqrt(weight @ off**2)), 1e-12), -_CUT, _CUT)

    gain, value, chance = standard(p.gain), standard(first_values(p)), standard(confirmed.chance)
    raw = np.stack([np.ones(len(gain)), gain, value, chance, gain * value], axis=1)
    root = np.linalg.cholesky((raw * weight[:, None]).T @ raw + _SINGULAR * np.eye(raw.shape[1]))
    phi = np.linalg.solve(root, raw.T).T
    return phi / np.maximum(np.sqrt((phi**2).sum(1, keepdims=True)), _LONGEST)


def fit(confirmed: Confirmed, phi: Array, moments: Moments, horizon: int) -> Model:
    """Steps 4 and 5, in the features that are somewhere.

    Fewer cells than features leave some at 0: their moments are noise alone, and the ridge below 0 would be its pole.

    Parameters
    ----------
    confirmed
        The policy.
    phi
        ``(K, d)``: as they were asked about.
    moments
        The answer.
    horizon
        H.
    """
    p, used = confirmed.proposal, np.abs(phi).max(axis=0) > _NOWHERE
    phi, moments = phi[:, used], moments.only(used)
    known, weights = first_values(p), np.ones((horizon, len(phi)))
    least, most = p.low - _BEYOND, p.high + _BEYOND
    G = _ridged(moments.gram, moments.sd)
    values = np.zeros((horizon + 1, len(phi)))
    eta = -np.linalg.lstsq(phi, known)[0]
    for t in reversed(range(horizon)):
        eta = np.linalg.solve(G, moments.error + moments.after @ eta)
        values[t] = np.clip(known + (phi * eta).sum(1), least, most)
    if moments.practice is None:
        return Model(values, weights)
    gram_mu, after_mu, start = moments.practice
    G_mu, one = _ridged(gram_mu, moments.sd), np.linalg.lstsq(phi, np.ones(len(phi)))[0]
    a = b = start
    whole = float(one @ gram_mu @ one)
    for t in range(1, horizon):
        a = moments.after.T @ np.linalg.solve(G, a)
        b = after_mu.T @ np.linalg.solve(G_mu, b)
        alive = float(one @ b)
        if alive <= 0:
            break
        tilt = np.linalg.solve(G_mu, a - b) * (whole / alive)
        weights[t] = np.clip(1 + (phi * tilt).sum(1), *_WEIGHTS)
    return Model(values, weights)


def _ridged(gram: Array, sd: float) -> Array:
    d = len(gram)
    return gram + (_RIDGE * float(np.trace(gram)) / d + _OF_NOISE * sd) * np.eye(d)


def placebo_error(confirmed: Confirmed, people: float) -> float:
    """Standard error of the placebo's mean by the noise in p, in parts of the range of returns.

    A row that comes to s adds to the placebo what p(s) is off by, times V where it came from less V(s).  Values regress
    to their mean, so V where it came from lies between V(s) and that.

    Parameters
    ----------
    confirmed
        Policy and rows.
    people
        Noisy number of people.
    """
    p, rows, value = confirmed.chance, np.maximum(confirmed.rows, 1.0), confirmed.proposal.value
    apart = value - float(np.average(value, weights=np.maximum(confirmed.proposal.rows, 0.0) + 1.0))
    off = confirmed.sd * np.sqrt(p**2 + (1 - p) ** 2) / rows
    moved = np.where(confirmed.proposal.action >= 0, rows * apart * off, 0.0) / max(people, 1.0)
    return float(np.sqrt((moved**2).sum()))
