"""``report``, ``compare-runs`` and ``promote``: runs that are there already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.screen import Context, Json, show, working

if TYPE_CHECKING:
    from flows.jobs.opened import Run


def report(context: typer.Context, run: str, card: CardOption = None, as_json: Json = False) -> None:
    """Draw report.html and report.md again, from the run's folder; never other pages than the ledger vouches for."""
    from flows.jobs.proof import draw_pages
    from pipeline.learners.registry import read_view

    made = opened(context, run, card)
    with working("drawing the report"):
        draw_pages(made.folder, made.facts, read_view(made.facts, made.folder), made.evidence()[0])
    result = {"run": made.name, "folder": str(made.folder), "report": str(made.report.file)}
    show(result, as_json, lambda: [result["report"]])


def opened(context: typer.Context, run: str, card: str | None = None) -> Run:
    """The run that is named, in the home of the command's options."""
    from flows.store import Store

    options: Context = context.obj
    return Store.at(options.home_folder()).open(run, card)


CardOption = Annotated[
    str | None, typer.Option("--card", help="The card of the run's dataset; a real one names the ledger too.")
]


def compare_runs(
    context: typer.Context,
    a: Annotated[str, typer.Argument(help="A run, its folder, or current.")],
    b: Annotated[str, typer.Argument(help="The newer run.")],
    as_json: Json = False,
) -> None:
    """Decisions or gains that differ, intervals, budget and settings; reads nothing but the two runs' folders."""
    from reports.run.comparison import sentences

    result = opened(context, a).compare(opened(context, b))
    show(result.model_dump(), as_json, lambda: [f"{result.a} → {result.b}", *sentences(result)])


def promote(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="A run, or the beginning of its name.")] = "",
    rollback: Annotated[bool, typer.Option("--rollback", help="Back to the run before, and never here again.")] = False,
    pointer: Annotated[str, typer.Option(help="Which pointer; a recipe names its own in [promote].")] = "current",
    card: CardOption = None,
    as_json: Json = False,
) -> None:
    """Point runs/current to a run that verifies, whatever the recipe's rule says, or back to the run before."""
    from flows.store import Store
    from pipeline.declaration.card import CardError

    if bool(run) == rollback:
        raise CardError("promote: give a RUN, or --rollback alone")
    options: Context = context.obj
    store = Store.at(options.home_folder())
    r = store.roll_back(pointer=pointer) if rollback else store.promote(run, pointer=pointer, card=card)
    show(
        r,
        as_json,
        lambda: [f"{pointer} is {r['now']}" + (f", was {r['before']}" if r["before"] not in (None, r["now"]) else "")],
    )
