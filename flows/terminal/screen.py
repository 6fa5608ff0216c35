"""Output of the shell: results on stdout (one JSON object with ``--json``), everything else on stderr.

One summary, twice: colour, rules and folded cells where a person reads, plain aligned text where a pipe does.

Counts of rows are for the operator alone.  Progress goes to this terminal or the service's own log, never to a run's
folder or a Prefect server; work of less than two seconds reports none.
"""

from __future__ import annotations

import errno
import json
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from pipeline.files import is_full

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from flows.config.home import Progress, Work


# style of a verdict's word; the word alone is enough
_STYLES = {"ok": "green", "WRONG": "bold red", "yes": "bold red", "committed": "green", "intent": "yellow"}


@dataclass(frozen=True)
class Title:
    """Heading of a summary, and a few words on it."""

    text: str
    more: str = ""


@dataclass(frozen=True)
class Pairs:
    """Names and their values."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Place:
    """A name and an address that is never folded, so that it can be copied."""

    name: str
    where: str


@dataclass(frozen=True)
class Grid:
    """A table; the columns after the first ``left`` are flush right, ``most`` rows of it are shown.

    ``title``: above the table; none if empty.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    left: int = 1
    most: int = 40


@dataclass(frozen=True)
class Chart:
    """Lines that only a screen can show."""

    lines: Sequence[str]


Block: TypeAlias = str | Title | Pairs | Place | Grid | Chart


def put(blocks: Sequence[Block]) -> None:
    """Print on stdout: drawn on a terminal, plain elsewhere."""
    if not sys.stdout.isatty():
        print("\n".join(plain(blocks)))
        return
    from rich.console import Console

    draw(blocks, Console(highlight=False, markup=False, emoji=False, soft_wrap=False))


def plain(blocks: Sequence[Block]) -> list[str]:
    """Lines without colour or rules; nothing is cut but tables to their ``most`` rows."""
    return [line for block in blocks for line in _plain(block)]


def _plain(block: Block) -> list[str]:
    if isinstance(block, str):
        return block.split("\n")
    if isinstance(block, Title):
        return [f"{block.text}: {block.more}" if block.more else block.text]
    if isinstance(block, Pairs):
        wide = max((len(name) for name, _ in block.rows), default=0)
        return [f"{name:{max(10, wide)}}  {words}" for name, words in block.rows]
    if isinstance(block, Place):
        return [f"{block.name:10}  {block.where}"]
    if isinstance(block, Chart):
        return []
    rows = [list(map(_one_line, block.head)), *(list(map(_one_line, row)) for row in block.rows[: block.most])]
    wide = [max(len(row[i]) for row in rows) for i in range(len(block.head))]
    lines = [
        "  " + "  ".join(f"{cell:{'<' if i < block.left else '>'}{wide[i]}}" for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]
    title = [block.title] if block.title else []
    return [*title, *lines, *([f"  {_rest(block)}"] if _rest(block) else [])]


def _one_line(cell: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in cell)


def _rest(grid: Grid) -> str:
    left = len(grid.rows) - grid.most
    return f"… and {left:,} more; --json has all" if left > 0 else ""


def draw(blocks: Sequence[Block], console: Console) -> None:
    """Print the same on a terminal of any width: cells and lines are folded, never cut."""
    from rich.text import Text

    for block in blocks:
        if isinstance(block, Place):
            console.print(Text.assemble((f"{block.name:9}  ", "dim"), block.where), soft_wrap=True)
            continue
        if isinstance(block, Grid) and block.title:
            console.print(Text(block.title, style="bold"))
        console.print(_rich(block))
        if isinstance(block, Grid) and (rest := _rest(block)):
            console.print(Text(rest, style="dim"))


def _rich(block: str | Title | Pairs | Grid | Chart) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if isinstance(block, str):
        return Text(block, overflow="fold")
    if isinstance(block, Title):
        return Text.assemble((block.text, "bold"), f"  {block.more}" if block.more else "", overflow="fold")
    if isinstance(block, Chart):
        return Text("\n".join(block.lines), style="cyan", no_wrap=True, overflow="crop")
    if isinstance(block, Pairs):
        pairs = Table.grid(padding=(0, 2))
        pairs.add_column(style="dim", no_wrap=True, min_width=9)
        pairs.add_column(overflow="fold")
        for name, words in block.rows:
            pairs.add_row(Text(name), Text(words, style=_STYLES.get(words, "")))
        return pairs
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", show_edge=False)
    for i, name in enumerate(block.head):
        table.add_column(Text(name), justify="left" if i < block.left else "right", overflow="fold")
    for row in block.rows[: block.most]:
        # a label is text, whatever brackets it holds
        table.add_row(*(Text(_one_line(cell), style=_STYLES.get(cell, "")) for cell in row))
    return table


_STYLE = (
    ":root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}body{max-width:60rem;margin:2rem auto;padding:0 "
    "1rem}table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}caption{text-align:left;font-"
    "weight:600;padding:.3rem 0}th,td{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid #8884}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
)


def page(title: str, blocks: Sequence[Block]) -> str:
    """The file's text."""
    allowed = f"sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}"
    policy = f"default-src 'none'; style-src '{allowed}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width"><meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n" + part(blocks) + "\n</body></html>\n"
    )


