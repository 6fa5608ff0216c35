"""The words and tables of a report, once, for every rendering: HTML and Markdown differ in markup only."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from reports.format import markdown

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True)
class Figure:
    """A picture, what it shows in words, and what it leaves out.

    Parameters
    ----------
    draw
        Makes the inline SVG: only a page that shows it draws it.
    text, note
        In words.
    """

    draw: Callable[[], str]
    text: str
    note: str = ""

    @cached_property
    def svg(self) -> str:
        """The inline SVG."""
        return self.draw()


@dataclass(frozen=True)
class Table:
    """Cells as text; the first column names the row, columns in ``numeric`` are set flush right.

    ``grouped``: neighbouring rows of one name belong together.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    numeric: frozenset[int] = frozenset()
    grouped: bool = False

    @property
    def stacked(self) -> bool:
        """Whether a narrow screen shows a row as a list of named cells: wide tables whose rows stand alone."""
        words = any(len(cell) > 20 for row in self.rows for cell in row[1:])
        return not self.grouped and (len(self.head) > 4 or (len(self.head) > 2 and words))


@dataclass(frozen=True)
class Section:
    """A titled part of the page: words, then a figure, tables, points under a lead, and commands."""

    key: str
    title: str
    words: tuple[str, ...] = ()
    figure: Figure | None = None
    tables: tuple[Table, ...] = ()
    points: tuple[str, ...] = ()
    lead: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class Card:
    """One question of who decides: its answer, what is said to it, and lines to fill in on paper."""

    name: str
    answer: str
    words: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opening:
    """The first section: a sentence that answers, a picture, three cards, and the promise.

    Parameters
    ----------
    title
        Of the document.
    answer, why
        The sentence, and what stands behind it.
    figure
        What it is read off; None where nothing may stand first.
    below
        What is not known, or is known besides.
    cards
        For whom it changes, what it costs, who signs.
    guarantee, claim
        The promise, and to whom it is made.
    banner
        The warning of a run that protects nobody, else nothing.
    """

    title: str
    answer: str
    why: tuple[str, ...]
    figure: Figure | None
    below: tuple[str, ...]
    cards: tuple[Card, ...]
    guarantee: str
    claim: str = ""
    banner: str = ""


@dataclass(frozen=True)
class Part:
    """Sections for one kind of reader, and the answer that the first screen gives to that reader."""

    title: str
    sections: tuple[Section, ...] = field(default=())
    answer: str = ""


def table(head: str, rows: list[tuple[str, ...]], caption: str = "", numeric: str = "", grouped: bool = False) -> Table:
    """A table from a heading such as ``"Name | Value"``; ``numeric`` names the columns set flush right."""
    names = tuple(head.split(" | "))
    right = frozenset(names.index(name) for name in numeric.split(" | ") if name)
    return Table(names, tuple(rows), caption, right, grouped)


@cache
def templates() -> Environment:
    """The page templates, with this package's filters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("reports"),
        # Markdown escapes through its own filter: HTML entities inside its words would be wrong twice.
        autoescape=lambda name: name is not None and ".html." in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["md"] = markdown
    found.filters["fence"] = _fence
    found.filters["source_hash"] = _source_hash
    return found


def _source_hash(text: str) -> str:
    """How a Content-Security-Policy names an element by the text in it."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _fence(lines: tuple[str, ...]) -> str:
    """Indented lines: a code block that no run of backticks in a command can close."""
    return "\n".join(f"    {line}" for line in lines)
