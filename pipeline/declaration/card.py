"""The card: the public description of a dataset, declared and read before any row.

S, A, H, the reward range and the privacy unit are declared here; inferred from the logs they would leak and void
every proof (design §2, privacy.md §11).  A wrong card is a :class:`CardError` that names the key, its value and the
allowed ones.

Here are also the declared reward, the columns of a log with their roles, and the check of constants.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, FiniteFloat, model_validator

from pipeline.arrays import Array
from pipeline.declaration.domain import LINEAR_QUADRATIC, Cost, Domain, Features, LinearQuadratic, Vector
from pipeline.declaration.lineage import Declaration, files_of, sha256_of
from pipeline.declaration.source import MADE, Source, StepColumn, VectorSource, check_format, constant, step_cells
from pipeline.declaration.toml import CardError as CardError
from pipeline.declaration.toml import Strict, read_toml, table_in, validated
from pipeline.mdp import model, riccati
from pipeline.mdp.features import KINDS

Rows = list[list[float]]
# squares of sums of larger rewards may overflow a floating-point number
MOST = 1e30
# least steps of a lattice on which discounted rewards are rounded: a thousandth of the range a step is lost
FINE = 1000


class Reward(Strict):
    """Reward of a step: range, lattice, and its source: the rows, a table, or the state entered.

    ``range``, ``steps``: lattice: least and largest reward of a step, and the steps between them.
    ``empty``: reward of a row whose cell is empty; None: such a row is no step (``bad_reward``).
    ``words``: text of a cell -> its reward, for texts such as ``yes`` and ``no``; other texts are numbers or a
    ``bad_reward``.
    ``called``: noun of the reward for the page: ``good seasons``; no sum depends on it.
    ``paid``: ``last``: only the last row of an episode counts; the reward of all others is 0, whatever their cells.
    ``table``: mean reward ``(L, A)`` of each live state and action, or one such table a step, ``(H, L, A)``.
    ``on_entering``: state label -> reward of a step that leads there; 0 for a label that is not named.
    """

    later: ClassVar = {"on_entering": None, "empty": None, "words": None, "called": None, "paid": "each"}
    kind: Literal["estimate", "table", "on_entering"] = "estimate"
    range: Annotated[tuple[float, float], Field(strict=False)]
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    empty: FiniteFloat | None = None
    words: Annotated[dict[str, FiniteFloat], Field(min_length=1)] | None = None
    called: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    paid: Literal["each", "last"] = "each"
    total: Annotated[float, Field(gt=0)] | None = None
    table: Rows | list[Rows] | None = None
    on_entering: Annotated[dict[str, FiniteFloat], Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _kind_by_key(cls, values: Any) -> Any:
        given = table_in(values)
        return values if given is None or given.get("on_entering") is None else {"kind": "on_entering", **given}

    @model_validator(mode="after")
    def _sound(self) -> Self:
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"range must be [low, high] with low < high; got [{low}, {high}]")
        if max(-low, high) > MOST or high - low < 1 / MOST:
            raise ValueError(
                f"range: sums of rewards in [{low}, {high}] have no floating-point number; declare the reward in a "
                f"unit in which they lie in ±{MOST:g} and differ by {1 / MOST:g}"
            )
        if self.empty is not None and (self.kind != "estimate" or not low <= self.empty <= high):
            raise ValueError(f"empty: what an empty cell pays lies in range, of kind = 'estimate'; got {self.empty}")
        if self.words is not None and (
            self.kind != "estimate" or not all(low <= paid <= high for paid in self.words.values())
        ):
            raise ValueError(f"words: what a text pays lies in range, of kind = 'estimate'; got {self.words}")
        zero = low / self.unit
        if self.paid == "last" and (self.kind != "estimate" or not low <= 0 <= high or abs(zero - round(zero)) > 1e-9):
            raise ValueError("paid = 'last': the other rows pay 0, a point of the lattice, and kind is 'estimate'")
        if self.total is not None and self.total > MOST:
            raise ValueError(f"total must be at most {MOST:g}; got {self.total}")
        if self.total is not None and low != 0:
            raise ValueError(f"total needs a range that starts at 0; got {low}")
        if self.total_steps == 0:
            raise ValueError(f"total must be at least one lattice step ({self.unit:g}); got {self.total:g}")
        if (self.kind == "table") != (self.table is not None):
            raise ValueError(
                "kind = 'table' goes with 'table' (one row a live state, one entry an action), and only then"
            )
        if (self.kind == "on_entering") != (self.on_entering is not None):
            raise ValueError("kind = 'on_entering' goes with 'on_entering' = { label = reward }, and only then")
        if any(not low <= r <= high for table in self.tables for row in table for r in row):
            raise ValueError(f"table entries must lie in [{low}, {high}]")
        if self.on_entering is not None and any(not low <= r <= high for r in (0.0, *self.on_entering.values())):
            raise ValueError(f"on_entering: 0 and every entry must lie in [{low}, {high}]; got {self.on_entering}")
        return self

    def check_discount(self, dynamics: str) -> None:
        """Refuse a discount whose rewards no lattice could hold exactly, or no evaluation could measure.

        Raises ValueError naming the key, and what to write.
        """
        if self.kind != "estimate":
            raise ValueError(
                "domain.discount goes with rewards of the rows; of a declared table give one table a step, [[[…]]]"
            )
        if dynamics == "stationary":
            # one table for all steps makes gains far too large
            raise ValueError("domain.discount makes rewards depend on the step: declare dynamics = 'per_step'")
        if not self.range[0] <= 0 <= self.range[1] or self.steps < FINE:
            raise ValueError(
                f"domain.discount needs a range that holds 0 and reward.steps of at least {FINE:,}, as what a step "
                f"pays is rounded down to the lattice; got {list(self.range)} and steps = {self.steps:,}"
            )

    def check(self, horizon: int, live: Sequence[str], ends: Sequence[str], actions: int) -> None:
        """Refuse a table or labels that do not fit the declared domain.

        Raises ValueError naming the key, and what it must be.
        """
        if any(len(table) != len(live) or any(len(row) != actions for row in table) for table in self.tables):
            raise ValueError(f"reward.table must be {len(live)} rows of {actions} numbers")
        if len(self.tables) not in (0, 1, horizon):
            raise ValueError(f"reward.table must be one table, or one a step ({horizon}); got {len(self.tables)}")
        if unknown := set(self.on_entering or ()) - {*live, *ends}:
            some = ", ".join([*live[:5], *(["…"] if len(live) > 5 else []), *ends])
            raise ValueError(f"reward.on_entering names unknown states {sorted(unknown)}; declared: {some}")

    @property
    def tables(self) -> list[Rows]:
        """The declared tables: none, one, or one a step."""
        if self.table is None:
            return []
        deep = [[row for row in table if isinstance(row, list)] for table in self.table]
        return deep if any(deep) else [[[x for x in row if not isinstance(x, list)] for row in self.table]]

    def paid_here(self, live: int, actions: int) -> Array | None:
        """Declared reward of a state and action: ``(L, A)``, or ``(H, L, A)``; None where the rows hold it."""
        if self.kind == "estimate":
            return None
        tables = np.array(self.tables, dtype=np.float64) if self.tables else np.zeros((1, live, actions))
        return tables[0] if len(tables) == 1 else tables

    def paid_there(self, states: Sequence[str]) -> Array | None:
        """Declared reward of the state that a step leads to, ``(S,)`` over all labels; None where there is none."""
        entering = self.on_entering
        return None if entering is None else np.array([entering.get(label, 0.0) for label in states])

    def most(self, ends: Collection[str]) -> float | None:
        """Largest reward of one episode: the declared total, or that of the best end where only ends pay.

        None where neither is declared.
        """
        entering = self.on_entering
        if entering is None or any(paid > 0 for label, paid in entering.items() if label not in ends):
            return self.total
        best = max(0.0, *entering.values())
        return best if self.total is None else min(best, self.total)

    @property
    def unit(self) -> float:
        """Reward per lattice step."""
        return (self.range[1] - self.range[0]) / self.steps

    @property
    def total_steps(self) -> int | None:
        """The declared bound on one person's summed reward, in lattice steps."""
        return None if self.total is None else math.floor(self.total / self.unit + 1e-9)


