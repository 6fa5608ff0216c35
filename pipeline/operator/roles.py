"""A whole log in memory before there is a card, and which of its columns plays which part: guessed.

For the operator's eyes: a guess is a look at the data.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipeline.declaration.toml import CardError, LogError
from pipeline.logs.decode import number_of
from pipeline.logs.formats import TABLES
from pipeline.logs.readers.batch import Asked
from pipeline.logs.sources import table_of
from pipeline.logs.wide import order_of


def read_files(paths: Sequence[Path]) -> tuple[pl.DataFrame, int]:
    """The rows of tables of one kind, every cell as text, and how many records were none.

    Parameters
    ----------
    paths
        Of files that ingest could read.

    Raises
    ------
    CardError
        If one is not there, or of no kind that holds a table.
    LogError
        If one cannot be read.
    """
    frames, lost = list[pl.DataFrame](), 0
    for path in paths:
        if not path.is_file():
            raise CardError(f"draft: {path} is no file; name files of {', '.join(TABLES)}")
        if (reader := TABLES.get(path.suffix)) is None:
            raise CardError(f"draft: {path.name}: not a table; give files of {', '.join(TABLES)} (docs/formats.md)")
        names = _keys(path) if reader.types is None else list(reader.types(path, Asked([])))
        if len(names) == 1 and ";" in names[0]:
            raise LogError(f"{path.name}: its cells are separated by ';'; write it with commas")
        for batch in reader.read(path, Asked(names)):
            frames.append(_as_text(batch.frame))
            lost += len(batch.malformed)
    if not frames:
        raise CardError("draft: the files hold no row")
    return pl.concat(frames, how="diagonal"), lost


def _keys(path: Path) -> list[str]:
    """The keys of all objects of an NDJSON file, in the order in which they come."""
    found: dict[str, None] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            told = json.loads(line)
            found |= dict.fromkeys(told) if isinstance(told, dict) else {}
    return list(found)


def frame_of(log: object) -> pl.DataFrame:
    """A frame of any library, every cell as text.

    Parameters
    ----------
    log
        See :func:`~pipeline.logs.sources.table_of`.
    """
    found = pl.from_arrow(table_of(log))
    assert isinstance(found, pl.DataFrame)
    return _as_text(found)


def _as_text(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select(pl.col(c).cast(pl.String) for c in frame.columns if not frame[c].dtype.is_nested())


# parts of a name, the likelier first
_NAMES = {
    "user": "user patient person student learner customer client subject member pid id",
    "episode": "episode admission stay encounter session enrol course case",
    "order": "step visit month week day date time hour round seq when at",
    "action": "action treatment therapy traite drug dose offer decision choice arm hint",
    "reward": "reward outcome controlled success score points sale gain paid cents",
    "state": "state stage band level severity status mood pressure systolic skill",
    "terminated": "terminated done died death left discharged finished last",
}
ROLES = tuple(_NAMES)
# a column of more different texts than this is no label
MOST_LABELS = 60
_ORDERED = 0.9


@dataclass(frozen=True)
class Column:
    """A column as it was logged, as text, and what it holds.

    Parameters
    ----------
    name
        Of the column.
    cells
        Every cell as text, null where it is empty.
    distinct
        How many different ones there are.
    numbers, ordered
        Shares of the filled cells that are numbers, and numbers or dates.
    """

    name: str
    cells: pl.Series
    distinct: int
    numbers: float
    ordered: float

    @property
    def is_date(self) -> bool:
        """Whether it can be ordered and is no number."""
        return self.ordered >= _ORDERED and self.numbers < _ORDERED

    @property
    def values(self) -> pl.Series:
        """The cells as numbers, or as days."""
        return pl.DataFrame({"raw_order": self.cells}).select(order_of({"order": pl.String()})).to_series()

    @property
    def missing(self) -> float:
        """Share of the cells that are empty."""
        return self.cells.null_count() / max(1, len(self.cells))


def look_at(frame: pl.DataFrame) -> dict[str, Column]:
    """The columns of a log.

    Parameters
    ----------
    frame
        One row a step.
    """
    found: dict[str, Column] = {}
    for name in frame.columns:
        cells = frame[name].cast(pl.String)
        cells = cells.set(cells.str.strip_chars() == "", None)
        filled = pl.DataFrame({"raw_order": cells.drop_nulls()})
        count = max(1, len(filled))
        numbers = filled.select(number_of(pl.col("raw_order")).is_not_null().sum()).item() / count
        ordered = filled.select(order_of({"order": pl.String()}).is_not_null().sum()).item() / count
        found[name] = Column(name, cells, cells.n_unique(), numbers, ordered)
    return found


def plain_name(name: str) -> str:
    """Without accents and capitals."""
    return "".join(c for c in unicodedata.normalize("NFKD", name.lower()) if not unicodedata.combining(c))


def _place(role: str, name: str) -> int | None:
    """How likely a name is one of a role: the lower the likelier."""
    plain = plain_name(name)
    words = set(re.split(r"[^a-z0-9]+", plain))
    # two letters are a part of many a word
    return next((i for i, part in enumerate(_NAMES[role].split()) if part in (plain if len(part) > 2 else words)), None)


def find_roles(columns: dict[str, Column], given: dict[str, str], users: Sequence[str]) -> dict[str, str]:
    """Role -> column; roles that nothing speaks for are absent.

    Parameters
    ----------
    columns
        Of :func:`look_at`.
    given
        Roles that a person told.
    users
        Columns that may name people: the one with the fewest different ids protects most.

    Raises
    ------
    CardError
        If a column is not there, or one that is needed cannot be told.
    """
    for name in (*given.values(), *users):
        if name not in columns:
            raise CardError(f"draft: no column {name!r}; the log has: {', '.join(columns)}")
    found = dict(given)
    if users:
        found["user"] = min(users, key=lambda name: columns[name].distinct)
    for role in ROLES:
        taken = {*found.values(), *users}
        if role not in found and (best := _best(role, columns, taken)) is not None:
            found[role] = best
    for role, option in (("user", "--user"), ("action", "--action"), ("state", "--state")):
        if role not in found:
            raise CardError(
                f"draft: cannot tell which column is the {role}; name it with {option} COLUMN. "
                f"The log has: {', '.join(columns)}"
            )
    return found


def _best(role: str, columns: dict[str, Column], taken: set[str]) -> str | None:
    fit = [c for c in columns.values() if c.name not in taken and _fits(role, c)]
    named = [(place, c.name) for c in fit if (place := _place(role, c.name)) is not None]
    if named:
        return min(named)[1]
    if role == "order":
        # dates are there to order something
        return next((c.name for c in fit if c.is_date), None)
    if role == "action":
        # the last column of a few texts is more often what was done than what was seen
        return next((c.name for c in reversed(fit) if c.numbers < _ORDERED), None)
    if role == "state":
        return next((c.name for c in fit if c.numbers < _ORDERED), next((c.name for c in fit), None))
    return None


def _fits(role: str, c: Column) -> bool:
    if role == "order":
        return c.ordered >= _ORDERED and c.distinct > 1
    if role == "reward":
        return c.numbers >= _ORDERED and c.distinct > 1
    if role == "terminated":
        return c.distinct <= 3
    if role == "action":
        return 1 < c.distinct <= MOST_LABELS
    if role == "state":
        return c.distinct > 1 and (c.distinct <= MOST_LABELS or c.numbers >= _ORDERED)
    return c.distinct > 1
