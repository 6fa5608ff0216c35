"""A whole log in memory before there is a card: how it is written, and which of its columns plays which part.

For the operator's eyes: a guess is a look at the data.  Where a wrong guess would ruin a run, it is a question.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import json
import re
import shlex
import unicodedata
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path
from typing import get_args

import polars as pl

from pipeline.declaration.source import DatesForm, NumbersForm
from pipeline.declaration.toml import CardError, table_in
from pipeline.logs.decode import number_of, order_of, plain_cell, plain_date
from pipeline.logs.readers.batch import Asked
from pipeline.logs.readers.lines import guess_separator
from pipeline.logs.sources import TABLES, table_of

PART = "\x00file"
"""A column beside those of the log: the file of each row."""


class QuestionError(CardError):
    """What only the operator knows, and what a wrong guess would ruin.

    ``options``: options of the verb, each an answer, the likeliest first.
    """

    def __init__(self, asked: str, options: Sequence[str]) -> None:
        lines = "".join(f"\n  {option}" for option in options)
        super().__init__(f"draft: {asked}\nadd one of (in Python the argument of this name):{lines}")
        self.asked, self.options = asked, options


@dataclass(frozen=True)
class Answers:
    """What the operator has said: see ``draft --help``; ``parts``: columns that make the states together."""

    users: Sequence[str] = ()
    roles: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])
    units: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    dates: str | None = None
    several: str | None = None
    paid: str | None = None
    last_row: str | None = None
    words: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Read:
    """The rows of files, every cell as text, each with its file; and what a card must say of the files.

    ``paths``: without those that say again what another one says.  ``lost``: records that cannot be read.
    ``optional``: columns that some file lacks.
    """

    frame: pl.DataFrame
    paths: Sequence[Path] = ()
    lost: int = 0
    separator: str = ","
    optional: Sequence[str] = ()
    notes: Sequence[str] = ()


def read_files(paths: Sequence[Path], rename: Mapping[str, str]) -> Read:
    """The rows of tables.

    Raises CardError if one is not there, is of no kind that holds a table, or has no names of columns.
    Raises QuestionError if their headers differ.
    Raises LogError if one cannot be read.
    """
    paths, notes = _once_each(paths)
    frames, lost, separators = dict[str, pl.DataFrame](), 0, set[str]()
    for path in paths:
        if (reader := TABLES.get(path.suffix)) is None:
            raise CardError(f"draft: {path.name}: not a table; give files of {', '.join(TABLES)} (docs/card.md)")
        separator = guess_separator(path) if reader.lines else ","
        separators |= {separator} if reader.lines else set[str]()
        names = keys_of(path) if reader.types is None else list(reader.types(path, Asked([], separator=separator)))
        if reader.lines and sum(_NO_NAME.fullmatch(name.strip()) is not None for name in names) > len(names) / 3:
            raise CardError(
                f"draft: {path.name}: line 1 looks like a row, not like names of columns; write a line of names above"
            )
        batches = list(reader.read(path, Asked(names, separator=separator)))
        lost += sum(len(batch.malformed) for batch in batches)
        if batches:
            frames[str(path)] = pl.concat([_as_text(batch.frame) for batch in batches])
    if not frames:
        raise CardError("draft: the files hold no row")
    called = {place: _ours(frame.columns, rename) for place, frame in frames.items()}
    _ask_for_headers({place: frame.rename(called[place]) for place, frame in frames.items()}, rename)
    found = [
        frame.rename(called[place]).with_columns(pl.lit(Path(place).name).alias(PART))
        for place, frame in frames.items()
    ]
    every = pl.concat(found, how="diagonal")
    return Read(
        every,
        paths,
        lost,
        separators.pop() if len(separators) == 1 else "auto" if separators else ",",
        [name for name in every.columns if any(name not in frame.columns for frame in found)],
        notes,
    )


# a number or a date: what a name of a column is not
_NO_NAME = re.compile(r"[-+]?[\d.,]*\d|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}.*")
_DAY = r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"


def _once_each(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The files without those whose bytes are those of another one, and a note on each that is left out.

    Raises CardError if one is not there.
    """
    found, notes = dict[bytes, Path](), list[str]()
    # of a copy such as "visits (1).csv" the shorter name is meant
    for path in sorted(paths, key=lambda path: len(path.name)):
        if not path.is_file():
            raise CardError(f"draft: {path} is no file; name files of {', '.join(TABLES)}")
        with path.open("rb") as file:
            first = found.setdefault(hashlib.file_digest(file, "sha256").digest(), path)
        if first != path:
            notes.append(f"{path.name} is a copy of {first.name}, byte for byte: the card leaves it out")
    kept = set(found.values())
    return [path for path in dict.fromkeys(paths) if path in kept], notes


