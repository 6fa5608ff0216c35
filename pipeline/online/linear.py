"""Linear agents of paper 003 in the world of its Appendix F: one cell is one contender at one budget, K and world.

Its runs draw a fresh log (by multinomials: the exact law of the sufficient counts) and fresh noise each, and evaluate
the policy exactly.  All contenders of a (world, K, run) plan on the same log.  Noise is seeded: nothing is private.

What the paper does not print, chosen here: C = 0.1 and D = 0 of the width, lambda = 0.01, c1 = c2 = 1 and failure 0.1
in E, PEVI's beta, the order of the bits (most significant first), deterministic rewards.

The linear MDP of paper 003, Appendix F: 2 states, 100 actions, 20 steps, d = 10.

phi(s, a) = (bits of a, delta, 1 - delta) with delta = 1 iff [s = 0] = [a = 0]; per step, alpha_1, alpha_2, r ~ U[0, 1]:
P(0 | s, a) = delta alpha_1 + (1 - delta) alpha_2, and theta = (r/8, 0, r/8, 1/2 - r/2, r/8, 0, r/8, 0, r/2, 1/2 - r/2).
Behaviour: action 0 with probability 0.6, else one of the other 99; the first state is uniform.  Generator seed 0, most
significant bit first, alphas drawn before r: v* = 14.150866.

What is not exactly right
    * ||phi||^2 reaches 7, while the algorithm assumes 1: ``literal`` keeps the printed map (and breaks the printed
      guarantee), ``normalised`` divides it by sqrt(7): the same MDP.  ``balanced`` is the same linear class in John's
      position.
    * the order of the bits is not printed: here the most significant stands first;
    * actions stop at 99 < 128, so one bit is always 0: features have rank 9 and the paper's coverage constant kappa
      is 0;
    * rewards: the paper gives the expected reward only; logs here hold the mean.
"""

# ruff: noqa: N806  (the letters of the paper)
import math
import zlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

import numpy as np

from pipeline.agents.linear_backup import LinearConstants, LinearResult, LinearTask, linear_task, one_shot
from pipeline.agents.vapvi import pevi, theory_beta, vapvi
from pipeline.arrays import Array, Integers
from pipeline.mdp.features import FeatureMap, balance
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimum, policy_value
from pipeline.mdp.policy import Policy, constant, uniform
from pipeline.online.trial import SIMULATION, TrialRow, in_the_clear
from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics import linear_sums
from pipeline.statistics.ask import Ask
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms, Variant

Scale = Literal["literal", "normalised", "balanced"]

STATES, ACTIONS, HORIZON, BITS = 2, 100, 20, 8
_FIRST = 0.6


@dataclass(frozen=True)
class LinearWorld:
    """A finite linear MDP: its exact model, integer features and logging policy ``(S, A)``.

    ``mdp``: exact model ``(20, 2, 100, 2)``, rewards in [0, 1].
    ``features``: integer map ``(2, 100, d)``, d = 10, or 9 where balanced.
    ``behaviour`` ``(2, 100)``: probabilities of the logging policy.
    """

    mdp: TabularMDP
    features: FeatureMap
    behaviour: Array

    def counts(self, episodes: int, rng: np.random.Generator) -> Integers:
        """Transitions ``(H, S, A, S)`` of so many logged episodes, by multinomials: the exact law, at any number."""
        H, S, A = self.mdp.shape
        n = np.zeros((H, S, A, S), dtype=np.int64)
        people = rng.multinomial(episodes, self.mdp.start)
        for h in range(H):
            n[h] = rng.multinomial(rng.multinomial(people, self.behaviour), self.mdp.transitions[h])
            people = n[h].sum((0, 1))
        return n


