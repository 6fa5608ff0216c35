"""SDP-PE: policy elimination on shuffle-private counts, batch after batch (paper 002, Algorithms 1-3).

Three generators, as the paper has three algorithms.  They request batches and get private counts of them; the
trust model is that of the privatizer.  Two sets of constants:

``paper``
    the constants of the theorem, on an explicit list of policies (tiny worlds).  They eliminate nothing before 10^9
    episodes or so; :attr:`Answer.first_elimination` is then None and the policy an arbitrary one of the best-looking.
``practical``
    widths that depend on the counts, and the active set as one linear constraint on occupancies, whatever the number
    of policies.  No theorem: widths are scaled by 0.5.

| code | paper | shape | meaning |
|---|---|---|---|
| ``active`` | φ_b | | active policies |
| ``L`` | L_b | scalar | episodes of each half of a stage |
| ``W`` | 𝒲 | (H, S, A, S) bool | tuples visited too seldom |
| ``P``, ``r`` | P~^cru or P~^ref, r~ | (H, S, A, S), (H, S, A) | estimates; the missing mass of P goes to x† |
| ``counts.error`` | E | scalar | bound on the error of every count |
| ``iota`` | ι | scalar | log(2HAK/δ), or log(4HX²A stages/δ) in ``practical`` |

0-based; X is S here; K episodes, δ ``failure``.  Numbers are those of docs/research.md.

Departures from the printed page, with either constants
    * 1, line 2: the sum runs to b-1; 2, L_0 = L_b/HXA is at least 1: stages start at b = ceil(log2 HXA), remainders are
      spread over the targets by lot, and what would be less than such a stage joins the one before;
    * 3, EstimateTransition and EstimateRewards are printed nowhere: P~ = N~(x,a,x')/N~(x,a) off W, the rest to x†;
      r~ = R~/N~(x,a), 12, clipped to [0, 1];
    * 4, the start distribution is a public input; 7, ties are broken at random;
    * 5, the last step has no successor: no transition counters there, no W, no crude batch (L_b is spread over the
      other steps); 6, P~cru starts with all mass at x†;
    * 8-11, 15 and 17 concern the privatizer (:mod:`pipeline.statistics.interactive_counts`); 14 costs constants only;
    * 16, the policy is the best-valued one of the last full stage: the paper outputs none.
``paper``
    * 13, iota is printed without X; the printed one is kept.  The universal constant C is not given: 1.
``practical``
    * no crude half: the model of the stages before plans the whole stage;
    * counts are not shifted, and those within 2 standard deviations of 0 are in W;
    * pi stays while V(r~ + width, x† paying 1 a step) >= max V(r~ - width): x† mass counted as reward keeps it safe;
    * the most visits to a target are a mixture of two policies, of which one is active and played; ``mixed`` plays
      both, drawn for each episode: more visits, and ten times the regret at 10^7 episodes;
    * counts of all stages are pooled (``pooled``); "forget" keeps the latest only.

The model of SDP-PE, and its active policies: a list, or one linear constraint on occupancies.

Paper 002 keeps a list of policies and drops some after each stage.  The list has A^(HS) entries.  The other form keeps
the *model* that the drops were judged by: under it, "upper value of pi at least the largest lower value" is one linear
constraint on the occupancy of pi, whatever the number of policies.

The model is the absorbing one of paper 002: EstimateTransition and EstimateRewards, which it prints nowhere (our
reading).  Where a tuple is visited too seldom (W), its probability goes to an absorbing state x† that pays nothing:
rows of ``P`` then sum to less than 1.  Shapes: ``P, W (H, S, A, S)``, the rest ``(H, S, A)``; X is S here.
"""

# pyright: reportUnknownArgumentType=false
import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.mdp.planning import most_visits
from pipeline.mdp.policy import MOST_POLICIES, all_policies, policy_count, set_arrivals, set_values
from pipeline.mdp.rollout import BatchRollout
from pipeline.statistics.online_counts import BatchLayout, NoisyTables, PrivateBatch, consistent_batch, pooled

