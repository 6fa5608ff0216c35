"""The card: what a dataset *is*, public by declaration and read before any row.

S, A, H, the reward range and the privacy unit are declared here; inferred from the logs they would leak and void
every proof (design §2, privacy.md §11).  A wrong card is a :class:`CardError` that names the key, what was found and
what is allowed.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError, model_validator

from pipeline.declaration.columns import LogColumns, table_columns, vector_columns
from pipeline.declaration.declared_features import Features
from pipeline.declaration.domain import END, OTHER, Domain, Reward
from pipeline.declaration.lineage import Budget, Declaration, Unit, files_of, named_root, sha256_of
from pipeline.declaration.linear_quadratic import LINEAR_QUADRATIC, Cost, LinearQuadratic
from pipeline.declaration.source import (
    Columns,
    Source,
    StepColumn,
    VectorSource,
    check_constant,
    check_format,
    check_layout,
    constant,
    step_cells,
)
from pipeline.declaration.toml import CardError, explain, read_toml
from pipeline.mdp.riccati import QuadraticCost
from pipeline.mdp.task import Task

__all__ = [
    "END",
    "OTHER",
    "AnyCard",
    "Budget",
    "Card",
    "CardError",
    "Columns",
    "LqCard",
    "Source",
    "Unit",
    "load_any_card",
    "load_card",
    "named_root",
]


class Card(Declaration):
    """One dataset of declared states and actions."""

    domain: Domain
    reward: Reward
    features: Features | None = None
    source: Source

    @model_validator(mode="after")
    def _across(self) -> Self:
        d, cols = self.domain, self.source.columns
        self.check_people(cols.user_id)
        check_format(self.source, self.kind, d.horizon)
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
        return self

    @cached_property
    def log(self) -> LogColumns:
        """Which columns of the log are read, and in which role."""
        return table_columns(self.source, self.domain, self.reward)

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
                    check_constant(key, text, labels.get(key), self.reward.range)
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

    def domain_hash(self) -> str:
        """Sha256 of the canonical JSON of [unit], [reward] and [domain] without vetoes and markov (design §5.1)."""
        domain = self.domain.model_dump(mode="json", exclude={"vetoes", "markov"})
        parts = {
            "unit": self.unit.model_dump(mode="json"),
            "reward": self.reward.model_dump(mode="json"),
            "domain": domain,
        }
        return sha256_of(parts)

    def source_files(self) -> list[Path]:
        """Existing files that ``source.files`` names, sorted; nothing outside the folder or a named root is read."""
        return files_of(self.name, self.folder, self.source.files)


class LqCard(Declaration):
    """One dataset of observations and controls that are vectors: a linear plant with a declared quadratic cost."""

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
        d.observation.check_alike("source.columns.next_observation", cols.next_observation)
        self.cost.quadratic(d.observation.size, d.action.size, d.horizon)
        return self

    @cached_property
    def log(self) -> LogColumns:
        """Which columns of the log are read, and in which role."""
        return vector_columns(self.source, self.domain)

    @property
    def quadratic(self) -> QuadraticCost:
        """The declared cost of each step."""
        return self.cost.quadratic(self.domain.observation.size, self.domain.action.size, self.domain.horizon)

    def domain_hash(self) -> str:
        """Sha256 of the canonical JSON of [unit] and [domain]; a cost enters no sum, so another one is free."""
        return sha256_of({key: self.model_dump(mode="json")[key] for key in ("unit", "domain")})

    def source_files(self) -> list[Path]:
        """Existing files that ``source.files`` names, sorted; nothing outside the folder or a named root is read."""
        return files_of(self.name, self.folder, self.source.files)


AnyCard = Card | LqCard


def load_any_card(path: Path) -> AnyCard:
    """Read and check a card of any domain.

    Raises
    ------
    CardError
        One line for each wrong key: which, what was found, what is allowed.
    """
    values = read_toml(path)
    if "recipe" in values:
        raise CardError(f"{path}: this is a recipe, not a card; name the card that it runs on")
    domain: Any = values.get("domain")
    kind = LqCard if isinstance(domain, dict) and domain.get("dynamics") == LINEAR_QUADRATIC else Card
    try:
        return kind.model_validate(values).placed(path.resolve().parent)
    except ValidationError as e:
        raise CardError(explain(e, str(path))) from None


def load_card(path: Path) -> Card:
    """Read and check a card of declared states and actions.

    Raises
    ------
    CardError
        One line for each wrong key, or that the card declares vectors.
    """
    return require_tabular(load_any_card(path))


def require_tabular(card: AnyCard) -> Card:
    """The card, if it declares states and actions.

    Raises
    ------
    CardError
        If it declares vectors, whose agents are dp-lqr and lqr.
    """
    if isinstance(card, LqCard):
        raise CardError(f"{card.name}: dynamics = '{LINEAR_QUADRATIC}': states are vectors; use agent dp-lqr or lqr")
    return card


def require_linear_quadratic(card: AnyCard) -> LqCard:
    """The card, if it declares a linear plant.

    Raises
    ------
    CardError
        If it declares states and actions by label.
    """
    if isinstance(card, Card):
        raise CardError(f"{card.name}: dp-lqr and lqr need a card with dynamics = '{LINEAR_QUADRATIC}' and a [cost]")
    return card


def task_of(card: Card) -> Task:
    """The declared decision process as the planner needs it."""
    d = card.domain
    rewards = None if card.reward.table is None else np.asarray(card.reward.table, dtype=np.float64)
    return Task(d.horizon, card.reward.range, d.allowed, rewards, can_end=bool(d.states.ends))


def declared_start(card: Card) -> NDArray[np.float64] | None:
    """Declared first-state distribution ``(L,)``, or None where it comes from the release."""
    start = card.domain.start
    return None if start == "released" else np.array([start.get(s, 0.0) for s in card.domain.live_states])
