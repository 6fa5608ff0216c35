"""LinOpt: optimistic planning in a linear mixture MDP, private or not (papers 000 and 001).

One planner, two policies: :func:`linopt_vi` plays the greedy action (paper 000, Algorithm 1; paper 001, Algorithm 1),
:func:`linopt_po` takes a step of mirror descent along Q, and V is the value of that policy (paper 000, Algorithm 2).
Their regularizer and their radii say which algorithm it is; a radius is one displayed formula, times a tuned ``c``:

=====================  =================  =========================  ===========
algorithm              regularizer        radii                      trust
=====================  =================  =========================  ===========
UCRL-VTR, LinOpt       ``fixed``          ``ucrl_vtr``, ``linopt``   none
Private-LinOpt         ``tree``           ``linopt``                 joint
LDP-UCRL-VTR           ``local``          ``ldp``                    local
=====================  =================  =========================  ===========

| code | paper | shape | meaning |
|---|---|---|---|
| ``V`` | V_h | (H+1, S) | optimistic values, reward units |
| ``phi`` | φ_{V_{h+1}} | (blocks, SA/blocks, d) | regression features of every (s, a) |
| ``ridge.V``, ``ridge.U`` | Λ_p, u_p | (H-1, blocks, d, d), (H-1, blocks, d) | regularized statistics |
| ``theta`` | θ̂_p | (blocks, d) | weights of one step |
| ``policy`` | π^k | (H, S, A) | of PO: probabilities, uniform at first |
| ``Q`` | Q_h^k | (H, S, A) | optimistic values; of PO, those of π^k |
| ``eta`` | η | | step of PO, per reward unit |

Values are in reward units: the papers' H - h + 1 is ``tops``, the largest value from step h on.  0-based: the paper's
H-h+1 steps to go are ``H - h``.

Departures from the printed page
    * rewards are known (as in paper 001) unless the task says they are learnt, from paper 000's two further counters;
    * an episode's features are those of the V it was played with, frozen: a counter can hold nothing else (the paper
      prints sums over past episodes of features indexed by the current k);
    * nothing is regressed at the last step, where V_{H+1} = 0;
    * the policy changes at the episodes of a schedule fixed in advance, which costs no privacy; Q is fixed in between,
      so a batch of n episodes takes one step of PO of length n eta.  With growth 1.0 that is the printed algorithm;
    * ties of VI's clipped Q, up to rounding, go to the unclipped one, then to chance; ties alone can fake a learning
      curve;
    * d_1 of one-hot features is S^2 A, the unknowns that are regressed; paper 001 counts S A in UCRL-VTR's radius;
    * lambda = 1 where values are at most H stays beside a private regularizer's shift.
Further departures with ``constants = "practical"``
    * rows are divided by a public bound on their length (``unit``), Gram matrices are block diagonal;
    * all episodes of one policy are one leaf of the counter, averaged from below;
    * eigenvalues below twice the noise's edge are raised to it (``floor``) instead of a shift of all of them, and the
      shift of Lambda predicts the mean response of its features (``prior``) instead of 0;
    * the bonus is tuned: c = 0 under noise, and both terms of UCRL-VTR's scaled; lambda, schedule, budget shares.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.mdp.features import MixtureFeatures, RewardFeatures
from pipeline.mdp.rollout import Agent, Rollout, Trajectory, plan_lengths
from pipeline.statistics.regression import Regularizer, RidgeSums, Visits

# alpha, failure probability of a confidence set
_FAILURE = 0.01


@dataclass(frozen=True)
class Moment:
    """Released and declared values on which a radius may depend.

    ``episode``, ``episodes``: k, from 1 on, and K.
    ``unknowns``: d_1.
    ``tops`` ``(steps,)``: largest value to go after the step, or reward of it; reward units.
    ``reach`` ``(steps,)``: largest response of a regression row: ``tops``, or 1 where rows are unit ones.
    """

    episode: int
    episodes: int
    unknowns: int
    tops: Array
    reach: Array
    ridge: RidgeSums[Array]


# radii (steps,) of a moment
Radii = Callable[[Moment], Array]


def ucrl_vtr(c: float, *, printed: bool = False) -> Radii:
    """sqrt(d_1) + (H-h+1) sqrt(2 ln(1/alpha) + ln det M) (paper 001, section 6, with M in units of lambda).

    ``c`` multiplies both terms; ``printed``: the first alone, as on the page, where the second one explores for all of
    10^4 episodes.  The printed ln(1/K) is negative and not used.
    """

    def radii(m: Moment) -> Array:
        scaled = m.ridge.V / m.ridge.lambda_min[:, None, None, None]
        volume = np.maximum(np.linalg.slogdet(scaled)[1].sum(-1), 0.0)
        second = m.tops * np.sqrt(2 * math.log(1 / _FAILURE) + volume)
        return c * math.sqrt(m.unknowns) + (1.0 if printed else c) * second

    return radii


def linopt(c: float) -> Radii:
    """beta_p of paper 000, Lemma 3.1: (H/2) sqrt(2 ln(H/alpha) + d_1 ln(1 + K H^2/l_min)) + sqrt(d_1 l_max) + nu.

    H bounds a response, and so a row: unit rows have 1 in its place.

    ``c``: multiplies the radius; 1 is the lemma's.
    """

    def radii(m: Moment) -> Array:
        b, steps = m.ridge, len(m.tops) + 1
        inside = 2 * math.log(steps / _FAILURE) + m.unknowns * np.log1p(m.episodes * m.reach**2 / b.lambda_min)
        return c * (m.reach / 2 * np.sqrt(inside) + np.sqrt(m.unknowns * b.lambda_max) + b.nu)

    return radii


def linopt_rewards(c: float) -> Radii:
    """beta_r of paper 000, Lemma 3.1, with r in reward units: the first two terms times its largest value.

    ``c``: multiplies the radius; 1 is the lemma's.
    """

    def radii(m: Moment) -> Array:
        b, steps = m.ridge, len(m.tops)
        inside = 2 * math.log(steps / _FAILURE) + m.unknowns * np.log1p(m.episodes / (m.unknowns * b.lambda_min))
        return c * (m.tops * (np.sqrt(inside) / 2 + np.sqrt(m.unknowns * b.lambda_max)) + b.nu)

    return radii


def ldp(c: float) -> Radii:
    """C d_1^(3/4) (H-h+1)^(3/2) k^(1/4): the form that paper 001 tunes in its section 6."""

    def radii(m: Moment) -> Array:
        return c * m.unknowns**0.75 * m.tops**1.5 * m.episode**0.25

    return radii


def ldp_theory(epsilon: float, delta: float, c: float = 1.0) -> Radii:
    """Paper 001's theorem: :func:`ldp` times ln(d T / alpha) (ln((H-h+1)/delta))^(1/4) / sqrt(eps).

    On unit rows 1 bounds a response in the place of H-h+1.  T = K H; the last logarithm counts steps, not rewards.

    ``c``: multiplies the radius; 1 is the theorem's.
    """

    def radii(m: Moment) -> Array:
        H = len(m.tops) + 1
        left = np.arange(H, 1, -1)
        extra = math.log(m.unknowns * m.episodes * H / _FAILURE) * np.log(left / delta) ** 0.25
        return c * m.unknowns**0.75 * m.reach**1.5 * m.episode**0.25 * extra / math.sqrt(epsilon)

    return radii


# up to this many coordinates a block is inverted once, beyond it is solved for each step
_SMALL = 32


@dataclass(frozen=True)
class LearntRewards:
    """Rewards to be learnt: r_h(s, a) = <phi_r(s, a), theta_{h,r}> in ``[0, most_h]``, ``most (H,)`` declared."""

    features: RewardFeatures
    most: Array


@dataclass(frozen=True)
class MixtureTask:
    """Declared rewards, features, number of episodes, and whether rows are ``unit``.

    ``rewards``: known ``(H, S, A)``, at least 0, reward units per step; or learnt.
    ``unit``: whether every regression row is scaled to length 1 (no theorem; less noise).
    """

    rewards: Array | LearntRewards
    features: MixtureFeatures
    episodes: int
    unit: bool

    @property
    def known(self) -> Array | None:
        """The known rewards."""
        return None if isinstance(self.rewards, LearntRewards) else self.rewards

    @property
    def most(self) -> Array:
        """Largest reward of each step ``(H,)``."""
        return self.rewards.most if isinstance(self.rewards, LearntRewards) else self.rewards.max((1, 2))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(H, S, A)."""
        return len(self.most), self.features.states, self.features.actions

    @property
    def tops(self) -> Array:
        """Largest value from step h on ``(H+1,)``, in any world."""
        return np.append(np.cumsum(self.most[::-1])[::-1], 0.0)


