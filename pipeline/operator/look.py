"""A whole log in memory, before there is a card: its notation and the roles of its columns.

For the operator only: a guess is a look at the data.  If a wrong guess would ruin a run, the operator is asked.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import hashlib
import json
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from pipeline.logs.readers.batch import Request
from pipeline.logs.readers.lines import guess_separator, header
from pipeline.logs.sources import TABLES, table_of

PART = "\x00file"
"""A column beside those of the log: the file of each row."""


class QuestionError(CardError):
    """A question to the operator, because a wrong guess would ruin the run.

    ``options``: options of the verb, each an answer, the likeliest first.
    """

    def __init__(self, asked: str, options: Sequence[str]) -> None:
        lines = "".join(f"\n  {option}" for option in options)
        super().__init__(f"draft: {asked}\nadd one of (in Python the argument of this name):{lines}")
        self.asked, self.options = asked, options


@dataclass(frozen=True)
class Answers:
    """The operator's answers: see ``draft --help``; ``parts``: columns that make the states together."""

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
    rewards: str | None = None


@dataclass(frozen=True)
class Read:
    """Rows of files, every cell as text, each with its file; and facts of the files that a card must state.

    ``paths``: without copies.  ``lost``: records that cannot be read.  ``optional``: columns that some file lacks.
    """

    frame: pl.DataFrame
    paths: Sequence[Path] = ()
    lost: int = 0
    separator: str = ","
    optional: Sequence[str] = ()
    notes: Sequence[str] = ()


def read_files(paths: Sequence[Path], rename: Mapping[str, str]) -> Read:
    """Read the rows of tables.

    Raises CardError if a file is missing, has no format of a table, or has no names of columns.
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
        names = keys_of(path) if reader.types is None else list(reader.types(path, Request([], separator=separator)))
        if reader.lines and sum(_NO_NAME.fullmatch(name.strip()) is not None for name in names) > len(names) / 3:
            raise CardError(
                f"draft: {path.name}: line 1 looks like a row, not like names of columns; write a line of names above"
            )
        if path.suffix == ".csv":
            twice = [name for name, n in Counter(header(path, separator)).items() if n > 1]
            notes += [f"{path.name} names {name!r} more than once: such columns are not read" for name in twice]
        batches = list(reader.read(path, Request(names, separator=separator)))
        lost += sum(len(batch.malformed) for batch in batches)
        if batches:
            frames[str(path)] = pl.concat([_as_text(batch.frame) for batch in batches])
    if not frames:
        raise CardError("draft: the files hold no row")
    frames = {place: frame.rename(_common_names(frame.columns, rename)) for place, frame in frames.items()}
    _ask_for_headers(frames, rename)
    renamed = [frame.with_columns(pl.lit(Path(place).name).alias(PART)) for place, frame in frames.items()]
    every = pl.concat(renamed, how="diagonal")
    separator = separators.pop() if len(separators) == 1 else "auto" if separators else ","
    optional = [name for name in every.columns if any(name not in frame.columns for frame in renamed)]
    return Read(every, paths, lost, separator, optional, notes)


# a number or a date, which is no name of a column
_NO_NAME = re.compile(r"[-+]?[\d.,]*\d|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}.*")
_DAY = r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}"


def _once_each(paths: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Files without copies of others, and a note on each that is left out.

    Raises CardError if one is missing.
    """
    by_digest, notes = dict[bytes, Path](), list[str]()
    # the shorter name is the original: a copy is "visits (1).csv"
    for path in sorted(paths, key=lambda path: len(path.name)):
        if not path.is_file():
            raise CardError(f"draft: {path} is no file; name files of {', '.join(TABLES)}")
        with path.open("rb") as file:
            first = by_digest.setdefault(hashlib.file_digest(file, "sha256").digest(), path)
        if first != path:
            notes.append(f"{path.name} is a copy of {first.name}, byte for byte: the card leaves it out")
    originals = set(by_digest.values())
    return [path for path in dict.fromkeys(paths) if path in originals], notes


def _common_names(names: Sequence[str], rename: Mapping[str, str]) -> dict[str, str]:
    targets = {name: rename.get(name) or name for name in names}
    return {name: name if ours in names and ours != name else ours for name, ours in targets.items()}


