"""The card: what a dataset *is*, public by declaration and read before any row.

S, A, H, the reward range and the privacy unit are declared here; inferred from the logs they would leak and void
every proof (design §2, privacy.md §11).  A wrong card is a :class:`CardError` that names the key, what was found and
what is allowed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

OTHER = "OTHER"
END = "END"


class CardError(Exception):
    """The operator's file (a card or a recipe) or the command is wrong: exit code 2."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Unit(_Strict):
    """Whose privacy: everything one ``user`` id contributed is one record."""

    user: str
    episodes_per_user: Annotated[int, Field(ge=1, le=10_000)] = 1
    users_public: Annotated[int, Field(ge=1)]
    recurs: Literal["never", "capped"] = "never"


class Bins(_Strict):
    """State bins ``(-inf, e0), [e0, e1), …, [ek, inf)`` of one numeric column."""

    by: str
    edges: Annotated[list[float], Field(min_length=1)]
    names: list[str] | None = None

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        if any(not math.isfinite(e) for e in self.edges) or any(
            a >= b for a, b in zip(self.edges, self.edges[1:], strict=False)
        ):
            raise ValueError(f"edges must be finite and strictly increasing; got {self.edges}")
        if self.names is not None and len(self.names) != len(self.edges) + 1:
            raise ValueError(f"names must have {len(self.edges) + 1} entries, one a bin; got {len(self.names)}")
        return self

    def labels(self) -> list[str]:
        """Names of the ``len(edges) + 1`` bins."""
        if self.names is not None:
            return list(self.names)
        e = [f"{x:g}" for x in self.edges]
        middle = [f"{a} ≤ {self.by} < {b}" for a, b in zip(e, e[1:], strict=False)]
        return [f"{self.by} < {e[0]}", *middle, f"{self.by} ≥ {e[-1]}"]


Labels = Annotated[int, Field(ge=1)] | list[str | int] | dict[str, list[str | int]]


def _label_map(labels: Labels) -> dict[str, list[str]]:
    """Name of each label -> the raw values (as text) that stand for it."""
    if isinstance(labels, int):
        return {str(i): [str(i)] for i in range(labels)}
    if isinstance(labels, list):
        return {str(x): [str(x)] for x in labels}
    return {name: [str(x) for x in raw] for name, raw in labels.items()}


def _check_labels(labels: Labels | None, reserved: list[str]) -> None:
    if labels is None:
        return
    names = _label_map(labels)
    raw = [x for group in names.values() for x in group]
    if isinstance(labels, list) and len(labels) != len(names):
        raise ValueError("labels must be distinct")
    if len(raw) != len(set(raw)):
        raise ValueError("a raw value stands for two labels")
    if clash := set(raw + list(names)) & set(reserved):
        raise ValueError(f"{sorted(clash)} is reserved or also in 'ends'")
    if not names:
        raise ValueError("labels must not be empty")


class States(_Strict):
    """The state column: bins of a number or a list of labels; ``ends`` are absorbing and worth nothing."""

    column: str
    bins: Bins | None = None
    labels: Labels | None = None
    ends: list[str] = []
    other: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.bins is None) == (self.labels is None):
            raise ValueError("give exactly one of 'bins' and 'labels'")
        _check_labels(self.labels, [OTHER, *self.ends])
        if len(set(self.ends)) != len(self.ends) or OTHER in self.ends:
            raise ValueError(f"ends must be distinct and not {OTHER}; got {self.ends}")
        return self

    def live(self) -> list[str]:
        """Labels of the states in which a decision is taken, OTHER last."""
        own = self.bins.labels() if self.bins else list(_label_map(self.labels or 1))
        return own + ([OTHER] if self.other else [])

    def raw_labels(self) -> dict[str, int]:
        """Raw value (text) -> index among :meth:`live`; empty for bins."""
        if self.labels is None:
            return {}
        return {raw: i for i, group in enumerate(_label_map(self.labels).values()) for raw in group}


class Actions(_Strict):
    """The action column; OTHER, where declared, counts what was done but is never recommended."""

    column: str
    labels: Labels
    other: bool = False

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _check_labels(self.labels, [OTHER])
        return self

    def names(self) -> list[str]:
        """Labels in index order, OTHER last where declared."""
        return list(_label_map(self.labels)) + ([OTHER] if self.other else [])

    def raw_labels(self) -> dict[str, int]:
        """Raw value (text) -> action index."""
        return {raw: i for i, group in enumerate(_label_map(self.labels).values()) for raw in group}