@dataclass(frozen=True)
class Regression:
    """Released statistics and the radii of their bonus.

    ``radii``: radius of the bonus at each step, a function of released and declared values.
    """

    regularizer: Regularizer[Visits, Array]
    radii: Radii


@dataclass(frozen=True)
class Problem:
    """A task with its regressions."""

    task: MixtureTask
    transitions: Regression
    rewards: Regression | None = None

    def __post_init__(self) -> None:
        if (self.rewards is None) == isinstance(self.task.rewards, LearntRewards):
            raise ValueError("rewards are either known to the task or learnt by a regression")

    def observe(self, rows: "RegressionRows", trajectory: Trajectory) -> None:
        """Pass a batch of episodes, played with the V of ``rows``, to every counter."""
        self.transitions.regularizer.observe(rows.transitions(trajectory))
        if self.rewards is not None:
            self.rewards.regularizer.observe(rows.rewards(trajectory))


@dataclass(frozen=True)
class Optimistic:
    """``Q (H, S, A)``, the same before clipping ``free (H, S, A)``, and ``V (H+1, S)``."""

    Q: Array
    free: Array
    V: Array


def optimistic(problem: Problem, value: Callable[[int, Array], Array]) -> Optimistic:
    """Values from the statistics released so far, from the last step to the first.

    ``value``: v_h ``(S,)`` from h and Q_h ``(S, A)``, by which the algorithms differ.
    """
    task, regression = problem.task, problem.transitions
    H, S, A = task.shape
    tops, ridge = task.tops, regression.regularizer.ridge()
    reach = np.ones(H - 1) if task.unit else tops[1:-1]
    bonus = _radii(task, regression, ridge, (tops[1:-1], reach), task.features.unknowns)
    reward, predictor = _rewards(problem), Predictor(task.features, ridge)
    Q, free, V = np.zeros((H, S, A)), reward.copy(), np.zeros((H + 1, S))
    for h in reversed(range(H)):
        if h < H - 1:
            free[h] += predictor.ahead(h, V[h + 1], bonus[h])
        Q[h] = np.minimum(np.maximum(free[h], 0.0), tops[h])
        V[h] = value(h, Q[h])
    return Optimistic(Q, free, V)


