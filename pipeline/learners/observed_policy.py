"""A linear policy over observations, from a run's folder: shown on public observations, asked at any."""

# pyright: reportUnknownArgumentType=false
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from pipeline.agents.linear_backup import Backup
from pipeline.arrays import Array, Integers
from pipeline.declaration.card import CardError
from pipeline.facts.promise import DeclaredVector
from pipeline.learners.decisions import KEEP, StoredDecisions, stored_decisions
from pipeline.learners.policy_files import Exported, PolicyFiles, refuse_observations, refuse_steps
from pipeline.ledger.chain import Body
from pipeline.mdp.features import ObservedMap, observed_map

OBSERVED_KIND = "linear_observed"
# which actions an advice may name; older folders do not say, and name any allowed one where one has evidence
ADVISED = "allowed actions that have more evidence than threshold themselves"


class Advice(TypedDict):
    """What to do at an observation; ``outside``: it is longer than declared and was shortened before it was judged."""

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
    """What a run's folder says of its policy over observations.

    ``observation``: names, centers, scales and radius of the observed numbers.
    """

    shown_at: StoredDecisions
    observation: DeclaredVector
    features: ObservedMap
    backups: tuple[Backup, ...]
    labels: Body

    @property
    def of(self) -> Exported:
        """The run."""
        return self.shown_at.of

    def shown(self) -> tuple[list[dict[str, object]], list[str]]:
        rows, lines = self.shown_at.shown()
        return [dict(row) for row in rows], lines

    def as_csv(self) -> str:
        """Decisions at public observations."""
        return self.shown_at.as_csv()

    def as_json(self) -> str:
        """The decisions, and all that decides elsewhere."""
        weights = [{"w": b.w.tolist(), "inverse": b.inverse.tolist()} for b in self.backups]
        whole = {**json.loads(self.shown_at.as_json()), "kind": OBSERVED_KIND, "weights": weights}
        told = ("observation", "live_states", "features", "rule", "unit", "offset", "multiplier", "constant", "clip")
        return json.dumps(whole | {key: self.labels[key] for key in told}, ensure_ascii=False, allow_nan=False) + "\n"

    def act(self, observations: Array, steps: Integers, states: Integers) -> list[Advice]:
        """What to do at each observation, as logged.

        ``observations``, ``steps``, ``states`` ``(N, p)``: as logged, ``(N,)`` from 0, and ``(N,)`` indices of live
        states.
        Raises CardError if a step is none of the policy's, or an observation is not finite; records are named by
        number.
        """
        last, seen = len(self.backups) - 1, self.observation
        refuse_steps(steps, last)
        refuse_observations(observations, seen.names)
        x = (observations - np.array(seen.center or 0.0)) / np.array(seen.scale)
        outside = np.linalg.norm(x, axis=1) > seen.radius
        phi, found = self.features.of_actions(x, states), list[Advice]()
        for i, h in enumerate(steps.tolist()):
            action, tie = self._best(self.backups[h], phi[i])
            advice = KEEP if action is None else f"use {action}"
            found.append(
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
        return found

    def _best(self, backup: Backup, phi: Array) -> tuple[str | None, bool]:
        """The greatest clipped value of the allowed actions, ties by the unclipped one, then by order; or none."""
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
        known = self.labels["live_states"]
        if label is None and len(known) == 1:
            return 0
        if label not in known:
            raise CardError(f"policy act: --state must be one of {', '.join(map(repr, known))}")
        return known.index(label)


def stored_observed(files: PolicyFiles, report: Body, of: Exported) -> StoredObserved:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    told, d = files.labels, int(files.labels["dimension"])
    weights, upper = files.tables["policy"]["weight"].reshape(told["horizon"], -1), np.triu_indices(d)
    backups = list[Backup]()
    for h, row in enumerate(weights):
        inverse = np.zeros((d, d))
        inverse[upper] = inverse.T[upper] = row[d:]
        low, high = told["clip"][h]
        width = told["multiplier"][h], told["constant"][h]
        backups.append(Backup(row[:d], inverse, told["offset"][h], *width, (low, high), told["unit"], told["lattice"]))
    vector = DeclaredVector.model_validate(told["observation"])
    decisions = stored_decisions(files, report, of)
    return StoredObserved(decisions, vector, observed_map(told["features"]["sample_of"]), tuple(backups), told)