class Domain(_Strict):
    """The finite decision process the log is declared to live in."""

    horizon: Annotated[int, Field(ge=1, le=1000)]
    states: States
    actions: Actions
    dynamics: Literal["per_step", "stationary"] = "per_step"
    cell_cap: Annotated[int, Field(ge=1)] | None = None
    markov: Literal["declared", "aggregated"] = "declared"
    start: Literal["released"] | dict[str, float] = "released"
    vetoes: list[tuple[str | int, str | int]] = []

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        live, actions = self.states.live(), self.actions.names()
        for state, action in self.vetoes:
            if str(state) not in live or str(action) not in actions:
                raise ValueError(f"veto ({state!r}, {action!r}) names no declared state and action")
        if isinstance(self.start, dict):
            if unknown := set(self.start) - set(live):
                raise ValueError(f"start names unknown states {sorted(unknown)}; declared: {live}")
            if abs(sum(self.start.values()) - 1) > 1e-9 or min(self.start.values()) < 0:
                raise ValueError(f"start must be probabilities summing to 1; got sum {sum(self.start.values()):g}")
        if self.cell_cap is not None and self.dynamics == "per_step":
            raise ValueError("cell_cap belongs to dynamics = 'stationary'; per_step tables do not use it")
        banned = {(str(s), str(a)) for s, a in self.vetoes}
        for s in live:
            if all((s, a) in banned or a == OTHER for a in actions):
                raise ValueError(f"every action is vetoed in state {s!r}; leave at least one")
        return self

    @property
    def live_states(self) -> list[str]:
        """Labels of the states in which a decision is taken."""
        return self.states.live()

    @property
    def state_labels(self) -> list[str]:
        """All S labels: live states first, then the ends."""
        return self.live_states + list(self.states.ends)

    @property
    def action_labels(self) -> list[str]:
        """All A labels."""
        return self.actions.names()

    @property
    def table_steps(self) -> int:
        """Leading axis of a count table: H, or 1 where the dynamics are declared stationary."""
        return 1 if self.dynamics == "stationary" else self.horizon


class Reward(_Strict):
    """Reward range and lattice; ``kind = "table"`` declares the mean reward and reads none from the rows."""

    kind: Literal["estimate", "table"] = "estimate"
    range: tuple[float, float]
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    total: Annotated[float, Field(gt=0)] | None = None
    table: list[list[float]] | None = None

    @model_validator(mode="after")
    def _sound(self) -> Self:
        low, high = self.range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"range must be [low, high] with low < high; got [{low}, {high}]")
        if self.total is not None and low != 0:
            raise ValueError(f"total needs a range that starts at 0; got {low}")
        if (self.kind == "table") != (self.table is not None):
            raise ValueError("kind = 'table' goes with 'table' (one row a live state, one entry an action), and only then")
        if self.table and not all(low <= r <= high for row in self.table for r in row):
            raise ValueError(f"table entries must lie in [{low}, {high}]")
        return self

    @property
    def unit(self) -> float:
        """Reward per lattice step."""
        return (self.range[1] - self.range[0]) / self.steps

    @property
    def total_steps(self) -> int | None:
        """The declared bound on one person's summed reward, in lattice steps."""
        return None if self.total is None else math.floor(self.total / self.unit + 1e-9)


class Columns(_Strict):
    """Where each canonical column is found in the source files."""

    user_id: str
    episode_id: str | None = None
    step: str | None = None
    reward: str | None = None
    next_state: str | None = None
    next_bin: str | None = None
    terminated: str | None = None
    truncated: str | None = None
    behavior_prob: str | None = None


class Source(_Strict):
    """Files of the log and the mapping of their columns."""

    layout: Literal["long"] = "long"
    files: Annotated[list[str], Field(min_length=1)]
    columns: Columns

    @field_validator("files")
    @classmethod
    def _inside(cls, files: list[str]) -> list[str]:
        for f in files:
            bare = f.partition(":")[2] if ":" in f else f
            if not bare or Path(bare).is_absolute() or ".." in Path(bare).parts:
                raise ValueError(f"{f!r} must stay below the card's folder, or be 'root:path' below a named root")
        return files


class Budget(_Strict):
    """Lifetime cap of the lineage."""

    rho: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    ledger: str = "home"


