"""``reticent reproduce NAME [--full]``: a paper's figure or table, measured anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from flows.terminal.progress import progress_line
from flows.terminal.screen import Context, Json, say, show


def reproduce(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A study, such as 003-figure-1a; all for every one.")],
    full: Annotated[bool, typer.Option("--full", help="More episodes, worlds and runs.")] = False,
    as_json: Json = False,
) -> None:
    """Measure a paper's figure or table anew and say which of its claims hold, and where (simulation, not private)."""
    from flows.jobs.study import reproduce_job
    from flows.server.engine import carry_out

    options: Context = context.obj
    home = options.home_folder()
    with progress_line(name, "cells") as progress:
        result = carry_out(
            "reproduce", lambda step: reproduce_job(name, home, step, full=full, say=say, progress=progress)
        )
    show(result, as_json, lambda: summary(result))


def summary(result: Mapping[str, Any]) -> list[str]:
    """The claims with their verdicts, and where the page is."""
    lines = [f"{'yes' if c['holds'] else 'no':4}{c['claim']}\n    {c['regime']}" for c in result["claims"]]
    return [*lines, *(f"page    {file}" for file in result["files"] if file.endswith("page.html"))]
