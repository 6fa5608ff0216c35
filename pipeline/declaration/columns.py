"""Which columns of a log are read, and in which role: resolved once, from what the card declares."""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.declaration.domain import Domain
from pipeline.declaration.linear_quadratic import LinearQuadratic, Vector
from pipeline.declaration.reward import Reward
from pipeline.declaration.source import MADE, Source, StepColumn, VectorSource, constant, step_cells
from pipeline.declaration.source_checks import check_constant

_LOGGED = ("reward", "next_state", "next_bin", "terminated", "truncated", "behavior_prob")
# key in the card -> role, of what differs from step to step
_ROLES = {
    "domain.states.column": "state",
    "domain.states.bins.by": "bin",
    "domain.actions.column": "action",
    **{f"source.columns.{role}": role for role in _LOGGED},
}
# roles whose cells tell that a step was taken
TELLING = ("state", "bin", "action")


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

    roles: dict[str, str]
    user: str | None
    flags: tuple[str, ...]
    steps: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    vectors: dict[str, str | list[str]] = field(default_factory=dict[str, str | list[str]])
    chain: tuple[tuple[str, str], ...] = ()

    @property
    def lists(self) -> frozenset[str]:
        """Roles whose cells are lists of numbers."""
        return frozenset(role for role, columns in self.vectors.items() if isinstance(columns, str))


def step_role(role: str, h: int) -> str:
    """Name of a role at step h of a wide source, or of coordinate h of a vector: ``state@3``.

    Parameters
    ----------
    role
        ``state``, ``action``, ``observation``, ….
    h
        0-based step or coordinate.
    """
    return f"{role}@{h}"


def table_columns(source: Source, domain: Domain, reward: Reward) -> LogColumns:
    """The columns of a log of declared states and actions."""
    each = _read(source, domain, reward)
    roles, steps = _whose(source), dict[str, list[str]]()
    if source.layout == "wide":
        steps = {role: step_cells(column, domain.horizon, source.starts_at) for role, column in each.items()}
        cells = {step_role(role, h): cell for role, found in steps.items() for h, cell in enumerate(found)}
        roles |= {role: cell for role, cell in cells.items() if constant(cell) is None}
    else:
        roles |= {role: str(column) for role, column in each.items()}
    states, cols = domain.states, source.columns
    vectors = dict[str, str | list[str]]()
    if domain.observation is not None:
        vectors = _vectors({"observation": domain.observation}, cols.next_observation)
        roles |= _vector_roles(vectors)
    leads, stands = (cols.next_state, states.column) if states.bins is None else (cols.next_bin, states.bins.by)
    chain = () if leads is None else ((str(leads), str(stands)),)
    return LogColumns(roles, _user(source), _flags(source), steps, vectors, chain)


def vector_columns(source: VectorSource, domain: LinearQuadratic) -> LogColumns:
    """The columns of a log of vectors."""
    following = source.columns.next_observation
    vectors = _vectors({"observation": domain.observation, "action": domain.action}, following)
    roles = _whose(source) | _vector_roles(vectors)
    cols = source.columns
    rest = {"terminated": cols.terminated, "truncated": cols.truncated, "behavior_prob": cols.behavior_prob}
    roles |= {role: column for role, column in rest.items() if column is not None}
    here = vectors["observation"]
    pairs = [] if following is None else zip(_listed(following), _listed(here), strict=True)
    return LogColumns(roles, _user(source), _flags(source), vectors=vectors, chain=tuple(pairs))


def _vectors(declared: dict[str, Vector], following: str | list[str] | None) -> dict[str, str | list[str]]:
    found: dict[str, str | list[str]] = {role: v.columns or str(v.column) for role, v in declared.items()}
    return found if following is None else found | {"next_observation": following}


def _vector_roles(vectors: dict[str, str | list[str]]) -> dict[str, str]:
    """Role -> column: one for a list, one a coordinate else."""
    roles = dict[str, str]()
    for role, columns in vectors.items():
        if isinstance(columns, str):
            roles[role] = columns
        else:
            roles |= {step_role(role, i): column for i, column in enumerate(columns)}
    return roles


def _listed(columns: str | list[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else columns


def _whose(source: Source | VectorSource) -> dict[str, str]:
    c = source.columns
    order = source.order_by if isinstance(source, Source) else None
    rows = {"user": c.user_id, "episode": c.episode_id, "step": c.step, "order": order}
    return {role: column for role, column in rows.items() if column is not None}


def _user(source: Source | VectorSource) -> str | None:
    named = source.columns.user_id
    return None if named == MADE.get(source.format) else named


def _flags(source: Source | VectorSource) -> tuple[str, ...]:
    flags = (source.columns.terminated, source.columns.truncated)
    return tuple(str(flag) for flag in flags if flag is not None)


def step_columns(source: Source, domain: Domain) -> dict[str, StepColumn]:
    """Columns that differ from step to step in a wide source, by their key in the card."""
    states = domain.states
    keys: dict[str, StepColumn | None] = {
        "domain.states.column": states.column or None,
        "domain.states.bins.by": states.bins.by if states.bins else None,
        "domain.actions.column": domain.actions.column,
        **{f"source.columns.{role}": getattr(source.columns, role) for role in _LOGGED},
    }
    return {key: column for key, column in keys.items() if column is not None}


def check_constants(source: Source, domain: Domain, reward: Reward) -> None:
    """Refuse constants of a wide source that mean nothing, or alone make a step.

    Raises
    ------
    ValueError
        Naming the key, and what to write.
    """
    states = domain.states
    labels = {
        "domain.states.column": {*states.raw_labels(), *states.ends} | ({""} if states.bins else set()),
        "domain.actions.column": set(domain.actions.raw_labels()),
        "source.columns.next_state": {*states.raw_labels(), *states.ends, ""},
    }
    columns = step_columns(source, domain)
    cells = {key: step_cells(column, domain.horizon, source.starts_at) for key, column in columns.items()}
    for key, found in cells.items():
        for text in map(constant, found):
            if text is not None:
                check_constant(key, text, labels.get(key), reward.range)
    told_by = set(TELLING) & set(_read(source, domain, reward))
    for h, found in enumerate(zip(*(c for key, c in cells.items() if _ROLES[key] in told_by), strict=True)):
        if all(constant(cell) is not None for cell in found):
            raise ValueError(
                f"domain.actions.column: entry {h + 1} and that of domain.states.column are constants, so no row "
                "could tell whether the step was taken; name a column in one of them"
            )


def _read(source: Source, domain: Domain, reward: Reward) -> dict[str, StepColumn]:
    """Role -> column, of what differs from step to step and is read."""
    states, found = domain.states, step_columns(source, domain)
    if states.undivided or (states.bins is not None and not states.ends):
        # with bins the label column only tells the ends apart
        found.pop("domain.states.column", None)
    if reward.kind != "estimate":
        found.pop("source.columns.reward", None)
    return {_ROLES[key]: column for key, column in found.items()}
