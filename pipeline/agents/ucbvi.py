"""UCBVI: optimistic value iteration on counts, played in batches (Azar et al. 2017; DP-UCBVI, Qiao and Wang 2023).

One function; the mechanism of its counts says which algorithm it is (:mod:`pipeline.statistics.interactive_counts`):

===================  ==================================================  ========
algorithm            counts                                              trust
===================  ==================================================  ========
UCBVI                exact                                               none
DP-UCBVI (JDP)       a continual counter                                 joint
DP-UCBVI (LDP)       sums of noisy local messages                        local
counts-shuffle       shuffled one-bit messages, a batch a release        shuffle
===================  ==================================================  ========

| code | paper | shape | meaning |
|---|---|---|---|
| ``n``, ``n_sas`` | ñ_h(s,a), ñ_h(s,a,s') | (G, S, A[, S]) | consistent counts, never too small; G = 1 if pooled |
| ``P``, ``r`` | P̃_h, r_h | (S, A, S), (S, A) | estimate; reward, declared or estimated |
| ``V`` | Ṽ_h | (H+1, S) | optimistic values, reward units |
| ``Gamma`` | b_h | (S, A) | bonus, :mod:`pipeline.agents.ucbvi` |
| ``iota`` | ι | scalar | log(2HSAK/δ) as printed |

0-based: the paper's H-h+1 steps to go are ``H - h``.

Departures from the printed pages
    * a policy serves a whole batch, whose length is a function of declared and released values and costs no privacy
      (:mod:`pipeline.mdp.rollout`);
    * span(V) of the optimistic values instead of H, smaller ι and c (``practical``; ``paper`` has ι as printed);
    * ``c_noise sd ||V - PV|| / n`` instead of 20 H S E ι / n, which keeps every value at its clip for 10^6 users;
    * where each batch is noisy by itself (local, shuffle), cells that its policy never visits are read as empty: their
      counts are noise (:mod:`pipeline.statistics.interactive_counts`);
    * z standard deviations instead of E in "never underestimates": the paper's E is z of about 10;
    * ties of the clipped Q go to the unclipped one, remaining ones are played uniformly: an episode draws afresh, so
      that no batch is spent on the first index;
    * the policy emitted at the end is planned with half a deviation of noise subtracted, or is the one played last, or
      even choice: whichever is worth most by the released counts, less what their noise may have added to it.

Constants and widths of planning on noisy counts: each function is one displayed formula.

    Gamma = c (sqrt(2 Var_P(V) ι / n) + 7/3 span(V) ι / n)  +  c_noise sd ||V - PV||_2 / n

The first part is the Bernstein bonus; its lower-order term matters, because a cell seen once has no variance.  The
second is the effect of the noise alone: to first order n (P - P*) V = sum_s' xi_s' (V(s') - PV), and xi has standard
deviation sd in each entry.  Symbols: as in :mod:`pipeline.agents.ucbvi`.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from pipeline.agents import pessimism
from pipeline.agents.apvi import Plan, model
from pipeline.arrays import Array, Bools
from pipeline.mdp.model import Task
from pipeline.mdp.policy import Policy, even_actions
from pipeline.mdp.rollout import Batch, Pace
from pipeline.statistics.online_counts import OnlineCounts, OnlineLayout, consistent, never_under, nothing_seen
from pipeline.statistics.planning_counts import PrivateCounts


@dataclass(frozen=True)
class UcbviConstants:
    """Constants of the bonus; see :func:`practical` and :func:`theory`."""

    c: float = 0.4
    noise: float = 1.0
    z: float = 0.5
    iota: float = 1.0

    def __str__(self) -> str:
        return f"c = {self.c:g}, c_noise = {self.noise:.3g}, z = {self.z:.3g}, ι = {self.iota:.3g}"


def practical(episodes: int) -> UcbviConstants:
    """Constants chosen by us: no theorem.

    A good action that looked bad by more than the bonus covers is lost for good.  That costs in proportion to K, and
    the bonus itself does not: it grows with K, slowly.  For the noise c_noise = sqrt(3 ln(1 + K / 110 000)), half a
    deviation at K = 10^4, 3.7 at 10^7 and 5.2 at 10^9; for the sampling ι = log10(K) / 2.
    """
    noise = math.sqrt(3 * math.log1p(episodes / 110_000))
    return UcbviConstants(noise=noise, iota=max(1.0, math.log10(episodes) / 2))


def practical_joint(episodes: int) -> UcbviConstants:
    """The same under a counter's noise, which explores too: half the bonus for the sampling.

    Chosen on seeds from 900 and from 3000 on, which report nothing: smaller ones win on average and lock in some
    worlds.
    """
    return replace(practical(episodes), c=0.2)


def practical_local(episodes: int) -> UcbviConstants:
    """The same where every user's own message is noisy: half the bonus, and four fifths of that for the noise.

    Chosen on four worlds, K = 10^4 to 10^6 and seeds from 1000 on, which report nothing: without a bonus for the noise
    runs lock in, with all of it K = 10^4 is spent on exploration.
    """
    k = practical(episodes)
    return replace(k, c=0.2, noise=0.8 * k.noise)


def cautious(k: UcbviConstants) -> UcbviConstants:
    """For the policy that is emitted: half a standard deviation of noise counts against an action at every step.

    Chosen on eighteen worlds at K = 10^3 and 10^4 and seeds from 5000 on, which report nothing: two deviations at each
    of H steps leave a local agent with nothing to choose by.
    """
    return replace(k, noise=0.5)


def theory(cells: int, episodes: int) -> UcbviConstants:
    """Constants for which values are optimistic with probability 9/10, noise included; H S A ``cells``."""
    iota = math.log(2 * cells * episodes / 0.1)
    return UcbviConstants(1.0, math.sqrt(2 * iota), math.sqrt(2 * iota), iota)


def transition_bonus(P: Array, n: Array, V: Array, sd: Array, k: UcbviConstants) -> Array:
    """Gamma ``(S, A)`` for ``P (S, A, S)``, visits ``n (S, A)``, their noise ``sd (S, A)`` and next values ``V (S,)``;
    infinite where n = 0.
    """
    mean = P @ V
    variance = np.maximum(P @ (V * V) - mean * mean, 0.0)
    distance = np.sqrt(np.maximum((V @ V) - 2 * mean * V.sum() + len(V) * mean * mean, 0.0))
    span = float(V.max() - V.min())
    n_ = or_one(n)
    sampling = k.c * (np.sqrt(2 * variance * k.iota / n_) + 7 / 3 * span * k.iota / n_)
    return np.where(n > 0, sampling + k.noise * sd * distance / n_, np.inf)


def reward_estimate(r_sa: Array, n: Array) -> Array:
    """Mean reward ``(G, S, A)`` as a share of its range, from sums in half ranges around the middle of ``n`` visits."""
    return np.clip((1 + r_sa / or_one(n)) / 2, 0.0, 1.0)


def reward_bonus(r: Array, n: Array, sd: Array | float, k: UcbviConstants) -> Array:
    """The same bonus for a reward ``r (G, S, A)``, share of its range; one in [0, 1] has variance r (1 - r) at most."""
    n_ = or_one(n)
    sampling = k.c * (np.sqrt(2 * r * (1 - r) * k.iota / n_) + 7 / 3 * k.iota / n_)
    return np.where(n > 0, sampling + k.noise * sd / (2 * n_), np.inf)


def or_one(n: Array) -> Array:
    """``n`` where it is positive, else 1."""
    return np.where(n > 0, n, 1.0)


@dataclass(frozen=True)
class CountTask:
    """Declared process.

    ``rewards`` ``(H, S, A)``: where they are known, else None.
    ``lowest``, ``highest`` ``(H,)``: range of each step's reward; where rewards are learnt, ``lowest`` is 0.
    ``start`` ``(S,)``: distribution of the first state.
    """

    rewards: Array | None
    lowest: Array
    highest: Array
    start: Array
    layout: OnlineLayout

    @property
    def tops(self) -> Array:
        """Largest value from step h on ``(H+1,)``, in any world."""
        return np.append(np.cumsum(self.highest[::-1])[::-1], 0.0)

    @property
    def floors(self) -> Array:
        """Least value from step h on ``(H+1,)``."""
        return np.append(np.cumsum(self.lowest[::-1])[::-1], 0.0)


@dataclass(frozen=True)
class UcbviPlan:
    """``policy (H, S, A)``, ``V (H+1, S)``, where clipping left several best actions ``tied (H, S)``, and the
    ``estimate`` behind them.
    """

    policy: Array
    V: Array
    tied: Bools
    estimate: Estimate


@dataclass(frozen=True)
class UcbviResult:
    """``policy (H, S, A)`` to keep, and the share of (plan, step, state) that clipping left tied."""

    policy: Array
    tie_share: float


# yields batches, gets released counts, returns the learnt policy
BatchAgent = Generator[Batch, OnlineCounts, UcbviResult]


def ucbvi(task: CountTask, pace: Pace, constants: UcbviConstants, before: OnlineCounts | None = None) -> BatchAgent:
    """Play batches until ``pace.episodes`` are played, and return the policy learnt."""
    earlier = nothing_seen(task.layout) if before is None else before
    counts, ties, played, last = earlier, list[float](), 0, None
    while played < pace.episodes:
        plan = planned(task, counts, constants)
        ties.append(float(plan.tied.mean()))
        room = pace.visits * worth_playing(task, plan.estimate, plan.policy, float(np.max(counts.sd_sa)))
        episodes = pace.length(played, len(ties) - 1, room)
        counts = earlier + (yield Batch(plan.policy, episodes))
        played, last = played + episodes, plan.policy
    final = planned(task, counts, cautious(constants), -1)
    policies = [final.policy] if last is None else [final.policy, last, np.full_like(last, 1 / last.shape[-1])]
    return UcbviResult(supported(task, counts, final.estimate, policies), float(np.mean(ties)))


def supported(task: CountTask, counts: OnlineCounts, estimated: Estimate, policies: Sequence[Array]) -> Array:
    """The policy ``(H, S, A)`` that the release supports best: the first where nothing is hidden by noise, else the one
    of the largest value by the counts, less one standard deviation of its noise.
    """
    if not np.any(counts.sd_sas):
        return policies[0]
    lower = [value - sd for value, sd in (noisy_value(task, counts, estimated, p) for p in policies)]
    return policies[int(np.argmax(lower))]


def noisy_value(task: CountTask, counts: OnlineCounts, estimated: Estimate, policy: Array) -> tuple[float, float]:
    """Value of ``policy (H, S, A)`` by the counts as released, and the deviation that their noise gives it.

    To first order V moves with n(s,a,s') by sum_h d_h(s,a) (V_h+1(s') - P V_h+1) / n(s,a); d is the policy's
    occupancy, and fewer visits than their own noise are read as that many.
    """
    H, S, A = policy.shape
    P, n = estimated.bare_P, or_one(np.maximum(estimated.bare_n, counts.sd_sa))
    rewards, earned = task.rewards, np.zeros(n.shape)
    if rewards is None:
        assert counts.r_sa is not None
        means = reward_estimate(counts.r_sa, estimated.bare_n)
        rewards = np.array([task.highest[h] * means[min(h, len(n) - 1)] for h in range(H)])
    V, slope, arrive = np.zeros((H + 1, S)), np.zeros(P.shape), task.start
    for h in reversed(range(H)):
        V[h] = (policy[h] * (rewards[h] + P[min(h, len(n) - 1)] @ V[h + 1])).sum(-1)
    for h in range(H):
        g, d = min(h, len(n) - 1), arrive[:, None] * policy[h]
        slope[g] += d[..., None] * V[h + 1]
        earned[g] += d * task.highest[h]
        arrive = d.ravel() @ P[g].reshape(S * A, S)
    slope -= (P * slope).sum(-1, keepdims=True)
    variance = (slope * (np.broadcast_to(counts.sd_sas, n.shape) / n)[..., None]) ** 2
    of_rewards = 0.0 if task.rewards is not None else (earned * counts.sd_r / (2 * n)) ** 2
    return float(task.start @ V[0]), math.sqrt(float(np.sum(variance) + np.sum(of_rewards)))


def worth_playing(task: CountTask, estimated: Estimate, policy: Array, least: float) -> float:
    """Episodes in which ``policy (H, S, A)`` is expected to double the visits of the first cell it doubles.

    A cell with fewer visits than ``least``, the noise of a count, is taken to have as many.
    """
    arrive, visited = task.start, np.zeros(estimated.n.shape)
    for h in range(task.layout.steps):
        g = min(h, len(visited) - 1)
        d = arrive[:, None] * policy[h]
        visited[g] += d
        arrive = d.ravel() @ estimated.P[g].reshape(-1, len(arrive))
    reached = visited > 0
    return float((np.maximum(estimated.n, least)[reached] / visited[reached]).min(initial=math.inf))


def planned(task: CountTask, counts: OnlineCounts, k: UcbviConstants, sign: Literal[1, -1] = 1) -> UcbviPlan:
    """Optimistic values from the counts released so far, from the last step to the first; pessimistic with -1."""
    H, S, A = task.layout.horizon, task.layout.states, task.layout.actions
    estimated = estimate(counts, k)
    ends, better = (task.tops, np.maximum) if sign > 0 else (task.floors, np.minimum)
    earned = None
    if task.rewards is None:
        assert counts.r_sa is not None
        r = better(*(reward_estimate(counts.r_sa, n) for n in (estimated.n, estimated.bare_n)))
        earned = r + sign * reward_bonus(r, estimated.n, counts.sd_r, k)
    sd = np.broadcast_to(counts.sd_sas, estimated.n.shape)
    V, Q, free = np.zeros((H + 1, S)), np.zeros((H, S, A)), np.zeros((H, S, A))
    for h in reversed(range(H)):
        g = min(h, len(estimated.n) - 1)
        n, P = estimated.n[g], estimated.P[g]
        free[h], end = better(P @ V[h + 1], estimated.bare_P[g] @ V[h + 1]), ends[h]
        if h < task.layout.steps:
            free[h] += sign * transition_bonus(P, n, V[h + 1], sd[g], k)
        if earned is not None:
            free[h] += task.highest[h] * earned[g]
        elif task.rewards is not None:
            free[h] += task.rewards[h]
            end = task.rewards[h] + ends[h + 1]
        Q[h] = np.minimum(free[h], end) if sign > 0 else np.maximum(free[h], end)
        V[h] = Q[h].max(-1)
    policy, tied = _even(Q, free)
    return UcbviPlan(policy, V, tied, estimated)


@dataclass(frozen=True)
class Estimate:
    """Visits ``n (G, S, A)`` and ``P (G, S, A, S)``, uniform where there were none.

    ``bare``: without the visits that were added against underestimation.  Those must never count against an action: of
    the two estimates the better one is used.
    """

    n: Array
    P: Array
    bare_n: Array
    bare_P: Array


def estimate(counts: OnlineCounts, k: UcbviConstants) -> Estimate:
    """The estimate from released counts."""
    x = consistent(counts)
    bare, (n, n_sas) = x.sum(-1), never_under(x, k.z * counts.sd_sa)
    P = np.where(n[..., None] > 0, n_sas / or_one(n)[..., None], 1 / x.shape[-1])
    return Estimate(n, P, bare, np.where(bare[..., None] > 0, x / or_one(bare)[..., None], P))


def optimistic(
    counts: PrivateCounts,
    task: Task,
    constants: pessimism.Constants,
    rng: np.random.Generator,
    penalty: pessimism.Penalty = "bernstein",
) -> Plan:
    """The policy to play next, from a release of logs: optimistic where APVI is pessimistic.

    The widths of :func:`pipeline.agents.apvi.apvi` are added; an action without evidence has the largest value, so
    that it is tried.  The policy never abstains, and ties are played evenly.

    Returns the policy, its optimistic value and the tied states.
    """
    m = model(counts, task, constants, penalty)
    H, (L, A), S = task.horizon, task.allowed.shape, counts.n_sas.shape[-1]
    V, policy, tied = np.zeros((H + 1, S)), np.zeros((H, L, A)), np.zeros((H, L), dtype=bool)
    reach = max(map(abs, task.value_range(0)))
    for h in reversed(range(H)):
        free, Q = m.backup(h, V[h + 1], sign=1)
        policy[h], tied[h] = even_actions(Q, free, task.allowed, reach)
        V[h, :L] = np.where(task.allowed, Q, -np.inf).max(-1)
    return Plan(Policy(policy, np.zeros((H, L), dtype=bool)), V, tied, pessimism.evidence_threshold(counts, constants))


def _even(Q: Array, free: Array) -> tuple[Array, Bools]:
    """Best actions of ``Q (H, S, A)``, ties by ``free``, evenly among the rest; and where Q alone was tied."""
    best = Q.max(-1, keepdims=True) == Q
    first = np.where(best, free, -np.inf)
    last = first == first.max(-1, keepdims=True)
    return last / last.sum(-1, keepdims=True), best.sum(-1) > 1
