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
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from pipeline.domain import END, OTHER, Domain, Reward
from pipeline.mdp.declared import Features
from pipeline.source import Columns, Source, StepColumn, check_layout, constant, step_cells
from pipeline.spending import Budget
from pipeline.toml import CardError, Strict, explain, read_toml

__all__ = ["END", "OTHER", "Card", "CardError", "Columns", "Source", "load_card", "named_root"]


class Unit(Strict):
    """Whose privacy: everything one ``user`` id contributed is one record."""

    user: str
    episodes_per_user: Annotated[int, Field(ge=1, le=10_000)] = 1
    users_public: Annotated[int, Field(ge=1)]
    recurs: Literal["never", "capped"] = "never"


class Card(Strict):
    """One dataset.  ``folder`` is where the card was read from; paths in it resolve below that folder."""

    schema_version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_\-]{0,62}$")]
    kind: Literal["real", "synthetic"] = "real"
    unit: Unit
    domain: Domain
    reward: Reward
    features: Features | None = None
    source: Source
    tolerance: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    budget: Budget
    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _across(self) -> Self:
        d, cols = self.domain, self.source.columns
        if self.unit.user != cols.user_id:
            raise ValueError(f"unit.user ({self.unit.user!r}) and source.columns.user_id ({cols.user_id!r}) must agree")
        check_layout(self.source, self.step_keys(), d.horizon)
        if self.source.layout == "wide":
            self._check_constants()
        if cols.next_bin is not None and (cols.next_state is None or d.states.bins is None):
            raise ValueError("source.columns.next_bin goes with 'next_state' and binned states")
        if self.reward.kind == "estimate" and cols.reward is None:
            raise ValueError("source.columns.reward is missing; reward.kind = 'estimate' reads it")
        if self.reward.table is not None and (
            len(self.reward.table) != len(d.live_states)
            or any(len(row) != len(d.action_labels) for row in self.reward.table)
        ):
            raise ValueError(f"reward.table must be {len(d.live_states)} rows of {len(d.action_labels)} numbers")
        if self.features is not None:
            self.features.check(len(d.live_states), len(d.action_labels))
        if d.horizon == 1 and not d.states.ends:
            raise ValueError("domain.states.ends needs a label where the only step leads; e.g. ends = ['end']")
        if self.kind == "real":
            if self.budget.ledger == "home":
                raise ValueError(
                    "budget.ledger: a real dataset names its own ledger (a path or a database URL), not 'home'"
                )
            if self.budget.delta > 1 / (10 * self.unit.users_public):
                raise ValueError(
                    f"budget.delta = {self.budget.delta:g} is too large for {self.unit.users_public} people; "
                    f"at most {1 / (10 * self.unit.users_public):g} means anything"
                )
        return self

    def step_keys(self) -> dict[str, StepColumn]:
        """Columns that differ from step to step in a wide source, by their key in the card."""
        states, cols = self.domain.states, self.source.columns
        keys: dict[str, StepColumn | None] = {
            "domain.states.column": states.column,
            "domain.states.bins.by": states.bins.by if states.bins else None,
            "domain.actions.column": self.domain.actions.column,
            "source.columns.reward": cols.reward,
            "source.columns.next_state": cols.next_state,
            "source.columns.next_bin": cols.next_bin,
            "source.columns.terminated": cols.terminated,
            "source.columns.truncated": cols.truncated,
            "source.columns.behavior_prob": cols.behavior_prob,
        }
        return {key: column for key, column in keys.items() if column is not None}

    def step_cells(self, column: StepColumn) -> list[str]:
        """The H cells of a column of a wide source."""
        return step_cells(column, self.domain.horizon, self.source.first_step)

    def _check_constants(self) -> None:
        """Constants of a wide source mean something, and do not alone make a step."""
        d = self.domain
        labels = {
            "domain.states.column": {*d.states.raw_labels(), *d.states.ends} | ({""} if d.states.bins else set()),
            "domain.actions.column": set(d.actions.raw_labels()),
            "source.columns.next_state": {*d.states.raw_labels(), *d.states.ends, ""},
        }
        for key, column in self.step_keys().items():
            for text in map(constant, self.step_cells(column)):
                if text is not None:
                    _check_constant(key, text, labels.get(key), self.reward)
        telling = [self.step_cells(d.actions.column)]
        if d.states.bins is None or d.states.ends:
            telling.append(self.step_cells(d.states.column))
        if d.states.bins is not None:
            telling.append(self.step_cells(d.states.bins.by))
        for h, cells in enumerate(zip(*telling, strict=True)):
            if all(constant(cell) is not None for cell in cells):
                raise ValueError(
                    f"domain.actions.column: entry {h + 1} and that of domain.states.column are constants, so no row "
                    "could tell whether the step was taken; name a column in one of them"
                )

    @property
    def loses_last_step(self) -> bool:
        """Whether the last step can count in no table: it leads to no logged state and to no declared end."""
        d = self.domain
        return d.dynamics == "per_step" and not d.states.ends and self.source.columns.next_state is None

    @property
    def folder(self) -> Path:
        """The folder the card was read from."""
        return self._folder

    def placed(self, folder: Path) -> Self:
        """The same card as if read from ``folder``."""
        self._folder = folder
        return self

    def domain_hash(self) -> str:
        """Sha256 of the canonical JSON of [unit], [reward] and [domain] without vetoes and markov (design §5.1)."""
        domain = self.domain.model_dump(mode="json", exclude={"vetoes", "markov"})
        parts = {
            "unit": self.unit.model_dump(mode="json"),
            "reward": self.reward.model_dump(mode="json"),
            "domain": domain,
        }
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
                    raise CardError(
                        f"{self.name}: source.files: {p.name} leads outside its folder; links out are not read"
                    )
            if not matches:
                raise CardError(
                    f"{self.name}: source.files: nothing matches {pattern!r} below {root}; put the log there"
                )
            found += matches
        # overlapping patterns name a file once
        return sorted(set(found))


