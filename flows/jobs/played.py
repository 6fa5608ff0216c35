"""What a simulation says of itself, as the typed facts of a run: its release, policy, value, worth and price."""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from flows.config.study_recipes import WorldRecipe
from pipeline.declaration.card import AnyCard, Card, LqCard
from pipeline.declaration.numbers import number
from pipeline.learners.decisions import decision_facts, played_files
from pipeline.learners.gains import gain_files
from pipeline.learners.policy_files import PolicyFiles
from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release
from pipeline.privacy.release_file import describe_joint
from pipeline.simulation.declared_world import Worth, declared_world, proposal_of
from pipeline.simulation.registry import find
from pipeline.simulation.trial import Measured, Outcome, Trial
from pipeline.studies.study_rows import Found, gather, gathered_rows
from reports.facts.learnt import Baseline, PolicyFacts, ValueFacts
from reports.facts.measurement import Communication, Curve, PlayedAgent, Simulation, Spread
from reports.facts.policy import Gains, PolicyView, decisions
from reports.facts.promise import Joint

Array = NDArray[np.float64]
LEVEL = 0.95
_NOT_SAID = ("trust", "variant")


@dataclass(frozen=True)
class _Tables:
    """A policy ``(H, S, A)`` over declared states, and the share of users who come to each cell under it."""

    card: Card
    policy: Array
    visits: Array

    @property
    def _table(self) -> Policy:
        return Policy(self.policy, np.zeros(self.policy.shape[:2], dtype=bool))

    @property
    def _tied(self) -> NDArray[np.bool_]:
        return (self.policy == self.policy.max(-1, keepdims=True)).sum(-1) > 1

    @property
    def files(self) -> PolicyFiles:
        return played_files(self.card, self._table, self.visits)

    @property
    def view(self) -> PolicyView:
        d = self.card.domain
        return decisions((d.live_states, d.action_labels), self._table, self._tied, self.visits)

    @property
    def facts(self) -> PolicyFacts:
        return decision_facts(self._table, self._tied)

    def labelled(self, table: Array) -> list[dict[str, object]]:
        """Probabilities above 0 of another policy, by label."""
        states, actions = self.card.domain.live_states, self.card.domain.action_labels
        return [
            {"step": int(h), "state": states[s], "action": actions[a], "probability": float(table[h, s, a])}
            for h, s, a in np.argwhere(table > 0)
        ]


@dataclass(frozen=True)
class _Plant:
    """Gains ``(H, d, n)`` of a linear plant, and the bounds by which its sums were released."""

    card: LqCard
    policy: Array
    bounds: Sequence[float]

    @property
    def files(self) -> PolicyFiles:
        return gain_files(self.card, self.policy, self.bounds)

    @property
    def view(self) -> PolicyView:
        return Gains(self.card.domain.observation.labels, self.card.domain.action.labels, self.policy)

    @property
    def facts(self) -> PolicyFacts:
        return PolicyFacts(tie_share=0.0, abstain_share=0.0, left_zero=bool(self.policy.any()))

    def labelled(self, table: Array) -> list[dict[str, object]]:
        """Another controller's gains, by label."""
        observed, controls = self.card.domain.observation.labels, self.card.domain.action.labels
        return [
            {"step": h, "control": controls[i], "observed": observed[j], "gain": float(table[h, i, j])}
            for h, i, j in np.ndindex(table.shape)
        ]