def _ours(names: Sequence[str], rename: Mapping[str, str]) -> dict[str, str]:
    ours = {name: rename.get(name) or name for name in names}
    return {name: name if own in names and own != name else own for name, own in ours.items()}


def _ask_for_headers(frames: Mapping[str, pl.DataFrame], rename: Mapping[str, str]) -> None:
    """Ask which columns of files with other headers are the same, and which are columns of their own.

    A column that only some files have needs no answer where nothing in the others may be the same.
    """
    first = max(frames.values(), key=lambda frame: len(frame.columns))
    pairs: dict[str, str] = {}
    for frame in frames.values():
        lacking = [name for name in first.columns if name not in frame.columns]
        for theirs in (name for name in frame.columns if name not in first.columns and name not in rename):
            likeness = {ours: _likeness(frame, theirs, first, ours) for ours in lacking}
            if likeness and theirs not in pairs:
                best = max(likeness, key=likeness.__getitem__)
                pairs[theirs] = best if likeness[best] >= _ALIKE else ""
                lacking = [name for name in lacking if name != pairs[theirs]]
    if pairs:
        shown = "".join(f"\n  {Path(place).name}: {', '.join(frame.columns)}" for place, frame in frames.items())
        same = " ".join(f"--rename {shlex.quote(f'{theirs}={ours}')}" for theirs, ours in pairs.items())
        other = " ".join(f"--rename {shlex.quote(f'{theirs}=')}" for theirs in pairs)
        raise QuestionError(
            f"the files have different headers:{shown}\nWhich columns are the same?  (NAME= is a column of its own.)",
            [*dict.fromkeys([same, other])],
        )


# from here on columns of two files may be the same
_ALIKE = 0.5


def _likeness(theirs: pl.DataFrame, name: str, ours: pl.DataFrame, other: str) -> float:
    """How likely two columns of files with other headers are the same: 0 where one holds dates and the other none."""
    a, b = (_stripped(frame[column].head(_HEAD)).drop_nulls() for frame, column in ((theirs, name), (ours, other)))
    if not len(a) or not len(b) or _kind(a) != _kind(b):
        return 0.0
    found = SequenceMatcher(None, plain_name(name), plain_name(other)).ratio()
    alike = len(theirs.columns) == len(ours.columns) and theirs.columns.index(name) == ours.columns.index(other)
    if alike or _kind(a) == "date":
        found += 0.5
    if _kind(a) == "text":
        mine, others = ({plain_name(text.strip()) for text in cells.unique()} for cells in (a, b))
        found += len(mine & others) / max(1, min(len(mine), len(others)))
    return found


def _kind(cells: pl.Series) -> str:
    if cells.str.contains(_DAY).sum() >= _ORDERED * len(cells):
        return "date"
    return "number" if cells.str.contains(NUMBER).sum() >= _ORDERED * len(cells) else "text"


def keys_of(path: Path) -> list[str]:
    """The keys of all objects of an NDJSON file, in the order in which they come."""
    found: dict[str, None] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            found |= dict.fromkeys(table_in(json.loads(line)) or ())
    return list(found)


