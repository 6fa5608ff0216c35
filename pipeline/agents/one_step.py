"""One step of improvement on current practice, from released sums (Brandfonbrener, Whitney, Ranganath, Bruna 2021).

Practice is the policy mu of the log.  Stage 1 releases, of every state, how many rows it has and the sum of the returns
G from there on; stage 2, of every state and action, the rows and the sum of temporal differences r + V(s') - V(s).

1.  V(s)   <- posterior of E[G | s], shrunk towards what public features of states make of it      [stage 1]
2.  x(s,a) <- sum of temporal differences / rows: A(s,a) = Q_mu(s,a) - V_mu(s), with noise          [stage 2]
3.  A(s,a) <- posterior of x, shrunk towards what the action is worth elsewhere, given features
4.  pi(s)  <- argmax over supported a of  E[A] - kappa sd[A];  practice wherever that does not beat practice itself

One backward step, no model of transitions, no bootstrapping: errors do not compound over steps.  Where practice has to
be left for many steps before anything is gained (RiverSwim), one step is worth nothing: use counts there.

Departures from the paper: values are regressed on returns, not fitted by iteration; targets are centred on V(s), which
costs less noise; the argmax is pessimistic, and abstains.  :mod:`pipeline.agents.shrinkage` has steps 1 and 3.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.shrinkage import shrink
from pipeline.mdp.policy import Policy

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

# of the arithmetic that turns the first answer into the second question: another one asks another question
VERSION = 1
# how many standard deviations of the values over rows a temporal difference may reach: two states apart, twice each way
SPREAD = 4
# standard deviations of noise that the rows of a state must exceed to tell its value, and rows of any key
_SURE, _FEW = 2.0, 10.0
# scores so close, in parts of the width, are alike: two machines choose the same
_ALIKE = 2.0**-30


@dataclass(frozen=True)
class Answer:
    """One stage as it was released, in units of rows and of the largest target.

    Parameters
    ----------
    rows, targets
        By key: noisy rows N, and noisy sums of targets in [-1, 1].
    sd
        Of the noise of both; 0 without noise.
    """

    rows: Array
    targets: Array
    sd: float

    def supported(self, sure: float) -> Bools:
        """Keys whose rows exceed ``sure`` standard deviations of their noise, and a handful."""
        return self.rows > max(sure * self.sd, _FEW)


@dataclass(frozen=True)
class Constants:
    """What a recipe may choose; it enters after the release and is free.

    Parameters
    ----------
    pessimism
        kappa, in posterior standard deviations.
    support
        Standard deviations of noise that the rows of an action must exceed: at 3, noise alone does it once in 740.
    floor
        Least share of a state's rows that an action must have to be recommended: practice knows what it does.
    """

    pessimism: float = 0.5
    support: float = 3.0
    floor: float = 0.05


@dataclass(frozen=True)
class Plan:
    """What is recommended, and why.

    Parameters
    ----------
    policy
        ``(H, L, A)``: one action where something is recommended.
    advantage, sd
        ``(G, L, A)``: posterior of what an action gains over practice, reward units; NaN where it is not supported.
    """

    policy: Policy
    advantage: Array
    sd: Array


def practice_values(answer: Answer, returns: Array, features: Array | None) -> Array:
    """Step 1: what current practice is worth from each state on.

    Parameters
    ----------
    answer
        Of stage 1, keys ``(G, L)``: targets -1 and 1 are the ends of the declared returns.
    returns
        ``(G, 2)``: least and largest return of each step, reward units.
    features
        ``(L, d)`` public numbers of states; None: a state says nothing of another.

    Returns
    -------
    ``(G, L)``, within the declared returns.
    """
    G, L = answer.rows.shape
    N, seen, noise = answer.rows.ravel(), answer.supported(_SURE).ravel(), answer.sd**2
    n = np.where(seen, N, 1.0)
    y = np.where(seen, (answer.targets.ravel() / n + 1) / 2, 0.5)
    # a variable in [0, 1] of mean m varies by m (1 - m) at most
    m = np.clip((n * y + 0.5) / (n + 1), 0.5 / (n + 1), 1 - 0.5 / (n + 1))
    sampling = np.where(seen, m * (1 - m) / n, np.inf)
    added = (0.25 + (m - 0.5) ** 2) * noise / n**2
    middle = float(np.average(y, weights=1 / (sampling + added))) if seen.any() else 0.5
    step = np.repeat(np.arange(G), L)
    found = shrink(y - middle, sampling, added, step, np.tile(_unit(features, L), (G, 1))).mean + middle
    low, high = returns.T
    return low[:, None] + (high - low)[:, None] * np.clip(found, 0, 1).reshape(G, L)


def one_step(
    answer: Answer, width: float, horizon: int, allowed: Bools, features: Array | None, constants: Constants
) -> Plan:
    """Steps 2 to 4: the policy.

    Parameters
    ----------
    answer
        Of stage 2, keys ``(G, L, A)``: targets -1 and 1 are temporal differences of ``width``, reward units.
    width
        At which temporal differences were cut.
    horizon
        H; G is H, or 1 where all steps share.
    allowed
        ``(L, A)``: what a policy may recommend.
    features
        ``(L, d)`` public numbers of states, or None.
    constants
        How cautious to be.
    """
    G, L, A = answer.rows.shape
    supported = answer.supported(constants.support)
    N = np.where(supported, answer.rows, 0.0)
    share = N / np.maximum(N.sum(-1, keepdims=True), 1.0)
    usual = supported & (share >= constants.floor)
    n = np.where(usual, answer.rows, 1.0)
    x = np.where(usual, answer.targets / n, 0.0)
    # two states drawn alike differ by twice the variance of their values, in parts of the width
    row = 2 / SPREAD**2
    cell, action = np.flatnonzero(usual), np.broadcast_to(np.arange(A), (G, L, A))[usual]
    f = np.tile(_unit(features, L), (G, 1))[cell // A]
    found = shrink(x[usual], row / n[usual], (answer.sd / n[usual]) ** 2, action, f)
    mean, sd = np.full((G, L, A), np.nan), np.full((G, L, A), np.nan)
    mean[usual], sd[usual] = found.mean, found.sd
    # what practice does there has the same posterior means
    weight = np.where(usual, share, 0.0)
    practice = np.where(usual, mean * weight, 0).sum(-1) / np.maximum(weight.sum(-1), 1e-300)
    gain = mean - practice[..., None]
    score = np.where(usual & allowed, np.rint((gain - constants.pessimism * sd) / _ALIKE), -np.inf)
    best = np.eye(A)[score.argmax(-1)]
    recommended = np.where((best > 0) & np.isfinite(score), gain, 0.0).sum(-1) > _ALIKE
    chosen = np.where(recommended[..., None], best, 0.0)
    policy = Policy(np.broadcast_to(chosen, (horizon, L, A)).copy(), np.broadcast_to(~recommended, (horizon, L)).copy())
    return Plan(policy, gain * width, sd * width)


def _unit(features: Array | None, states: int) -> Array:
    """Public numbers ``(L, d)`` with mean 0 and standard deviation 1 over states; ``(L, 0)`` where there are none."""
    if features is None:
        return np.zeros((states, 0))
    centred = features - features.mean(0)
    return centred / np.maximum(centred.std(0), 1e-12)
