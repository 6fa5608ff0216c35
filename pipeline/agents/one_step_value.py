"""Value of a one-step policy, from released sums over held-out people: doubly robust, step by step.

People are split; one part proposed a policy.  Of the other part are released rows that follow it, moments of five
features, and at last sums over people of

    psi = V_0(s_0) + sum_t  w_t(s_t) ratio_t [ r_t + V_{t+1}(s_{t+1}) - V_t(s_t) ],

unbiased if either V (the policy's value from a step on) or the weights are right: ratio_t = 1 / p(s_t)
on rows that follow the policy, 0 on others, and w_t(s) the ratio of the policy's occupancy of s at step t to practice's
(Kallus, Uehara 2020, double reinforcement learning; marginalised weights of Xie, Ma, Wang 2019).

1.  p(s) <- rows that follow / rows; the policy keeps only cells where both are plain                     [follow]
    (where states are pooled: shrunk towards both parts' shares in other cells with that action)
2.  phi(s): 1, gain, V, p, gain x V, orthonormal over rows and cut in length, from earlier answers
3.  Under the policy: G = sum w phi phi', C = sum w phi phi_next', e = sum w phi TD; of practice G_mu, C_mu  [moments]
4.  V_t = V + phi eta_t,  eta_t = G^-1 (e + C eta_{t+1}): the projected Bellman equation of the policy
5.  w_t = 1 + phi G_mu^-1 (a_t - b_t),  a_{t+1} = C' G^-1 a_t and b_{t+1} = C_mu' G_mu^-1 b_t: mean features at step t

Everything is in parts of the declared range of returns; an end is worth 0.  Chosen constants stand at the top.
"""

# pyright: reportReturnType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from pipeline.agents.one_step import shrink
from pipeline.arrays import Array, Bools, Integers
from pipeline.statistics.scores import FADING

# version of the arithmetic from answers to the next query: another version makes other queries
VERSION = 4
# the same where shares are pooled
POOLED_VERSION = 6
# standard deviations of noise that rows which follow must exceed, rows of any cell, and their least share of rows
_SURE, _FEW, _LEAST_SHARE = 2.5, 10.0, 0.08
# least share where shares are pooled; of cells kept whose action nobody tried: how many lost ones weigh as much as one,
# how many there are at least before any is lost, and their largest share of all that are kept
_LEAST_POOLED, _WEIGHS, _AT_LEAST, _AMONG = 0.06, 2.0, 10.0, 0.1
_NORMAL = NormalDist()
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
# share of the policy's weight that a clip may take
_CLIPPED = 0.01
# rows before a row of whose luck the mean is modelled, and the least share of rows of a cell that stand behind others
_BACK, _BEHIND = 8, 0.2


@dataclass(frozen=True)
class Seen:
    """Released frequency, in the learning part, of one action in each of K cells.

    ``share`` ``(K,)``: pooled.
    ``rows``, ``visits`` ``(K,)``: noisy rows with that action in that very cell, and rows of the cell.
    ``sd``: of the noise of ``rows``.
    ``least``: rows that a proposal exceeds, which noise alone may do.
    """

    share: Array
    rows: Array
    visits: Array
    sd: float
    least: float


@dataclass(frozen=True)
class Proposal:
    """The policy learnt on the other part; K cells.

    ``action`` ``(K,)``: -1 where practice goes on.
    ``value`` ``(K,)``: of practice.
    ``gain`` ``(K,)``: posterior gain of the action over practice; 0 where practice goes on.
    ``rows`` ``(K,)``: noisy rows of the learning part, by which cells weigh.
    ``drift``: mean over rows of reward plus next value minus value: 0 but where all steps
    share V.
    ``seen``: frequency of the action in the learning part; None: shares are not pooled.
    """

    action: Integers
    value: Array
    gain: Array
    rows: Array
    low: float
    high: float
    drift: float = 0.0
    seen: Seen | None = None