def _ask_for_headers(frames: Mapping[str, pl.DataFrame], rename: Mapping[str, str]) -> None:
    """Ask which columns of files with different headers are the same.

    A column that only some files have needs no answer if no column of the others may be the same.
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
        separate = " ".join(f"--rename {shlex.quote(f'{theirs}=')}" for theirs in pairs)
        raise QuestionError(
            f"the files have different headers:{shown}\nWhich columns are the same?  (NAME= is a column of its own.) "
            "Files are put below each other, not joined: join a table of people to its visits first.",
            [*dict.fromkeys([same, separate])],
        )


# least likeness of columns of two files that are proposed as the same
_ALIKE = 0.5


def _likeness(theirs: pl.DataFrame, name: str, ours: pl.DataFrame, ours_name: str) -> float:
    """Likeness of two columns of files with different headers; 0 if one holds dates and the other none."""
    a, b = (_stripped(frame[column].head(_HEAD)).drop_nulls() for frame, column in ((theirs, name), (ours, ours_name)))
    if not len(a) or not len(b) or _kind(a) != _kind(b):
        return 0.0
    score = SequenceMatcher(None, plain_name(name), plain_name(ours_name)).ratio()
    same_index = theirs.columns.index(name) == ours.columns.index(ours_name)
    if (same_index and len(theirs.columns) == len(ours.columns)) or _kind(a) == "date":
        score += 0.5
    if _kind(a) == "text":
        our_texts, other_texts = ({plain_name(text.strip()) for text in cells.unique()} for cells in (a, b))
        score += len(our_texts & other_texts) / max(1, min(len(our_texts), len(other_texts)))
    return score


def _kind(cells: pl.Series) -> str:
    if cells.str.contains(_DAY).sum() >= _ORDERED * len(cells):
        return "date"
    return "number" if cells.str.contains(NUMBER).sum() >= _ORDERED * len(cells) else "text"


def keys_of(path: Path) -> list[str]:
    """Keys of all objects of an NDJSON file, in the order of their first use."""
    keys: dict[str, None] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            keys |= dict.fromkeys(table_in(json.loads(line)) or ())
    return list(keys)


def frame_of(log: object) -> pl.DataFrame:
    """Convert a frame of any library; every cell becomes text."""
    frame = pl.from_arrow(table_of(log))
    assert isinstance(frame, pl.DataFrame)
    return _as_text(frame)


def _as_text(frame: pl.DataFrame) -> pl.DataFrame:
    plain = [c for c in frame.columns if not frame[c].dtype.is_nested()]
    # NaN is an empty cell, as in ingest
    cells = (frame[c].fill_nan(None) if frame[c].dtype.is_float() else frame[c] for c in plain)
    return frame.select(cell.cast(pl.String) for cell in cells)


# beginnings of words of a name, the likelier first; a star: it may stand inside of a word
_NAMES = {
    "user": "user patient person student learner customer client visitor subject member player pid mrn uid uuid id",
    "episode": "episode admission stay encounter session enrol course case",
    "order": "step visit month week day date time hour round seq occurred when at zeit datum fecha",
    "action": "action treatment *therap behandlung traite tratam intervention drug medication dose offer "
    "coupon promo voucher decision choice nudge hint exercise recommendation maßnahme arm",
    "reward": "reward outcome recovered cured controlled success passed correct solved better score points revenue "
    "profit sale purchase bought click gain paid genesen geheilt erfolg nutzen resultado résultat cents",
    "state": "state stage band level severity status zustand estado mood segment page pressure systolic skill",
    "terminated": "terminated done died death left discharged",
}
ROLES = tuple(_NAMES)
# names of ids of rows as often as of people
_WEAK = ("uuid", "id")
# words of names of what was there before a decision, and of what came after it
_BEFORE = {
    "before", "prior", "previous", "prev", "past", "last", "baseline", "initial", "pre", "history", "earlier", "lag",
}  # fmt: skip
_AFTER = {"after", "afterwards", "later", "post", "final", "followup"}
# words of times in names, which order no rows where dates do, or with a word of how long something took
_TIMES = {"week", "month", "day", "date", "time", "hour", "at", "zeit"}
_SPANS = {"next", "off", "per", "of", "wait", "handle", "response", "*spent", "since", "total", "to", "until"}
# most rows of a person with another at the same date, where dates order rows
_FEW_TIES = 0.05
# roles that what was there before cannot play
_NOW = ("order", "action", "reward")
# most different texts of a column of labels; a column of more different numbers with a unit holds numbers
MOST_LABELS, _FEW_NUMBERS = 60, 12
# there may be more states, if each has enough rows on average
_MOST_STATES, _ROWS_EACH = 2_000, 50
# most different texts of an outcome in words
_OUTCOME_TEXTS = 3
SAYS = {
    **dict.fromkeys(["yes", "y", "true", "t", "ja", "j", "oui", "si", "s", "sí"], 1.0),
    **dict.fromkeys(["no", "n", "false", "f", "nein", "non"], 0.0),
}
"""Reward of a word of an outcome; the operator is asked for others."""
# least share of numbers in a column of numbers, of dates in one of dates
_ORDERED = 0.9
# different texts in which dates are looked for
_HEAD = 2_000
# least share of empty cells of an outcome that comes late
_LATE = 0.3
# largest share of cells in a column of dates that are no dates
_STRAY = 0.001
# least share of different cells in a column of ids of rows
_OWN = 0.98
NUMBER = (
    r"^(?P<sign>[€$£]?)[\s\x{a0}]*(?P<number>[+-]?\d[\d.,\s\x{a0}\x{202f}]*?)[\s\x{a0}]*(?P<unit>[^\d\s.,+-][^\d]*)?$"
)
# ratios of units, which are proposed if a log has several; their names are plain
_MASSES = {"\u03bcg": 1e-6, "ug": 1e-6, "mcg": 1e-6, "mg": 1e-3, "g": 1.0, "kg": 1e3}
WORTH = {**_MASSES, "ml": 1e-3, "cl": 1e-2, "dl": 0.1, "l": 1.0}

# most missing cells of a column that orders rows, if another has fewer
_SELDOM = 0.01


@dataclass(frozen=True)
class Column:
    """A logged column as text, and facts of it.

    ``cells``: every cell as text, null where it is empty; ``plain``: as ingest reads them with the proposed card;
    ``numbers``, ``ordered``: shares of the filled cells that are numbers, and that are numbers or dates.
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
        """Whether it holds dates: its cells are ordered, and no numbers."""
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
        """Whether it may have been seen before the decision: it holds neither dates nor ids of rows."""
        return not self.is_date and not (self.is_own and (self.numbers < _ORDERED or (self.values % 1 == 0).all()))

    @property
    def is_outcome(self) -> bool:
        """Whether it holds yes and no, or two numbers."""
        texts = {plain_name(text.strip()) for text in self.cells.drop_nulls().unique().head(_OUTCOME_TEXTS + 1)}
        return len(texts) == 2 and (texts <= set(SAYS) or self.numbers >= _ORDERED)

    @property
    def is_late(self) -> bool:
        """Whether it is an outcome that many rows lack, as an episode's outcome on one of its rows."""
        return self.missing > _LATE and self.is_outcome

    @property
    def is_own(self) -> bool:
        """Whether nearly all cells are different."""
        return self.distinct >= max(2, _OWN * len(self.cells))