def frame_of(log: object) -> pl.DataFrame:
    """A frame of any library, every cell as text."""
    found = pl.from_arrow(table_of(log))
    assert isinstance(found, pl.DataFrame)
    return _as_text(found)


def _as_text(frame: pl.DataFrame) -> pl.DataFrame:
    plain = [c for c in frame.columns if not frame[c].dtype.is_nested()]
    # what is no number is an empty cell, as ingest reads it
    cells = (frame[c].fill_nan(None) if frame[c].dtype.is_float() else frame[c] for c in plain)
    return frame.select(cell.cast(pl.String) for cell in cells)


# parts of a name, the likelier first
_NAMES = {
    "user": "user patient person student learner customer client visitor subject member player pid mrn uuid id",
    "episode": "episode admission stay encounter session enrol course case",
    "order": "step visit month week day date time hour round seq occurred when at zeit datum fecha",
    "action": "action treatment therapy therapie behandlung traite tratam intervention drug medication dose offer "
    "coupon promo voucher decision choice nudge hint exercise recommendation maßnahme arm",
    "reward": "reward outcome recovered cured controlled success passed correct solved better score points revenue "
    "profit sale purchase bought click gain paid genesen geheilt erfolg nutzen resultado résultat cents",
    "state": "state stage band level severity status zustand estado mood segment page pressure systolic skill",
    "terminated": "terminated done died death left discharged",
}
ROLES = tuple(_NAMES)
# what names rows as often as people
_WEAK = ("uuid", "id")
# a column of more different texts than this is no label, and one of more numbers with a unit holds numbers
MOST_LABELS, _FEW_NUMBERS = 60, 12
# of states there may be more, if each has rows enough
_MOST_STATES, _ROWS_EACH = 2_000, 50
# texts of an outcome in words
_WORDS = 3
SAYS = {
    **dict.fromkeys(["yes", "y", "true", "t", "ja", "j", "oui", "si", "s", "sí"], 1.0),
    **dict.fromkeys(["no", "n", "false", "f", "nein", "non"], 0.0),
}
"""What a word of an outcome is worth; others are asked for."""
_ORDERED = 0.9
# different texts that dates are looked for in
_HEAD = 2_000
# of an outcome that comes late, empty cells at least
_LATE = 0.3
# of dates, what may be none
_STRAY = 0.001
# of the rows, different cells of a column that tells every row apart
_OWN = 0.98
NUMBER = (
    r"^(?P<sign>[€$£]?)[\s\x{a0}]*(?P<number>[+-]?\d[\d.,\s\x{a0}\x{202f}]*?)[\s\x{a0}]*(?P<unit>[^\d\s.,+-][^\d]*)?$"
)
# units that are worth a part of another: what is proposed where a log has several
_WORTH = {
    "µg": 1e-6,
    "ug": 1e-6,
    "mcg": 1e-6,
    "mg": 1e-3,
    "g": 1.0,
    "kg": 1e3,
    "ml": 1e-3,
    "cl": 1e-2,
    "dl": 0.1,
    "l": 1.0,
}