@dataclass(frozen=True)
class Confirmed:
    """The proposal where the other part confirms it.

    ``chance`` ``(K,)``: of the action under practice; 1 where practice goes on.
    ``rows`` ``(K,)``: noisy number of rows.
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

    ``gram``, ``after``, ``error`` ``(d, d)``: ``(d, d)`` and ``(d,)``: G, C and e.
    ``practice`` ``(d, d)``: ``(d, d)`` and ``(d,)``: G_mu, C_mu and the sum of first features; None where they are not
    released, and w is 1.
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

    ``values`` ``(H + 1, K)``: v_t.
    ``weights`` ``(H, K)``: w_t.
    """

    values: Array
    weights: Array


def confirm(proposal: Proposal, rows: Array, sd: float) -> Confirmed:
    """Step 1: keep actions that are frequent enough to be measured; no reward is read.

    ``rows`` ``(2, K)``: noisy rows that do not follow it, and that do.
    """
    all_rows, asked = rows[0] + rows[1], proposal.action >= 0
    if proposal.seen is None:
        share = rows[1] / np.maximum(all_rows, 1.0)
        kept = asked & (rows[1] > max(_SURE * sd, _FEW)) & (share >= _LEAST_SHARE)
    else:
        share, doubt = _pooled(proposal, proposal.seen.share, rows, sd)
        kept = asked & (share * all_rows > _FEW) & (share >= np.maximum(doubt, _LEAST_POOLED))
        kept &= _done(proposal.seen, asked, rows, sd)
    confirmed = replace(proposal, action=np.where(kept, proposal.action, -1), gain=np.where(kept, proposal.gain, 0.0))
    return Confirmed(confirmed, np.where(kept, np.minimum(share, 1.0), 1.0), all_rows, sd)


def _done(seen: Seen, asked: Bools, rows: Array, sd: float) -> Bools:
    """Mask ``(K,)`` of cells in which practice takes the action, by the rows of both parts in that very cell.

    Other cells are no evidence that practice ever does it here: an untried action is not measured.
    z are the deviations of noise by which a cell's rows exceed none.  Without the action, half of the others' rows are
    below 0, and the proposing part has more than ``seen.least`` by noise alone.  The threshold of z loses the fewest
    cells, one that passes without the action counted as :data:`_WEIGHS`, and lets few of these among the others.
    """
    visits = seen.visits, np.maximum(rows.sum(0), _FEW)
    weights = [n / max(x, 1e-9) ** 2 for n, x in zip(visits, (seen.sd, sd), strict=True)]
    spread = np.sqrt((weights[0] * seen.sd) ** 2 + (weights[1] * sd) ** 2)
    z = (weights[0] * seen.rows + weights[1] * rows[1]) / np.maximum(spread, 1e-300)
    among, lost = np.sort(z[asked]), np.arange(int(asked.sum()))
    none = 2 * int((asked & (rows[1] < 0)).sum()) + _AT_LEAST
    proposed = max(_NORMAL.cdf(-seen.least / max(seen.sd, 1e-9)), 1e-300)
    false = none * np.array([min(_NORMAL.cdf(-float(x)) / proposed, 1.0) for x in among])
    fits = false <= _AMONG * (len(among) - lost)
    if not fits.any():
        return np.zeros_like(asked)
    return asked & (z >= among[np.where(fits, _WEIGHS * false + lost, np.inf).argmin()])


def _pooled(proposal: Proposal, prior: Array, rows: Array, sd: float) -> tuple[Array, Array]:
    """Share of rows that follow in each cell ``(K,)`` and its deviation, shrunk towards what both parts say of others.

    By action, the share on the learning part's and on the value of practice.
    """
    asked, n = proposal.action >= 0, rows.sum(0)
    seen = asked & (n > max(sd, _FEW))
    share, doubt = np.ones(len(n)), np.full(len(n), np.inf)
    if not seen.any():
        return share, doubt
    m = np.maximum(n[asked], 1.0)
    x, p = rows[1, asked] / m, np.clip(prior[asked], 0.02, 0.98)
    # a share moves with both counts: by (1 - p)² of one and p² of the other
    noise = (sd / m) ** 2 * (p**2 + (1 - p) ** 2)
    sampling = np.where(seen[asked], p * (1 - p) / m, np.inf)
    f = np.stack([p, proposal.value[asked]], axis=1)
    f = (f - f.mean(0)) / np.maximum(f.std(0), 1e-12)
    _, action = np.unique(proposal.action[asked], return_inverse=True)
    x = np.where(seen[asked], x - p, 0.0)
    found = shrink(x, sampling, noise, action, f, own=True)
    share[asked], doubt[asked] = np.clip(p + found.mean, 0.0, 1.0), found.sd
    return share, doubt


