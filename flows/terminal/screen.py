"""What a person sees: results on stdout (one JSON object with ``--json``), everything else on stderr.

Rows of a log are the operator's to know.  What progress tells goes to this terminal or the service's own log; it
reaches neither a run's folder nor a Prefect server, and what takes less than two seconds says nothing.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from flows.terminal.terminal import Block, put
from pipeline.disk import is_full

if TYPE_CHECKING:
    from flows.config.setting import Work

# done so far, and of how many where that is known
Progress: TypeAlias = Callable[[int, int | None], None]
# of whole numbers on the command line; more would not go into a table
MOST = 2**31 - 1
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, messages on stderr.")]


def say(message: str) -> None:
    """A line for the person who waits, on stderr.

    Parameters
    ----------
    message
        One line, for the operator; it reaches neither stdout nor a server.
    """
    print(message, file=sys.stderr, flush=True)


def show(result: Mapping[str, object], as_json: bool, human: Callable[[], Sequence[Block]]) -> None:
    """Print a result as one JSON object, or as a summary: drawn on a terminal, plain in a pipe.

    Parameters
    ----------
    result
        What ``--json`` prints.
    as_json
        Whether it was asked for.
    human
        Makes the summary; called only where it is needed.
    """
    if as_json:
        print(json.dumps(result, ensure_ascii=False, allow_nan=False))
    else:
        put(human())


def fail(error: Exception, *, as_json: bool) -> int:
    """Say what is wrong in one line and return the exit code.

    Parameters
    ----------
    error
        What stopped the command.
    as_json
        Whether stdout gets ``{"error": {code, message}}`` as well.
    """
    from pipeline.declaration.toml import exit_code

    code = exit_code(error)
    text = str(error) or type(error).__name__
    if is_full(error):
        text = f"the disk is full ({text}); make room and run again: what was finished stays"
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
class Pace:
    """Speed of one pass, from what it has done since the first it was told.

    What was done before, such as the rows of a sum that is resumed, is not counted as fast work.
    """

    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    began: float = 0.0
    first: int = 0
    done: int | None = None
    total: int | None = None

    def told(self, done: int, total: int | None) -> bool:
        """Take note; whether a new pass begins here."""
        anew = self.done is None or done < self.done
        if anew:
            self.began, self.first = self.clock(), done
        self.done, self.total = done, total
        return anew

    @property
    def passed(self) -> float:
        """Seconds of this pass."""
        return self.clock() - self.began

    @property
    def rate(self) -> float | None:
        """Units a second; None before there is any to tell."""
        more = (self.done or 0) - self.first
        return more / self.passed if more and self.passed > 0 else None

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
    """Says how far a pass is, a plain line now and then.

    Parameters
    ----------
    label
        What is being done, the line's first words.
    unit
        What is counted.
    """
    pace, last = Pace(), 0.0

    def tell(done: int, total: int | None) -> None:
        nonlocal last
        if pace.told(done, total):
            last = pace.began + SILENT - _PAUSE
        if pace.clock() - last >= _PAUSE:
            last = pace.clock()
            say(pace.line(label, unit))

    return tell


@contextmanager
def working(label: str, unit: str = "rows") -> Generator[Work]:
    """A line on stderr that shows work going on and for how long, where it is a terminal; plain lines elsewhere.

    What is said stays above the line; the newest of it, or the pace of a pass over rows, is the label.

    Parameters
    ----------
    label
        What is being done, until something is said.
    unit
        What is counted.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    from flows.config.setting import Work

    console = Console(stderr=True)
    # without its widgets a notebook shows plain lines
    if not (console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)):
        yield Work(say=say, progress=progress_lines(label, unit))
        return
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Bar(*columns, console=console, transient=True, refresh_per_second=4) as line:
        task, pace = line.add_task(escape(label), total=None), Pace()

        def told(message: str) -> None:
            say(message)
            line.update(task, description=escape(message[:60]))

        def paced(done: int, total: int | None) -> None:
            pace.told(done, total)
            line.update(task, description=escape(pace.line(label, unit)))

        yield Work(say=told, progress=paced)
