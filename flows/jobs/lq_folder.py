"""Linear gains in a run's folder: ``policy.parquet`` (step, index, weight) and ``policy.json`` (what they mean)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.jobs.folder import write_json
from pipeline.declaration.card import LqCard
from pipeline.declaration.linear_quadratic import Vector

Array = NDArray[np.float64]

KIND = "linear_quadratic"


def write_gains(folder: Path, card: LqCard, gains: Array, bounds: Sequence[float]) -> None:
    """Write both files.

    Parameters
    ----------
    gains
        ``(H, d, n)``, of scaled observations.
    bounds
        Lengths to which x, u and next x were cut before they were summed: the release rests on them.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    H, d, n = gains.shape  # noqa: N806
    columns = {
        "step": np.repeat(np.arange(H, dtype=np.int32), d * n),
        "index": np.tile(np.arange(d * n, dtype=np.int32), H),
        "weight": gains.reshape(-1),
    }
    pq.write_table(pa.table(columns), folder / "policy.parquet", compression="zstd")
    told = {
        "schema_version": 1,
        "kind": KIND,
        "horizon": H,
        "observation": _told(card.domain.observation),
        "action": _told(card.domain.action),
        "weights": f"index = control * {n} + coordinate: the gains K_h of each step, row by row",
        "rule": "divide each observed number by its scale; u = K_h x; shorten u to the action's radius where it is "
        "longer; multiply each control by its scale",
        "bounds": list(bounds),
    }
    write_json(folder / "policy.json", told)


def _told(vector: Vector) -> dict[str, Any]:
    return {"names": vector.labels, "scale": vector.scales, "radius": vector.radius}


def read_gains(folder: Path) -> tuple[Mapping[str, Any], Array]:
    """``policy.json`` and the gains ``(H, d, n)`` of scaled observations."""
    import pyarrow.parquet as pq

    told = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    shape = told["horizon"], len(told["action"]["names"]), len(told["observation"]["names"])
    return told, pq.read_table(folder / "policy.parquet")["weight"].to_numpy().reshape(shape)