@dataclass(frozen=True)
class Look:
    """Columns of a log, and its notations of numbers and dates."""

    columns: dict[str, Column]
    numbers: NumbersForm | None
    dates: Sequence[DatesForm]


def look_at(frame: pl.DataFrame, answers: Answers, reward: str | None = None) -> Look:
    """Find the notations of a log, and what its columns hold.

    ``reward``: the column of rewards, if it is known: it may have few different numbers.
    Raises QuestionError if a column's dates or units may be read in two ways.
    """
    cells = {name: _stripped(frame[name]) for name in frame.columns if name != PART}
    parsed = {
        name: _parsed(name, texts, is_reward=name == reward, answered=name in answers.units)
        for name, texts in cells.items()
    }
    parsed = {name: parts for name, parts in parsed.items() if parts is not None}
    numbers = _numbers_form([parts["number"] for parts in parsed.values()])
    dates = _dates_forms({name: texts for name, texts in cells.items() if name not in parsed}, answers.dates)
    columns: dict[str, Column] = {}
    for name, texts in cells.items():
        units = _units(name, parsed[name]["unit"], answers) if name in parsed else {}
        plain = texts.to_frame("x")
        if name in parsed:
            plain = plain.select(plain_cell(pl.col("x"), numbers, units).alias("x"))
        else:
            for form in dates:
                plain = plain.select(plain_date(pl.col("x"), form).alias("x"))
        filled = pl.DataFrame({"raw_order": plain["x"].drop_nulls()})
        number, place = number_of(pl.col("raw_order")), order_of({"order": pl.String()})
        counts = filled.select(number.is_not_null().sum().alias("numbers"), place.is_not_null().sum().alias("ordered"))
        as_number, ordered = (count / max(1, len(filled)) for count in counts.row(0))
        columns[name] = Column(name, texts, plain["x"], texts.n_unique(), as_number, ordered, units)
    return Look(columns, numbers, dates)


