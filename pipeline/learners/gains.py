"""Linear gains: their files, and in logged units for other programs and for one decision.

A linear policy over observations, from a run's folder: shown on public observations, evaluated at any.
"""

from __future__ import annotations

# pyright: reportUnknownArgumentType=false
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from pipeline.agents.linear_backup import Backup
from pipeline.arrays import Array, Integers
from pipeline.declaration.card import CardError, LqCard
from pipeline.facts.learnt import Gains
from pipeline.facts.promise import DeclaredVector, vector_facts
from pipeline.learners.decisions import KEEP, StoredDecisions, stored_decisions
from pipeline.learners.policy_files import (
    Exported,
    PolicyFiles,
    columns_by_step,
    escape,
    refuse_observations,
    refuse_steps,
)
from pipeline.ledger.chain import Body
from pipeline.mdp.features import ObservedMap, observed_map
from pipeline.privacy.release import Release

if TYPE_CHECKING:
    from pipeline.facts.report import Report

KIND = "linear_quadratic"
COLUMNS = ("step", "control", "observed", "gain")


def gain_files(card: LqCard, gains: Array, bounds: Sequence[float]) -> PolicyFiles:
    """The files of a linear controller.

    ``gains`` ``(H, d, n)``: of scaled observations.
    ``bounds``: lengths to which x, u and next x were clipped before they were summed: the release depends on them.
    """
    H, _, n = gains.shape
    labels = {
        "schema_version": 1,
        "kind": KIND,
        "horizon": H,
        "observation": vector_facts(card.domain.observation).model_dump(),
        "action": vector_facts(card.domain.action).model_dump(),
        "weights": f"index = control * {n} + coordinate: the gains K_h of each step, row by row",
        "rule": "divide each observed number by its scale; u = K_h x; shorten u to the action's radius where it is "
        "longer; multiply each control by its scale",
        "bounds": list(bounds),
    }
    return PolicyFiles(labels, {"policy": columns_by_step(gains.reshape(H, -1))})


def gains_of(files: PolicyFiles) -> Array:
    """The gains ``(H, d, n)`` of scaled observations."""
    labels = files.labels
    shape = labels["horizon"], len(labels["action"]["names"]), len(labels["observation"]["names"])
    return files.tables["policy"]["weight"].reshape(shape)


def read_gains_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Gains:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    return Gains(files.labels["observation"]["names"], files.labels["action"]["names"], gains_of(files))


class Control(TypedDict):
    """Control at an observation; ``cut``: it was shortened, ``outside``: the observation is longer than declared."""

    step: int
    observation: list[float]
    action: list[float]
    advice: str
    cut: bool
    outside: bool


@dataclass(frozen=True)
class StoredGains:
    """A controller read back from a run's folder.

    ``observation``, ``action``: names, scales and radius of the n observed numbers and of the d controls.
    ``gains`` ``(H, d, n)``: of scaled observations.
    """

    of: Exported
    observation: DeclaredVector
    action: DeclaredVector
    gains: Array

    @property
    def logged(self) -> Array:
        """The gains from observations as logged to controls as logged."""
        return self.gains * np.array(self.action.scale)[:, None] / np.array(self.observation.scale)

    def rows(self) -> list[dict[str, Any]]:
        """One row a step, control and observed number, in logged units."""
        K, controls, observed = self.logged, self.action.names, self.observation.names
        return [
            {"step": h, "control": controls[i], "observed": observed[j], "gain": float(K[h, i, j])}
            for h, i, j in np.ndindex(K.shape)
        ]

    def shown(self) -> tuple[list[dict[str, Any]], list[str]]:
        rows = self.rows()
        lines = [f"{r['step']:>4}  {r['control']:20} {r['observed']:20} {r['gain']:.6g}" for r in rows]
        return rows, ["step  control              observed             gain", *lines]

    def as_csv(self) -> str:
        rows = self.rows()
        return self.of.csv(COLUMNS, [(r["step"], escape(r["control"]), escape(r["observed"]), r["gain"]) for r in rows])

    def as_json(self) -> str:
        """Gains in logged units, with the rule that shortens a control."""
        content = {
            "kind": KIND,
            "horizon": len(self.gains),
            "observation": self.observation.model_dump(),
            "action": self.action.model_dump(),
            "rule": "control = sum of gain x observed number, both as logged; then shortened where the control, "
            "divided by its scales, is longer than its radius",
            "rows": self.rows(),
        }
        return self.of.json(content)


def stored_gains(files: PolicyFiles, report: Body, of: Exported) -> StoredGains:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    observation, action = (DeclaredVector.model_validate(files.labels[key]) for key in ("observation", "action"))
    return StoredGains(of, observation, action, gains_of(files))