class Card(_Strict):
    """One dataset.  ``folder`` is where the card was read from; paths in it resolve below that folder."""

    schema_version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_\-]{0,62}$")]
    kind: Literal["real", "synthetic"] = "real"
    unit: Unit
    domain: Domain
    reward: Reward
    source: Source
    tolerance: dict[str, Annotated[float, Field(ge=0, le=1)]] = {}
    budget: Budget
    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _across(self) -> Self:
        d, cols = self.domain, self.source.columns
        if self.unit.user != cols.user_id:
            raise ValueError(f"unit.user ({self.unit.user!r}) and source.columns.user_id ({cols.user_id!r}) must agree")
        if d.horizon > 1 and (cols.step is None or cols.episode_id is None):
            raise ValueError("source.columns needs 'step' and 'episode_id' when domain.horizon > 1")
        if self.reward.kind == "estimate" and cols.reward is None:
            raise ValueError("source.columns.reward is missing; reward.kind = 'estimate' reads it")
        if self.reward.table is not None and (
            len(self.reward.table) != len(d.live_states)
            or any(len(row) != len(d.action_labels) for row in self.reward.table)
        ):
            raise ValueError(f"reward.table must be {len(d.live_states)} rows of {len(d.action_labels)} numbers")
        if d.horizon == 1 and not d.states.ends:
            raise ValueError("domain.states.ends needs a label where the only step leads; e.g. ends = ['end']")
        if self.kind == "real":
            if self.budget.ledger == "home":
                raise ValueError("budget.ledger: a real dataset names its own ledger (a path or a database URL), not 'home'")
            if self.budget.delta > 1 / (10 * self.unit.users_public):
                raise ValueError(
                    f"budget.delta = {self.budget.delta:g} is too large for {self.unit.users_public} people; "
                    f"at most {1 / (10 * self.unit.users_public):g} means anything"
                )
        return self

    @property
    def folder(self) -> Path:
        """The folder the card was read from."""
        return self._folder

    def domain_hash(self) -> str:
        """Sha256 of the canonical JSON of [unit], [reward] and [domain] without vetoes and markov (design §5.1)."""
        domain = self.domain.model_dump(mode="json", exclude={"vetoes", "markov"})
        parts = {"unit": self.unit.model_dump(mode="json"), "reward": self.reward.model_dump(mode="json"), "domain": domain}
        return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def source_files(self) -> list[Path]:
        """Existing files that ``source.files`` names, sorted; nothing outside the folder or a named root is read."""
        found: list[Path] = []
        for pattern in self.source.files:
            root_name, _, rest = pattern.rpartition(":")
            root = named_root(root_name) if root_name else self._folder
            matches = [p for p in sorted(root.glob(rest)) if p.is_file()]
            for p in matches:
                if not p.resolve().is_relative_to(root.resolve()):
                    raise CardError(f"{self.name}: source.files: {p.name} leads outside its folder; links out are not read")
            if not matches:
                raise CardError(f"{self.name}: source.files: nothing matches {pattern!r} below {root}; put the log there")
            found += matches
        return found


def named_root(name: str) -> Path:
    """Folder of a named root, from ``RETICENT_ROOTS`` (``name=path`` pairs joined by the path separator)."""
    pairs = dict(p.split("=", 1) for p in os.environ.get("RETICENT_ROOTS", "").split(os.pathsep) if "=" in p)
    if name not in pairs:
        known = ", ".join(sorted(pairs)) or "none"
        raise CardError(f"root {name!r} is not set; RETICENT_ROOTS names: {known}. Set RETICENT_ROOTS={name}=/its/folder")
    return Path(pairs[name])


def explain(error: ValidationError, where: str) -> str:
    """One line a problem: which key, what was found, what is allowed."""
    lines: list[str] = []
    for e in error.errors():
        key = ".".join(str(p) for p in e["loc"]) or "(whole file)"
        found = "" if e["type"] in ("missing", "value_error") else f"; found {_short(e['input'])}"
        message = e["msg"].removeprefix("Value error, ")
        if e["type"] == "extra_forbidden":
            message = "unknown key; see the card and recipe tables in docs/card.md"
        lines.append(f"{where}: {key}: {message}{found}")
    return "\n".join(lines)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def read_toml(path: Path) -> Mapping[str, Any]:
    """Parse a TOML file; a missing or malformed one is a :class:`CardError`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CardError(f"{path}: no such file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as e:
        raise CardError(f"{path}: not readable as TOML: {e}") from None


def load_card(path: Path) -> Card:
    """Read and check a card.

    Raises
    ------
    CardError
        One line for each wrong key: which, what was found, what is allowed.
    """
    try:
        card = Card.model_validate(read_toml(path))
    except ValidationError as e:
        raise CardError(explain(e, str(path))) from None
    card._folder = path.resolve().parent
    return card