def _stripped(cells: pl.Series) -> pl.Series:
    cells = cells.cast(pl.String)
    return cells.set(cells.str.strip_chars() == "", None)


def _parsed(name: str, texts: pl.Series, *, is_reward: bool, answered: bool) -> pl.DataFrame | None:
    """``number`` and ``unit`` of the cells of a column whose numbers ingest does not read by default; else None.

    ``answered``: whether the operator says what its units are worth.
    """
    filled = texts.drop_nulls().str.strip_chars()
    if not len(filled) or len(filled.cast(pl.Float64, strict=False).drop_nulls()) >= _ORDERED * len(filled):
        return None
    parts = filled.to_frame("x").select(pl.col("x").str.extract_groups(NUMBER)).unnest("x")
    fits = parts["number"].is_not_null().sum()
    marks = parts.select(sign=pl.col("sign").replace("", None)).to_series()
    parts = parts.select(pl.col("number").str.strip_chars(), unit=pl.coalesce("unit", marks))
    # a few texts such as 12 mg are labels; many different ones are numbers, and so is 2,5; 5a and 5b are classes
    kinds = parts["unit"].drop_nulls().str.strip_chars().str.to_lowercase().unique()
    classes = len(kinds) > 1 and kinds.str.contains(r"^\pL$").all() and not set(kinds) <= WORTH.keys()
    few = texts.n_unique() <= (MOST_LABELS if classes and not answered else _FEW_NUMBERS)
    numeric = not len(kinds) or not few or is_reward or _name_rank("reward", name) is not None
    dated = filled.str.contains(_DAY).sum() >= _ORDERED * len(filled)
    return parts if numeric and not dated and fits >= _ORDERED * len(filled) else None


def _numbers_form(numbers: Sequence[pl.Series]) -> NumbersForm | None:
    """Notation of the log's numbers; None: the one that ingest reads by default."""
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


