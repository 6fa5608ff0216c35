"""Which columns of a log are read, and in which role: resolved once, from what the card declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pipeline.declaration.domain import Domain, Reward
from pipeline.declaration.linear_quadratic import LinearQuadratic
from pipeline.declaration.source import MADE, Source, StepColumn, VectorSource, constant, step_cells


@dataclass(frozen=True)
class LogColumns:
    """What is read of a log.

    Parameters
    ----------
    roles
        Role (``user``, ``step``, ``bin``, …) -> source column; one column may play two roles, constants are not read.
        In a wide source the roles of step h are ``state@h``, ``action@h``, …; a vector with a column a coordinate has
        the roles ``observation@0``, ``observation@1``, ….
    user
        The column of people's ids; None where a record that the reader makes stands for a person.
    flags
        Columns that are true at the last row of an episode.
    steps
        Of a wide source: role -> its H cells, columns and constants.
    vectors
        Of a log of vectors: role -> its list column, or one column a coordinate.
    chain
        Pairs (where a row leads, where the next row stands), by column.
    """

    roles: Mapping[str, str]
    user: str | None
    flags: tuple[str, ...]
    steps: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])
    vectors: Mapping[str, str | list[str]] = field(default_factory=dict[str, str | list[str]])
    chain: tuple[tuple[str, str], ...] = ()

    @property
    def lists(self) -> frozenset[str]:
        """Roles whose cells are lists of numbers."""
        return frozenset(role for role, columns in self.vectors.items() if isinstance(columns, str))


def step_role(role: str, h: int) -> str:
    """Name of a role at step h of a wide source, or of coordinate h of a vector: ``state@3``."""
    return f"{role}@{h}"


def table_columns(source: Source, domain: Domain, reward: Reward) -> LogColumns:
    """The columns of a log of declared states and actions."""
    each = _step_columns(source, domain, reward)
    roles, steps = _whose(source), dict[str, list[str]]()
    if source.layout == "wide":
        steps = {role: step_cells(column, domain.horizon, source.first_step) for role, column in each.items()}
        cells = {step_role(role, h): cell for role, found in steps.items() for h, cell in enumerate(found)}
        roles |= {role: cell for role, cell in cells.items() if constant(cell) is None}
    else:
        roles |= {role: str(column) for role, column in each.items()}
    states, cols = domain.states, source.columns
    leads, stands = (cols.next_state, states.column) if states.bins is None else (cols.next_bin, states.bins.by)
    chain = () if leads is None else ((str(leads), str(stands)),)
    return LogColumns(roles, _user(source), _flags(source), steps, chain=chain)


def vector_columns(source: VectorSource, domain: LinearQuadratic) -> LogColumns:
    """The columns of a log of vectors."""
    following, vectors = source.columns.next_observation, dict[str, str | list[str]]()
    for role, vector in (("observation", domain.observation), ("action", domain.action)):
        vectors[role] = vector.columns or str(vector.column)
    if following is not None:
        vectors["next_observation"] = following
    roles = _whose(source)
    for role, columns in vectors.items():
        if isinstance(columns, str):
            roles[role] = columns
        else:
            roles |= {step_role(role, i): column for i, column in enumerate(columns)}
    cols = source.columns
    rest = {"terminated": cols.terminated, "truncated": cols.truncated, "behavior_prob": cols.behavior_prob}
    roles |= {role: column for role, column in rest.items() if column is not None}
    here = vectors["observation"]
    pairs = [] if following is None else zip(_listed(following), _listed(here), strict=True)
    return LogColumns(roles, _user(source), _flags(source), vectors=vectors, chain=tuple(pairs))


def _listed(columns: str | list[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else columns


def _whose(source: Source | VectorSource) -> dict[str, str]:
    c = source.columns
    rows = {"user": c.user_id, "episode": c.episode_id, "step": c.step}
    return {role: column for role, column in rows.items() if column is not None}


def _user(source: Source | VectorSource) -> str | None:
    named = source.columns.user_id
    return None if named == MADE.get(source.format) else named


def _flags(source: Source | VectorSource) -> tuple[str, ...]:
    flags = (source.columns.terminated, source.columns.truncated)
    return tuple(str(flag) for flag in flags if flag is not None)


def _step_columns(source: Source, domain: Domain, reward: Reward) -> dict[str, StepColumn]:
    c, states = source.columns, domain.states
    wanted: dict[str, StepColumn | None] = {
        # bins: the label column only tells the ends apart
        "state": states.column if states.bins is None or states.ends else None,
        "bin": states.bins.by if states.bins else None,
        "action": domain.actions.column,
        "reward": c.reward if reward.kind == "estimate" else None,
        "next_state": c.next_state,
        "next_bin": c.next_bin if c.next_state and states.bins else None,
        "terminated": c.terminated,
        "truncated": c.truncated,
        "behavior_prob": c.behavior_prob,
    }
    return {role: column for role, column in wanted.items() if column is not None}