@dataclass(frozen=True)
class Played:
    """A simulation that was played.

    Parameters
    ----------
    recipe, name
        What was asked, and what the run is called.
    trials, outcomes
        Runs of the agent, then of each baseline.
    first
        The agent's first run, played again, with what it released.
    """

    recipe: WorldRecipe
    name: str
    trials: Sequence[Trial]
    outcomes: Sequence[Measured]
    first: Outcome

    @cached_property
    def trial(self) -> Trial:
        """The agent's first."""
        return self.trials[0]

    @cached_property
    def card(self) -> AnyCard:
        """What a deployment would declare."""
        return declared_world(self.trial)

    @cached_property
    def rows(self) -> list[Found]:
        """The agent's row over the seeds, then its baselines'."""
        return gathered_rows(self.trials, self.outcomes)

    @cached_property
    def release(self) -> Release:
        """What the first run released; empty where its agent looks at no data."""
        found = self.first.release
        if found is None:
            found = Release("", "synthetic", "per_step", (), {}, "none", "none: nothing was released")
        return replace(found, dataset=self.card.name)

    @cached_property
    def worth(self) -> Worth:
        """The known world, which values policies."""
        return Worth(self.trial)

    @cached_property
    def policy(self) -> Array:
        """``(H, S, A)`` probabilities or ``(H, d, n)`` gains that the first run emitted."""
        return self.worth.read(self.first.policy)

    @property
    def joint(self) -> Joint | None:
        """What its tables cost together, where they were bounded so."""
        return None if self.release.joint is None else Joint.model_validate(describe_joint(self.release))

    @cached_property
    def shown(self) -> _Tables | _Plant:
        """The policy in files, on the page and in numbers."""
        if isinstance(self.card, LqCard):
            return _Plant(self.card, self.policy, self.joint.bounds or () if self.joint is not None else ())
        return _Tables(self.card, self.policy, self.worth.visits(self.policy))

    @cached_property
    def simulation(self) -> Simulation:
        """What was measured."""
        agents, groups = [], gather(self.trials, self.outcomes)
        mine = find(self.trial.agent)
        for row, group in zip(self.rows, groups, strict=True):
            lost = self.losses(group.outcomes)
            agent = row["agent"]
            role = "agent" if not agents else "plain" if agent == mine.plain else "control"
            agents.append(
                PlayedAgent(
                    agent=agent,
                    variant=str(row["variant"]),
                    role=role,
                    trust=row["trust"],
                    constants=row["constants"],
                    runs=row["runs"],
                    true_epsilon=row["true_epsilon"],
                    suboptimality=None if lost is None else _spread(lost),
                    regret=_spread(row["totals"]),
                    curve=Curve(episodes=row["marks"], mean=row["curve_mean"], std=row["curve_std"]),
                    facts={k: _said(v) for k, v in row["facts"].items() if k not in _NOT_SAID and v is not None},
                )
            )
        plain = next((a.suboptimality for a in agents if a.role == "plain"), None)
        own = agents[0].suboptimality
        lost = self.worth.lost(self.policy)
        return Simulation(
            world=self.trial.place,
            episodes=self.trial.episodes,
            runs=agents[0].runs,
            seed=self.trial.seed,
            optimum=self.worth.best,
            value=self.worth.best - lost,
            suboptimality=lost,
            price=None if own is None or plain is None else own.mean - plain.mean,
            agents=agents,
            communication=None if (sent := self.outcomes[0]["sent"]) is None else Communication(**sent),
            proposal=proposal_of(self.trial),
        )

    @property
    def value(self) -> ValueFacts:
        """The interval of the policy's value: in a known world, over the seeds."""
        sim = self.simulation
        own, (low, high) = sim.agents[0].suboptimality, self.worth.trivial()
        spread = None if own is None or own.lower is None or own.upper is None else (own.lower, own.upper)
        least, most = (low, high) if spread is None else (sim.optimum - spread[1], sim.optimum - spread[0])
        over_seeds = (
            "one run: nothing is known of the spread over seeds"
            if spread is None
            else f"{LEVEL:.0%} Student interval of the mean over {sim.runs} independent runs"
        )
        return ValueFacts(
            lower=max(low, least),
            upper=min(high, most),
            estimate=sim.value if own is None else sim.optimum - own.mean,
            lower_trivial=low,
            upper_trivial=high,
            gap=min(high, most) - max(low, least),
            optimal_upper=sim.optimum,
            status="modelled",
            assumes=["the world is the simulated one: each run's policy is valued in it exactly", over_seeds],
            start="declared",
        )

    @property
    def baselines(self) -> dict[str, Baseline]:
        """What those beside the agent are worth."""
        sim = self.simulation
        there = {a.agent: a.suboptimality for a in sim.agents[1:]}
        return {name: Baseline(estimate=sim.optimum - lost.mean) for name, lost in there.items() if lost is not None}

    def losses(self, outcomes: Sequence[Measured]) -> list[float] | None:
        """V* - V^pi of every run's policy; None where an agent emits none."""
        emitted = [o["policy"] for o in outcomes]
        return None if any(p is None for p in emitted) else [self.worth.lost(self.worth.read(p)) for p in emitted]

    def runs(self) -> list[dict[str, object]]:
        """One row a run: who, which seed, regret, and suboptimality of the policy emitted."""
        return [
            {
                "agent": t.agent,
                "seed": t.seed,
                "episodes": t.episodes,
                "regret": o["regret"][-1],
                "suboptimality": None if (lost := self.losses([o])) is None else lost[0],
            }
            for t, o in zip(self.trials, self.outcomes, strict=True)
        ]

    def policies(self) -> list[dict[str, object]]:
        """What every run emitted, by label: probabilities above 0, or gains."""
        found: list[dict[str, object]] = []
        for t, o in zip(self.trials, self.outcomes, strict=True):
            if o["policy"] is not None:
                found += [
                    {"agent": t.agent, "seed": t.seed, **row}
                    for row in self.shown.labelled(self.worth.read(o["policy"]))
                ]
        return found


def _spread(values: Sequence[float]) -> Spread:
    x = np.array(values, dtype=np.float64)
    mean, std = float(x.mean()), float(x.std(ddof=1)) if len(x) > 1 else 0.0
    lower = upper = None
    if len(x) > 1:
        from scipy.stats import t

        half = float(t.isf((1 - LEVEL) / 2, len(x) - 1)) * std / math.sqrt(len(x))
        # nothing loses less than nothing
        lower, upper = max(0.0, mean - half), mean + half
    return Spread(mean=mean, std=std, lower=lower, upper=upper, least=float(x.min()), most=float(x.max()), level=LEVEL)


def _said(value: object) -> str:
    return number(value) if isinstance(value, str | int | float) else str(value)
