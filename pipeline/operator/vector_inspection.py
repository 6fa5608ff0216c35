"""What the operator may look at of a log of vectors.  It is raw: nothing here may be published."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import LqCard
from pipeline.logs.regression_sums import list_matrix
from pipeline.logs.store import Snapshot
from pipeline.operator.facts import Coordinate, VectorFacts, VectorSummary
from pipeline.operator.inspection import EpisodeSums, snapshot_facts

Array = NDArray[np.float64]

# parts of the declared radius at which lengths are told: what a recipe's `cut` would shorten
PARTS = (0.25, 0.5, 0.7, 1.0)
ROLES = ("observation", "action", "next_observation")


@dataclass(kw_only=True)
class _Sums(EpisodeSums):
    """Of a log of vectors."""

    by_step: NDArray[np.int64]
    longer: dict[str, Array] = field(default_factory=lambda: {role: np.zeros(len(PARTS)) for role in ROLES})
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ROLES, 0))
    moments: dict[str, list[Array]] = field(default_factory=dict[str, list[Array]])
    shortened: int = 0


def inspect_vectors(snapshot: Snapshot, card: LqCard) -> VectorFacts:
    """Facts of a snapshot, one partition in memory at a time; keys as ``docs/inspect.md`` lists them."""
    H = card.domain.horizon  # noqa: N806
    sums = _Sums(lengths=np.zeros(H + 1, dtype=np.int64), by_step=np.zeros(H, dtype=np.int64))
    for part in snapshot.part_files:
        _add(sums, pl.read_parquet(part, columns=["user_id", "episode_id", "step", *ROLES]), card)
    rows = max(1, snapshot.rows)
    return {
        **snapshot_facts(snapshot, card, sums, sums.by_step),
        "shares": {
            "unknown_next_observation": 1 - sums.counted["next_observation"] / rows,
            "shortened": sums.shortened / rows,
        },
        "vectors": {role: _summarise(role, card, sums) for role in ROLES},
    }


def _add(sums: _Sums, rows: pl.DataFrame, card: LqCard) -> None:
    """Add the rows of whole users."""
    if rows.is_empty():
        return
    sums.by_step += np.bincount(rows["step"].to_numpy(), minlength=len(sums.by_step))
    sums.count_episodes(rows)
    far = np.zeros(len(rows), dtype=bool)
    for role in ROLES:
        declared = card.domain.action if role == "action" else card.domain.observation
        known = rows[role].is_not_null().to_numpy()
        found = list_matrix(rows[role].to_arrow(), declared.size)[known]
        part = np.linalg.norm(found, axis=1) / declared.radius
        sums.longer[role] += (part[:, None] > np.array(PARTS) * (1 + 1e-5)).sum(0)
        sums.counted[role] += int(known.sum())
        far[known] |= part > 1 + 1e-5
        least, most, total, square = sums.moments.get(role, [np.inf, -np.inf, 0.0, 0.0])
        if len(found):
            sums.moments[role] = [
                np.minimum(least, found.min(0)),
                np.maximum(most, found.max(0)),
                total + found.sum(0),
                square + (found * found).sum(0),
            ]
    sums.shortened += int(far.sum())


def _summarise(role: str, card: LqCard, sums: _Sums) -> VectorSummary:
    declared = card.domain.action if role == "action" else card.domain.observation
    count = max(1, sums.counted[role])
    coordinates: list[Coordinate] = []
    if role in sums.moments:
        least, most, total, square = sums.moments[role]
        mean = total / count
        deviation = np.sqrt(np.maximum(square / count - mean**2, 0.0))
        columns = zip(declared.labels, least, most, mean, deviation, strict=True)
        coordinates = [
            Coordinate(name=name, lowest=float(low), highest=float(high), mean=float(m), deviation=float(d))
            for name, low, high, m, d in columns
        ]
    longer = {f"{part:g}": float(share) for part, share in zip(PARTS, sums.longer[role] / count, strict=True)}
    return {"radius": declared.radius, "longer_than": longer, "coordinates": coordinates}