def _check_constant(key: str, text: str, labels: set[str] | None, reward: Reward) -> None:
    if labels is not None:
        if text not in labels:
            raise ValueError(f"{key}: the constant '={text}' is no declared label; declared: {sorted(labels - {''})}")
        return
    if key in ("source.columns.terminated", "source.columns.truncated"):
        allowed, good = "'=true', '=false' or '='", text in ("", "true", "false")
    elif key == "source.columns.reward":
        low, high = reward.range
        allowed, good = f"a number in [{low:g}, {high:g}]", _number_in(text, low, high)
    elif key == "source.columns.behavior_prob":
        allowed, good = "'=' or a number in [0, 1]", text == "" or _number_in(text, 0, 1)
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


def named_root(name: str) -> Path:
    """Folder of a named root, from ``RETICENT_ROOTS`` (``name=path`` pairs joined by the path separator)."""
    pairs = dict(p.split("=", 1) for p in os.environ.get("RETICENT_ROOTS", "").split(os.pathsep) if "=" in p)
    if name not in pairs:
        known = ", ".join(sorted(pairs)) or "none"
        raise CardError(
            f"root {name!r} is not set; RETICENT_ROOTS names: {known}. Set RETICENT_ROOTS={name}=/its/folder"
        )
    return Path(pairs[name])


def load_card(path: Path) -> Card:
    """Read and check a card.

    Raises
    ------
    CardError
        One line for each wrong key: which, what was found, what is allowed.
    """
    values = read_toml(path)
    if "recipe" in values:
        raise CardError(f"{path}: this is a recipe, not a card; name the card that it runs on")
    try:
        return Card.model_validate(values).placed(path.resolve().parent)
    except ValidationError as e:
        raise CardError(explain(e, str(path))) from None
