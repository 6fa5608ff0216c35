"""``reticent report RUN``: render a run's report again from its own folder."""

from __future__ import annotations

from pathlib import Path

import typer

from flows.terminal.progress import working
from flows.terminal.screen import Context, Json, show


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
    from flows.jobs.promotion import Pointer
    from pipeline.declaration.card import CardError

    runs = options.home_folder().runs
    for candidate in (Path(run), runs / (Pointer(runs, run).now() or run)):
        if (candidate / "report.json").is_file():
            return candidate.resolve()
    there = [p for p in sorted(runs.glob("*")) if not p.is_symlink() and (p / "report.json").is_file()]
    found = [p for p in there if p.name.startswith(run)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(p.name for p in there) or "none"
    raise CardError(f"{'several runs begin' if found else 'no run begins'} with {run!r} in {runs}; there are: {known}")
