"""What a linear run's folder holds of evidence, read back from its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports.policy_view import Weights


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


def linear_weights(folder: Path, dataset: Mapping[str, Any]) -> Weights | None:
    """The weights of Q at each step, and what each weighs; None where the run is not linear."""
    import pyarrow.parquet as pq

    told = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    if told.get("kind") != "linear":
        return None
    d, integers = told["dimension"], np.array(told["features"]["integers"])
    found = pq.read_table(folder / "policy.parquet")["weight"].to_numpy().reshape(told["horizon"], -1)[:, :d]
    names = [f"feature {i}" for i in range(d)]
    for i in range(d):
        # a feature that one pair alone has is that pair's own
        if len(pairs := np.argwhere(integers[:, :, i])) == 1:
            s, a = pairs[0]
            names[i] = f"{dataset['live_states'][s]} / {dataset['actions'][a]}"
    return Weights(names, found * told["reward_unit"])
