"""What a linear run's folder holds of evidence, read back from its weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def linear_evidence(folder: Path) -> NDArray[np.float64] | None:
    """``(H, L, A)``: rows that the released Gram matrices hold of each pair; None where the run is not linear."""
    import pyarrow.parquet as pq

    told = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    if told.get("kind") != "linear":
        return None
    d, H = told["dimension"], told["horizon"]  # noqa: N806
    weights = pq.read_table(folder / "policy.parquet")["weight"].to_numpy().reshape(H, -1)
    phi = np.array(told["features"]["integers"], dtype=np.float64) * told["unit"]
    inverse, upper = np.zeros((H, d, d)), np.triu_indices(d)
    inverse[:, upper[0], upper[1]] = inverse[:, upper[1], upper[0]] = weights[:, d:]
    return 1 / np.maximum(np.einsum("sad,hde,sae->hsa", phi, inverse, phi, optimize=True), 1e-12)