def control(file: StoredGains, observations: Array, steps: Integers) -> list[Control]:
    """The control at each observation and step, as logged.

    ``observations``, ``steps`` ``(N, n)``: as logged, and ``(N,)`` from 0.
    Returns one a record.
    Raises CardError if a step is none of the policy's, or an observation is not finite; records are named by number.
    """
    H, action, declared = len(file.gains), file.action, file.observation
    refuse_steps(steps, H - 1)
    refuse_observations(observations, declared.names)
    x = observations / np.array(declared.scale)
    u = np.einsum("rdn,rn->rd", file.gains[steps], x)
    length = np.linalg.norm(u, axis=1, keepdims=True)
    cut = length[:, 0] > action.radius
    outside = np.linalg.norm(x, axis=1) > declared.radius
    u = u * np.minimum(1.0, action.radius / np.maximum(length, action.radius)) * np.array(action.scale)
    # 0.0 + turns a minus zero into a zero
    columns = steps, observations, 0.0 + u, cut, outside
    return [
        {"step": h, "observation": x, "action": u, "advice": _advice(action.names, u), "cut": c, "outside": far}
        for h, x, u, c, far in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _advice(names: Sequence[str], u: Sequence[float]) -> str:
    return "use " + ", ".join(f"{name} = {value:.6g}" for name, value in zip(names, u, strict=True))


def parsed_observation(text: str, names: Sequence[str]) -> Array:
    """``0.5, -0.2`` as ``(1, n)``.

    Raises CardError if these are not n numbers.
    """
    try:
        observation = np.array([[float(x) for x in text.strip().strip("[]").split(",")]])
    except ValueError:
        observation = np.empty((1, 0))
    if observation.shape[1] != len(names):
        raise CardError(f"--observation: give {len(names)} numbers with commas: {', '.join(names)}")
    return observation


OBSERVED_KIND = "linear_observed"
# actions that an advice may name; older folders lack this key, and name any allowed action where one has evidence
ADVISED = "allowed actions that have more evidence than threshold themselves"


class Advice(TypedDict):
    """Recommendation at an observation; ``outside``: longer than declared, so it was shortened before."""

    step: int
    observation: list[float]
    state: str
    action: str | None
    advice: str
    abstains: bool
    tie: bool
    outside: bool


@dataclass(frozen=True)
class StoredObserved:
    """A policy over observations read back from a run's folder.

    ``observation``: names, centers, scales and radius of the observed numbers.
    """

    of: Exported
    shown_at: StoredDecisions
    observation: DeclaredVector
    features: ObservedMap
    backups: tuple[Backup, ...]
    labels: Body

    def shown(self) -> tuple[list[dict[str, object]], list[str]]:
        rows, lines = self.shown_at.shown()
        return [dict(row) for row in rows], lines

    def as_csv(self) -> str:
        """Decisions at public observations."""
        return self.shown_at.as_csv()

    def as_json(self) -> str:
        """The decisions at public observations, and the weights that decide elsewhere."""
        weights = [{"w": b.w.tolist(), "inverse": b.inverse.tolist()} for b in self.backups]
        content = {**json.loads(self.shown_at.as_json()), "kind": OBSERVED_KIND, "weights": weights}
        fields = ("observation", "live_states", "features", "rule", "unit", "offset", "multiplier", "constant", "clip")
        content |= {key: self.labels[key] for key in fields}
        return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"

    def act(self, observations: Array, steps: Integers, states: Integers) -> list[Advice]:
        """The recommendation at each observation, as logged.

        ``observations``, ``steps``, ``states`` ``(N, p)``: as logged, ``(N,)`` from 0, and ``(N,)`` indices of live
        states.
        Raises CardError if a step is none of the policy's, or an observation is not finite; records are named by
        number.
        """
        last, declared = len(self.backups) - 1, self.observation
        refuse_steps(steps, last)
        refuse_observations(observations, declared.names)
        x = (observations - np.array(declared.center or 0.0)) / np.array(declared.scale)
        outside = np.linalg.norm(x, axis=1) > declared.radius
        phi, advices = self.features.of_actions(x, states), list[Advice]()
        for i, h in enumerate(steps.tolist()):
            action, tie = self._best(self.backups[h], phi[i])
            advice = KEEP if action is None else f"use {action}"
            advices.append(
                Advice(
                    step=h,
                    observation=observations[i].tolist(),
                    state=self.labels["live_states"][states[i]],
                    action=action,
                    advice=advice,
                    abstains=action is None,
                    tie=tie,
                    outside=bool(outside[i]),
                )
            )
        return advices

    def _best(self, backup: Backup, phi: Array) -> tuple[str | None, bool]:
        """The allowed action with the greatest clipped value, ties by the unclipped one, then by order; or None."""
        allowed = np.array([a not in self.labels["never"] for a in self.labels["actions"]])
        evidence = np.where(allowed, backup.evidence(phi), 0.0)
        if evidence.max() <= self.labels["threshold"]:
            return None, False
        Q, clipped = backup.q(phi)
        if self.labels.get("advised") == ADVISED:
            allowed &= evidence > self.labels["threshold"]
        best = np.where(allowed, clipped, -np.inf)
        first = best == best.max()
        return self.labels["actions"][int(np.where(first, Q, -np.inf).argmax())], bool(first.sum() > 1)

    def state_index(self, label: str | None) -> int:
        """Index of a live state by its label; the only one where none is given.

        Raises CardError if there is none of that label, or there are several and none is given.
        """
        states = self.labels["live_states"]
        if label is None and len(states) == 1:
            return 0
        if label not in states:
            raise CardError(f"policy act: --state must be one of {', '.join(map(repr, states))}")
        return states.index(label)


def stored_observed(files: PolicyFiles, report: Body, of: Exported) -> StoredObserved:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    labels, d = files.labels, int(files.labels["dimension"])
    weights, upper = files.tables["policy"]["weight"].reshape(labels["horizon"], -1), np.triu_indices(d)
    backups = list[Backup]()
    for h, row in enumerate(weights):
        inverse = np.zeros((d, d))
        inverse[upper] = inverse.T[upper] = row[d:]
        low, high = labels["clip"][h]
        offset, multiplier, constant = (labels[key][h] for key in ("offset", "multiplier", "constant"))
        clip, unit = (low, high), labels["unit"]
        backups.append(Backup(row[:d], inverse, offset, multiplier, constant, clip, unit, labels["lattice"]))
    vector = DeclaredVector.model_validate(labels["observation"])
    decisions = stored_decisions(files, report, of)
    return StoredObserved(of, decisions, vector, observed_map(labels["features"]["sample_of"]), tuple(backups), labels)
