"""``reticent compare-runs A B``: what changed between two runs."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.screen import Context, Json, show


def compare_runs(
    context: typer.Context,
    a: Annotated[str, typer.Argument(help="A run, its folder, or current.")],
    b: Annotated[str, typer.Argument(help="The newer run.")],
    as_json: Json = False,
) -> None:
    """Decisions or gains that differ, intervals, budget and settings; reads nothing but the two runs' folders."""
    from flows.jobs.promotion import compared
    from flows.verbs.report import run_folder
    from reports.run.comparison import sentences

    options: Context = context.obj
    result = compared(run_folder(options, a), run_folder(options, b))
    show(result.model_dump(), as_json, lambda: [f"{result.a} → {result.b}", *sentences(result)])
