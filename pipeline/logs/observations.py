"""Observations beside declared states: decoded, marked, and put with the rows that they belong to."""

from __future__ import annotations

import polars as pl

from pipeline.declaration.card import Card
from pipeline.declaration.linear_quadratic import Vector
from pipeline.logs.decode import Dtypes
from pipeline.logs.store import OBSERVED
from pipeline.logs.vector_cells import VectorCells, finite, longer, next_observation


def with_observations(rows: pl.DataFrame, raw: pl.DataFrame, card: Card, vector: Vector) -> pl.DataFrame:
    """Decoded rows with ``observation``, ``logged_observation`` (null where none is logged), and marks.

    Parameters
    ----------
    rows, raw
        Decoded rows, and the raw ones that they were decoded of, in the same order.
    card, vector
        Names the columns; size and scales.
    """
    dtypes: Dtypes = {name.removeprefix("raw_"): dtype for name, dtype in raw.schema.items()}
    found = {role: VectorCells(role, columns, vector, dtypes) for role, columns in card.log.vectors.items()}
    seen = raw.select(
        *(cells.values().alias(role) for role, cells in found.items()),
        pl.any_horizontal(cells.words() for cells in found.values()).alias("words"),
        pl.any_horizontal(cells.wrong_length() for cells in found.values()).alias("wrong_length"),
        *(cells.missing().alias(f"no_{role}") for role, cells in found.items()),
    )
    if "next_observation" not in found:
        none = pl.lit(None, dtype=OBSERVED["next_observation"])
        seen = seen.with_columns(none.alias("next_observation"), pl.lit(value=True).alias("no_next_observation"))
    logged, none_logged = pl.col("next_observation"), pl.col("no_next_observation")
    return pl.concat([rows, seen], how="horizontal").with_columns(
        pl.col("unreadable") | pl.col("words"),
        pl.when(~none_logged).then(logged).alias("logged_observation"),
        (~finite(pl.col("observation")) | (~none_logged & ~finite(logged))).alias("not_finite"),
    )


def with_successors(rows: pl.DataFrame, card: Card, vector: Vector) -> pl.DataFrame:
    """Sorted rows with ``next_observation``, and a next state that is known only if its observation is.

    Where nothing divides the states, a next observation that is logged tells the next state, too.

    Parameters
    ----------
    rows
        As :func:`~pipeline.logs.screening.sort_episodes` leaves them, with ``next_state``.
    card, vector
        Whether states are divided, and how long an observation may be.
    """
    first_end, known = card.domain.states.first_terminal, pl.col("next_observation").is_not_null()
    state, here = pl.col("next_state"), pl.lit(0 if card.domain.states.undivided else None, dtype=pl.Int32)
    rows = rows.with_columns(next_observation("logged_observation").alias("next_observation"))
    # what follows by its step alone may stand behind a gap: then no state is told, and none is here
    logged = pl.col("logged_observation").is_not_null() & ~pl.col("terminated")
    told = pl.coalesce(state, pl.when(logged).then(here))
    return rows.with_columns(
        pl.when((told >= first_end) | known).then(told).cast(pl.Int32).alias("next_state"),
        pl.any_horizontal(longer(pl.col(c), vector.radius) for c in OBSERVED).alias("beyond_radius"),
    )
