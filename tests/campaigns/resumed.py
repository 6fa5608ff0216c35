"""A long campaign goes on where it was stopped, as long as the program and the tests are what they were."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pipeline.ledger.publication import maker

ROOT = Path(__file__).resolve().parents[2]


def resumed(name: str, keys: Sequence[str], do: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each key, in order; those that were measured before are read back.

    Parameters
    ----------
    name
        Of the campaign.
    keys
        What is to be measured; all different.
    do
        Measures one: plain values.
    """
    code = hashlib.sha256(maker()["source"].encode())
    for file in sorted((ROOT / "tests").rglob("*.py")):
        code.update(file.read_bytes())
    kept = ROOT / "build" / f"{name}-{code.hexdigest()[:16]}.jsonl"
    kept.parent.mkdir(exist_ok=True)
    lines = kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []
    done: dict[str, dict[str, Any]] = {row["key"]: row["told"] for row in map(json.loads, lines)}
    with kept.open("a", encoding="utf-8") as file:
        for i, key in enumerate(keys):
            if key not in done:
                done[key] = json.loads(json.dumps(do(key)))
                file.write(json.dumps({"key": key, "told": done[key]}) + "\n")
                file.flush()
            if i % 100 == 99:
                print(f"{name}: {i + 1} of {len(keys)}", file=sys.stderr, flush=True)
    return [done[key] for key in keys]
