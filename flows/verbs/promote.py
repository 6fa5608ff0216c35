"""``reticent promote RUN``: which run is in use; ``--rollback`` goes back to the one before."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.screen import Context, Json, show


def promote(
    context: typer.Context,
    run: Annotated[str, typer.Argument(help="A run, or the beginning of its name.")] = "",
    rollback: Annotated[bool, typer.Option("--rollback", help="Back to the run before, and never here again.")] = False,
    pointer: Annotated[str, typer.Option(help="Which pointer; a recipe names its own in [promote].")] = "current",
    as_json: Json = False,
) -> None:
    """Point runs/current to a run, whatever the recipe's rule says, or back to the run before."""
    from flows.jobs.promotion import Pointer
    from flows.verbs.report import run_folder
    from pipeline.declaration.card import CardError

    if bool(run) == rollback:
        raise CardError("promote: give a RUN, or --rollback alone")
    options: Context = context.obj
    held = Pointer(options.home_folder().runs, pointer)
    before = held.now()
    if rollback:
        held.roll_back()
    else:
        held.promote(run_folder(options, run).name)
    now = held.now()
    result = {"pointer": pointer, "before": before, "now": now, "folder": str(held.runs / str(now))}
    show(result, as_json, lambda: [f"{pointer} is {now}" + (f", was {before}" if before not in (None, now) else "")])
