"""What a person sees: results on stdout (one JSON object with ``--json``), everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from flows.config.exit_codes import exit_code
from flows.terminal.terminal import Block, put

if TYPE_CHECKING:
    from flows.config.shelf import Home

# done so far, and of how many where that is known
Progress: TypeAlias = Callable[[int, int | None], None]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, messages on stderr.")]


@dataclass(frozen=True)
class Context:
    """Global options.

    Parameters
    ----------
    home
        ``--home``, or None for the environment's or ``./.reticent``.
    shelf
        ``--shelf``, the folder where names of datasets are looked up first.
    debug
        Whether an error shows its traceback.
    memory
        ``--memory`` as typed, e.g. ``2GiB``.
    dask
        ``--dask`` as typed, the address of a scheduler.
    """

    home: Path | None
    shelf: Path | None
    debug: bool
    memory: str | None = None
    dask: str | None = None

    def home_folder(self, progress: Progress | None = None) -> Home:
        """The home these options name, and what its sums may use; ``progress`` is told how far one is."""
        from flows.config.resources import choose_resources
        from flows.config.shelf import Home, home_folder

        found = replace(choose_resources(self.memory, self.dask), progress=progress, say=say)
        return Home(home_folder(self.home), self.shelf, found)


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
    code = exit_code(error)
    text = str(error) or type(error).__name__
    if code == 1:
        text = f"{type(error).__name__}: {text} (run again with --debug for the traceback)"
    print(f"reticent: {text}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": {"code": code, "message": text}}, ensure_ascii=False))
    return code
