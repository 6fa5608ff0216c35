"""Rows of a reproduction pooled over worlds: one curve an agent, with its spread and its standard error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.simulation.trial import Row

# (agent, variant, asked rho)
Key = tuple[str, str, float | None]


@dataclass(frozen=True)
class Point:
    """Mean of equally weighted worlds; ``sd`` of all runs (worlds differ too), ``se`` of the mean, worlds fixed."""

    mean: float
    sd: float
    se: float
    ties: float | None


Curve = dict[int, Point]


def pooled(rows: Sequence[Row]) -> dict[Key, Curve]:
    """Curves by agent, variant and asked rho, in the order of the rows."""
    found: dict[Key, dict[int, list[Row]]] = {}
    for row in rows:
        curve = found.setdefault((row["agent"], row["variant"], row["rho"]), {})
        curve.setdefault(int(row["episodes"]), []).append(row)
    return {key: {K: _point(curve[K]) for K in sorted(curve)} for key, curve in found.items()}


def _point(rows: Sequence[Row]) -> Point:
    worlds, runs = len(rows), sum(int(r["runs"]) for r in rows)
    mean = sum(float(r["mean"]) for r in rows) / worlds
    inside = sum((int(r["runs"]) - 1) * float(r["std"]) ** 2 for r in rows)
    between = sum(int(r["runs"]) * (float(r["mean"]) - mean) ** 2 for r in rows)
    se = math.sqrt(sum(float(r["std"]) ** 2 / int(r["runs"]) for r in rows)) / worlds
    ties = [float(r["tie_share"]) for r in rows if r["tie_share"] is not None]
    sd = math.sqrt((inside + between) / (runs - 1)) if runs > 1 else 0.0
    return Point(mean, sd, se, sum(ties) / len(ties) if ties else None)


def where(kept: Sequence[int], all_of_them: Sequence[int]) -> str:
    """Which of the grid's K are kept, in words: everywhere, nowhere, from one on, up to one, between two, or a list."""
    inside = [K for K in sorted(all_of_them) if K in set(kept)]
    if not inside:
        return "nowhere"
    first, last = inside[0], inside[-1]
    within = [K for K in all_of_them if first <= K <= last]
    if len(inside) == 1:
        return f"at K = {first:,} only"
    if len(within) > len(inside):
        return f"at K = {', '.join(f'{K:,}' for K in inside)}"
    if len(inside) == len(all_of_them):
        return "at every K"
    if last == max(all_of_them):
        return f"from K = {first:,}"
    return f"at K = {first:,} to {last:,}"