def spread(rows: Array, each: Array, most: float) -> float:
    """Ranges of returns that a score may be from the middle: a hundredth of the policy's weight is beyond, at most.

    Where the outcome comes at the end, whoever follows and fares well has a score of about the weight of the last row:
    a narrower clip takes from these alone, and understates.  A wider one adds noise.

    ``rows`` ``(n,)``: of the policy, by cell and step; ``each`` ``(n,)``: weight of a row there.
    ``most``: no wider than this, or than the mean weight.
    """
    whole = max(float(rows.sum()), 1e-300)
    widest = math.ceil(max(most, float(rows @ each) / whole))
    for wide in range(1, widest):
        if float(rows @ np.maximum(1 - wide / np.maximum(each, 1e-300), 0.0)) <= _CLIPPED * whole:
            return float(wide)
    return float(widest)


def first_values(proposal: Proposal) -> Array:
    """Prior value of the policy from a cell on ``(K,)``."""
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

    ``phi`` ``(K, d)``: as in the query.
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


def before(confirmed: Confirmed, phi: Array, moments: Moments) -> tuple[Array, Array]:
    """Means over the past of a cell ``(K,)`` each: V there less V here, and the excess over V.

    By regressions on the features of the cell, with practice's moments: E[f(s_{t-1}) | s_t] = phi G_mu^-1 C_mu' f.
    Where they are not released nothing is expected.  A placebo's mean does not depend on it where p is right.
    """
    K, p = len(phi), confirmed.proposal
    if moments.practice is None:
        return np.zeros(K), np.full(K, p.drift)
    used = np.abs(phi).max(axis=0) > _NOWHERE
    phi, moments = phi[:, used], moments.only(used)
    assert moments.practice is not None
    gram, after, _ = moments.practice
    G = _ridged(gram, moments.sd)
    back, ahead = np.linalg.solve(G, after.T), np.linalg.solve(G, after)

    def coefficients(x: Array) -> Array:
        return np.linalg.lstsq(phi, x)[0]

    one, weight = coefficients(np.ones(K)), np.maximum(p.rows, 0.0) + 1.0
    behind = np.maximum(phi @ (back @ one), _BEHIND)
    alive = np.clip(phi @ (ahead @ one), 0.0, 1.0)

    def came_from(x: Array) -> Array:
        """Mean of x one row before, over the rows of a cell that have one."""
        return np.clip(phi @ (back @ coefficients(x)) / behind, x.min(), x.max())

    off = p.value - float(weight @ p.value) / float(weight.sum())
    lost = came_from(p.value) - p.value
    # what the step before led to, less what it was expected to
    expected = np.where(alive > 0, phi @ (ahead @ coefficients(off)), 0.0)
    here = off - came_from(expected)
    past, total = np.zeros(K), 0.0
    for back_by in range(_BACK):
        past, total = past + FADING**back_by * here, total + FADING**back_by
        here = came_from(here)
    return lost, p.drift + past / total


def placebo_error(confirmed: Confirmed, people: float) -> float:
    """Standard error of a placebo's mean by the noise in p, in parts of the range of returns.

    A row that comes to s adds to the placebo the error of p(s), times V where it came from less V(s).  Values regress
    to their mean, so V where it came from lies between V(s) and that.
    """
    p, rows, value = confirmed.chance, np.maximum(confirmed.rows, 1.0), confirmed.proposal.value
    apart = value - float(np.average(value, weights=np.maximum(confirmed.proposal.rows, 0.0) + 1.0))
    off = confirmed.sd * np.sqrt(p**2 + (1 - p) ** 2) / rows
    moved = np.where(confirmed.proposal.action >= 0, rows * apart * off, 0.0) / max(people, 1.0)
    return float(np.sqrt((moved**2).sum()))
