"""What the constants study compares: the presets, and other constants of their penalties."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from pipeline.agents.apvi import apvi, model, optimal_upper, policy_bounds
from pipeline.agents.pessimism import Constants, Penalty, Preset, constants
from pipeline.mdp.model import Task
from pipeline.mdp.planning import policy_value
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics.ask import Ask
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.counts import Slack, private_counts
from pipeline.statistics.private_sum import PrivateSum
from tests.campaigns.constants_worlds import Setting

RHO, EPSILON, FAILURE = 1.0, 1.0, 0.1
SPLIT = {"two, 1:1": Ask(rho=RHO, tables="two_tables", split={"n_sa": 0.5, "n_sas": 0.5})}
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
    """

    name: str
    ask: str
    preset: Preset
    multiples: tuple[float, float] | None = None
    slack: Slack = "zero"
    penalty: Penalty = "bernstein"

    @property
    def declared_rewards_only(self) -> bool:
        """Whether the row is left out where rewards are estimated: it has no meaning there, or takes too long."""
        return self.ask in SPLIT or self.ask.endswith("Laplace")

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
    """One log of ``episodes`` people and its releases, drawn when first asked."""

    def __init__(self, setting: Setting, episodes: int, seed: list[int]) -> None:
        # of seven streams, as the committed rows were drawn
        self.ties, _, _, log, _, _, self._noise = np.random.SeedSequence(seed).spawn(7)
        self.setting, self.release = setting, cache(self._release)
        self._counts = setting.counts(episodes, np.random.default_rng(log))

    def _release(self, ask: str) -> Release:
        # every ask meets the same log and the same noise seed
        privatizer = PrivateSum(CountLayout(self.setting.card), self.setting.mechanisms(ASKS[ask]))
        return privatizer.draw(self._counts, SeededNoise(self._noise))


def find(method: Method, draw: Draw) -> Found:
    """Run one row of the study on one draw."""
    setting, task, c = draw.setting, draw.setting.task, method.constants(draw.setting.task)
    counts = private_counts(draw.release(method.ask), setting.card, slack=method.slack, failure=FAILURE)
    policy = apvi(counts, task, c, np.random.default_rng(draw.ties), method.penalty).policy
    value, start = policy_value(setting.mdp, policy.beside(setting.behaviour)), setting.mdp.start
    m = model(counts, task, c, method.penalty)
    lower, upper, _ = policy_bounds(m, policy)
    return Found(value, float(start @ lower[0]), float(start @ upper[0]), float(start @ optimal_upper(m)[0]))


ONE = (1.0, 1.0)
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
