"""The files of a run's folder (design §5.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.declaration.card import Card
from pipeline.mdp.policy import Policy

DECISIONS = "decisions.parquet"


def json_text(value: Mapping[str, Any]) -> str:
    """Indented JSON with a final newline; a number that is no number is an error, not a ``NaN``."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write :func:`json_text` of a value."""
    path.write_text(json_text(value), encoding="utf-8")


def write_policy(folder: Path, card: Card, policy: Policy) -> None:
    """``policy.parquet`` (step, state, action, probability of the positive ones) and ``policy.json`` (labels)."""
    write_json(folder / "policy.json", write_decisions(folder / "policy.parquet", card, policy))


def write_decisions(file: Path, card: Card, policy: Policy) -> dict[str, Any]:
    """Write a policy state by state; returns the labels that ``policy.json`` needs to read it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    step, state, action = np.nonzero(policy.probabilities)
    table = pa.table(
        {
            "step": step.astype(np.int32),
            "state": state.astype(np.int32),
            "action": action.astype(np.int32),
            "probability": policy.probabilities[step, state, action],
        }
    )
    pq.write_table(table, file, compression="zstd")
    d = card.domain
    return {
        "schema_version": 1,
        "horizon": d.horizon,
        "states": d.live_states,
        "ends": list(d.states.ends),
        "actions": d.action_labels,
        "vetoes": [[str(s), str(a)] for s, a in d.vetoes],
        "abstains": [[int(h), int(s)] for h, s in np.argwhere(policy.abstains)],
        # declared, so that a raw value can be looked up where no card is at hand
        "state_column": d.states.model_dump(mode="json"),
        "abstention": "not enough evidence: keep current practice; the probabilities there are a uniform stand-in",
    }


def read_policy(folder: Path) -> Policy:
    """The policy of a run, state by state: that of :func:`write_policy`, or the decisions beside linear weights."""
    import pyarrow.parquet as pq

    facts = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
    rows = pq.read_table(folder / (DECISIONS if facts.get("kind") == "linear" else "policy.parquet"))
    shape = facts["horizon"], len(facts["states"]), len(facts["actions"])
    probabilities, abstains = np.zeros(shape), np.zeros(shape[:2], dtype=bool)
    index = tuple(rows[c].to_numpy() for c in ("step", "state", "action"))
    probabilities[index] = rows["probability"].to_numpy()
    for h, s in facts["abstains"]:
        abstains[h, s] = True
    return Policy(probabilities, abstains)