def linear_003(seed: int, scale: Scale = "normalised") -> LinearWorld:
    """Build an instance.

    ``seed``: of the generator that draws alpha ``(H, 2)``, then r ``(H,)``.
    ``scale``: ``literal`` as printed, ``normalised`` over sqrt(7), or ``balanced`` in John's position.
    """
    rng = np.random.default_rng(seed)
    alpha, r = rng.random((HORIZON, 2)), rng.random(HORIZON)
    f = integer_features()
    half = (1 - r) / 2
    theta = np.stack([r / 8, 0 * r, r / 8, half, r / 8, 0 * r, r / 8, 0 * r, r / 2, half], axis=1)
    P = np.zeros((HORIZON, STATES, ACTIONS, STATES))
    P[..., 0] = np.einsum("sad,hd->hsa", f[..., BITS:], alpha)
    P[..., 1] = 1 - P[..., 0]
    rewards = np.einsum("sad,hd->hsa", f, theta)
    behaviour = np.full((STATES, ACTIONS), (1 - _FIRST) / (ACTIONS - 1))
    behaviour[:, 0] = _FIRST
    return LinearWorld(TabularMDP(P, rewards, np.full(STATES, 0.5)), feature_map(scale), behaviour)


def integer_features() -> Integers:
    """Printed features ``(S, A, d)``: zeros and ones."""
    f = np.zeros((STATES, ACTIONS, BITS + 2), dtype=np.int64)
    f[:, :, :BITS] = (np.arange(ACTIONS)[:, None] >> np.arange(BITS)[::-1]) & 1
    f[..., BITS] = (np.arange(STATES) == 0)[:, None] == (np.arange(ACTIONS) == 0)
    f[..., BITS + 1] = 1 - f[..., BITS]
    return f


def feature_map(scale: Scale) -> FeatureMap:
    """The printed map, the same over sqrt(7), or its linear class in John's position."""
    f = integer_features()
    square = int((f * f).sum(-1).max())
    printed = FeatureMap(f, square, Fraction(1) if scale == "literal" else Fraction(1, square))
    return balance(printed) if scale == "balanced" else printed


C, RIDGE, FAILURE, DELTA = 0.1, 0.01, 0.1, 1e-6
# numbers of a step: state, action, reward
_NUMBERS = 3

Beta = Literal["matched", "theory"]


@dataclass(frozen=True)
class Contender:
    """A learner of the figure: its name, its features, and how its sums are released.

    ``features``: as printed, with norms up to sqrt(7), divided by that, or in John's position.
    ``beta``: PEVI's multiplier; None for the others.
    """

    agent: Literal["dp-vapvi", "vapvi", "pevi"]
    variant: str
    features: Scale = "normalised"
    release: Variant = "paper"
    beta: Beta | None = None

    @property
    def ours(self) -> bool:
        """Whether the noise is calibrated by us instead of printed by the paper."""
        return self.release != "paper"


@dataclass(frozen=True)
class Cell:
    """One setting to be measured; ``learner`` is None for a control.

    ``rho``: the asked budget, zCDP; None without privacy.
    """

    name: str
    learner: Contender | None
    rho: float | None
    episodes: int
    world: int
    runs: int


@cache
def _world(seed: int, features: Scale) -> LinearWorld:
    return linear_003(seed, features)


@cache
def _optimum(seed: int) -> float:
    return optimum(_world(seed, "normalised").mdp)


def _name(seed: int) -> str:
    return f"linear-003 instance {seed}"