_LOGGED = ("reward", "next_state", "next_bin", "terminated", "truncated", "behavior_prob")
# key in the card -> role, of what differs from step to step
_ROLES = {
    "domain.states.column": "state",
    "domain.states.bins.by": "bin",
    "domain.actions.column": "action",
    **{f"source.columns.{role}": role for role in _LOGGED},
}
# roles whose cells show that a step was taken
TELLING = ("state", "bin", "action")


@dataclass(frozen=True)
class LogColumns:
    """The columns that are read of a log.

    ``roles``: role (``user``, ``step``, ``bin``, …) -> source column; one column may play two roles, constants are not
    read. In a wide source the roles of step h are ``state@h``, ``action@h``, …; a vector with a column a coordinate has
    the roles ``observation@0``, ``observation@1``, ….
    ``user``: the column of people's ids; None where each record that the reader makes stands for a person.
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

    ``h``: 0-based step or coordinate.
    """
    return f"{role}@{h}"


def table_columns(source: Source, domain: Domain, reward: Reward) -> LogColumns:
    """The columns of a log of declared states and actions."""
    by_step = _read_by_step(source, domain, reward)
    roles, steps = _row_roles(source), dict[str, list[str]]()
    if source.layout == "wide":
        steps = {role: step_cells(column, domain.horizon, source.starts_at) for role, column in by_step.items()}
        cells = {step_role(role, h): cell for role, names in steps.items() for h, cell in enumerate(names)}
        roles |= {role: cell for role, cell in cells.items() if constant(cell) is None}
    else:
        roles |= {role: str(column) for role, column in by_step.items()}
        parts = [] if domain.states.product is None else domain.states.product.columns
        roles |= {step_role("part", i): column for i, column in enumerate(parts)}
    states, cols = domain.states, source.columns
    observed = {} if domain.observation is None else {"observation": domain.observation}
    vectors, vector_roles = _vectors(observed, cols.next_observation)
    next_state, state = (cols.next_state, states.column) if states.bins is None else (cols.next_bin, states.bins.by)
    chain = () if next_state is None else ((str(next_state), str(state)),)
    return LogColumns(roles | vector_roles, *_user_and_flags(source), steps, vectors, chain)


