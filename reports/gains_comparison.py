"""What changed between two linear controllers: every gain, and how far apart they are as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.facts.policy import Gains
from reports.format import clean, number, percent

# what must agree before gains of scaled observations can be laid side by side
SAME = ("horizon", "observation", "action")


@dataclass(frozen=True)
class GainsSide:
    """One of two runs whose policies are gains: its report.json, and the gains ``(H, d, n)`` with their names."""

    facts: Mapping[str, Any]
    view: Gains


def compare_gains(a: Gains, b: Gains) -> dict[str, Any]:
    """Gains of ``b`` beside those of ``a``, of scaled observations.

    Returns
    -------
    ``total`` and ``differ`` (gains); ``norms`` of both and ``distance`` between them (Frobenius, over all steps);
    ``change``: distance over the first norm, None where that is 0; ``rows``: ``step, action, observation, a, b`` of
    each gain that differs, the largest difference first.
    """
    moved = b.gains - a.gains
    norms = [float(np.linalg.norm(side.gains)) for side in (a, b)]
    distance = float(np.linalg.norm(moved))
    index = np.argwhere(np.abs(moved) > 0)
    largest = index[np.argsort(-np.abs(moved[tuple(index.T)]), kind="stable")]
    rows = [
        {
            "step": int(h),
            "action": a.action[i],
            "observation": a.observation[j],
            "a": float(a.gains[h, i, j]),
            "b": float(b.gains[h, i, j]),
        }
        for h, i, j in largest
    ]
    return {
        "total": int(moved.size),
        "differ": len(rows),
        "norms": norms,
        "distance": distance,
        "change": distance / norms[0] if norms[0] else None,
        "rows": rows,
    }


def gain_lines(gains: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """How far apart two controllers are, as lines a person reads."""
    old, new = (number(norm) for norm in gains["norms"])
    share = "" if gains["change"] is None else f" ({percent(gains['change'])} of the first)"
    estimates = (number(values[side]["estimate"]) for side in ("a", "b"))
    return [
        f"policy      {gains['differ']:,} of {gains['total']:,} gains differ; norms {old} → {new}, "
        f"{number(gains['distance'])} apart{share}",
        f"value       {' → '.join(estimates)}: estimates, each in its own released model; no interval is claimed",
    ]


def gain_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line a gain."""
    names = [f"{clean(r['action'])} by {clean(r['observation'])}" for r in rows]
    return [
        f"  step {r['step']:>3}  {name:30} {number(r['a'])} → {number(r['b'])}"
        for r, name in zip(rows, names, strict=True)
    ]