@dataclass(frozen=True)
class Column:
    """A column as it was logged, as text, and what it holds.

    ``cells``: every cell as text, null where it is empty; ``plain``: as ingest reads them with the keys that the card
    is to have.
    """

    name: str
    cells: pl.Series
    plain: pl.Series
    distinct: int
    numbers: float
    ordered: float
    units: Mapping[str, float]

    @property
    def is_date(self) -> bool:
        """Whether it can be ordered and is no number."""
        return self.ordered >= _ORDERED and self.numbers < _ORDERED

    @cached_property
    def values(self) -> pl.Series:
        """The cells as numbers, or as days."""
        return pl.DataFrame({"raw_order": self.plain}).select(order_of({"order": pl.String()})).to_series()

    @property
    def missing(self) -> float:
        """Share of the cells that are empty."""
        return self.cells.null_count() / max(1, len(self.cells))

    @property
    def is_measured(self) -> bool:
        """Whether it may say what whoever decided saw: no date, and no number of the row."""
        return not self.is_date and not (self.is_own and (self.numbers < _ORDERED or (self.values % 1 == 0).all()))

    @property
    def is_outcome(self) -> bool:
        """Whether it says yes or no, or has two numbers."""
        texts = {plain_name(text.strip()) for text in self.cells.drop_nulls().unique().head(_WORDS + 1)}
        return len(texts) == 2 and (texts <= set(SAYS) or self.numbers >= _ORDERED)

    @property
    def is_late(self) -> bool:
        """Whether it is an outcome that most rows lack: what came of an episode, on one row of it."""
        return self.missing > _LATE and self.is_outcome

    @property
    def is_own(self) -> bool:
        """Whether nearly every row has a cell of its own."""
        return self.distinct >= max(2, _OWN * len(self.cells))


@dataclass(frozen=True)
class Look:
    """The columns of a log, and how it writes numbers and dates."""

    columns: dict[str, Column]
    numbers: NumbersForm | None
    dates: Sequence[DatesForm]


def look_at(frame: pl.DataFrame, told: Answers, reward: str | None = None) -> Look:
    """The columns of a log.

    ``reward``: the column of rewards, where somebody said which: its numbers may be few.
    Raises QuestionError if a column's dates or units may be read in two ways.
    """
    cells = {name: _stripped(frame[name]) for name in frame.columns if name != PART}
    parsed = {name: _parsed(name, texts, name == reward) for name, texts in cells.items()}
    parsed = {name: found for name, found in parsed.items() if found is not None}
    numbers = _numbers_form([found["number"] for found in parsed.values()])
    dates = _dates_forms({name: texts for name, texts in cells.items() if name not in parsed}, told.dates)
    columns: dict[str, Column] = {}
    for name, texts in cells.items():
        units = _units(name, parsed[name]["unit"], told) if name in parsed else {}
        plain = texts.to_frame("x")
        if name in parsed:
            plain = plain.select(plain_cell(pl.col("x"), numbers, units).alias("x"))
        else:
            for form in dates:
                plain = plain.select(plain_date(pl.col("x"), form).alias("x"))
        filled = pl.DataFrame({"raw_order": plain["x"].drop_nulls()})
        count = max(1, len(filled))
        as_number = filled.select(number_of(pl.col("raw_order")).is_not_null().sum()).item() / count
        ordered = filled.select(order_of({"order": pl.String()}).is_not_null().sum()).item() / count
        columns[name] = Column(name, texts, plain["x"], texts.n_unique(), as_number, ordered, units)
    return Look(columns, numbers, dates)


def _stripped(cells: pl.Series) -> pl.Series:
    cells = cells.cast(pl.String)
    return cells.set(cells.str.strip_chars() == "", None)


def _parsed(name: str, texts: pl.Series, is_reward: bool) -> pl.DataFrame | None:
    """``number`` and ``unit`` of the cells of a column whose numbers ingest does not read as they are; else None."""
    some = texts.drop_nulls().str.strip_chars()
    if not len(some) or len(some.cast(pl.Float64, strict=False).drop_nulls()) >= _ORDERED * len(some):
        return None
    found = some.to_frame("x").select(pl.col("x").str.extract_groups(NUMBER)).unnest("x")
    fits = found["number"].is_not_null().sum()
    marks = found.select(sign=pl.col("sign").replace("", None)).to_series()
    found = found.select(pl.col("number").str.strip_chars(), unit=pl.coalesce("unit", marks))
    # 12 mg here and there is a label; many of them are numbers, and so is 2,5
    bare = found["unit"].null_count() == len(found)
    several = bare or texts.n_unique() > _FEW_NUMBERS or is_reward or _place("reward", name) is not None
    dated = some.str.contains(_DAY).sum() >= _ORDERED * len(some)
    return found if several and not dated and fits >= _ORDERED * len(some) else None


