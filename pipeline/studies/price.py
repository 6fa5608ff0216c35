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
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from pipeline.simulation.registry import find
from pipeline.simulation.trial import Plain, Row, Trial
from pipeline.studies.gather import gather

METRIC = "suboptimality"
# the band over runs, and what counts as having learnt: this share of the uniform policy's suboptimality
LOW, HIGH, BAR = 0.1, 0.9, 0.1
CONTROLS = ("uniform", "behaviour", "best-constant")
_LOGGED = ("apvi", "dp-apvi")


@dataclass(frozen=True)
class Family:
    """Agents of one kind: who plays under each trust model, and why nobody does where nobody can.

    Parameters
    ----------
    plain
        Private agent -> the same planner without noise.
    absent
        Trust model -> the reason.
    unread
        Agents that also play without their data.
    """

    title: str
    plain: Mapping[str, str]
    absent: Mapping[str, str]
    unread: tuple[str, ...]

    @property
    def agents(self) -> tuple[str, ...]:
        """Without privacy first, then by trust."""
        return (*dict.fromkeys(self.plain.values()), *self.plain)


FAMILIES: Mapping[str, Family] = {
    "counts": Family(
        "counts of (state, action, next state)",
        {"dp-apvi": "apvi", "dp-ucbvi-jdp": "ucbvi", "dp-ucbvi-ldp": "ucbvi", "counts-shuffle": "ucbvi"},
        {},
        ("dp-ucbvi-jdp", "dp-apvi"),
    ),
    "mixture": Family(
        "linear mixture of known kernels",
        {"private-linopt-vi": "ucrl-vtr", "ldp-ucrl-vtr": "ucrl-vtr"},
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
    """

    world: str
    params: tuple[tuple[str, Plain], ...]
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
        played = [
            self._trial(agent, family, n, budget, seed)
            for n in sorted(self.episodes, reverse=True)
            for family in self.families
            for agent in FAMILIES[family].agents
            for budget in (self.budgets if find(agent).private else (None,))
            for seed in self._seeds
        ]
        return [*self._controls(), *played]

    @property
    def _seeds(self) -> range:
        return range(self.seed, self.seed + self.runs)

    def _controls(self) -> list[Trial]:
        n = min(self.episodes)
        fixed = [Trial(name, self.world, self.params, n, options=self._control(name)) for name in CONTROLS]
        deaf = [
            replace(self._trial(of, family, n, min(self.budgets), seed), agent="no-data").told(of=of)
            for family in self.families
            for of in FAMILIES[family].unread
            for seed in self._seeds
        ]
        return fixed + deaf

    def _control(self, name: str) -> tuple[tuple[str, Plain], ...]:
        return (("of", self.behaviour),) if name == "behaviour" else ()

    def _trial(self, agent: str, family: str, n: int, budget: float | None, seed: int) -> Trial:
        options = _sorted(self._options(agent, family))
        if budget is None:
            return Trial(agent, self.world, self.params, n, options=options, seed=seed)
        return Trial(agent, self.world, self.params, n, budget, self.delta, "tight", options, seed)

    def _options(self, agent: str, family: str) -> dict[str, Plain]:
        told: dict[str, Plain] = {"rewards": self.rewards}
        if family == "counts" and agent != "counts-shuffle":
            # a shuffled message is one bit, and a user may be in one cell at several steps
            told |= {"pooled": self.pooled}
        return told | ({"behaviour": self.behaviour} if agent in _LOGGED else {})


def _sorted(options: Mapping[str, Plain]) -> tuple[tuple[str, Plain], ...]:
    return tuple(sorted(options.items()))


def family_of(agent: str, of: object = None) -> str:
    """The family an agent belongs to; empty for a control of all."""
    return next((name for name, family in FAMILIES.items() if agent in family.agents or of in family.agents), "")


def price_rows(trials: Sequence[Trial], outcomes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each group of seeds: mean, spread and band of the suboptimality, and what the noise was really worth.

    ``true_epsilon`` is the largest of all runs, and None where any private run drew no noise.
    """
    rows: list[dict[str, Any]] = []
    for g in gather(trials, outcomes):
        t, facts = g.trial, g.outcomes[0]["facts"]
        losses = np.array([o["facts"]["final_loss"] for o in g.outcomes])
        control = facts.get("variant") == "control"
        rho, epsilon = (_largest([o["facts"].get(key) for o in g.outcomes]) for key in ("true_rho", "true_epsilon"))
        ties = [o["facts"]["tie_share"] for o in g.outcomes if o["facts"].get("tie_share") is not None]
        row = Row(
            agent=t.agent,
            variant=facts.get("variant", ""),
            trust=facts["trust"],
            world=t.place,
            episodes=t.episodes,
            rho=None,
            epsilon=None if control else t.epsilon,
            delta=None if control else t.delta,
            calibration=None if control else t.calibration,
            constants=facts.get("constants"),
            metric=METRIC,
            mean=float(losses.mean()),
            std=float(losses.std(ddof=1)) if len(losses) > 1 else 0.0,
            runs=len(losses),
            tie_share=float(np.mean(ties)) if ties else None,
            true_rho=rho,
            true_epsilon=epsilon,
        )
        band = np.quantile(losses, [LOW, HIGH]).tolist()
        more = {"family": family_of(t.agent, facts.get("of")), "of": facts.get("of"), "low": band[0], "high": band[1]}
        rows.append(row.as_dict() | more | {"losses": losses.tolist()})
    return rows


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

    >>> episode_grid(100, 10_000, 2)
    (100, 316, 1000, 3162, 10000)
    """
    steps = max(1, round(per_decade * math.log10(last / first)))
    grid = np.rint(first * (last / first) ** (np.arange(steps + 1) / steps))
    return tuple(dict.fromkeys(int(n) for n in grid))
