"""Raw state values outside a log -> the declared states, by the very rules that ``ingest`` decodes a log with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.declaration.domain import States
from pipeline.logs.decode import decode
from pipeline.logs.schema import roles

# what is no index of a state
UNREADABLE, UNDECLARED = -1, -2


def raw_states(values: Sequence[str | None], states: States) -> NDArray[np.int64]:
    """Index of each raw value among live states and ends.

    Parameters
    ----------
    values
        Cells as text, None for an empty one: of the binned column (or the name of an end) where states are bins, of
        the state column otherwise.

    Returns
    -------
    ``(N,)``; ``UNREADABLE`` for a word where a number belongs, ``UNDECLARED`` for a value that ``ingest`` would drop
    because no OTHER takes it in.
    """
    card = _card(states)
    cells = {"user": "0", "episode": "0", "step": "0", "action": "0", "reward": "0"}
    known = {role: pl.Series([text], dtype=pl.String).new_from_index(0, len(values)) for role, text in cells.items()}
    text = pl.Series(values, dtype=pl.String)
    raw = pl.DataFrame([known.get(role, text).alias(f"raw_{role}") for role in roles(card)])
    rows = decode(raw, card)
    index = pl.when("unreadable").then(UNREADABLE).otherwise(pl.col("state").fill_null(UNDECLARED))
    return rows.select(index.cast(pl.Int64).alias("state"))["state"].to_numpy()


def _card(states: States) -> Card:
    """The least card with these states: ``decode`` reads nothing else of it here."""
    columns = {"user_id": "user", "episode_id": "episode", "step": "step", "reward": "reward"}
    return Card.model_validate(
        {
            "schema_version": 1,
            "name": "states",
            "kind": "synthetic",
            "unit": {"user": "user", "users_public": 1},
            "domain": {
                "horizon": 2,
                "states": states.model_dump(mode="json"),
                "actions": {"column": "action", "labels": 1},
            },
            "reward": {"range": [0.0, 1.0]},
            "source": {"files": ["none"], "columns": columns},
            "budget": {"rho": 1.0},
        }
    )
