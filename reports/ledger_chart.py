"""Spending against time: cumulative rho of a lineage as data, and as a line of blocks for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from reports.format import number

_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 60


def spending(charges: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Cumulative ``spent_rho`` at the time ``at`` of each charge that cost something.

    Parameters
    ----------
    charges
        ``at`` (ISO 8601, UTC) and ``rho``, oldest first.
    """
    total, points = 0.0, []
    for c in charges:
        total += c["rho"]
        if c["rho"] > 0:
            points.append({"at": c["at"], "spent_rho": total})
    return points


def chart(points: Sequence[Mapping[str, Any]], cap: float, since: str, until: str) -> list[str]:
    """Two lines: what was spent at each of 60 moments between two times, in eighths of the cap, and the times.

    A moment before the first charge is a space; what touches the cap is a full block.
    """
    if not points:
        return []
    begin, end = (datetime.fromisoformat(t).timestamp() for t in (since, until))
    times = [datetime.fromisoformat(p["at"]).timestamp() for p in points]
    span = max(end - begin, 1.0)
    line = ""
    for i in range(_WIDTH):
        now = begin + span * (i + 1) / _WIDTH
        spent = max((p["spent_rho"] for p, t in zip(points, times, strict=True) if t <= now), default=None)
        line += " " if spent is None else _BLOCKS[min(7, int(8 * spent / cap))]
    told = f"ρ = {number(points[-1]['spent_rho'], toward='up')} of {cap:g}"
    first, last = since[:10], until[:10]
    return [f"  {line}  {told}", f"  {first}{last:>{_WIDTH - len(first)}}"]