def vector_columns(source: VectorSource, domain: LinearQuadratic) -> LogColumns:
    """The columns of a log of vectors."""
    following = source.columns.next_observation
    vectors, vector_roles = _vectors({"observation": domain.observation, "action": domain.action}, following)
    roles = _row_roles(source) | vector_roles
    rest = {role: getattr(source.columns, role) for role in ("terminated", "truncated", "behavior_prob")}
    roles |= {role: column for role, column in rest.items() if column is not None}
    pairs = () if following is None else zip(_listed(following), _listed(vectors["observation"]), strict=True)
    return LogColumns(roles, *_user_and_flags(source), vectors=vectors, chain=tuple(pairs))


def _vectors(
    declared: dict[str, Vector], following: str | list[str] | None
) -> tuple[dict[str, str | list[str]], dict[str, str]]:
    """Columns of each vector, and the columns by role: one role for a column of lists, else one a coordinate."""
    vectors: dict[str, str | list[str]] = {role: v.columns or str(v.column) for role, v in declared.items()}
    vectors |= {} if following is None else {"next_observation": following}
    roles = dict[str, str]()
    for role, columns in vectors.items():
        if isinstance(columns, str):
            roles[role] = columns
        else:
            roles |= {step_role(role, i): column for i, column in enumerate(columns)}
    return vectors, roles


