"""What a person sees: results on stdout (one JSON object with ``--json``), everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.terminal import Block, put

if TYPE_CHECKING:
    from flows.shelf import Home

Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, messages on stderr.")]


@dataclass(frozen=True)
class Context:
    """Global options."""

    home: Path | None
    shelf: Path | None
    debug: bool

    def home_folder(self) -> Home:
        """The home these options name."""
        from flows.shelf import Home, home_folder

        return Home(home_folder(self.home), self.shelf)


def say(message: str) -> None:
    """A line for the person who waits, on stderr."""
    print(message, file=sys.stderr, flush=True)


def show(result: Mapping[str, Any], as_json: bool, human: Callable[[], Sequence[Block]]) -> None:
    """Print a result as one JSON object, or as a summary: drawn on a terminal, plain in a pipe."""
    if as_json:
        print(json.dumps(result, ensure_ascii=False, allow_nan=False))
    else:
        put(human())


@contextmanager
def rows_bar(label: str, unit: str = "rows") -> Generator[Callable[[int, int | None], None]]:
    """A progress bar on stderr where it is a terminal; silent elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn(label),
        BarColumn(),
        TextColumn(f"{{task.completed:,.0f}} {unit}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def working(label: str) -> Generator[Callable[[str], None]]:
    """A line on stderr that shows work going on and for how long, where it is a terminal; yields :func:`say`.

    What is said stays above the line, and the newest of it becomes the label.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(
        *columns, console=console, transient=True, refresh_per_second=4, disable=not console.is_terminal
    ) as line:
        task = line.add_task(escape(label), total=None)

        def told(message: str) -> None:
            say(message)
            line.update(task, description=escape(message[:60]))

        yield told


def exit_code(error: Exception) -> int:
    """Exit code of design §5.1: 2 operator's file, 3 the log, 4 the budget, 1 anything else."""
    from pipeline.card import CardError
    from pipeline.ledger.chain import BudgetError
    from pipeline.logs.errors import LogError
    from pipeline.privacy.noise import RealDataError

    codes: tuple[tuple[type[Exception], int], ...] = (
        (CardError, 2),
        (RealDataError, 2),
        (LogError, 3),
        (BudgetError, 4),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), 1)


def fail(error: Exception, *, as_json: bool) -> int:
    """Say what is wrong in one line and return the exit code."""
    code = exit_code(error)
    text = str(error) or type(error).__name__
    if code == 1:
        text = f"{type(error).__name__}: {text} (run again with --debug for the traceback)"
    print(f"reticent: {text}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": {"code": code, "message": text}}, ensure_ascii=False))
    return code