def _numbers_form(numbers: Sequence[pl.Series]) -> NumbersForm | None:
    """How the log writes numbers; None: as ingest reads them."""
    texts = pl.concat([pl.Series("number", [], dtype=pl.String), *numbers]).drop_nulls().unique()
    marked = texts.filter(texts.str.contains(r"[,\s\x{a0}\x{202f}]"))
    if not len(marked):
        return None
    if marked.str.contains(r"\d[\s\x{a0}\x{202f}]\d").any():
        return "1 234,5"
    if marked.str.contains(r"\..*,").any():
        return "1.234,5"
    if marked.str.contains(r",.*\.").any() or marked.str.contains(r"^[+-]?[1-9]\d{0,2}(,\d{3})+$").all():
        return "1,234.5"
    return "1234,5"


_EITHER: tuple[DatesForm, DatesForm] = ("dd/mm/yyyy", "mm/dd/yyyy")


def _dates_forms(cells: Mapping[str, pl.Series], said: str | None) -> list[DatesForm]:
    """How the log writes dates beside ISO's.

    Raises QuestionError if days and months of a column may be taken for each other, CardError if no form reads it.
    """
    forms: tuple[DatesForm, ...] = get_args(DatesForm)
    if said is not None and said not in forms:
        raise CardError(f"draft: --dates {said!r}: write one of {', '.join(forms)}")
    found = [form for form in forms if form == said]
    for name, texts in cells.items():
        every = texts.drop_nulls().unique(maintain_order=True)
        # of all files, each of which may have a style of its own
        some = every.gather_every(max(1, len(every) // _HEAD))
        # every form asks for three numbers: most columns are told by one look
        if some.str.contains(r"\d+\D\d+\D\d").sum() <= _STRAY * len(some):
            continue
        written: dict[DatesForm, pl.Series] = {form: some.filter(_read_as(some, form) != some) for form in forms}
        dates = {form: int(_is_date(_read_as(rows, form)).sum()) for form, rows in written.items()}
        fits = [form for form in forms if dates[form] > _STRAY * len(some)]
        if set(_EITHER) <= set(fits):
            apart = [form for form in _EITHER if dates[form] >= (1 - _STRAY) * len(written[form])]
            if len(apart) == 2 and said not in _EITHER:
                raise QuestionError(
                    f"the dates of {name!r} can be read in several ways", [f"--dates {form}" for form in _EITHER]
                )
            if not apart:
                both = (
                    written[form].filter(~_is_date(_read_as(written[form], other)))[0]
                    for form, other in (_EITHER, _EITHER[::-1])
                )
                raise CardError(
                    f"draft: {name!r} has the day first in some rows and the month first in others, as in "
                    f"{' and '.join(both)}: nobody can tell what 03/04/2026 is; write them in one way"
                )
            drop = next(form for form in _EITHER if form != (said if said in _EITHER else apart[0]))
            fits.remove(drop)
        if int(_is_date(some).sum()) + sum(dates[form] for form in fits) >= (1 - _STRAY) * len(some):
            found += [form for form in fits if form not in found]
    return [form for form in forms if form in found]


def _read_as(cells: pl.Series, form: DatesForm) -> pl.Series:
    return cells.to_frame("x").select(plain_date(pl.col("x"), form)).to_series()


def _is_date(cells: pl.Series) -> pl.Series:
    """Whether a cell is a date that ingest reads, and no number."""
    read = pl.DataFrame({"raw_order": cells.cast(pl.String)}).select(order_of({"order": pl.String()})).to_series()
    return read.is_not_null() & cells.str.contains(_DAY)


def _units(name: str, units: pl.Series, told: Answers) -> Mapping[str, float]:
    """Units behind the numbers of a column, and what each is worth in that of most of them."""
    if name in told.units:
        return told.units[name]
    counts = units.drop_nulls().str.strip_chars().value_counts(sort=True).rows()
    kinds: dict[str, list[str]] = {}
    for unit, _ in counts:
        kinds.setdefault(plain_name(unit).rstrip("."), []).append(unit)
    if len(kinds) <= 1:
        return {unit: 1.0 for same in kinds.values() for unit in same}
    base = _WORTH.get(next(iter(kinds)))
    worth = {
        unit: f"{_WORTH[kind] / base:g}" if base and kind in _WORTH else "1" if kind == next(iter(kinds)) else "WORTH"
        for kind, same in kinds.items()
        for unit in same
    }
    line = " ".join(f"--unit {shlex.quote(f'{name}:{unit}={value}')}" for unit, value in worth.items())
    shown = ", ".join(f"{unit} ({n:,} rows)" for unit, n in counts[:8])
    raise QuestionError(f"{name!r} is in several units: {shown}. What is each worth in one of them?", [line])


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
    columns: dict[str, Column], given: Mapping[str, str], users: Sequence[str], taken: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Role -> column; roles that nothing speaks for are absent.  And the roles of columns whose names say nothing.

    ``taken``: columns that play a part already.
    Raises CardError if a column is not there, cannot play its part, or one that is needed cannot be told.
    """
    for name in (*given.values(), *users, *taken):
        if name not in columns:
            raise CardError(f"draft: no column {name!r}; the log has: {', '.join(columns)}")
    if (named := columns.get(given.get("episode", ""))) is not None and named.is_own and len(named.cells) > 2:
        raise CardError(
            f"draft: nearly every row has its own {named.name!r}, so each would be an episode of one step; name a "
            "column that the rows of an episode share, or leave --episode out: then a person is one"
        )
    found, guessed, rivals = dict(given), list[str](), dict[str, list[Column]]()
    if users:
        found["user"] = min(users, key=lambda name: columns[name].distinct)
    # what a name says goes before what content may mean: an outcome looks like an action
    for best in (_named, _likely):
        for role in ROLES:
            used = {*found.values(), *users, *taken}
            fit = [c for c in columns.values() if c.name not in used and _fits(role, c)]
            if role not in found and (name := best(role, fit)) is not None:
                if best is _likely:
                    guessed.append(role)
                    rivals[role] = fit
                found[role] = name
    for role, option in (("user", "--user"), ("action", "--action"), ("state", "--state")):
        if role not in found:
            raise CardError(
                f"draft: cannot tell which column is the {role}; name it with {option} COLUMN. "
                f"The log has: {', '.join(columns)}{_taken(found)}"
            )
    user = columns[found["user"]]
    _ask_for_outcome(columns, found, given, {*users, *taken})
    for role, fit in rivals.items():
        _ask_for_role(role, columns[found[role]], fit, user, found)
    weak = _place("user", user.name) is None or plain_name(user.name) in _WEAK
    if not users and weak and user.is_own and len(user.cells) > _FEW_NUMBERS:
        others = [c.name for c in columns.values() if c.name != user.name and _OWN > c.distinct / len(c.cells) > 0.01]
        raise QuestionError(
            f"every row has its own {user.name!r}: if a person has several rows, it protects each as if they were many "
            "people. Which column names people?",
            [f"--user {shlex.quote(name)}" for name in (*others[:5], user.name)],
        )
    return found, guessed


_MEANS = {"action": "was done", "reward": "came of it", "state": "was seen before"}


def _ask_for_outcome(
    columns: Mapping[str, Column], found: Mapping[str, str], given: Mapping[str, str], taken: AbstractSet[str]
) -> None:
    """Ask for the outcome where a column says yes or no on last rows alone, or beside what is called a score."""
    named = columns.get(found.get("reward", ""))
    if "reward" in given or named is None or named.is_outcome:
        return
    free = [c for c in columns.values() if c.is_outcome and c.name not in {*found.values(), *taken}]
    measured = {"score", "points"} & set(re.split(r"[^a-z]+", plain_name(named.name)))
    if likely := [c.name for c in free if c.is_late or (measured and c.numbers < _ORDERED)]:
        options = [f"--reward {shlex.quote(name)}" for name in (*likely[:7], named.name)]
        raise QuestionError(f"which column says what {_MEANS['reward']}? Several may{_taken(found, 'reward')}", options)


def _taken(found: Mapping[str, str], role: str = "") -> str:
    """Which columns play the other parts, and how to say otherwise."""
    taken = [f"--{one} {shlex.quote(name)}" for one, name in found.items() if one != role and one != "terminated"]
    return f" (taken so far: {', '.join(taken)})" if taken else ""


def _ask_for_role(role: str, likely: Column, fit: Sequence[Column], people: Column, taken: Mapping[str, str]) -> None:
    """Ask which of several columns plays a part, where no name says so."""
    found = [likely, *(c for c in fit if c is not likely and _rival(role, likely, c))]
    if role not in _MEANS or len(found) == 1:
        return
    if role == "state":
        # what never changes of a person says less of what was seen
        each = (pl.DataFrame({"who": people.cells, "what": c.cells}).drop_nulls() for c in found)
        still = [len(pairs.unique()) <= pairs["who"].n_unique() for pairs in each]
        found = [c for _, c in sorted(zip(still, found, strict=True), key=lambda pair: pair[0])]
    options = [f"--{role} {shlex.quote(c.name)}" for c in found[:8]]
    together = [" ".join(options[:3])] if role == "state" else []
    raise QuestionError(
        f"which column says what {_MEANS[role]}? Several may{_taken(taken, role)}", [*options, *together]
    )


def _rival(role: str, chosen: Column, other: Column) -> bool:
    """Whether a column may play the part as well as the one that was chosen."""
    if role == "reward":
        if other.is_outcome:
            return True
        return other.numbers >= _ORDERED and (other.distinct <= _FEW_NUMBERS or chosen.distinct > _FEW_NUMBERS)
    if role == "state":
        return other.is_measured
    return (other.numbers >= _ORDERED) == (chosen.numbers >= _ORDERED) and not other.is_own


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
        texts = [c for c in reversed(fit) if c.numbers < _ORDERED and not c.is_late]
        return next((c.name for c in (*(c for c in texts if not c.is_outcome), *texts)), None)
    if role == "reward":
        # what came of it is logged last, and has few values
        numbers = [c for c in reversed(fit) if c.numbers >= _ORDERED]
        few = [c for c in numbers if c.distinct <= _FEW_NUMBERS]
        return next((c.name for c in (*few, *(c for c in fit if c.is_outcome), *numbers)), None)
    if role == "state":
        return next((c.name for c in fit if c.numbers < _ORDERED), next((c.name for c in fit), None))
    return None


def _fits(role: str, c: Column) -> bool:
    if role == "order":
        return c.ordered >= _ORDERED and c.distinct > 1
    if role == "reward":
        return c.distinct > 1 and (c.numbers >= _ORDERED or c.cells.drop_nulls().n_unique() <= _WORDS)
    if role == "terminated":
        return c.distinct <= 3
    if role == "action":
        return 1 < c.distinct <= MOST_LABELS and not c.is_date
    if role == "state":
        many = c.distinct <= min(_MOST_STATES, len(c.cells) / _ROWS_EACH)
        some = c.distinct <= MOST_LABELS or many or c.numbers >= _ORDERED
        return c.distinct > 1 and some and c.is_measured and not c.is_late
    # a date-time of its own on every row, as of a visit, is no episode
    return c.distinct > 1 and not (role == "episode" and c.is_own)