def _rewards(problem: Problem) -> Array:
    """Rewards ``(H, S, A)``: the known ones, or optimistic estimates inside their declared range."""
    rewards, regression = problem.task.rewards, problem.rewards
    if regression is None or not isinstance(rewards, LearntRewards):
        return np.asarray(rewards)
    f, ridge, most = rewards.features, regression.regularizer.ridge(), problem.task.most
    phi, beta = f.phi(), _radii(problem.task, regression, ridge, (most, most), f.blocks * f.dimension)
    inverse = np.linalg.inv(ridge.V)
    theta = (inverse @ ridge.U[..., None])[..., 0]
    spread = np.einsum("bnd,hbde,bne->hbn", phi, inverse, phi)
    upper = np.einsum("bnd,hbd->hbn", phi, theta) + beta[:, None, None] * np.sqrt(np.maximum(spread, 0.0))
    return np.clip(upper.reshape(problem.task.shape), 0.0, most[:, None, None])


def _radii(
    task: MixtureTask, regression: Regression, ridge: RidgeSums[Array], ranges: tuple[Array, Array], unknowns: int
) -> Array:
    r = regression.regularizer
    return regression.radii(Moment(r.seen + 1, task.episodes, unknowns, *ranges, ridge))


class Predictor:
    """<phi, theta> + beta ||phi||_{Lambda^-1} of every (s, a)."""

    def __init__(self, features: MixtureFeatures, ridge: RidgeSums[Array]) -> None:
        self._features, self._ridge = features, ridge
        self._inverse = np.linalg.inv(ridge.V) if features.dimension <= _SMALL else None
        self._theta = None if self._inverse is None else (self._inverse @ ridge.U[..., None])[..., 0]

    def ahead(self, h: int, V: Array, beta: float) -> Array:
        """``(S, A)`` for V of the next step."""
        # one-hot rows are V itself in every block
        phi = V[None, None] if self._features.psi is None else self._features.phi(V)
        if self._inverse is None or self._theta is None:
            sides = np.concatenate([phi.swapaxes(-1, -2), self._ridge.U[h][..., None]], axis=-1)
            solved = np.linalg.solve(self._ridge.V[h], sides)
            theta, half = solved[..., -1], solved[..., :-1].swapaxes(-1, -2)
        else:
            theta, half = self._theta[h], phi @ self._inverse[h]
        spread = (half * phi).sum(-1)
        upper = (phi @ theta[..., None])[..., 0] + beta * np.sqrt(np.maximum(spread, 0.0))
        return upper.reshape(self._features.states, self._features.actions)


