"""The part that all cards share: lineage, protected unit, budget and files; and the calendars of a recipe.

A calendar is a list of dates on which a fresh release is drawn and paid, whatever arrived, or of nights that share one
budget.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from pipeline.declaration.toml import CardError, Name, Rho, Strict
from pipeline.privacy.budget import check_delta

if TYPE_CHECKING:
    from pipeline.privacy.continual import Factorisation

# names the catalogue of datasets in the environment
CATALOG_VARIABLE = "RETICENT_SHELF"


class Unit(Strict):
    """The protected unit: everything one ``user`` id contributed is one record."""

    user: str
    episodes_per_user: Annotated[int, Field(ge=1, le=10_000)] = 1
    # a release of more people than this would be charged, and then no float hold their number
    users_public: Annotated[int, Field(ge=1, le=10**12)]
    recurs: Literal["never", "capped"] = "never"


class PeriodCaps(Strict):
    """Caps of one calendar month or year (UTC), beside the lifetime cap."""

    rho_month: Rho | None = None
    rho_year: Rho | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.rho_month is None and self.rho_year is None:
            raise ValueError("give 'rho_month', 'rho_year' or both")
        return self

    def limits(self) -> dict[str, float]:
        """``month`` and ``year``, where they are given."""
        given = {"month": self.rho_month, "year": self.rho_year}
        return {period: rho for period, rho in given.items() if rho is not None}


class Budget(Strict):
    """Lifetime cap of the lineage, its ledger, and caps of months and years.

    ``reserve``: share of the people who are held out of all learning, for evaluation; None: as the ledger has it
    registered, and for the first real dataset of a ledger a half.
    """

    later: ClassVar = {"reserve": None}
    rho: Rho
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-6
    ledger: str = "home"
    schedule: PeriodCaps | None = None
    reserve: Annotated[float, Field(ge=0, le=0.9)] | None = None


class Provenance(Strict):
    """Origin of a card that was proposed from its log: it then depends on people's records."""

    drafted: str
    from_data: list[str] = Field(default_factory=list)


class Declaration(Strict):
    """One dataset.  Paths in its card resolve below ``folder``, from which the card was read."""

    schema_version: Literal[1, 2]
    name: Name
    kind: Literal["real", "synthetic"] = "real"
    unit: Unit
    tolerance: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(default_factory=dict)
    budget: Budget
    provenance: Provenance | None = None
    _folder: Path = PrivateAttr(default=Path())

    @property
    def folder(self) -> Path:
        """The folder the card was read from."""
        return self._folder

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's; columns are resolved anew from the new values."""
        copy = super().model_copy(update=update, deep=deep)
        vars(copy).pop("log", None)
        return copy

    def placed(self, folder: Path) -> Self:
        """The same card as if read from ``folder``."""
        self._folder = folder
        return self

    def check_people(self, user_column: str) -> None:
        """Refuse a unit that the source does not name, and a real dataset without a ledger or a delta of its own.

        Raises ValueError naming the key, and what to write.
        """
        if self.unit.user != user_column:
            raise ValueError(f"unit.user ({self.unit.user!r}) and source.columns.user_id ({user_column!r}) must agree")
        if self.kind == "real":
            if self.budget.ledger == "home":
                raise ValueError(
                    "budget.ledger: a real dataset names its own ledger (a path or a database URL), not 'home'"
                )
            check_delta("budget.delta", self.budget.delta, self.unit.users_public)


def sha256_of(parts: Mapping[str, object]) -> str:
    """Sha256 of canonical JSON: keys sorted, no blanks."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def files_of(name: str, folder: Path, patterns: Sequence[str]) -> list[Path]:
    """Existing files that ``source.files`` names, sorted; nothing outside the folder or a named root is read."""
    files: list[Path] = []
    for pattern in patterns:
        root_name, _, rest = pattern.rpartition(":")
        root = named_root(root_name) if root_name else folder
        try:
            paths = sorted(root.glob(rest))
        except (OSError, ValueError) as e:
            raise CardError(f"{name}: source.files: {pattern[:60]!r} names no files below {root}: {e}") from None
        for p in paths:
            _check_kind(name, p)
        matches, inside = [p for p in paths if p.is_file()], root.resolve()
        for p in matches:
            if not p.resolve().is_relative_to(inside):
                raise CardError(f"{name}: source.files: {p.name} leads outside its folder; links out are not read")
        if not matches:
            raise CardError(f"{name}: source.files: nothing matches {pattern!r} below {root}; put the log there")
        files += matches
    # overlapping patterns name a file once
    return sorted(set(files))


def _check_kind(name: str, path: Path) -> None:
    """Refuse a path that would silently be read as a part of the log, or left out of it."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise CardError(f"{name}: source.files: the name {path.name!a} is not UTF-8; rename the file") from None
    if not path.is_file() and not path.is_dir():
        raise CardError(
            f"{name}: source.files: {path.name} is a pipe, a device or a link that leads nowhere; put a regular file "
            "there, or take it away"
        )