def _dates_forms(cells: Mapping[str, pl.Series], answer: str | None) -> list[DatesForm]:
    """Notations of the log's dates beside ISO's.

    Raises QuestionError if days and months of a column may be taken for each other, CardError if rows contradict.
    """
    forms: tuple[DatesForm, ...] = get_args(DatesForm)
    if answer is not None and answer not in forms:
        raise CardError(f"draft: --dates {answer!r}: write one of {', '.join(forms)}")
    accepted = [form for form in forms if form == answer]
    for name, texts in cells.items():
        distinct = texts.drop_nulls().unique(maintain_order=True)
        # sampled from all files, whose notations may differ
        sample = distinct.gather_every(max(1, len(distinct) // _HEAD))
        # every form has three numbers, which rules out most columns at once
        if sample.str.contains(r"\d+\D\d+\D\d").sum() <= _STRAY * len(sample):
            continue
        changed: dict[DatesForm, pl.Series] = {form: sample.filter(_read_as(sample, form) != sample) for form in forms}
        dates = {form: int(_is_date(_read_as(rows, form)).sum()) if len(rows) else 0 for form, rows in changed.items()}
        fits = [form for form in forms if dates[form] > _STRAY * len(sample)]
        if set(_EITHER) <= set(fits):
            complete = [form for form in _EITHER if dates[form] >= (1 - _STRAY) * len(changed[form])]
            if len(complete) == 2 and answer not in _EITHER:
                raise QuestionError(
                    f"the dates of {name!r} can be read in several ways", [f"--dates {form}" for form in _EITHER]
                )
            if not complete:
                examples = (
                    changed[form].filter(~_is_date(_read_as(changed[form], opposite)))[0]
                    for form, opposite in (_EITHER, _EITHER[::-1])
                )
                raise CardError(
                    f"draft: {name!r} has the day first in some rows and the month first in others, as in "
                    f"{' and '.join(examples)}: nobody can tell what 03/04/2026 is; write them in one way"
                )
            drop = next(form for form in _EITHER if form != (answer if answer in _EITHER else complete[0]))
            fits.remove(drop)
        if int(_is_date(sample).sum()) + sum(dates[form] for form in fits) >= (1 - _STRAY) * len(sample):
            accepted += [form for form in fits if form not in accepted]
    return [form for form in forms if form in accepted]


def _read_as(cells: pl.Series, form: DatesForm) -> pl.Series:
    return cells.to_frame("x").select(plain_date(pl.col("x"), form)).to_series()


def _is_date(cells: pl.Series) -> pl.Series:
    """Mark of cells that are dates that ingest reads, and no numbers."""
    read = pl.DataFrame({"raw_order": cells.cast(pl.String)}).select(order_of({"order": pl.String()})).to_series()
    return read.is_not_null() & cells.str.contains(_DAY)


def _units(name: str, units: pl.Series, answers: Answers) -> Mapping[str, float]:
    """Units behind the numbers of a column, and their ratios to the most frequent one."""
    if name in answers.units:
        return answers.units[name]
    counts = units.drop_nulls().str.strip_chars().value_counts(sort=True).rows()
    kinds: dict[str, list[str]] = {}
    for unit, _ in counts:
        kinds.setdefault(plain_name(unit).rstrip("."), []).append(unit)
    if len(kinds) <= 1:
        return {unit: 1.0 for spellings in kinds.values() for unit in spellings}
    base = WORTH.get(next(iter(kinds)))
    worth = {
        unit: f"{WORTH[kind] / base:g}" if base and kind in WORTH else "1" if kind == next(iter(kinds)) else "WORTH"
        for kind, spellings in kinds.items()
        for unit in spellings
    }
    line = " ".join(f"--unit {shlex.quote(f'{name}:{unit}={value}')}" for unit, value in worth.items())
    shown = ", ".join(f"{unit} ({n:,} rows)" for unit, n in counts[:8])
    raise QuestionError(f"{name!r} is in several units: {shown}. What is each worth in one of them?", [line])


def plain_name(name: str) -> str:
    """Lower-case name without accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", name.lower()) if not unicodedata.combining(c))


def is_later(name: str, others: Iterable[str]) -> bool:
    """Whether a column, by its name, holds the next value of one of the others: it came of the action."""
    return plain_name(name) in {f"next{between}{plain_name(other)}" for other in others for between in ("", "_", " ")}


def came_after(name: str) -> bool:
    """Whether a column, by its name, holds what came after the decision."""
    return not _AFTER.isdisjoint(words_of(name))


def _without_spans(fit: Sequence[Column], people: Column | None) -> Sequence[Column]:
    """Columns that may order rows, but for how long a call took, and for numbers of hours where dates do it."""
    dates = [pl.DataFrame({"who": people.cells, "when": c.cells}) for c in fit if c.is_date] if people else []
    dated = any(rows.filter(rows.is_duplicated()).height < _FEW_TIES * rows.height for rows in dates)

    def says(parts: Collection[str], name: str) -> bool:
        return any(_says(part, name) for part in parts)

    return [c for c in fit if c.is_date or not says(_TIMES, c.name) or not (dated or says(_SPANS, c.name))]


def words_of(name: str) -> list[str]:
    """Words of a name, in plain lower case."""
    return re.split(r"[\W_]+", plain_name(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)))


def namesakes(role: str, name: str, columns: Mapping[str, Column]) -> list[str]:
    """Other columns that have a role by their names too, such as a dose beside a drug."""
    fit = [c for c in columns.values() if c.name != name and _fits(role, c) and _BEFORE.isdisjoint(words_of(c.name))]
    fit = [c for c in fit if role != "action" or not came_after(c.name)]
    return [c.name for c in fit if _name_rank(role, c.name) is not None]


def _says(part: str, name: str) -> bool:
    """Whether a name says so: satisfaction, fraction and reaction name no action."""
    if part.startswith("*"):
        return part[1:] in plain_name(name)
    # parts of up to three letters begin many words, so they must be whole words
    return any(word.startswith(part) if len(part) > 3 else word == part for word in words_of(name))


def _name_rank(role: str, name: str) -> int | None:
    """Rank of a name among those usual for a role, the likeliest first; None if it is none of them."""
    return next((i for i, part in enumerate(_NAMES[role].split()) if _says(part, name)), None)


def find_roles(
    columns: dict[str, Column], answered: Mapping[str, str], users: Sequence[str], parts: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Role -> column, for roles that some column fits; and the roles that were guessed by content, not by name.

    ``answered``: roles that the operator has named.  ``parts``: columns that make the states together.
    Raises CardError if a column is missing or does not fit its role, or no column fits a role that is needed.
    """
    for name in (*answered.values(), *users, *parts):
        if name not in columns:
            raise CardError(f"draft: no column {name!r}; the log has: {', '.join(columns)}")
    if (episode := columns.get(answered.get("episode", ""))) is not None and episode.is_own and len(episode.cells) > 2:
        raise CardError(
            f"draft: nearly every row has its own {episode.name!r}, so each would be an episode of one step; name a "
            "column that the rows of an episode share, or leave --episode out: then a person is one"
        )
    roles, guessed, rivals = dict(answered), list[str](), dict[str, list[Column]]()
    if users:
        roles["user"] = min(users, key=lambda name: columns[name].distinct)
    # names go before contents: an outcome looks like an action
    for best in (_by_name, _by_content):
        for role in ROLES:
            used = {*roles.values(), *users, *parts}
            fit = [c for c in columns.values() if c.name not in used and _fits(role, c)]
            # a date that some rows lack came of them; one that all have orders them
            if role == "order":
                fit = [c for c in fit if c.missing <= _SELDOM] or fit
                fit = _without_spans(fit, columns.get(roles.get("user", "")))
            if role in ("state", "action"):
                fit = [c for c in fit if not is_later(c.name, columns) and not came_after(c.name)]
            if role in _NOW:
                now = [c for c in fit if _BEFORE.isdisjoint(words_of(c.name))]
                fit = now if best is _by_name else fit if role == "action" else now or fit
            if role == "terminated" and "user" in roles and columns[roles["user"]].cells.is_unique().all():
                # of one row a person every episode is over: who died or was discharged is an outcome
                continue
            if role not in roles and (name := best(role, fit)) is not None:
                if best is _by_content:
                    guessed.append(role)
                    rivals[role] = fit
                roles[role] = name
    if "state" not in roles and set(columns) == {*roles.values(), *users}:
        raise CardError(
            f"draft: no column is left for the state (what was seen before the action){_roles(roles)}: name other "
            "columns for these, or add one in which people differ, such as their segment; of one state alone no "
            "verdict would come"
        )
    for role, option in (("user", "--user"), ("action", "--action"), ("state", "--state")):
        if role not in roles:
            raise CardError(
                f"draft: cannot tell which column is the {role}; name it with {option} COLUMN. "
                f"The log has: {', '.join(columns)}{_roles(roles)}"
            )
    user = columns[roles["user"]]
    if "reward" not in answered:
        _ask_for_outcome(columns, roles, guessed, {*users, *parts})
    for role, fit in rivals.items():
        _ask_for_role(role, columns[roles[role]], fit, user, roles)
    rank = _name_rank("user", user.name)
    likely = [c.name for c in columns.values() if c.name != user.name and _OWN > c.distinct / len(c.cells) > 0.01]
    # a visit_id is one of a row, if another column may name people
    weak = rank is None or (_NAMES["user"].split()[rank] in _WEAK and (likely or plain_name(user.name) in _WEAK))
    if not users and weak and user.is_own and len(user.cells) > _FEW_NUMBERS:
        raise QuestionError(
            f"every row has its own {user.name!r}: if a person can have several rows, a card of it protects each row "
            "alone, and no person. Which column names people?",
            [f"--user {shlex.quote(name)}" for name in (*likely[:5], user.name)],
        )
    return roles, guessed


MEANS = {"action": "was done", "reward": "came of it", "state": "was seen before"}


def _ask_for_outcome(
    columns: Mapping[str, Column], roles: Mapping[str, str], guessed: Sequence[str], used: set[str]
) -> None:
    """Ask for the outcome if a column is yes or no on last rows alone, or one that is called a score may be older.

    A score is measured before decisions as well: of a risk, of the pain at admission.
    """
    reward = columns.get(roles.get("reward", ""))
    if reward is None or reward.is_outcome:
        return
    free = [c for c in columns.values() if c.is_outcome and c.name not in {*roles.values(), *used}]
    measured = not {"score", "points"}.isdisjoint(words_of(reward.name)) and not came_after(reward.name)
    # such as a risk_score; what came of it may then be the state for want of another
    older = measured and len(words_of(reward.name)) > 1
    state = columns[roles["state"]]
    outcomes = [c.name for c in free if older or c.is_late or (measured and c.numbers < _ORDERED)]
    outcomes += [state.name] if older and "state" in guessed and (state.is_outcome or state.numbers >= _ORDERED) else []
    if outcomes:
        raise _which_column("reward", [*outcomes[:7], reward.name], roles)


def _roles(roles: Mapping[str, str], role: str = "") -> str:
    """Text of the other roles' columns, as options of the verb."""
    options = [
        f"--{other} {shlex.quote(name)}" for other, name in roles.items() if other != role and other != "terminated"
    ]
    return f" (taken so far: {', '.join(options)})" if options else ""


def _ask_for_role(role: str, best: Column, fit: Sequence[Column], people: Column, roles: Mapping[str, str]) -> None:
    """Ask which of several columns has a role, if no name decides it."""
    rivals = [best, *(c for c in fit if c is not best and _rival(role, best, c))]
    if role not in MEANS or len(rivals) == 1:
        return
    if role == "state":
        # a column that is constant for each person is less likely to be the state
        pairs_of = (pl.DataFrame({"who": people.cells, "what": c.cells}).drop_nulls() for c in rivals)
        constant = [len(pairs.unique()) <= pairs["who"].n_unique() for pairs in pairs_of]
        rivals = [c for _, c in sorted(zip(constant, rivals, strict=True), key=lambda pair: pair[0])]
    raise _which_column(role, [c.name for c in rivals[:8]], roles)


def _which_column(role: str, names: Sequence[str], roles: Mapping[str, str]) -> QuestionError:
    options = [f"--{role} {shlex.quote(name)}" for name in names]
    together = [" ".join(options[:3])] if role == "state" else []
    return QuestionError(
        f"which column says what {MEANS[role]}? Several may{_roles(roles, role)}", [*options, *together]
    )


def _rival(role: str, chosen: Column, column: Column) -> bool:
    """Whether a column fits a role as well as the chosen one."""
    if role == "reward":
        if column.is_outcome:
            return True
        return column.numbers >= _ORDERED and (column.distinct <= _FEW_NUMBERS or chosen.distinct > _FEW_NUMBERS)
    if role == "state":
        return column.is_measured
    return (column.numbers >= _ORDERED) == (chosen.numbers >= _ORDERED) and not column.is_own


def _by_name(role: str, fit: Sequence[Column]) -> str | None:
    # the shortest of equally likely names: state, not next_state
    ranked = [
        (role == "reward" and not came_after(c.name), place, len(c.name), c.name)
        for c in fit
        if (place := _name_rank(role, c.name)) is not None
    ]
    return min(ranked)[-1] if ranked else None


def _by_content(role: str, fit: Sequence[Column]) -> str | None:
    if role == "order":
        # dates order rows
        return next((c.name for c in fit if c.is_date), None)
    if role == "action":
        # the last column of a few texts is more often the action than the state
        texts = [c for c in reversed(fit) if c.numbers < _ORDERED and not c.is_late]
        return next((c.name for c in (*(c for c in texts if not c.is_outcome), *texts)), None)
    if role == "reward":
        # the outcome is logged last, and has few values
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
        return c.distinct > 1 and (c.numbers >= _ORDERED or c.cells.drop_nulls().n_unique() <= _OUTCOME_TEXTS)
    if role == "terminated":
        return c.distinct <= 3
    if role == "action":
        return 1 < c.distinct <= MOST_LABELS and not c.is_date
    if role == "state":
        many = c.distinct <= min(_MOST_STATES, len(c.cells) / _ROWS_EACH)
        some = c.distinct <= MOST_LABELS or many or c.numbers >= _ORDERED
        return c.distinct > 1 and some and c.is_measured and not c.is_late
    # a column that differs on every row, as the time of a visit, is no episode
    return c.distinct > 1 and not (role == "episode" and c.is_own)
