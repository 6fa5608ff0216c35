"""``report``, ``compare-runs`` and ``promote``: runs that are there already."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.terminal.screen import Context, Json, show, working


def report(context: typer.Context, run: str, as_json: Json = False) -> None:
    """Render report.html and report.md again; reads nothing but the run's folder."""
    from flows.jobs.publish import render
    from pipeline.declaration.card import CardError
    from pipeline.learners.registry import read_view
    from reports.facts.report import read_report

    options: Context = context.obj
    folder = run_folder(options, run)
    try:
        said = read_report(folder)
    except ValueError as e:
        raise CardError(str(e)) from None
    with working("drawing the report"):
        render(folder, said, read_view(said, folder))
    result = {"run": folder.name, "folder": str(folder), "report": str(folder / "report.html")}
    show(result, as_json, lambda: [result["report"]])


def run_folder(options: Context, run: str) -> Path:
    """A run's folder by path, full name, unique beginning, or the name of a pointer such as ``current``."""
    from flows.jobs.promotion import Alias
    from pipeline.declaration.card import CardError

    runs = options.home_folder().runs
    for candidate in (Path(run), runs / (Alias(runs, run).now() or run)):
        if (candidate / "report.json").is_file():
            return candidate.resolve()
    there = [p for p in sorted(runs.glob("*")) if not p.is_symlink() and (p / "report.json").is_file()]
    found = [p for p in there if p.name.startswith(run)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(p.name for p in there) or "none"
    raise CardError(f"{'several runs begin' if found else 'no run begins'} with {run!r} in {runs}; there are: {known}")


def compare_runs(
    context: typer.Context,
    a: Annotated[str, typer.Argument(help="A run, its folder, or current.")],
    b: Annotated[str, typer.Argument(help="The newer run.")],
    as_json: Json = False,
) -> None:
    """Decisions or gains that differ, intervals, budget and settings; reads nothing but the two runs' folders."""
    from flows.jobs.promotion import compared
    from reports.run.comparison import sentences

    options: Context = context.obj
    result = compared(run_folder(options, a), run_folder(options, b))
    show(result.model_dump(), as_json, lambda: [f"{result.a} → {result.b}", *sentences(result)])


def promote(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="A run, or the beginning of its name.")] = "",
    rollback: Annotated[bool, typer.Option("--rollback", help="Back to the run before, and never here again.")] = False,
    pointer: Annotated[str, typer.Option(help="Which pointer; a recipe names its own in [promote].")] = "current",
    as_json: Json = False,
) -> None:
    """Point runs/current to a run, whatever the recipe's rule says, or back to the run before."""
    from flows.jobs.promotion import Alias
    from pipeline.declaration.card import CardError

    if bool(run) == rollback:
        raise CardError("promote: give a RUN, or --rollback alone")
    options: Context = context.obj
    held = Alias(options.home_folder().runs, pointer)
    before = held.now()
    if rollback:
        held.roll_back()
    else:
        held.promote(run_folder(options, run).name)
    now = held.now()
    result = {"pointer": pointer, "before": before, "now": now, "folder": str(held.runs / str(now))}
    show(result, as_json, lambda: [f"{pointer} is {now}" + (f", was {before}" if before not in (None, now) else "")])