def named_root(name: str) -> Path:
    """Folder of a named root, from ``RETICENT_ROOTS`` (``name=path`` pairs joined by the path separator)."""
    pairs = dict(p.split("=", 1) for p in os.environ.get("RETICENT_ROOTS", "").split(os.pathsep) if "=" in p)
    if name not in pairs:
        known = ", ".join(sorted(pairs)) or "none"
        raise CardError(
            f"root {name!r} is not set; RETICENT_ROOTS names: {known}. Set RETICENT_ROOTS={name}=/its/folder"
        )
    return Path(pairs[name])


def catalogs(chosen: Path | None = None) -> list[Path]:
    """Folders of datasets, in order: ``--shelf`` or ``RETICENT_SHELF``, ``./datasets``, of the checkout, installed."""
    env = os.environ.get(CATALOG_VARIABLE)
    named = [chosen] if chosen else ([Path(env)] if env else [])
    checkout = Path(__file__).resolve().parents[2] / "datasets"
    return [*named, Path("datasets"), checkout, Path(sys.prefix) / "share" / "reticent" / "datasets"]


Dates = (
    Literal["nightly", "weekly", "monthly"] | Annotated[list[Annotated[date, Field(strict=False)]], Field(min_length=1)]
)


class Schedule(Strict):
    """Dates on which a scheduled night draws a fresh release; on all others the last one stands.

    ``release``: ``nightly``, ``weekly`` (on Mondays), ``monthly`` (on the first), or the dates themselves (UTC).
    """

    release: Dates

    @field_validator("release")
    @classmethod
    def _ordered(cls, release: str | list[date]) -> str | list[date]:
        return release if isinstance(release, str) else sorted(set(release))

    def due(self, day: date) -> date | None:
        """The newest date of the calendar that is not after ``day``; None before the first."""
        if isinstance(self.release, list):
            return max((d for d in self.release if d <= day), default=None)
        back = {"nightly": 0, "weekly": day.weekday(), "monthly": day.day - 1}[self.release]
        return day - timedelta(days=back)

    def after(self, day: date) -> date | None:
        """The first date of the calendar after ``day``; None after the last."""
        if isinstance(self.release, list):
            return min((d for d in self.release if d > day), default=None)
        if self.release == "monthly":
            return (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        return day + timedelta(days=1 if self.release == "nightly" else 7 - day.weekday())


# the calendar ends with the year 9999, and a window reaches beyond the last night
_LATEST_FIRST = date(9900, 1, 1)


class Nightly(Strict):
    """Nights of one counter, of which each is a leaf, under one budget for all of them together.

    ``nights``, ``first``: their number, and the date of the first (UTC).
    ``window``: number of the last nights that the sums are of; None: all so far.
    ``episodes``: ``closed``: an episode is counted on the night that delivers its end, whole; else as it is first
    delivered.
    ``drift``: share of the budget on each night's mean reward under the policy in use and under practice; None: none.
    """

    later: ClassVar = {"window": None, "drift": None, "episodes": "delivered"}
    gone: ClassVar = {
        "epoch": 'a counter only counts; `[schedule] release = "monthly"` draws a fresh release on its dates'
    }
    nights: Annotated[int, Field(ge=1, le=10_000)] = 365
    first: Annotated[date, Field(strict=False, le=_LATEST_FIRST)]
    counter: Literal["tree", "toeplitz"] = "tree"
    window: Annotated[int, Field(ge=1)] | None = None
    episodes: Literal["delivered", "closed"] = "delivered"
    drift: Annotated[float, Field(gt=0, le=0.5)] | None = None

    @model_validator(mode="after")
    def _forgets_something(self) -> Self:
        if self.window is not None and self.window >= self.nights:
            raise ValueError(
                f"'window' is of fewer nights than all {self.nights}; leave it out, and nothing is forgotten"
            )
        return self

    @property
    def last(self) -> date:
        """The date of the last night."""
        return self.first + timedelta(days=self.nights - 1)

    @property
    def factorisation(self) -> Factorisation:
        """The rows of noise that are drawn on each night."""
        from pipeline.privacy.continual import continual

        return continual(self.counter, self.nights, self.window)