class RegressionRows:
    """Regression rows of the episodes that are played with one V: computed once, read by (s, a)."""

    def __init__(self, task: MixtureTask, V: Array) -> None:
        self._task, self._features = task, task.features
        phi = task.features.phi(V[1:-1])
        weight = np.ones(len(phi))
        if task.unit:
            # public: a function of V alone; 1 where V = 0, whose rows are 0
            weight = np.maximum(V[1:-1].max(-1), np.linalg.norm(phi, axis=-1).max((1, 2)))
            weight = np.where(weight > 0, weight, 1.0)
        self._phi, self._V = phi / weight[:, None, None, None], V[1:-1] / weight[:, None]

    def transitions(self, trajectory: Trajectory) -> Visits:
        """Rows phi with responses V(s'), equal ones together; nothing at the last step, where V = 0."""
        _, S, A = self._task.shape
        states, actions = np.atleast_2d(trajectory.states), np.atleast_2d(trajectory.actions)
        cells = states[:, :-2] * A + actions[:, :-1] + S * A * np.arange(len(self._V))
        code, count = np.unique(cells * S + states[:, 1:-1], return_counts=True)
        cell_of_step, next_state = np.divmod(code, S)
        step, cell = np.divmod(cell_of_step, S * A)
        block, row = self._features.place(cell)
        return Visits(step, block, self._phi[step, block, row], self._V[step, next_state], count, len(states))

    def rewards(self, trajectory: Trajectory) -> Visits:
        """Rows phi_r with responses r, one a step and episode."""
        learnt = self._task.rewards
        assert isinstance(learnt, LearntRewards)
        H, _, A = self._task.shape
        states, actions = np.atleast_2d(trajectory.states), np.atleast_2d(trajectory.actions)
        cell = (states[:, :-1] * A + actions).ravel()
        step, (block, row) = np.tile(np.arange(H), len(states)), learnt.features.place(cell)
        phi = learnt.features.phi()[block, row]
        response, once = np.atleast_2d(trajectory.rewards).ravel(), np.ones(len(cell), dtype=np.int64)
        return Visits(step, block, phi, response, once, len(states))


_ROUNDING = 1e-12


@dataclass(frozen=True)
class GreedyPlan:
    """``policy (H, S)``, ``V (H+1, S)``, and where clipping left several best actions ``tied (H, S)``."""

    policy: Integers
    V: Array
    tied: Bools


def linopt_vi(problem: Problem, growth: float, rng: np.random.Generator) -> Agent:
    """Play the task's episodes and return the policy planned after the last."""
    for episodes in plan_lengths(problem.task.episodes, growth):
        plan = planned(problem, rng)
        trajectory = yield Rollout(plan.policy, episodes)
        problem.observe(RegressionRows(problem.task, plan.V), trajectory)
    return planned(problem, rng).policy


def planned(problem: Problem, rng: np.random.Generator) -> GreedyPlan:
    """Greedy in the optimistic values of the statistics released so far."""
    values = optimistic(problem, lambda _, Q: Q.max(-1))
    policy, tied = _greedy(values.Q, values.free, rng)
    return GreedyPlan(policy, values.V, tied)


def _greedy(Q: Array, free: Array, rng: np.random.Generator) -> tuple[Integers, Bools]:
    best = _largest(Q)
    last = best & _largest(np.where(best, free, -np.inf))
    return np.where(last, rng.random(Q.shape), -1.0).argmax(-1), best.sum(-1) > 1


def _largest(x: Array) -> Bools:
    """Mask of the largest entries of each row, whatever the order of its sums."""
    most = x.max(-1, keepdims=True)
    return x >= most - _ROUNDING * np.maximum(np.abs(most), 1.0)


# in the paper's steps; on RiverSwim, S = 3, private runs lose most on either side of it
TUNED_STEP = 10.0


def step_size(task: MixtureTask) -> float:
    """The printed eta = sqrt(2 ln A / K) / V_max.

    ``task``: gives A, K and the largest value V_max.
    """
    return math.sqrt(2 * math.log(task.shape[2]) / task.episodes) / float(task.tops[0])


def linopt_po(problem: Problem, growth: float, eta: float) -> Agent:
    """Play the task's episodes and return the last stochastic policy ``(H, S, A)``."""
    H, S, A = problem.task.shape
    ascent, policy = np.zeros((H, S, A)), np.full((H, S, A), 1 / A)
    for episodes in plan_lengths(problem.task.episodes, growth):
        values = _values(problem, policy)
        trajectory = yield Rollout(policy, episodes)
        problem.observe(RegressionRows(problem.task, values.V), trajectory)
        ascent += episodes * eta * values.Q
        policy = softmax(ascent)
    return policy


def _values(problem: Problem, policy: Array) -> Optimistic:
    return optimistic(problem, lambda h, Q: (Q * policy[h]).sum(-1))


def softmax(x: Array) -> Array:
    """Probabilities proportional to exp x, over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)