# values this close are equal: rounding must not choose between policies
TIE = 1e-12


@dataclass(frozen=True)
class Plays:
    """For each of T targets one policy or a mixture of two: ``policies (T, 2, H, S)`` with ``weights (T, 2)``."""

    policies: Integers
    weights: Array

    def pure(self) -> "Plays":
        """The first policy of each mixture alone: where there is a constraint, the one that keeps it."""
        return Plays(self.policies, np.tile([1.0, 0.0], (len(self.weights), 1)))

    def episodes(self, total: int, rng: np.random.Generator) -> tuple[Integers, Integers]:
        """Policies ``(2T, H, S)`` and how many of ``total`` users follow each: targets evenly, mixtures by lot."""
        T, _, H, S = self.policies.shape
        share = np.full(T, total // T) + (rng.permutation(T) < total % T)
        first = rng.binomial(share, np.clip(self.weights[:, 0], 0.0, 1.0))
        return self.policies.reshape(2 * T, H, S), np.stack([first, share - first], axis=1).reshape(-1)


@dataclass(frozen=True)
class Listed:
    """Policies ``(M, H, S)`` one by one, for tiny worlds."""

    start: Array
    policies: Integers

    def most_visits(self, P: Array, targets: Integers, rng: np.random.Generator) -> Plays:
        """For each of ``targets (T, 3)`` an active policy that visits it most under ``P``; ties at random."""
        arrivals = [set_arrivals(P, self.start, self.policies, h) for h in range(int(targets[:, 0].max()) + 1)]
        chosen = [_one_of_best(arrivals[h][:, x] * (self.policies[:, h, x] == a), rng) for h, x, a in targets.tolist()]
        policies = self.policies[chosen]
        weights = np.tile([1.0, 0.0], (len(targets), 1))
        return Plays(np.stack([policies, policies], axis=1), weights)

    def best(self, P: Array, rewards: Array, rng: np.random.Generator) -> Integers:
        """An active policy ``(H, S)`` of largest value; ties at random."""
        return self.policies[_one_of_best(set_values(P, rewards, self.start, self.policies), rng)]

    def keeps(self, policy: Integers) -> bool:
        """True where ``policy (H, S)`` is active."""
        return bool((self.policies == policy).all((1, 2)).any())

    @property
    def left(self) -> int:
        """Number of active policies."""
        return len(self.policies)


@dataclass(frozen=True)
class Constrained:
    """All policies whose occupancy under ``P (H, S, A, S)`` earns at least ``floor`` of ``bonus (H, S, A)``.

    ``start`` ``(S,)``: first-state distribution.
    """

    P: Array
    start: Array
    bonus: Array
    floor: float

    def most_visits(self, P: Array, targets: Integers, rng: np.random.Generator) -> Plays:
        """See :class:`Listed`; ``P`` must be the model of the constraint, so that both are linear in one occupancy.

        Raises ValueError if it is another model: the problem would not be convex.
        """
        if P is not self.P:
            raise ValueError("targets and constraint must share one model")
        mixtures = most_visits(P, self.start, self.bonus, self.floor, targets, rng)
        return Plays(mixtures.policies, mixtures.weights)

    def best(self, P: Array, rewards: Array, rng: np.random.Generator) -> Integers:
        """See :class:`Listed`; no policy but an active one is best, since bonuses are at least the rewards."""
        H, S = P.shape[:2]
        V, policy = np.zeros((H + 1, S)), np.empty((H, S), dtype=np.int64)
        for h in reversed(range(H)):
            Q = rewards[h] + P[h] @ V[h + 1]
            V[h] = Q.max(-1)
            policy[h] = np.where(V[h][:, None] - Q <= TIE, rng.random(Q.shape), -1.0).argmax(-1)
        return policy

    def keeps(self, policy: Integers) -> bool:
        """See :class:`Listed`; up to rounding."""
        return bool(self._upper(policy[None])[0] >= self.floor - 1e-9)

    @property
    def left(self) -> int | None:
        """Number of active policies; None where they are too many to count."""
        shape = self.bonus.shape[0], self.bonus.shape[1], self.bonus.shape[2]
        if policy_count(shape) > MOST_POLICIES:
            return None
        return int((self._upper(all_policies(shape)) >= self.floor - 1e-9).sum())

    @property
    def worst(self) -> float:
        """Smallest upper value of any policy: below ``floor`` something is eliminated."""
        return -best_value(self.P, -self.bonus, self.start)

    def _upper(self, policies: Integers) -> Array:
        return set_values(self.P, self.bonus, self.start, policies)


# policies that have not been eliminated
ActiveSet = Listed | Constrained


def best_value(P: Array, rewards: Array, start: Array) -> float:
    """Largest value of any policy under ``P`` whose rows may sum to less than 1."""
    V = np.zeros((len(P) + 1, len(start)))
    for h in reversed(range(len(P))):
        V[h] = (rewards[h] + P[h] @ V[h + 1]).max(-1)
    return float(start @ V[0])


def _one_of_best(score: Array, rng: np.random.Generator) -> int:
    best = np.flatnonzero(score >= score.max() - TIE)
    return int(best[rng.integers(len(best))])


@dataclass(frozen=True)
class BatchModel:
    """Estimates of a stage, and reward per step that bounds a policy's value from above and below under ``P``."""

    P: Array
    r: Array
    upper: Array
    lower: Array
    W: Bools


def nothing_known(shape: tuple[int, int, int]) -> BatchModel:
    """All mass at x†."""
    zero, (_, S, _) = np.zeros(shape), shape
    return BatchModel(np.zeros((*shape, S)), zero, zero, zero, np.ones((*shape, S), dtype=bool))


def transition_estimate(n_sas: Array, n_sa: Array, W: Bools) -> Array:
    """N~(x,a,x') / N~(x,a) off W, 0 on it: the missing mass of a row goes to x†."""
    return np.where(W, 0.0, n_sas) / np.where(n_sa > 0, n_sa, 1.0)[..., None]


def reward_estimate(r_sa: Array, n_sa: Array) -> Array:
    """R~ / N~(x,a), clipped to [0, 1]."""
    return np.clip(r_sa / np.where(n_sa > 0, n_sa, 1.0), 0.0, 1.0)


def paper_model(counts: PrivateBatch, W: Bools) -> BatchModel:
    """Algorithm 3, lines 7-10."""
    assert counts.r_sa is not None
    P, r = transition_estimate(counts.n_sas, counts.n_sa, W), reward_estimate(counts.r_sa, counts.n_sa)
    return BatchModel(P, r, r, r, W)


def practical_model(noisy: NoisyTables, layout: BatchLayout, log_term: float, scale: float, z: float) -> BatchModel:
    """Estimates from counts without a shift, and bounds on the error of a policy's value.

    Width of a cell: ``scale * (span (sqrt(l / 2N) + z sd sqrt(X) / 2N) + sqrt(l / 2N) + z sd (1 + r) / N)``, the last
    two for the reward, with ``span`` the steps to go; x† pays 1 a step from above, 0 from below.

    ``log_term``: l = log(4HX²A stages/δ).
    ``z``: standard deviations with which noise counts; tuples within them of 0 are in W.
    """
    assert noisy.r_sa is not None
    H, S, _ = layout.shape
    counts = consistent_batch(noisy, layout, slack=0.0 if layout.lean else z * noisy.sd, shift=0.0, error=0.0)
    W = counts.n_sas <= z * noisy.sd
    W[-1] = True
    P, r = transition_estimate(counts.n_sas, counts.n_sa, W), reward_estimate(noisy.r_sa, counts.n_sa)
    N = np.maximum(counts.n_sa, 1.0)
    span = np.arange(H - 1, -1, -1.0)[:, None, None]
    chance = np.sqrt(log_term / (2 * N))
    moves = scale * span * (chance + z * noisy.sd * math.sqrt(S) / (2 * N))
    pays = scale * (chance + z * noisy.sd * (1 + r) / N)
    above = np.minimum(moves + span * (1 - P.sum(-1)), span)
    upper = np.minimum(r + pays, 1.0) + above
    return BatchModel(P, r, upper, np.maximum(r - pays, 0.0) - np.minimum(moves, span), W)


@dataclass(frozen=True)
class BatchTask:
    """Declared ``shape (H, S, A)``, ``start (S,)``, K ``episodes``, δ ``failure``; rewards are in [0, 1]."""

    shape: tuple[int, int, int]
    start: Array
    episodes: int

    failure: float = 0.1

    @property
    def iota(self) -> float:
        """log(2HAK/δ)."""
        H, _, A = self.shape
        return math.log(2 * H * A * self.episodes / self.failure)

    @property
    def targets(self) -> Integers:
        """Every (h, x, a), ``(HSA, 3)``."""
        return np.argwhere(np.ones(self.shape, dtype=bool))

    def stages(self) -> list[tuple[int, int, bool]]:
        """Episodes of the crude and of the fine half of each stage, summing to K, and whether it has its full length.

        Raises ValueError if not even one episode a target fits.
        """
        least, left = math.prod(self.shape), self.episodes
        if left < 2 * least:
            raise ValueError(f"{left} episodes are too few: one stage needs 2HXA = {2 * least}")
        out, length = list[tuple[int, int, bool]](), 1 << (least - 1).bit_length()
        while left:
            half = min(length, left // 2)
            rest = left - 2 * half
            fine = half + (rest if rest < 2 * least else 0)
            # a single step has no transitions to explore crudely
            crude = half if self.shape[0] > 1 else 0
            out.append((crude, half + fine - crude, half == length))
            left, length = left - half - fine, 2 * length
        return out


@dataclass(frozen=True)
class SdpPeConstants:
    """Knobs of both modes; the defaults are the paper's, or were set once and not tuned.

    ``C``, ``C1``: universal constants of ``paper``: C is hidden in an O(.), C1 = 6.
    """

    mode: Literal["paper", "practical"] = "practical"
    lean: bool = True
    pooled: bool = True
    mixed: bool = False
    C: float = 1.0
    C1: float = 6.0
    scale: float = 0.5
    deviations: float = 2.0


@dataclass(frozen=True)
class SdpPeStage:
    """After a stage: ``episodes`` so far, share of tuples in W, active policies, and how close the worst one is.

    ``slack``: value by which the worst policy under judgement clears the line below which policies go.
    """

    episodes: int
    missing: float
    active: ActiveSet
    left: int | None
    slack: float
    eliminated: bool


@dataclass(frozen=True)
class SdpPeResult:
    """``policy (H, S)``, the model it is best in, and the stages."""

    policy: Integers
    model: BatchModel
    stages: list[SdpPeStage]

    @property
    def first_elimination(self) -> int | None:
        """Episodes played when the first policy had gone; None: nothing was eliminated."""
        return next((s.episodes for s in self.stages if s.eliminated), None)


Asks = Generator[BatchRollout, PrivateBatch, SdpPeResult]


def sdp_pe(task: BatchTask, constants: SdpPeConstants, rng: np.random.Generator) -> Asks:
    """Algorithm 1; ``rng`` breaks ties and draws mixtures."""
    (H, S, A), model = task.shape, nothing_known(task.shape)
    layout = BatchLayout(task.shape, constants.lean, ends=True)
    log_term = math.log(4 * H * S**2 * A * len(task.stages()) / task.failure)
    active: ActiveSet = Constrained(model.P, task.start, model.upper, 0.0)
    if constants.mode == "paper":
        active = Listed(task.start, all_policies(task.shape))  # phi_1: all the deterministic policies
    stages, past, played, last = list[SdpPeStage](), list[NoisyTables](), 0, (active, model)
    for crude, fine, full in task.stages():  # lines 1-4
        if constants.mode == "paper":
            W, P = yield from crude_exploration(task, constants, active, crude, rng)  # line 5
            counts = yield from fine_exploration(task, constants, active, P, fine, rng)  # line 6
            model = paper_model(counts, W)
            active, slack, eliminated = _listed(task, constants, active, model, counts.error, fine)  # lines 7-13
        else:
            counts = yield from fine_exploration(task, constants, active, model.P, crude + fine, rng)  # line 6
            past = [*past, counts.noisy] if constants.pooled else [counts.noisy]
            model = practical_model(pooled(past), layout, log_term, constants.scale, constants.deviations)
            active = Constrained(model.P, task.start, model.upper, best_value(model.P, model.lower, task.start))
            slack = active.worst - active.floor
            eliminated = slack < 0  # lines 7-13
        played += crude + fine
        missing = float(model.W[:-1].mean()) if H > 1 else 0.0
        stages.append(SdpPeStage(played, missing, active, active.left, slack, eliminated))
        if full or len(stages) == 1 or (constants.pooled and constants.mode == "practical"):
            last = active, model
    active, model = last
    return SdpPeResult(active.best(model.P, model.r, rng), model, stages)


def crude_exploration(
    task: BatchTask, constants: SdpPeConstants, active: ActiveSet, episodes: int, rng: np.random.Generator
) -> Generator[BatchRollout, PrivateBatch, tuple[Bools, Array]]:
    """Algorithm 2: tuples visited too seldom W ``(H, S, A, S)``, and the crude model, layer by layer."""
    H, S, A = task.shape
    W, P = np.ones((H, S, A, S), dtype=bool), np.zeros((H, S, A, S))
    for h in range(H - 1):  # line 1
        L = episodes // (H - 1) + (h < episodes % (H - 1))
        targets = task.targets[task.targets[:, 0] == h]
        plays = active.most_visits(P, targets, rng)  # lines 3-4
        ask = BatchRollout(*plays.episodes(L, rng), (h, h + 1), rewards=False, lean=constants.lean)
        counts = yield ask  # lines 5-8
        least = constants.C1 * counts.error * H**2 * task.iota
        W[h] = counts.n_sas[0] <= least  # line 9
        P[h] = transition_estimate(counts.n_sas[0], counts.n_sa[0], W[h])  # line 10
    return W, P


def fine_exploration(
    task: BatchTask, constants: SdpPeConstants, active: ActiveSet, P: Array, episodes: int, rng: np.random.Generator
) -> Generator[BatchRollout, PrivateBatch, PrivateBatch]:
    """Algorithm 3, lines 1-6: one batch that visits every (h, x, a) as often as an active policy can."""
    plays = active.most_visits(P, task.targets, rng)  # lines 1-2
    plays = plays if constants.mixed else plays.pure()
    users = plays.episodes(episodes, rng)
    return (yield BatchRollout(*users, (0, task.shape[0]), rewards=True, lean=constants.lean))  # lines 3-6


def _listed(
    task: BatchTask, constants: SdpPeConstants, active: ActiveSet, model: BatchModel, error: float, L: int
) -> tuple[ActiveSet, float, bool]:
    """Algorithm 1, lines 7-13; the active policies, the slack of the worst, and whether any went."""
    assert isinstance(active, Listed)
    H, X, A = task.shape
    values = set_values(model.P, model.r, task.start, active.policies)
    width = math.sqrt(H**5 * X**2 * A * task.iota / L) + X**3 * A**2 * H**5 * error * task.iota / L
    stays = values.max() - values < 2 * constants.C * width  # line 9
    slack = 2 * constants.C * width - float(values.max() - values.min())
    return Listed(task.start, active.policies[stays]), slack, not bool(stays.all())
