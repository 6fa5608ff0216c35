"""Linear agents of paper 003 in the world of its Appendix F: one cell is one contender at one budget, K and world.

Its runs draw a fresh log (by multinomials: the exact law of the sufficient counts) and fresh noise each, and evaluate
the policy exactly.  All contenders of a (world, K, run) plan on the same log.  Noise is seeded: nothing is private.

What the paper does not print, chosen here: C = 0.1 and D = 0 of the width, lambda = 0.01, c1 = c2 = 1 and failure 0.1
in E, PEVI's beta, the order of the bits (most significant first), deterministic rewards.
"""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

import numpy as np

from pipeline.agents.linear_backup import LinearConstants, LinearResult, LinearTask, linear_task
from pipeline.agents.one_shot import one_shot
from pipeline.agents.pevi import pevi, theory_beta
from pipeline.agents.vapvi import vapvi
from pipeline.environments.linear_003 import LinearWorld, Scale, linear_003
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.mdp.policy import Policy, constant, uniform
from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.communication import in_the_clear
from pipeline.simulation.trial import SIMULATION, Row
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive import InteractiveRegression
from pipeline.statistics.linear_calibration import draw_one_shot, released_statistics, true_rho
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms, Variant
from pipeline.statistics.regression_rows import count_rows

C, RIDGE, FAILURE, DELTA = 0.1, 0.01, 0.1, 1e-6
# what a step says: state, action, reward
_NUMBERS = 3

Beta = Literal["matched", "theory"]


@dataclass(frozen=True)
class Contender:
    """A learner of the figure: its name, its features, and how its sums are released.

    Parameters
    ----------
    agent
        The algorithm.
    variant
        What rows call it.
    features
        As printed, with norms up to sqrt(7), divided by that, or in John's position.
    release
        How sums are released: as the paper prints it, centred, or once for all steps.
    beta
        PEVI's multiplier; None for the others.
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

    Parameters
    ----------
    name
        Of the agent or control.
    rho
        The asked budget, zCDP; None without privacy.
    episodes
        Of each log.
    world
        Seed of the instance.
    runs
        Independent logs, noises and ties.
    """

    name: str
    learner: Contender | None
    rho: float | None
    episodes: int
    world: int
    runs: int


def measure(cell: Cell) -> Row:
    """Run a cell; the same cell gives the same row."""
    return _control(cell) if cell.learner is None else _learner(cell, cell.learner)


@cache
def _world(seed: int, features: Scale) -> LinearWorld:
    return linear_003(seed, features)


@cache
def _optimum(seed: int) -> float:
    mdp = _world(seed, "normalised").mdp
    return float(mdp.start @ optimal_values(mdp)[1][0])


def _name(seed: int) -> str:
    return f"linear-003 instance {seed}"


def _control(cell: Cell) -> Row:
    """A policy that looks at no data: exact, hence the same in every run."""
    w = _world(cell.world, "normalised")
    H, S, A = w.mdp.shape
    policies = {
        "uniform": uniform(H, S, A),
        "behaviour": Policy(np.tile(w.behaviour, (H, 1, 1)), np.zeros((H, S), dtype=bool)),
        "always-first": constant(H, S, A, 0),
    }
    gap = _optimum(cell.world) - policy_value(w.mdp, policies[cell.name])
    return _row(cell, "control", gap, 0.0)


def _row(
    cell: Cell,
    variant: str,
    mean: float,
    std: float,
    calibration: str | None = None,
    constants: str | None = None,
    true: float | None = None,
    ties: float | None = None,
) -> Row:
    w = _world(cell.world, "normalised")
    sent = None if cell.rho is None else in_the_clear("the curator", w.mdp.horizon, _NUMBERS)
    return Row(
        agent=cell.name,
        variant=variant,
        trust="none" if cell.rho is None else "central",
        world=_name(cell.world),
        episodes=cell.episodes,
        rho=cell.rho,
        epsilon=None,
        delta=None if cell.rho is None else DELTA,
        calibration=calibration,
        constants=constants,
        metric="suboptimality",
        mean=mean,
        std=std,
        runs=cell.runs,
        true_rho=true,
        true_epsilon=None if true is None else epsilon_from_rho(true, DELTA),
        messages=None if sent is None else sent["messages"],
        bits=None if sent is None else sent["bits"],
        tie_share=ties,
        noise=SIMULATION,
    )


def _plan(cell: Cell, x: Contender, w: LinearWorld) -> LinearPlan:
    calibration = "tight" if x.ours or cell.rho is None else "paper"
    terms = LinearTerms(
        Ask(None if cell.rho is None else Fraction(cell.rho), calibration=calibration),
        variant=x.release,
        variance=x.agent != "pevi",
    )
    domain = LinearDomain(_name(cell.world), "synthetic", w.mdp.horizon, cell.episodes)
    return LinearPlan(domain, terms, w.features)


def _learner(cell: Cell, x: Contender) -> Row:
    w = _world(cell.world, x.features)
    plan = _plan(cell, x, w)
    task = linear_task(plan)
    results = [_run(cell, x, w, plan, task, run) for run in range(cell.runs)]
    gaps = np.array([_optimum(cell.world) - policy_value(w.mdp, r.policy) for r in results])
    spent, std = true_rho(plan), float(gaps.std(ddof=1)) if cell.runs > 1 else 0.0
    calibration = None if cell.rho is None else plan.terms.ask.calibration
    true, ties = None if spent is None else float(spent), float(np.mean([r.tied.mean() for r in results]))
    return _row(cell, x.variant, float(gaps.mean()), std, calibration, _constants(cell, x, task), true, ties)


def _run(cell: Cell, x: Contender, w: LinearWorld, plan: LinearPlan, task: LinearTask, run: int) -> LinearResult:
    # one stream for the log, which all contenders share, and one each for noise and ties
    at = (cell.world, cell.episodes, run)
    log = np.random.default_rng((3, *at))
    own = zlib.crc32(f"{x.agent} {x.variant} {cell.rho}".encode())
    noise, ties = SeededNoise(np.random.SeedSequence((4, *at, own))), np.random.default_rng((5, *at, own))
    rows = count_rows(plan, {"both": w.counts(cell.episodes, log)}, w.mdp.rewards)
    c = LinearConstants(C=C, ridge=RIDGE, shift="edge" if x.ours else "paper", failure=FAILURE)
    if x.release == "one_shot":
        return one_shot(released_statistics(plan, draw_one_shot(plan, rows, noise)), task, c, ties)
    desk = InteractiveRegression(plan, rows, noise)
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