def measure(cell: Cell) -> TrialRow:
    """Run a cell; the same cell gives the same row, and a control, which looks at no data, the same in every run."""
    x = cell.learner
    w = _world(cell.world, "normalised" if x is None else x.features)
    calibration, constants, spent, ties = None, None, None, None
    if x is None:
        policies = [_control(cell.name, w)]
    else:
        plan = _plan(cell, x, w)
        task = linear_task(plan)
        results = [_run(cell, x, w, plan, task, run) for run in range(cell.runs)]
        policies, spent = [r.policy for r in results], linear_sums.true_rho(plan)
        calibration = None if cell.rho is None else plan.terms.ask.calibration
        constants, ties = _constants(cell, x, task), float(np.mean([r.tied.mean() for r in results]))
    gaps = np.array([_optimum(cell.world) - policy_value(w.mdp, policy) for policy in policies])
    sent = None if cell.rho is None else in_the_clear("the curator", w.mdp.horizon, _NUMBERS)
    return TrialRow(
        agent=cell.name,
        variant="control" if x is None else x.variant,
        trust="none" if cell.rho is None else "central",
        world=_name(cell.world),
        episodes=cell.episodes,
        rho=cell.rho,
        epsilon=None,
        delta=None if cell.rho is None else DELTA,
        calibration=calibration,
        constants=constants,
        metric="suboptimality",
        mean=float(gaps.mean()),
        std=float(gaps.std(ddof=1)) if len(gaps) > 1 else 0.0,
        runs=cell.runs,
        true_rho=None if spent is None else float(spent),
        true_epsilon=None if spent is None else epsilon_from_rho(float(spent), DELTA),
        messages=None if sent is None else sent["messages"],
        bits=None if sent is None else sent["bits"],
        tie_share=ties,
        noise=SIMULATION,
    )


def _control(name: str, w: LinearWorld) -> Policy:
    H, S, _ = w.mdp.shape
    policies = {
        "uniform": uniform(*w.mdp.shape),
        "behaviour": Policy(np.tile(w.behaviour, (H, 1, 1)), np.zeros((H, S), dtype=bool)),
        "always-first": constant(*w.mdp.shape, 0),
    }
    return policies[name]


def _plan(cell: Cell, x: Contender, w: LinearWorld) -> LinearPlan:
    calibration = "tight" if x.ours or cell.rho is None else "paper"
    terms = LinearTerms(
        Ask(None if cell.rho is None else Fraction(cell.rho), calibration=calibration),
        variant=x.release,
        variance=x.agent != "pevi",
    )
    domain = LinearDomain(_name(cell.world), "synthetic", w.mdp.horizon, cell.episodes)
    return LinearPlan(domain, terms, w.features)


def _run(cell: Cell, x: Contender, w: LinearWorld, plan: LinearPlan, task: LinearTask, run: int) -> LinearResult:
    # one stream for the log, which all contenders share, and one each for noise and ties
    seed = (cell.world, cell.episodes, run)
    log = np.random.default_rng((3, *seed))
    key = zlib.crc32(f"{x.agent} {x.variant} {cell.rho}".encode())
    noise, ties = SeededNoise(np.random.SeedSequence((4, *seed, key))), np.random.default_rng((5, *seed, key))
    rows = linear_sums.count_rows(plan, {"both": w.counts(cell.episodes, log)}, w.mdp.rewards)
    c = LinearConstants(C=C, ridge=RIDGE, shift="edge" if x.ours else "paper", failure=FAILURE)
    if x.release == "one_shot":
        return one_shot(
            linear_sums.released_statistics(plan, linear_sums.draw_one_shot(plan, rows, noise)), task, c, ties
        )
    desk = linear_sums.InteractiveRegression(plan, rows, noise)
    if x.beta is not None:
        return pevi(desk, task, c, ties, beta_of(x.beta, task), centred=plan.centred)
    return vapvi(desk, task, c, ties, centred=plan.centred)


def beta_of(beta: Beta, task: LinearTask) -> float:
    """PEVI's multiplier: VAPVI's own C sqrt(d), or c d H sqrt(log(2 d H K / failure)) with c = C."""
    return C * math.sqrt(task.dimension) if beta == "matched" else theory_beta(task, C, FAILURE)


def _constants(cell: Cell, x: Contender, task: LinearTask) -> str:
    width = f"C = {C:g}, D = 0"
    if x.beta is not None:
        formula = "C √d" if x.beta == "matched" else "C d H √log(2dHK/0.1)"
        width = f"C = {C:g}, β = {formula} = {beta_of(x.beta, task):.4g}"
    shift = "" if cell.rho is None else ", shift 2 √d sd" if x.ours else ", shift E/2"
    return f"{width}, λ = {RIDGE:g}{shift}"
