"""The price of privacy and of trust: one world, one measure, every trust model, a grid of episodes and budgets.

The measure is the suboptimality v* - v^pi of the policy that an agent hands over after n episodes, exactly, by planning
in the known world.  Every (agent, n, epsilon, seed) is a run of its own, declared for n episodes: a counter's depth and
a batch's length depend on n, so that a policy on the way to 10^8 episodes is not what 10^4 would have given.

What is the same for all: the world and its luck, (epsilon, delta), one user is one episode, neighbours replace one.
What is not: the central curator learns from episodes that others have logged, the others choose what they try.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipeline.simulation.registry import AGENTS, find
from pipeline.simulation.trial import Facts, Measured, Row, Trial
from pipeline.studies.study import NONE, Budget, Options, sweep
from pipeline.studies.study_rows import gather

METRIC = "suboptimality"
# the band over runs, and what counts as having learnt: this share of the uniform policy's suboptimality
LOW, HIGH, BAR = 0.1, 0.9, 0.1
CONTROLS = ("uniform", "behaviour", "best-constant")


class PricedRow(Row):
    """A row of a comparison.

    Attributes
    ----------
    family
        A key of :data:`FAMILIES`; empty for a control of all.
    of
        The agent that was kept from its data.
    low, high
        The band over runs: quantiles :data:`LOW` and :data:`HIGH`.
    losses
        ``(runs,)`` suboptimality, reward units.
    """

    family: str
    of: str | None
    low: float
    high: float
    losses: list[float]


@dataclass(frozen=True)
class Family:
    """Agents of one kind: who plays under each trust model, and why nobody does where nobody can.

    Parameters
    ----------
    title
        What its agents count, in words.
    private
        Its private agents, by trust.
    absent
        Trust model -> the reason.
    unread
        Agents that also play without their data.
    """

    title: str
    private: tuple[str, ...]
    absent: Mapping[str, str]
    unread: tuple[str, ...]

    @property
    def plain(self) -> dict[str, str]:
        """Private agent -> the same planner without noise."""
        return {agent: AGENTS[agent].plain or "" for agent in self.private}

    @property
    def agents(self) -> tuple[str, ...]:
        """Without privacy first, then by trust."""
        return (*dict.fromkeys(self.plain.values()), *self.plain)


FAMILIES: Mapping[str, Family] = {
    "counts": Family(
        "counts of (state, action, next state)",
        ("dp-apvi", "dp-ucbvi-jdp", "dp-ucbvi-ldp", "counts-shuffle"),
        {},
        ("dp-ucbvi-jdp", "dp-apvi"),
    ),
    "mixture": Family(
        "linear mixture of known kernels",
        ("private-linopt-vi", "ldp-ucrl-vtr"),
        {
            "central": "no offline agent for linear mixtures is built: DP-VAPVI assumes a linear MDP, another model",
            "shuffle": "no paper gives shuffled messages for value-targeted regression",
        },
        ("private-linopt-vi",),
    ),
}


@dataclass(frozen=True)
class Grid:
    """Everything that is asked of one world; ``told``: ``rewards``, ``pooled`` and ``behaviour``, as all agents know
    them.

    Parameters
    ----------
    world, params
        Name and sorted parameters of the world.
    families
        Keys of :data:`FAMILIES`.
    episodes, budgets
        Every n and every epsilon.
    delta
        The same for all private agents.
    runs, seed
        How many, and the seed of the first.
    """

    world: str
    params: Options
    families: tuple[str, ...]
    episodes: tuple[int, ...]
    budgets: tuple[float, ...]
    delta: float
    runs: int
    seed: int = 0
    rewards: Literal["known", "learnt"] = "known"
    pooled: bool = False
    behaviour: str = "uniform"

    def trials(self) -> list[Trial]:
        """Controls first, which cost nothing, then the longest runs, so that no process is left with one at the end."""
        place, least = [(self.world, self.params)], [min(self.episodes)]
        seeds = range(self.seed, self.seed + self.runs)
        asked = [Budget(e, self.delta, "tight") for e in self.budgets]
        behaviour: Options = (("of", self.behaviour),)
        found = sweep(place, least, [(name, behaviour if name == "behaviour" else ()) for name in CONTROLS])
        for family in self.families:
            for of in FAMILIES[family].unread:
                unread = ("no-data", (*self._options(of, family), ("of", of)))
                found += sweep(place, least, [unread], [min(asked)], seeds)
        for n in sorted(self.episodes, reverse=True):
            for family in self.families:
                for agent in FAMILIES[family].agents:
                    told = [(agent, self._options(agent, family))]
                    found += sweep(place, [n], told, asked if find(agent).private else [NONE], seeds)
        return found

    def _options(self, agent: str, family: str) -> Options:
        told: list[tuple[str, str | bool]] = [("rewards", self.rewards)]
        if family == "counts" and agent != "counts-shuffle":
            # a shuffled message is one bit, and a user may be in one cell at several steps
            told.append(("pooled", self.pooled))
        return (*told, *((("behaviour", self.behaviour),) if find(agent).from_logs else ()))


def family_of(agent: str, of: object = None) -> str:
    """The family an agent belongs to; empty for a control of all."""
    return next((name for name, family in FAMILIES.items() if agent in family.agents or of in family.agents), "")


def price_rows(trials: Sequence[Trial], outcomes: Sequence[Measured]) -> list[PricedRow]:
    """A row for each group of seeds: mean, spread and band of the suboptimality, and what the noise was really worth.

    ``true_epsilon`` is the largest of all runs, and None where any private run drew no noise.

    Parameters
    ----------
    trials, outcomes
        Of one :class:`Grid`, in its order; outcomes as :func:`~pipeline.simulation.registry.measure` gives them.
    """
    rows: list[PricedRow] = []
    for g in gather(trials, outcomes):
        facts, losses = g.facts, np.array([_final_loss(o["facts"]) for o in g.outcomes])
        rho = _largest([o["facts"].get("true_rho") for o in g.outcomes])
        epsilon = _largest([o["facts"].get("true_epsilon") for o in g.outcomes])
        row = g.row(METRIC, losses, true_rho=rho, true_epsilon=epsilon)
        if facts.get("variant") == "control":
            row["epsilon"] = row["delta"] = row["calibration"] = None
        band = np.quantile(losses, [LOW, HIGH]).tolist()
        of, (low, high) = facts.get("of"), band
        family = family_of(row["agent"], of)
        rows.append({**row, "family": family, "of": of, "low": low, "high": high, "losses": losses.tolist()})
    return rows


def _final_loss(facts: Facts) -> float:
    if "final_loss" not in facts:
        raise KeyError("final_loss")
    return facts["final_loss"]


def _largest(found: Sequence[float | None]) -> float | None:
    known = [x for x in found if x is not None]
    return max(known) if len(known) == len(found) else None


def episodes_needed(points: Mapping[int, float], bar: float) -> int | None:
    """The first n from which on every measured suboptimality is at most ``bar``; None: not in this range.

    >>> episodes_needed({10: 3.0, 100: 0.5, 1000: 2.0, 10_000: 0.4, 100_000: 0.1}, 1.0)
    10000
    """
    needed = None
    for n in sorted(points, reverse=True):
        if points[n] > bar:
            break
        needed = n
    return needed


def episode_grid(first: int, last: int, per_decade: int) -> tuple[int, ...]:
    """Numbers of episodes at even ratios, ``last`` included.

    Parameters
    ----------
    first
        The fewest.
    per_decade
        How many numbers for a factor of ten.

    Examples
    --------
    >>> episode_grid(100, 10_000, 2)
    (100, 316, 1000, 3162, 10000)
    """
    steps = max(1, round(per_decade * math.log10(last / first)))
    grid = np.rint(first * (last / first) ** (np.arange(steps + 1) / steps))
    return tuple(dict.fromkeys(int(n) for n in grid))
