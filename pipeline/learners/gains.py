"""Linear gains: their files, and in logged units for other programs and for one decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import CardError, LqCard
from pipeline.facts.learnt import Gains
from pipeline.facts.promise import DeclaredVector, vector_facts
from pipeline.learners.policy_files import (
    Exported,
    PolicyFiles,
    columns_by_step,
    escape,
    refuse_observations,
    refuse_steps,
)
from pipeline.ledger.chain import Body
from pipeline.privacy.release import Release

if TYPE_CHECKING:
    from pipeline.facts.report import Report


KIND = "linear_quadratic"
COLUMNS = ("step", "control", "observed", "gain")


def gain_files(card: LqCard, gains: Array, bounds: Sequence[float]) -> PolicyFiles:
    """The files of a linear controller.

    ``gains`` ``(H, d, n)``: of scaled observations.
    ``bounds``: lengths to which x, u and next x were cut before they were summed: the release rests on them.
    """
    H, _, n = gains.shape
    told = {
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
    return PolicyFiles(told, {"policy": columns_by_step(gains.reshape(H, -1))})


def gains_of(files: PolicyFiles) -> Array:
    """The gains ``(H, d, n)`` of scaled observations."""
    told = files.labels
    shape = told["horizon"], len(told["action"]["names"]), len(told["observation"]["names"])
    return files.tables["policy"]["weight"].reshape(shape)


def read_gains_view(files: PolicyFiles, report: Report, release: Callable[[], Release]) -> Gains:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    return Gains(files.labels["observation"]["names"], files.labels["action"]["names"], gains_of(files))


class Gain(TypedDict):
    """One gain in logged units, from an observed number to a control."""

    step: int
    control: str
    observed: str
    gain: float


class Control(TypedDict):
    """What to do at an observation; ``cut``: it was shortened, ``outside``: the observation is longer than declared."""

    step: int
    observation: list[float]
    action: list[float]
    advice: str
    cut: bool
    outside: bool


@dataclass(frozen=True)
class StoredGains:
    """What a run's folder says of its controller.

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

    def rows(self) -> list[Gain]:
        """One row a step, control and observed number, in logged units."""
        K, controls, observed = self.logged, self.action.names, self.observation.names
        return [
            {"step": h, "control": controls[i], "observed": observed[j], "gain": float(K[h, i, j])}
            for h, i, j in np.ndindex(K.shape)
        ]

    def shown(self) -> tuple[list[Gain], list[str]]:
        rows = self.rows()
        told = [f"{r['step']:>4}  {r['control']:20} {r['observed']:20} {r['gain']:.6g}" for r in rows]
        return rows, ["step  control              observed             gain", *told]

    def as_csv(self) -> str:
        rows = self.rows()
        return self.of.csv(COLUMNS, [(r["step"], escape(r["control"]), escape(r["observed"]), r["gain"]) for r in rows])

    def as_json(self) -> str:
        """Logged units, and what cuts a control."""
        whole = {
            "kind": KIND,
            "horizon": len(self.gains),
            "observation": self.observation.model_dump(),
            "action": self.action.model_dump(),
            "rule": "control = sum of gain x observed number, both as logged; then shortened where the control, "
            "divided by its scales, is longer than its radius",
            "rows": self.rows(),
        }
        return self.of.json(whole)


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
    H, action, seen = len(file.gains), file.action, file.observation
    refuse_steps(steps, H - 1)
    refuse_observations(observations, seen.names)
    x = observations / np.array(seen.scale)
    u = np.einsum("rdn,rn->rd", file.gains[steps], x)
    length = np.linalg.norm(u, axis=1, keepdims=True)
    cut = length[:, 0] > action.radius
    outside = np.linalg.norm(x, axis=1) > seen.radius
    u = u * np.minimum(1.0, action.radius / np.maximum(length, action.radius)) * np.array(action.scale)
    # 0.0 + turns a minus zero into a zero
    each = zip(steps.tolist(), observations.tolist(), (0.0 + u).tolist(), cut.tolist(), outside.tolist(), strict=True)
    return [
        {"step": h, "observation": x, "action": u, "advice": _advice(action.names, u), "cut": c, "outside": far}
        for h, x, u, c, far in each
    ]


def _advice(names: Sequence[str], u: Sequence[float]) -> str:
    return "use " + ", ".join(f"{name} = {value:.6g}" for name, value in zip(names, u, strict=True))


def parsed_observation(text: str, names: Sequence[str]) -> Array:
    """``0.5, -0.2`` as ``(1, n)``.

    Raises CardError if these are not n numbers.
    """
    try:
        found = np.array([[float(x) for x in text.strip().strip("[]").split(",")]])
    except ValueError:
        found = np.empty((1, 0))
    if found.shape[1] != len(names):
        raise CardError(f"--observation: give {len(names)} numbers with commas: {', '.join(names)}")
    return found