def _listed(columns: str | list[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else columns


def _row_roles(source: Source | VectorSource) -> dict[str, str]:
    """Role -> column, of the columns that place a row: person, episode, step and order."""
    c = source.columns
    order = source.order_by if isinstance(source, Source) else None
    by = source.same_place.by if isinstance(source, Source) and source.same_place is not None else None
    rows = {"user": c.user_id, "episode": c.episode_id, "step": c.step, "order": order, "entered": by}
    return {role: column for role, column in rows.items() if column is not None}


def _user_and_flags(source: Source | VectorSource) -> tuple[str | None, tuple[str, ...]]:
    """The column of people's ids (None where the reader makes records that stand for people), and the episode flags."""
    cols = source.columns
    flags = tuple(str(flag) for flag in (cols.terminated, cols.truncated) if flag is not None)
    return None if cols.user_id == MADE.get(source.format) else cols.user_id, flags


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
    """Refuse constants of a wide source that mean nothing, or that no column accompanies.

    Raises ValueError naming the key, and what to write.
    """
    states = domain.states
    labels = {
        "domain.states.column": {*states.raw_labels(), *states.ends} | ({""} if states.bins else set[str]()),
        "domain.actions.column": set(domain.actions.raw_labels()),
        "source.columns.next_state": {*states.raw_labels(), *states.ends, ""},
    }
    columns = step_columns(source, domain)
    cells = {key: step_cells(column, domain.horizon, source.starts_at) for key, column in columns.items()}
    for key, key_cells in cells.items():
        for text in map(constant, key_cells):
            if text is not None:
                _check_constant(key, text, labels.get(key), reward.range)
    telling = set(TELLING) & set(_read_by_step(source, domain, reward))
    for h, step in enumerate(zip(*(c for key, c in cells.items() if _ROLES[key] in telling), strict=True)):
        if all(constant(cell) is not None for cell in step):
            raise ValueError(
                f"domain.actions.column: entry {h + 1} and that of domain.states.column are constants, so no row "
                "could tell whether the step was taken; name a column in one of them"
            )


def _read_by_step(source: Source, domain: Domain, reward: Reward) -> dict[str, StepColumn]:
    """Role -> column, of the columns that differ from step to step and are read."""
    states, columns = domain.states, step_columns(source, domain)
    if states.undivided or (states.labels is None and not states.ends):
        # without labels the label column only tells the ends apart
        columns.pop("domain.states.column", None)
    if reward.kind != "estimate":
        columns.pop("source.columns.reward", None)
    return {_ROLES[key]: column for key, column in columns.items()}


def _check_constant(key: str, text: str, labels: set[str] | None, rewards: tuple[float, float]) -> None:
    """Refuse a constant of a wide source that means nothing; ValueError naming the key and what is allowed."""
    if labels is not None:
        if text not in labels:
            raise ValueError(f"{key}: the constant '={text}' is no declared label; declared: {sorted(labels - {''})}")
        return
    if key in ("source.columns.terminated", "source.columns.truncated"):
        allowed, good = "'=true', '=false' or '='", text in ("", "true", "false")
    elif key == "source.columns.reward":
        low, high = rewards
        allowed, good = f"a number in [{low:g}, {high:g}]", _number_in(text, low, high)
    elif key == "source.columns.behavior_prob":
        allowed, good = "'=' or a number above 0, 1 at most", text == "" or _number_in(text, math.ulp(0.0), 1)
    else:
        good = _number_in(text, -math.inf, math.inf) or (key == "source.columns.next_bin" and text == "")
        allowed = "a number"
    if not good:
        raise ValueError(f"{key}: the constant '={text}' must be {allowed}")


def _number_in(text: str, low: float, high: float) -> bool:
    try:
        return low <= float(text) <= high
    except ValueError:
        return False


# share that real people's undeclared labels may have where a card of version 2 does not say
UNKNOWN_LABELS = 0.1


class Card(Declaration):
    """One dataset of declared states and actions."""

    declares: ClassVar[str] = "states, actions, horizon, reward range"
    bounded: ClassVar[tuple[str, ...]] = ()

    domain: Domain
    reward: Reward
    features: Features | None = None
    source: Source

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_version_2(cls, data: Any) -> Any:
        """Balanced features, and a gate for real people; a card of version 1 keeps the keys of its releases."""
        given = table_in(data)
        if given is None or given.get("schema_version") != 2:
            return data
        defaults: dict[str, object] = {}
        if given.get("kind", "real") == "real":
            # a typo in a table of labels is caught before the budget is spent
            defaults["tolerance"] = {"unknown_label": UNKNOWN_LABELS}
        if (features := table_in(given.get("features"))) is not None:
            # features of an observation lie in the unit ball by construction, and have no finite set of rows
            return {**defaults, **given, "features": {"balanced": features.get("kind") not in KINDS, **features}}
        return {**defaults, **given}

    @model_validator(mode="after")
    def _across(self) -> Self:
        d, cols = self.domain, self.source.columns
        self.check_people(cols.user_id)
        check_format(self.source, self.kind, d.horizon)
        self.source.check_layout(step_columns(self.source, d), d.horizon)
        if self.source.layout == "wide":
            check_constants(self.source, d, self.reward)
        if cols.next_bin is not None and (cols.next_state is None or d.states.bins is None):
            raise ValueError("source.columns.next_bin goes with 'next_state' and binned states")
        if self.source.last_row != "unknown" and not d.states.ends:
            last = self.source.last_row
            raise ValueError(f"source.last_row = {last!r} needs an end to lead to, e.g. domain.states.ends = ['end']")
        if self.reward.kind == "estimate" and cols.reward is None:
            raise ValueError("source.columns.reward is missing; reward.kind = 'estimate' reads it")
        self.reward.check(d.horizon, d.live_states, d.states.ends, len(d.action_labels))
        if d.discount < 1:
            self.reward.check_discount(d.dynamics)
        if self.features is not None:
            self.features.check(len(d.live_states), len(d.action_labels), d.observation)
        if d.states.product is not None and (self.source.layout == "wide" or cols.next_state is not None):
            raise ValueError("domain.states.from goes with layout = 'long' and without source.columns.next_state")
        if d.states.undivided and (cols.next_state, cols.next_bin) != (None, None):
            raise ValueError("source.columns.next_state needs declared states; map next_observation and terminated")
        if d.observation is not None:
            if self.source.layout == "wide":
                raise ValueError("domain.observation needs source.layout = 'long': one row a step")
            d.observation.check_next(cols.next_observation)
        elif cols.next_observation is not None:
            raise ValueError("source.columns.next_observation goes with domain.observation")
        if d.horizon == 1 and not d.states.ends:
            raise ValueError("domain.states.ends needs a label where the only step leads; e.g. ends = ['end']")
        return self

    @cached_property
    def log(self) -> LogColumns:
        """The columns of the log that are read, with their roles."""
        return table_columns(self.source, self.domain, self.reward)

    @property
    def loses_last_step(self) -> bool:
        """Whether the last step can count in no table: it leads to no logged state and to no declared end."""
        d = self.domain
        return d.dynamics == "per_step" and not d.states.ends and self.source.columns.next_state is None

    @property
    def one_episode(self) -> bool:
        """Whether, by declaration, all rows of a person are one episode."""
        return self.source.columns.episode_id == self.source.columns.user_id

    @property
    def pays_at_the_end(self) -> bool:
        """Whether, by declaration, rewards before an episode's last step do not depend on the person.

        False where every episode has one step.
        """
        d, r, column = self.domain, self.reward, self.source.columns.reward
        if d.horizon == 1:
            return False
        if r.kind == "on_entering":
            entering = r.on_entering or {}
            return len({entering.get(label, 0.0) for label in d.live_states}) == 1
        if r.kind == "table":
            # one table is that of every step
            before = r.tables[:-1] or r.tables
            return all(len({x for row in table for x in row}) == 1 for table in before)
        if r.paid == "last":
            return True
        if self.source.layout == "long" or column is None:
            return False
        *before, _ = step_cells(column, d.horizon, self.source.starts_at)
        return all(constant(cell) is not None for cell in before)

    def domain_hash(self) -> str:
        """Sha256 of the canonical JSON of [unit], [reward] and [domain] without keys in no sum (design §5.1)."""
        domain = self.domain.model_dump(mode="json", exclude={"vetoes", "markov", "practice"})
        parts = {
            "unit": self.unit.model_dump(mode="json"),
            "reward": self.reward.model_dump(mode="json", exclude={"called"}),
            "domain": domain,
        }
        return sha256_of(parts)

    def source_files(self) -> list[Path]:
        """Existing files that ``source.files`` names, sorted; nothing outside the folder or a named root is read."""
        return files_of(self.name, self.folder, self.source.files)


class LqCard(Declaration):
    """One dataset of observations and controls that are vectors: a linear plant with a declared quadratic cost.

    ``domain``: sizes, balls and scales of observation and control, horizon, first state and noise (privacy.md §7).
    """

    declares: ClassVar[str] = "dimensions, balls and their scales, horizon, first state, noise and cost"
    bounded: ClassVar[tuple[str, ...]] = (
        "every row was shortened to its declared balls before it was summed: the loss rests on this cut alone, "
        "whatever the plant does",
    )

    domain: LinearQuadratic
    cost: Cost
    source: VectorSource

    @model_validator(mode="after")
    def _across(self) -> Self:
        d, cols = self.domain, self.source.columns
        self.check_people(cols.user_id)
        check_format(self.source, self.kind, d.horizon)
        if d.horizon > 1 and (cols.step is None or cols.episode_id is None):
            raise ValueError("source.columns needs 'step' and 'episode_id' when domain.horizon > 1")
        if cols.next_observation is None and d.horizon == 1:
            raise ValueError("source.columns.next_observation is missing; with one step nothing else tells it")
        d.observation.check_next(cols.next_observation)
        self.cost.quadratic(d.observation.size, d.action.size, d.horizon)
        return self

    @cached_property
    def log(self) -> LogColumns:
        """The columns of the log that are read, with their roles."""
        return vector_columns(self.source, self.domain)

    @property
    def quadratic(self) -> riccati.QuadraticCost:
        """The declared cost of each step."""
        return self.cost.quadratic(self.domain.observation.size, self.domain.action.size, self.domain.horizon)

    def domain_hash(self) -> str:
        """Sha256 of the canonical JSON of [unit] and [domain]; a cost enters no sum, so another one is free."""
        return sha256_of({key: self.model_dump(mode="json")[key] for key in ("unit", "domain")})

    def source_files(self) -> list[Path]:
        """Existing files that ``source.files`` names, sorted; nothing outside the folder or a named root is read."""
        return files_of(self.name, self.folder, self.source.files)


AnyCard = Card | LqCard


def load_any_card(path: str | Path) -> AnyCard:
    """Read and check a card of any domain.

    Raises CardError with one line for each wrong key: its name, its value, and the allowed ones.
    """
    path = Path(path)
    values = read_toml(path)
    if "recipe" in values:
        raise CardError(f"{path}: this is a recipe, not a card; name the card that it runs on")
    kind = LqCard if (table_in(values.get("domain")) or {}).get("dynamics") == LINEAR_QUADRATIC else Card
    folder = path.resolve().parent
    return validated(kind, values, str(path), folder=folder).placed(folder)


def load_card(path: Path) -> Card:
    """Read and check a card of declared states and actions.

    Raises CardError with one line for each wrong key, or where the card declares vectors.
    """
    return require_tabular(load_any_card(path))


def require_tabular(card: AnyCard) -> Card:
    """Return the card, if it declares states and actions.

    Raises CardError if it declares vectors, whose agents are dp-lqr and lqr.
    """
    if isinstance(card, LqCard):
        raise CardError(f"{card.name}: dynamics = '{LINEAR_QUADRATIC}': states are vectors; use agent dp-lqr or lqr")
    return card


def require_linear_quadratic(card: AnyCard) -> LqCard:
    """Return the card, if it declares a linear plant.

    Raises CardError if it declares states and actions by label.
    """
    if isinstance(card, Card):
        raise CardError(f"{card.name}: dp-lqr and lqr need a card with dynamics = '{LINEAR_QUADRATIC}' and a [cost]")
    return card


def task_of(card: Card) -> model.Task:
    """The declared decision process as the planner needs it.

    Its reward table and allowed actions are ``(L, A)`` over live states and action labels.
    """
    d, r = card.domain, card.reward
    here, there = r.paid_here(len(d.live_states), len(d.action_labels)), r.paid_there(d.state_labels)
    return model.Task(d.horizon, r.range, d.allowed, here, can_end=bool(d.states.ends), entering=there, total=r.total)


def declared_start(card: Card) -> Array | None:
    """Declared first-state distribution ``(L,)``, or None where it comes from the release.

    ``card``: its ``domain.start``: probabilities by label, 0 for a state that it does not name.
    """
    start = card.domain.start
    return None if start == "released" else np.array([start.get(s, 0.0) for s in card.domain.live_states])
