"""A run's gains in logged units, for other programs and for one decision: observation in, control out."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.jobs.lq_folder import KIND, read_gains
from flows.jobs.policy_file import escape
from pipeline.declaration.card import CardError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

COLUMNS = ("step", "control", "observed", "gain")
ABOUT = ("run", "policy_sha256", "guarantee")


@dataclass(frozen=True)
class GainsFile:
    """What a run's folder says of its controller: ``policy.json``, gains ``(H, d, n)`` of scaled observations."""

    run: str
    told: Mapping[str, Any]
    gains: Array
    guarantee: str
    sha256: str

    @property
    def logged(self) -> Array:
        """The gains from observations as logged to controls as logged."""
        scales = (np.array(self.told[key]["scale"]) for key in ("action", "observation"))
        of_control, of_state = scales
        return self.gains * of_control[:, None] / of_state


def is_lq_run(folder: Path) -> bool:
    """Whether a run's folder holds gains."""
    try:
        return json.loads((folder / "policy.json").read_text(encoding="utf-8")).get("kind") == KIND
    except (OSError, ValueError, AttributeError):
        return False


def read_gains_file(folder: Path) -> GainsFile:
    """Read a run's gains and what was promised.

    Raises
    ------
    CardError
        If a file of the folder is missing or damaged.
    """
    try:
        told, gains = read_gains(folder)
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        digest = hashlib.sha256((folder / "policy.parquet").read_bytes()).hexdigest()
        return GainsFile(folder.name, told, gains, report["guarantee"]["sentence"], digest)
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise CardError(
            f"{folder.name}: the run's policy cannot be read ({type(e).__name__}); `reticent run` its recipe again: "
            "a committed release is replayed at no cost"
        ) from None


def gain_rows(file: GainsFile) -> list[dict[str, Any]]:
    """One row a step, control and observed number, in logged units."""
    K, controls, observed = file.logged, file.told["action"]["names"], file.told["observation"]["names"]  # noqa: N806
    return [
        {"step": h, "control": controls[i], "observed": observed[j], "gain": float(K[h, i, j])}
        for h, i, j in np.ndindex(K.shape)
    ]


def as_csv(file: GainsFile) -> str:
    """RFC 4180 with a header; texts are escaped so that no spreadsheet evaluates a cell."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\r\n")
    writer.writerow([*COLUMNS, *ABOUT])
    about = [escape(x) for x in (file.run, file.sha256, file.guarantee)]
    for r in gain_rows(file):
        writer.writerow([r["step"], escape(r["control"]), escape(r["observed"]), r["gain"], *about])
    return out.getvalue()


def as_json(file: GainsFile) -> str:
    """One JSON object with the exact names; gains in logged units, and what cuts a control."""
    whole = {
        "schema_version": 1,
        "run": file.run,
        "policy_sha256": file.sha256,
        "guarantee": file.guarantee,
        "kind": KIND,
        "horizon": file.told["horizon"],
        "observation": file.told["observation"],
        "action": file.told["action"],
        "rule": "control = sum of gain x observed number, both as logged; then shortened where the control, divided "
        "by its scales, is longer than its radius",
        "rows": gain_rows(file),
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


FORMATS: Mapping[str, Any] = {"csv": as_csv, "json": as_json}


def control(file: GainsFile, observations: Array, steps: Ints) -> list[dict[str, Any]]:
    """The control at each observation ``(N, n)`` and step ``(N,)``, as logged.

    Raises
    ------
    CardError
        If a step is none of the policy's, or an observation is not finite; records are named by number.
    """
    H, action, seen = file.told["horizon"], file.told["action"], file.told["observation"]  # noqa: N806
    _refuse(np.asarray((steps < 0) | (steps >= H)), "no step of the policy", f"steps count from 0 to {H - 1}")
    _refuse(
        np.asarray(~np.isfinite(observations).all(axis=1)),
        "not a finite observation",
        f"give {', '.join(seen['names'])}",
    )
    x = observations / np.array(seen["scale"])
    u = np.einsum("rdn,rn->rd", file.gains[steps], x)
    length = np.linalg.norm(u, axis=1, keepdims=True)
    cut = length[:, 0] > action["radius"]
    outside = np.linalg.norm(x, axis=1) > seen["radius"]
    u = u * np.minimum(1.0, action["radius"] / np.maximum(length, action["radius"])) * np.array(action["scale"])
    # 0.0 + turns a minus zero into a zero
    each = zip(steps.tolist(), observations.tolist(), (0.0 + u).tolist(), cut.tolist(), outside.tolist(), strict=True)
    return [
        {"step": h, "observation": x, "action": u, "advice": _advice(action["names"], u), "cut": c, "outside": far}
        for h, x, u, c, far in each
    ]


def _advice(names: Sequence[str], u: Sequence[float]) -> str:
    return "use " + ", ".join(f"{name} = {value:.6g}" for name, value in zip(names, u, strict=True))


def _refuse(wrong: NDArray[np.bool_], what: str, known: str) -> None:
    if wrong.any():
        at = (np.flatnonzero(wrong)[:5] + 1).tolist()
        where = "" if len(wrong) == 1 else f"record {', '.join(map(str, at))}: "
        raise CardError(f"{where}{what}; {known}")


def parsed_observation(text: str, names: Sequence[str]) -> Array:
    """``0.5, -0.2`` as ``(1, n)``.

    Raises
    ------
    CardError
        If these are not n numbers.
    """
    try:
        found = np.array([[float(x) for x in text.strip().strip("[]").split(",")]])
    except ValueError:
        found = np.empty((1, 0))
    if found.shape[1] != len(names):
        raise CardError(f"--observation: give {len(names)} numbers with commas: {', '.join(names)}")
    return found
