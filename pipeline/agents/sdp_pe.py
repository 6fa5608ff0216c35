"""SDP-PE: policy elimination on shuffle-private counts, batch after batch (paper 002, Algorithms 1-3).

Three generators, as the paper has three algorithms.  They ask for batches and see private counts of them; who must be
trusted for that is the privatizer's business.  Two sets of constants:

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
| ``P``, ``r`` | P~^cru or P~^ref, r~ | (H, S, A, S), (H, S, A) | estimates; what P lacks of 1 goes to x† |
| ``counts.error`` | E | scalar | bound on the error of every count |
| ``iota`` | ι | scalar | log(2HAK/δ), or log(4HX²A stages/δ) in ``practical`` |

0-based; X is S here; K episodes, δ ``failure``.  Numbers are those of docs/paper-002.md.

Departures from the printed page, with either constants
    * 1, line 2: the sum runs to b-1; 2, L_0 = L_b/HXA is at least 1: stages start at b = ceil(log2 HXA), remainders are
      spread over the targets by lot, and what would be less than such a stage joins the one before;
    * 3, EstimateTransition and EstimateRewards are printed nowhere: P~ = N~(x,a,x')/N~(x,a) off W, the rest to x†;
      r~ = R~/N~(x,a), 12, clipped to [0, 1];
    * 4, the start distribution is a public input; 7, ties are broken at random;
    * 5, the last step has no successor: no transition counters there, no W, no crude batch (L_b is spread over the
      other steps); 6, P~cru starts with all mass at x†;
    * 8-11, 15 and 17 concern the privatizer (:mod:`pipeline.statistics.batch_privatizers`); 14 costs constants only;
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
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.active_set import (
    ActiveSet,
    Constrained,
    Listed,
    Model,
    best_value,
    nothing_known,
    paper_model,
    practical_model,
    transition_estimate,
)
from pipeline.mdp.policy import all_policies, set_values
from pipeline.mdp.rollout import BatchRollout
from pipeline.statistics.batch_counts import BatchLayout, NoisyTables, PrivateBatch, pooled

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class BatchTask:
    """What is declared: ``shape (H, S, A)``, ``start (S,)``, K ``episodes``, δ ``failure``; rewards are in [0, 1]."""

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

        Raises
        ------
        ValueError
            If not even one episode a target fits.
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
class Constants:
    """Knobs of both modes; the defaults are the paper's, or were set once and not tuned.

    Parameters
    ----------
    C, C1
        Universal constants of ``paper``: C is hidden in an O(.), C1 = 6.
    lean
        Visits are the sums of transitions, not counts of their own.
    pooled
        Of ``practical``: counts of all stages so far, not of the latest alone.
    mixed
        Of ``practical``: where the most visits are a mixture of two policies, play both, though one is not active.
    scale, deviations
        Of ``practical``: every width is scaled by ``scale``; noise counts with so many standard deviations.
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
class Stage:
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
class Answer:
    """``policy (H, S)``, the model it is best in, and the stages."""

    policy: Integers
    model: Model
    stages: list[Stage]

    @property
    def first_elimination(self) -> int | None:
        """Episodes played when the first policy had gone; None: nothing was eliminated."""
        return next((s.episodes for s in self.stages if s.eliminated), None)


Asks = Generator[BatchRollout, PrivateBatch, Answer]


def sdp_pe(task: BatchTask, constants: Constants, rng: np.random.Generator) -> Asks:
    """Algorithm 1; ``rng`` breaks ties and draws mixtures."""
    (H, S, A), model = task.shape, nothing_known(task.shape)
    layout = BatchLayout(task.shape, constants.lean, ends=True)
    log_term = math.log(4 * H * S**2 * A * len(task.stages()) / task.failure)
    active: ActiveSet = Constrained(model.P, task.start, model.upper, 0.0)
    if constants.mode == "paper":
        active = Listed(task.start, all_policies(task.shape))  # phi_1: all the deterministic policies
    stages, past, played, last = list[Stage](), list[NoisyTables](), 0, (active, model)
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
        stages.append(Stage(played, missing, active, active.left, slack, eliminated))
        if full or len(stages) == 1 or (constants.pooled and constants.mode == "practical"):
            last = active, model
    active, model = last
    return Answer(active.best(model.P, model.r, rng), model, stages)


def crude_exploration(
    task: BatchTask, constants: Constants, active: ActiveSet, episodes: int, rng: np.random.Generator
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
    task: BatchTask, constants: Constants, active: ActiveSet, P: Array, episodes: int, rng: np.random.Generator
) -> Generator[BatchRollout, PrivateBatch, PrivateBatch]:
    """Algorithm 3, lines 1-6: one batch that visits every (h, x, a) as often as an active policy can."""
    plays = active.most_visits(P, task.targets, rng)  # lines 1-2
    plays = plays if constants.mixed else plays.pure()
    users = plays.episodes(episodes, rng)
    return (yield BatchRollout(*users, (0, task.shape[0]), rewards=True, lean=constants.lean))  # lines 3-6


def _listed(
    task: BatchTask, constants: Constants, active: ActiveSet, model: Model, error: float, L: int
) -> tuple[ActiveSet, float, bool]:
    """Algorithm 1, lines 7-13; the active policies, the slack of the worst, and whether any went."""
    assert isinstance(active, Listed)
    H, X, A = task.shape
    values = set_values(model.P, model.r, task.start, active.policies)
    width = math.sqrt(H**5 * X**2 * A * task.iota / L) + X**3 * A**2 * H**5 * error * task.iota / L
    stays = values.max() - values < 2 * constants.C * width  # line 9
    slack = 2 * constants.C * width - float(values.max() - values.min())
    return Listed(task.start, active.policies[stays]), slack, not bool(stays.all())
