"""What the constants study compares: the presets, the findings' own constants, and what was tried to beat them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from pipeline.agents.apvi import apvi, model, optimal_upper, policy_bounds
from pipeline.agents.pessimism import Constants, Penalty, Preset, constants
from pipeline.mdp.model import Task
from pipeline.mdp.planning import policy_value
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.counts import PrivateCounts, Slack, private_counts
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.private_sum import PrivateSum
from tests.campaigns.constants_refinements import (
    clear_entries,
    pooled_steps,
    shared_steps,
    whole_policy_interval,
)
from tests.campaigns.constants_worlds import Setting

Refine = Callable[[PrivateCounts], PrivateCounts]
RHO, EPSILON, FAILURE = 1.0, 1.0, 0.1


def _two(visits: float) -> Ask:
    return Ask(rho=RHO, tables="two_tables", split={"n_sa": visits, "n_sas": 1 - visits})


SPLIT = {"two, 1:3": _two(0.25), "two, 1:1": _two(0.5)}
ASKS = SPLIT | {
    "none": Ask(),
    "paper": Ask(rho=RHO, tables="two_tables", calibration="paper"),
    "paper, Laplace": Ask(epsilon=EPSILON, tables="two_tables", calibration="paper"),
    "two": Ask(rho=RHO, tables="two_tables"),
    "one": Ask(rho=RHO),
    "one, Laplace": Ask(epsilon=EPSILON),
}


@dataclass(frozen=True)
class Method:
    """A row of the study.

    Attributes
    ----------
    ask
        Key of :data:`ASKS`.
    multiples
        (C1, C2) of ``practical`` with iota = 1, or None: the preset's own.
    refine
        Further post-processing of the released counts, for the policy only; its bounds are then ``tail``.
    interval
        ``cells``: the planner's widths, cell by cell; ``whole``: :func:`whole_policy_interval` on the same release;
        ``halves``: on the release of the other half of the people, each half with the whole budget.
    """

    name: str
    ask: str
    preset: Preset
    multiples: tuple[float, float] | None = None
    slack: Slack = "zero"
    penalty: Penalty = "bernstein"
    refine: Refine | None = None
    interval: Literal["cells", "whole", "halves"] = "cells"
    imitates: bool = False

    @property
    def declared_rewards_only(self) -> bool:
        """Whether the row is left out where rewards are estimated: it has no meaning there, or takes too long."""
        return (
            self.ask in SPLIT
            or self.ask.endswith("Laplace")
            or self.interval != "cells"
            or self.refine is clear_entries
        )

    def constants(self, task: Task) -> Constants:
        """Constants of the policy."""
        chosen = constants(self.preset, task.horizon * task.allowed.size, FAILURE)
        return replace(chosen, C1=self.multiples[0], C2=self.multiples[1]) if self.multiples else chosen


@dataclass(frozen=True)
class Found:
    """Value of the policy, its interval, and the upper value of the best policy."""

    value: float
    lower: float
    upper: float
    best_upper: float


class Draw:
    """One log of ``episodes`` people and its releases, drawn when first asked; half 0 and 1 are other people."""

    def __init__(self, setting: Setting, episodes: int, seed: list[int]) -> None:
        self.setting, self.episodes = setting, episodes
        self.ties, *self._seeds = np.random.SeedSequence(seed).spawn(7)
        self.release = cache(self._release)
        self._counts = cache(self._log)

    def _log(self, part: int) -> ExactSums:
        people = self.episodes if part == 2 else self.episodes // 2
        return self.setting.counts(people, np.random.default_rng(self._seeds[part]))

    def _release(self, ask: str, part: int = 2) -> Release:
        # every ask of one part meets the same log and the same noise seed
        privatizer = PrivateSum(CountLayout(self.setting.card), self.setting.mechanisms(ASKS[ask]))
        return privatizer.draw(self._counts(part), SeededNoise(self._seeds[3 + part]))


def find(method: Method, draw: Draw) -> Found:
    """Run one row of the study on one draw."""
    setting, task, c = draw.setting, draw.setting.task, method.constants(draw.setting.task)
    own = 0 if method.interval == "halves" else 2
    counts = private_counts(draw.release(method.ask, own), setting.card, slack=method.slack, failure=FAILURE)
    if method.imitates:
        policy = Policy(np.eye(task.allowed.shape[1])[counts.n_sa.argmax(-1)], np.zeros(counts.n_sa.shape[:2], bool))
    else:
        rng = np.random.default_rng(draw.ties)
        policy = apvi(method.refine(counts) if method.refine else counts, task, c, rng, method.penalty).policy
    value, start = policy_value(setting.mdp, policy.beside(setting.behaviour)), setting.mdp.start
    if method.interval != "cells":
        held = counts if own == 2 else private_counts(draw.release(method.ask, 1), setting.card, failure=FAILURE)
        return Found(value, *whole_policy_interval(held, task, policy, start, FAILURE), task.value_range(0)[1])
    bounds = constants("tail", task.horizon * task.allowed.size, FAILURE) if method.refine or method.imitates else c
    m = model(counts, task, bounds, method.penalty)
    lower, upper = policy_bounds(m, policy)
    return Found(value, float(start @ lower[0]), float(start @ upper[0]), float(start @ optimal_upper(m)[0]))


HALF, ONE = (0.5, 0.5), (1.0, 1.0)
PRESETS = (
    Method("no privacy, plug-in", "none", "practical", (0.0, 0.0)),
    Method("no privacy, APVI paper", "none", "paper"),
    Method("no privacy, APVI practical 1,1", "none", "practical", ONE),
    Method("paper, Bernstein", "paper", "paper", slack="paper"),
    Method("paper, Hoeffding", "paper", "paper", slack="paper", penalty="hoeffding"),
    Method("paper, Bernstein, Laplace", "paper, Laplace", "paper", slack="paper"),
    Method("tail, two tables", "two", "tail"),
    Method("tail, one table", "one", "tail"),
    Method("practical 5,3, two tables", "two", "practical"),
    Method("practical 5,3, one table", "one", "practical"),
    Method("practical 1,1, two tables 1:1, slack E/2", "two, 1:1", "practical", ONE, slack="paper"),
    Method("practical 1,1, one table", "one", "practical", ONE),
    Method("practical 1,1, one table, Laplace", "one, Laplace", "practical", ONE),
    Method("no pessimism, one table", "one", "practical", (0.0, 0.0)),
)
CANDIDATES = (
    Method("1/2,1/2, two tables 1:1, slack E/2", "two, 1:1", "practical", HALF, slack="paper"),
    Method("1/2,1/2, two tables 1:1, E = 0", "two, 1:1", "practical", HALF),
    Method("1/2,1/2, two tables 1:3, E = 0", "two, 1:3", "practical", HALF),
    Method("1/2,1/2, two tables 15:85, E = 0", "two", "practical", HALF),
    Method("1/2,1/2, one table", "one", "practical", HALF),
    Method("1/2,1/2, one table, clear entries", "one", "practical", HALF, refine=clear_entries),
    Method("1/2,1/2, one table, shared steps", "one", "practical", HALF, refine=shared_steps),
    Method("1/2,1/2, two tables 15:85, shared steps", "two", "practical", HALF, refine=shared_steps),
    Method("1/2,1/2, one table, pooled steps", "one", "practical", HALF, refine=pooled_steps),
    Method("no privacy, shared steps", "none", "practical", (0.0, 0.0), refine=shared_steps),
    Method("most visited action, one table", "one", "practical", imitates=True),
    Method("practical 1,1, whole-policy interval", "one", "practical", ONE, interval="whole"),
    Method("1/2,1/2, half the people each", "one", "practical", HALF, interval="halves"),
)
