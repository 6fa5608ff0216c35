"""Logs of vectors: decoding, the rules, and the canonical rows of a partition that holds whole users."""

from __future__ import annotations

import polars as pl

from pipeline.declaration.card import LqCard
from pipeline.declaration.linear_quadratic import Vector
from pipeline.logs.decode import Dtypes, episode_number, flag, probability, step_number
from pipeline.logs.screening import file_entries, mark_broken, quarantine_rows, sort_episodes
from pipeline.logs.store import VECTORS
from pipeline.logs.vector_cells import VectorCells, finite, longer, next_observation


def screen_vectors(raw: pl.DataFrame, card: LqCard, names: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Apply every rule; parameters and results as of :func:`~pipeline.logs.screening.screen`."""
    rows = sort_episodes(decode_vectors(raw, card), pl.col("terminated"))
    rows = mark_broken(rows.with_columns(next_observation("logged").alias("following")), card)
    kept = rows.filter(pl.col("rule").is_null())
    d = card.domain
    far = [longer(pl.col(c), v.radius) for c, v in _vectors(card).items()]
    far.append(longer(pl.col("following"), d.observation.radius))
    entries = file_entries(rows, kept, {"beyond_radius": pl.any_horizontal(far)})
    return _canonical(kept), quarantine_rows(raw, entries, card, names)


def decode_vectors(raw: pl.DataFrame, card: LqCard) -> pl.DataFrame:
    """Decode the rows of whole users.

    Returns
    -------
    One row a row of ``raw``, in its order: ``row``, the canonical columns (``logged`` is the logged next observation,
    null where there is none), and the marks ``unreadable``, ``wrong_length``, ``not_finite``.
    """
    dtypes: Dtypes = {name.removeprefix("raw_"): dtype for name, dtype in raw.schema.items()}
    episode, step = episode_number(dtypes), step_number(dtypes)
    terminated, bad_terminated = flag("terminated", dtypes)
    truncated, bad_truncated = flag("truncated", dtypes)
    prob, bad_prob = probability(dtypes)
    unreadable = [episode.is_null(), step.is_null(), bad_terminated, bad_truncated, bad_prob]
    found = {
        role: VectorCells(role, columns, _declared(role, card), dtypes) for role, columns in card.log.vectors.items()
    }
    values = [cells.values().alias(role) for role, cells in found.items()]
    rows = raw.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        pl.col("raw_user").alias("user_id"),
        episode.alias("episode_id"),
        step.alias("step"),
        *values,
        terminated.alias("terminated"),
        truncated.alias("truncated"),
        prob.alias("behavior_prob"),
        pl.any_horizontal(*unreadable, *(cells.words() for cells in found.values())).alias("unreadable"),
        pl.any_horizontal(cells.wrong_length() for cells in found.values()).alias("wrong_length"),
        *(cells.missing().alias(f"no_{role}") for role, cells in found.items()),
    )
    logged = pl.col("next_observation") if "next_observation" in found else pl.lit(None, dtype=VECTORS["observation"])
    none_logged = pl.col("no_next_observation") if "next_observation" in found else pl.lit(value=True)
    not_finite = [~finite(pl.col("observation")), ~finite(pl.col("action"))]
    not_finite.append(~none_logged & ~finite(logged))
    return rows.with_columns(
        pl.when(~none_logged).then(logged).alias("logged"), pl.any_horizontal(not_finite).alias("not_finite")
    )


def _declared(role: str, card: LqCard) -> Vector:
    return card.domain.action if role == "action" else card.domain.observation


def _vectors(card: LqCard) -> dict[str, Vector]:
    return {role: _declared(role, card) for role in ("observation", "action")}


def _canonical(kept: pl.DataFrame) -> pl.DataFrame:
    rows = kept.with_columns(
        pl.lit(None, dtype=pl.Float64).alias("reward"),
        pl.col("following").alias("next_observation"),
        (pl.col("truncated") | pl.col("following").is_null()).alias("truncated"),
    )
    return rows.select(pl.col(name) if name == "user_id" else pl.col(name).cast(t) for name, t in VECTORS.items())
