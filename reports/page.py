"""The words, numbers and tables of a report, once, for every rendering: HTML and Markdown differ in markup only."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from functools import cache, cached_property
from hashlib import sha256
from html import escape
from typing import TYPE_CHECKING

from pipeline.declaration.numbers import clean, number

if TYPE_CHECKING:
    from jinja2 import Environment


_MARKDOWN = re.compile(r"([\\`*\[\]|~$!])|(?<!\w)_|_(?!\w)")


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, the last one an ellipsis where some were cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


def names(labels: Sequence[str], kind: str, width: int) -> list[str]:
    """Labels as a page names them: a bare number with its ``kind`` before it, and no two cut to the same text."""
    named = [f"{kind} {label}" if label.isdecimal() else label for label in map(clean, labels)]
    cut = [shorten(name, width) for name in named]
    # what differs may stand at the end
    head = (width - 1) // 2
    both = [name if len(name) <= width else f"{name[:head]}…{name[-(width - 1 - head) :]}" for name in named]
    apart = [end if cut.count(start) > 1 else start for start, end in zip(cut, both, strict=True)]
    return [name if apart.count(short) > 1 else short for name, short in zip(named, apart, strict=True)]


def markdown(text: object) -> str:
    """Text that Markdown shows as written: no markup, no HTML, one line."""
    plain = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    marked = _MARKDOWN.sub(lambda match: "\\" + match.group(), plain)
    # What would open a heading or a list at the start of a line.
    return re.sub(r"^(\s*)(?:([#+-])|(\d+)([.)])(?=\s|$))", _opening, marked)


def _opening(match: re.Match[str]) -> str:
    space, sign, digits, stop = match.groups()
    return f"{space}\\{sign}" if sign else f"{space}{digits}\\{stop}"


def percent(value: float | None, digits: int = 3) -> str:
    """A share as a percentage; a dash where it is unknown.

    ``value``: between 0 and 1; None or NaN where it is unknown.
    ``digits``: two of what was counted with noise.
    """
    if value is None or math.isnan(value):
        return "–"
    if 0 < value < 0.001:
        return "< 0.1 %"
    written = number(100 * value, digits)
    # what is nearly all is not all: no interval has a level of 100 %; a sum of floats that misses 1 is all
    nearly = written == "100" and value < 1 - 1e-9
    return f"> {number(100 * value, digits, 'down')} %" if nearly else f"{written} %"


def span(low: float, high: float) -> str:
    """Two noisy counts as a range, or one where both read the same."""
    first, last = f"{low:,.0f}".replace("-", "−"), f"{high:,.0f}".replace("-", "−")
    # no minus sign before a zero
    first, last = ("0" if text == "−0" else text for text in (first, last))
    return first if first == last else f"{first} to {last}"


def between(values: Iterable[float | None], written: Callable[[float], str]) -> str:
    """Known values as a range, or one where all read the same; a dash where none is known.

    ``values``: none or NaN where one is not known.
    """
    known = [x for x in values if x is not None and x == x]
    low, high = (written(min(known)), written(max(known))) if known else ("–", "–")
    return low if low == high else f"{low} to {high}"


def steps(first: int, last: int) -> str:
    """Steps of an episode, counted from 0."""
    return str(first) if first == last else f"{first}–{last}"


def interval(lower: float | None, upper: float | None) -> str:
    """An interval, rounded outward to two digits of its width: nothing finer is known.

    ``lower``, ``upper``: its ends; ``upper`` is None where it is open.
    """
    if lower is None or upper is None:
        return f"{number(lower, 3, 'down')} or more"
    if one_number(lower, upper):
        return number(lower)
    if upper < lower or math.isinf(upper - lower):
        return f"{number(lower, 3, 'down')} to {number(upper, 3, 'up')}"
    digits = _digits(upper - lower)
    return f"{_to(lower, digits, ROUND_FLOOR)} to {_to(upper, digits, ROUND_CEILING)}"


def one_number(lower: float, upper: float) -> bool:
    """Whether the ends of an interval are apart by no more than the rounding of what they were computed from."""
    return abs(upper - lower) <= 1e-9 * max(abs(lower), abs(upper))


def about(value: float, lower: float, upper: float) -> str:
    """An estimate, rounded as its interval is."""
    return _to(value, _digits(upper - lower), ROUND_HALF_EVEN) if lower < upper else number(value)


def _digits(width: float) -> int:
    """Decimals that hold two digits of a width; negative left of the point."""
    return 1 - math.floor(math.log10(width))


def _to(value: float, digits: int, rounding: str) -> str:
    # twelve digits first, as for any number
    exact = Context(prec=12).create_decimal(repr(float(value)))
    rounded = exact.quantize(Decimal(1).scaleb(-digits), rounding=rounding) + 0
    shown = 0 if rounded == exact.to_integral_value() == exact else max(0, digits)
    return f"{rounded:,.{shown}f}".replace("-", "−")


def loss(rho: float | None, epsilon: float | None, delta: float | None, *, pure: bool = False) -> str:
    """A privacy loss, rounded up: rho with its (epsilon, delta), or epsilon alone.

    ``rho``, ``epsilon``, ``delta``: as a guarantee states them; None where it does not.
    """
    if rho is None and epsilon is None:
        return "not bounded"
    if pure:
        return f"ε = {number(epsilon, toward='up')} (pure)"
    pair = f"ε = {number(epsilon, toward='up')} at δ = {number(delta, toward='up')}"
    if rho is None:
        return pair
    zero_concentrated = f"ρ = {number(rho, toward='up')}"
    return zero_concentrated if epsilon is None else f"{zero_concentrated} ({pair})"


def listing(items: Sequence[object]) -> str:
    """Items in one line."""
    return ", ".join(clean(item) for item in items)


# text in the place of a picture
NOT_DRAWN = "This picture could not be drawn on this machine (docs/report.md). It shows: "


class NotDrawnError(Exception):
    """A picture cannot be drawn on this machine."""


@dataclass(frozen=True)
class Figure:
    """A picture, its description in words, and a note on what it leaves out.

    ``draw``: makes the inline SVG: only a page that shows it draws it.
    """

    draw: Callable[[], str]
    text: str
    note: str = ""

    @cached_property
    def svg(self) -> str:
        """The inline SVG, or its description where it cannot be drawn."""
        try:
            return self.draw()
        except NotDrawnError:
            return f"<p>{NOT_DRAWN}{escape(self.text)}</p>"


@dataclass(frozen=True)
class PageTable:
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
    tables: tuple[PageTable, ...] = ()
    points: tuple[str, ...] = ()
    lead: str = ""
    commands: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnswerCard:
    """One question of a decision maker: its answer, explanation, and lines to fill in on paper."""

    name: str
    answer: str
    words: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Opening:
    """The first section: a sentence that answers, a picture, cards, and the promise.

    ``figure``: shows the answer; None where no number may stand first.
    """

    title: str
    answer: str
    why: tuple[str, ...]
    figure: Figure | None
    below: tuple[str, ...]
    cards: tuple[AnswerCard, ...]
    guarantee: str
    claim: str = ""
    banner: str = ""


@dataclass(frozen=True)
class Chapter:
    """Sections for one kind of reader; an appendix is ``folded`` on a screen and left out on paper."""

    title: str
    sections: tuple[Section, ...] = field(default=())
    folded: bool = False


def table(
    head: str, rows: list[tuple[str, ...]], caption: str = "", numeric: str = "", grouped: bool = False
) -> PageTable:
    """A table from a heading such as ``"Name | Value"``; ``numeric`` names the columns set flush right."""
    names = tuple(head.split(" | "))
    right = frozenset(names.index(name) for name in numeric.split(" | ") if name)
    return PageTable(names, tuple(rows), caption, right, grouped)


@cache
def templates() -> Environment:
    """The page templates, with this package's filters."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("reports"),
        # Markdown escapes through its own filter: HTML entities inside its words would be wrong twice.
        autoescape=lambda name: name is not None and ".html." in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["md"] = markdown
    environment.filters["fence"] = _fence
    environment.filters["source_hash"] = _source_hash
    return environment


def _source_hash(text: str) -> str:
    """Name of an element in a Content-Security-Policy: the digest of its text."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _fence(lines: tuple[str, ...]) -> str:
    """Indented lines: a code block that no run of backticks in a command can close."""
    return "\n".join(f"    {line}" for line in lines)
