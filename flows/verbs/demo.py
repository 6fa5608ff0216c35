"""``reticent demo``: the main job on the shipped log."""

from __future__ import annotations

import typer

from flows.terminal.progress import progress_line
from flows.terminal.screen import Context, Json, say, show


def demo(context: typer.Context, as_json: Json = False) -> None:
    """Register, ingest, release, plan and report on the shipped log; a second demo costs nothing."""
    from flows.jobs.run import demo_job
    from flows.server.engine import carry_out
    from flows.verbs.run import summary

    options: Context = context.obj
    with progress_line("ingest") as bar:
        result = carry_out("demo", lambda step: demo_job(options.home_folder(), step, say, bar))
    show(result.model_dump(), as_json, lambda: summary(result))
