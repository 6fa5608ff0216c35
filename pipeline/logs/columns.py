"""The canonical log table, and where each of its columns comes from."""

from __future__ import annotations

import polars as pl

from pipeline.declaration.card import END, AnyCard, Card, LqCard
from pipeline.declaration.source import StepColumn, constant

SCHEMA_VERSION = 1

# user_id is String or Int64, as the files say; null next_state: unknown, the row counts in no table.
CANONICAL: dict[str, type[pl.DataType]] = {
    "user_id": pl.String,
    "episode_id": pl.Int64,
    "step": pl.Int32,
    "state": pl.Int32,
    "action": pl.Int32,
    "reward": pl.Float64,
    "next_state": pl.Int32,
    "terminated": pl.Boolean,
    "truncated": pl.Boolean,
    "behavior_prob": pl.Float64,
}

# of a log of vectors: in units of the declared scales; a null next_observation counts nowhere
VECTORS: dict[str, pl.DataType | type[pl.DataType]] = {
    "user_id": pl.String,
    "episode_id": pl.Int64,
    "step": pl.Int32,
    "observation": pl.List(pl.Float32),
    "action": pl.List(pl.Float32),
    "reward": pl.Float64,
    "next_observation": pl.List(pl.Float32),
    "terminated": pl.Boolean,
    "truncated": pl.Boolean,
    "behavior_prob": pl.Float64,
}

QUARANTINE_HEAD: dict[str, type[pl.DataType]] = {
    "rule": pl.String,
    "effect": pl.String,
    "file": pl.String,
    "line": pl.Int64,
    "text": pl.String,
}


def roles(card: AnyCard) -> dict[str, str]:
    """What is read: role (``user``, ``step``, ``bin``, …) -> source column.  One column may play two roles.

    In a wide source the roles of step h are ``state@h``, ``action@h``, …; constants are not read.  A vector with a
    column a coordinate has the roles ``observation@0``, ``observation@1``, ….
    """
    if isinstance(card, LqCard):
        return _vector_roles(card)
    c = card.source.columns
    rows = {"user": c.user_id, "episode": c.episode_id, "step": c.step}
    once = {role: column for role, column in rows.items() if column is not None}
    if card.source.layout == "wide":
        cells = {step_role(role, h): cell for role, cells in step_roles(card).items() for h, cell in enumerate(cells)}
        return once | {role: cell for role, cell in cells.items() if constant(cell) is None}
    return once | {role: str(column) for role, column in _step_columns(card).items()}


def step_roles(card: Card) -> dict[str, list[str]]:
    """Role -> its H cells in a wide source: columns and constants."""
    return {role: card.step_cells(column) for role, column in _step_columns(card).items()}


def step_role(role: str, h: int) -> str:
    """Name of a role at step h of a wide source, or of coordinate h of a vector."""
    return f"{role}@{h}"


def vector_columns(card: LqCard) -> dict[str, str | list[str]]:
    """Role of each vector that is read -> its list column, or one column a coordinate."""
    d, following = card.domain, card.source.columns.next_observation
    found = {role: v.columns or str(v.column) for role, v in (("observation", d.observation), ("action", d.action))}
    return found if following is None else found | {"next_observation": following}


def list_roles(card: AnyCard) -> frozenset[str]:
    """Roles whose cells are lists of numbers."""
    if isinstance(card, Card):
        return frozenset()
    return frozenset(role for role, columns in vector_columns(card).items() if isinstance(columns, str))


def _vector_roles(card: LqCard) -> dict[str, str]:
    c = card.source.columns
    wanted: dict[str, str | None] = {"user": c.user_id, "episode": c.episode_id, "step": c.step}
    for role, columns in vector_columns(card).items():
        each = [columns] if isinstance(columns, str) else columns
        one = isinstance(columns, str)
        wanted |= {role if one else step_role(role, i): column for i, column in enumerate(each)}
    wanted |= {"terminated": c.terminated, "truncated": c.truncated, "behavior_prob": c.behavior_prob}
    return {role: column for role, column in wanted.items() if column is not None}


def _step_columns(card: Card) -> dict[str, StepColumn]:
    c, states = card.source.columns, card.domain.states
    wanted: dict[str, StepColumn | None] = {
        # bins: the label column only tells the ends apart
        "state": states.column if states.bins is None or states.ends else None,
        "bin": states.bins.by if states.bins else None,
        "action": card.domain.actions.column,
        "reward": c.reward if card.reward.kind == "estimate" else None,
        "next_state": c.next_state,
        "next_bin": c.next_bin if c.next_state and states.bins else None,
        "terminated": c.terminated,
        "truncated": c.truncated,
        "behavior_prob": c.behavior_prob,
    }
    return {role: column for role, column in wanted.items() if column is not None}


def quarantine_schema(card: AnyCard) -> dict[str, pl.DataType | type[pl.DataType]]:
    """Columns of a quarantine file: the rule and the place, then the raw source values as text."""
    source = pl.Struct({column: pl.String() for column in roles(card).values()})
    return {**QUARANTINE_HEAD, "source": source}


def first_terminal(card: Card) -> int:
    """Index of the first end among the state labels: every state from here on is an end."""
    return len(card.domain.live_states)


def default_terminal(card: Card) -> int | None:
    """Index of the end meant when none is logged: the one named ``END`` (any case), else the last; None if no ends."""
    ends = card.domain.states.ends
    if not ends:
        return None
    named = [i for i, end in enumerate(ends) if end.upper() == END]
    return first_terminal(card) + (named[0] if named else len(ends) - 1)


def other_state(card: Card) -> int | None:
    """Index of the state OTHER, or None where the card declares none."""
    return len(card.domain.live_states) - 1 if card.domain.states.other else None


def other_action(card: Card) -> int | None:
    """Index of the action OTHER, or None where the card declares none."""
    return len(card.domain.action_labels) - 1 if card.domain.actions.other else None
