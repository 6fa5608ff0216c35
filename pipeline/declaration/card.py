"""The card: what a dataset *is*, public by declaration and read before any row.

S, A, H, the reward range and the privacy unit are declared here; inferred from the logs they would leak and void
every proof (design §2, privacy.md §11).  A wrong card is a :class:`CardError` that names the key, what was found and
what is allowed.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pydantic import model_validator

from pipeline.arrays import Array
from pipeline.declaration.columns import (
    LogColumns,
    Reward,
    check_constants,
    check_format,
    check_layout,
    step_columns,
    table_columns,
    vector_columns,
)
from pipeline.declaration.declared_features import OBSERVED, Features
from pipeline.declaration.domain import Domain
from pipeline.declaration.lineage import Declaration, files_of, sha256_of
from pipeline.declaration.linear_quadratic import LINEAR_QUADRATIC, Cost, LinearQuadratic
from pipeline.declaration.source import Source, VectorSource, constant, step_cells
from pipeline.declaration.toml import CardError as CardError
from pipeline.declaration.toml import read_toml, table_in, validated
from pipeline.mdp.model import Task
from pipeline.mdp.riccati import QuadraticCost

# share that real people's undeclared labels may have where a card of version 2 does not say
UNKNOWN_LABELS = 0.1


class Card(Declaration):
    """One dataset of declared states and actions.

    ``reward``: its range and lattice, and whence it comes.
    """

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
            # those of an observation lie in the unit ball by construction, and have no finite set of rows
            return {**defaults, **given, "features": {"balanced": features.get("kind") not in OBSERVED, **features}}
        return {**defaults, **given}

    @model_validator(mode="after")
    def _across(self) -> Self:
        d, cols = self.domain, self.source.columns
        self.check_people(cols.user_id)
        check_format(self.source, self.kind, d.horizon)
        check_layout(self.source, step_columns(self.source, d), d.horizon)
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
        if self.features is not None:
            self.features.check(len(d.live_states), len(d.action_labels), d.observation)
        if d.states.product is not None and (self.source.layout == "wide" or cols.next_state is not None):
            raise ValueError("domain.states.from goes with layout = 'long' and without source.columns.next_state")
        if d.states.undivided and (cols.next_state, cols.next_bin) != (None, None):
            raise ValueError("source.columns.next_state needs declared states; map next_observation and terminated")
        if d.observation is not None:
            if self.source.layout == "wide":
                raise ValueError("domain.observation needs source.layout = 'long': one row a step")
            d.observation.check_alike("source.columns.next_observation", cols.next_observation)
        elif cols.next_observation is not None:
            raise ValueError("source.columns.next_observation goes with domain.observation")
        if d.horizon == 1 and not d.states.ends:
            raise ValueError("domain.states.ends needs a label where the only step leads; e.g. ends = ['end']")
        return self

    @cached_property
    def log(self) -> LogColumns:
        """Which columns of the log are read, and in which role."""
        return table_columns(self.source, self.domain, self.reward)

    @property
    def loses_last_step(self) -> bool:
        """Whether the last step can count in no table: it leads to no logged state and to no declared end."""
        d = self.domain
        return d.dynamics == "per_step" and not d.states.ends and self.source.columns.next_state is None

    @property
    def pays_at_the_end(self) -> bool:
        """Whether, by declaration, what a step pays before an episode's last one says nothing of the person.

        Of one step every reward is the last.
        """
        d, r, told = self.domain, self.reward, self.source.columns.reward
        if d.horizon == 1:
            return False
        if r.kind == "on_entering":
            paid = r.on_entering or {}
            return len({paid.get(label, 0.0) for label in d.live_states}) == 1
        if r.kind == "table":
            # one table is that of every step
            before = r.tables[:-1] or r.tables
            return all(len({x for row in table for x in row}) == 1 for table in before)
        if r.paid == "last":
            return True
        if self.source.layout == "long" or told is None:
            return False
        *before, _ = step_cells(told, d.horizon, self.source.starts_at)
        return all(constant(cell) is not None for cell in before)

    def domain_hash(self) -> str:
        """Sha256 of the canonical JSON of [unit], [reward] and [domain], without what enters no sum (design §5.1)."""
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


def load_any_card(path: str | Path) -> AnyCard:
    """Read and check a card of any domain.

    Raises CardError one line for each wrong key: which, what was found, what is allowed.
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

    Raises CardError one line for each wrong key, or that the card declares vectors.
    """
    return require_tabular(load_any_card(path))


def require_tabular(card: AnyCard) -> Card:
    """The card, if it declares states and actions.

    Raises CardError if it declares vectors, whose agents are dp-lqr and lqr.
    """
    if isinstance(card, LqCard):
        raise CardError(f"{card.name}: dynamics = '{LINEAR_QUADRATIC}': states are vectors; use agent dp-lqr or lqr")
    return card


def require_linear_quadratic(card: AnyCard) -> LqCard:
    """The card, if it declares a linear plant.

    Raises CardError if it declares states and actions by label.
    """
    if isinstance(card, Card):
        raise CardError(f"{card.name}: dp-lqr and lqr need a card with dynamics = '{LINEAR_QUADRATIC}' and a [cost]")
    return card


def task_of(card: Card) -> Task:
    """The declared decision process as the planner needs it.

    Returns reward table and allowed actions are ``(L, A)`` over live states and action labels.
    """
    d, r = card.domain, card.reward
    here, there = r.paid_here(len(d.live_states), len(d.action_labels)), r.paid_there(d.state_labels)
    return Task(d.horizon, r.range, d.allowed, here, can_end=bool(d.states.ends), entering=there, total=r.total)


def declared_start(card: Card) -> Array | None:
    """Declared first-state distribution ``(L,)``, or None where it comes from the release.

    ``card``: its ``domain.start``: probabilities by label, 0 for a state that it does not name.
    """
    start = card.domain.start
    return None if start == "released" else np.array([start.get(s, 0.0) for s in card.domain.live_states])
