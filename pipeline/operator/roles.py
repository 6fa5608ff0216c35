"""A whole log in memory before there is a card, and which of its columns plays which part: guessed.

For the operator's eyes: a guess is a look at the data.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import polars as pl

from pipeline.declaration.toml import CardError, LogError, table_in
from pipeline.logs.decode import number_of
from pipeline.logs.formats import TABLES, likely
from pipeline.logs.readers.batch import Asked
from pipeline.logs.sources import table_of
from pipeline.logs.wide import order_of

PART = "\x00file"
"""A column beside those of the log: the file of each row."""


def read_files(paths: Sequence[Path]) -> tuple[pl.DataFrame, int]:
    """The rows of tables of one kind, every cell as text, with their files; and how many records were none.

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
        if len(names) == 1 and (told := likely(names)):
            raise LogError(f"{path.name}: {told[2:]}")
        for batch in reader.read(path, Asked(names)):
            frames.append(_as_text(batch.frame).with_columns(pl.lit(path.name).alias(PART)))
            lost += len(batch.malformed)
    if not frames:
        raise CardError("draft: the files hold no row")
    return pl.concat(frames, how="diagonal"), lost


def _keys(path: Path) -> list[str]:
    """The keys of all objects of an NDJSON file, in the order in which they come."""
    found: dict[str, None] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            found |= dict.fromkeys(table_in(json.loads(line)) or ())
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
    "user": "user patient person student learner customer client visitor subject member player pid mrn uuid id",
    "episode": "episode admission stay encounter session enrol course case",
    "order": "step visit month week day date time hour round seq occurred when at",
    "action": "action treatment therapy traite intervention drug dose offer coupon decision choice nudge hint arm",
    "reward": "reward outcome controlled success passed correct solved better score points revenue profit sale "
    "purchase bought click gain paid cents",
    "state": "state stage band level severity status mood segment page pressure systolic skill",
    "terminated": "terminated done died death left discharged",
}
ROLES = tuple(_NAMES)
# a column of more different texts than this is no label
MOST_LABELS = 60
_ORDERED = 0.9
# cells that are looked at where a column is neither numbers nor dates
_SOME = 1_000
# text that is something else to a person than to ingest -> what it is, and how to write it
_ODD = {
    r"^-?\d{1,3}([. ]?\d{3})*,\d+$": "numbers with a decimal comma; write 3.5",
    r"^-?\d{1,3}(,\d{3})+(\.\d+)?$": "numbers with commas between thousands; write 1250",
    r"^\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b|^\d{4}[./]\d{1,2}[./]\d{1,2}\b": "dates; write 2026-01-31",
    r"^[€$£] ?-?\d|\d ?([€$£%]|EUR|USD)$": "numbers with a unit; write 12.5",
}


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

    @cached_property
    def odd(self) -> str | None:
        """What its texts are that ingest reads as mere texts, and how to write them; None where they are not."""
        some = self.cells.drop_nulls().head(_SOME).str.strip_chars()
        if max(self.numbers, self.ordered) >= _ORDERED or not len(some):
            return None
        least = _ORDERED * len(some)
        return next((said for form, said in _ODD.items() if len(some.filter(some.str.contains(form))) >= least), None)

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
    for name in (c for c in frame.columns if c != PART):
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
    words = set(re.split(r"[^a-z0-9]+", plain_name(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))))
    # three letters are a part of many a word
    return next((i for i, part in enumerate(_NAMES[role].split()) if part in (plain if len(part) > 3 else words)), None)


def find_roles(
    columns: dict[str, Column], given: dict[str, str], users: Sequence[str]
) -> tuple[dict[str, str], list[str]]:
    """Role -> column; roles that nothing speaks for are absent.  And the roles of columns whose names say nothing.

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
        if (odd := columns[name].odd) is not None:
            raise CardError(f"draft: {name!r} holds {odd}")
    found, guessed = dict(given), list[str]()
    if users:
        found["user"] = min(users, key=lambda name: columns[name].distinct)
    # what a name says goes before what content may mean: an outcome looks like an action
    for best in (_named, _likely):
        for role in ROLES:
            taken = {*found.values(), *users}
            fit = [c for c in columns.values() if c.name not in taken and c.odd is None and _fits(role, c)]
            if role not in found and (name := best(role, fit)) is not None:
                found[role] = name
                guessed += [role] if best is _likely else []
    for role, option in (("user", "--user"), ("action", "--action"), ("state", "--state")):
        if role not in found:
            odd = "".join(f"; {c.name!r} holds {c.odd}" for c in columns.values() if c.odd is not None)
            raise CardError(
                f"draft: cannot tell which column is the {role}; name it with {option} COLUMN. "
                f"The log has: {', '.join(columns)}{odd}"
            )
    return found, guessed


def _named(role: str, fit: Sequence[Column]) -> str | None:
    # of equal names the shortest: next_state is no state where there is one
    named = [(place, len(c.name), c.name) for c in fit if (place := _place(role, c.name)) is not None]
    return min(named)[2] if named else None


def _likely(role: str, fit: Sequence[Column]) -> str | None:
    if role == "order":
        # dates are there to order something
        return next((c.name for c in fit if c.is_date), None)
    if role == "action":
        # the last column of a few texts is more often what was done than what was seen
        return next((c.name for c in reversed(fit) if c.numbers < _ORDERED), None)
    if role == "reward":
        # what came of it is logged last
        return next((c.name for c in reversed(fit)), None)
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