def part(blocks: Sequence[Block]) -> str:
    """The blocks in HTML, as a part of a page or of a notebook."""
    return "\n".join(_block(block) for block in blocks)


def _block(block: Block) -> str:
    if isinstance(block, str):
        return f"<p>{escape(block)}</p>" if block else ""
    if isinstance(block, Title):
        return f"<h1>{escape(block.text)}</h1>" + (f"<p>{escape(block.more)}</p>" if block.more else "")
    if isinstance(block, Pairs):
        return _table((), block.rows, 2, "")
    if isinstance(block, Place):
        return f"<p>{escape(block.name)}: {escape(block.where)}</p>"
    if isinstance(block, Chart):
        return ""
    return _table(block.head, block.rows, block.left, block.title)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int, title: str) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        each = (f"<{tag}{'' if i < left else ' class=n'}>{escape(cell)}</{tag}>" for i, cell in enumerate(cells))
        return f"<tr>{''.join(each)}</tr>"

    caption = f"<caption>{escape(title)}</caption>" if title else ""
    return f"<table>{caption}{line(head, 'th') if head else ''}{''.join(line(row, 'td') for row in rows)}</table>"


# of whole numbers on the command line; more would not go into a table
MOST = 2**31 - 1
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, messages on stderr.")]


def say(message: str) -> None:
    """A line for the person who waits, on stderr."""
    print(message, file=sys.stderr, flush=True)


def show(result: Mapping[str, object], as_json: bool, human: Callable[[], Sequence[Block]]) -> None:
    """Print a result as one JSON object, or as a summary: drawn on a terminal, plain in a pipe.

    ``human``: makes the summary; called only where it is needed.
    """
    if as_json:
        print(json.dumps(result, ensure_ascii=False, allow_nan=False))
    else:
        put(human())


def fail(error: Exception, *, as_json: bool) -> int:
    """Say what is wrong in one line and return the exit code."""
    from pipeline.declaration.toml import exit_code

    code = exit_code(error)
    text = str(error) or type(error).__name__
    if is_full(error):
        text = f"the disk is full ({text}); make room and run again: what was finished stays"
    elif isinstance(error, OSError) and error.errno == errno.EROFS:
        text = f"the disk is read only ({text}), and this verb writes"
    elif code == 1:
        text = f"{type(error).__name__}: {text} (run again with --debug for the traceback)"
    print(f"reticent: {text}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": {"code": code, "message": text}}, ensure_ascii=False))
    return code


SILENT = 2.0
# between two lines where stderr is no terminal
_PAUSE = 10.0


@dataclass
class Speed:
    """Speed of one pass since its first report."""

    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    began: float = 0.0
    first: int = 0
    done: int | None = None
    total: int | None = None

    def update(self, done: int, total: int | None) -> bool:
        """Note the progress; returns whether a new pass begins here."""
        new_pass = self.done is None or done < self.done
        if new_pass:
            self.began, self.first = self.clock(), done
        self.done, self.total = done, total
        return new_pass

    @property
    def rate(self) -> float | None:
        """Units a second; None before there is any to tell."""
        more, seconds = (self.done or 0) - self.first, self.clock() - self.began
        return more / seconds if more and seconds > 0 else None

    def line(self, label: str, unit: str) -> str:
        """One plain line."""
        parts = [f"{label}: {self.done or 0:,}" + (f" of {self.total:,} {unit}" if self.total else f" {unit}")]
        if (rate := self.rate) is not None:
            parts.append(f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.1f} {unit}/s")
            if self.total:
                parts.append(f"{duration((self.total - (self.done or 0)) / rate)} left")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3 h 05 min``."""
    if seconds < 90:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def progress_lines(label: str, unit: str = "rows") -> Progress:
    """Report the progress of a pass, a plain line every ten seconds."""
    pace, last = Speed(), 0.0

    def tell(done: int, total: int | None) -> None:
        nonlocal last
        if pace.update(done, total):
            last = pace.began + SILENT - _PAUSE
        if pace.clock() - last >= _PAUSE:
            last = pace.clock()
            say(pace.line(label, unit))

    return tell


@contextmanager
def working(label: str, unit: str = "rows") -> Generator[Work]:
    """A line on stderr that shows work going on and for how long, where it is a terminal; plain lines elsewhere.

    What is said stays above the line; the newest of it, or the pace of a pass over rows, is the label.
    """
    from flows.config.home import Work

    # without its widgets a notebook shows plain lines
    notebook = "ipykernel" in sys.modules and find_spec("ipywidgets") is not None
    if not (notebook or sys.stderr.isatty()):
        yield Work(say=say, progress=progress_lines(label, unit))
        return
    from rich import markup
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Bar(*columns, console=console, transient=True, refresh_per_second=4) as line:
        task, pace = line.add_task(markup.escape(label), total=None), Speed()

        def say_above(message: str) -> None:
            say(message)
            line.update(task, description=markup.escape(message[:60]))

        def paced(done: int, total: int | None) -> None:
            pace.update(done, total)
            line.update(task, description=markup.escape(pace.line(label, unit)))

        yield Work(say=say_above, progress=paced)
