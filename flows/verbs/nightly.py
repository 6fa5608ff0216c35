"""``reticent nightly RECIPE``: one night, now; or whether last night's was done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.progress import working
from flows.terminal.screen import Context, Json, say, show

if TYPE_CHECKING:
    from reports.facts.answers import Promotion


def nightly(
    context: typer.Context,
    recipe: str,
    check: Annotated[bool, typer.Option("--check", help="Run nothing; exit 1 if somebody should look.")] = False,
    hours: Annotated[float, typer.Option(help="With --check: how old the last good night may be.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Ingest new files, release, learn, report, compare with the run in use; an unchanged night costs nothing.

    A counter's night ([nightly]) goes on where its log breaks the card, and exits 3 all the same.
    """
    from flows.jobs.nightly import run_night
    from flows.server.engine import carry_out
    from flows.verbs.run import summary
    from reports.night import night_page

    options: Context = context.obj
    if check:
        _check(recipe, options, hours, as_json)
        return
    with working("nightly") as work:
        home = options.home_folder(work.progress)
        result = carry_out("nightly", lambda step: run_night(recipe, home, step, say=work.say), night_page)
    show(result.model_dump(), as_json, lambda: [*summary(result), *_promotion(result.promotion)])
    if result.exit:
        raise typer.Exit(result.exit)


def _check(recipe: str, options: Context, hours: float, as_json: bool) -> None:
    from flows.jobs.monitor import alert, watch_of

    watch = watch_of(recipe, options.home_folder())
    problem = watch.problem(hours)
    last = dict(watch.note)
    if problem is not None:
        alert(problem, say)
    lines = [f"{watch.recipe}: {'all is well' if problem is None else problem}"]
    lines += [f"  {k:10}{last[k]}" for k in ("at", "outcome", "kind", "text", "run", "done_at", "news_at") if k in last]
    show({"recipe": watch.recipe, "ok": problem is None, "problem": problem, "last": last}, as_json, lambda: lines)
    if problem is not None:
        raise typer.Exit(1)


def _promotion(p: Promotion) -> list[str]:
    lines: list[str] = []
    if (changes := p.changes) is not None:
        what, count = ("gains", changes.gains) if changes.gains is not None else ("cells", changes.cells)
        if count is not None:
            lines.append(f"changed     {count.differ:,} of {count.total:,} {what} against {changes.a}")
    if p.promoted:
        return [*lines, f"promoted    {p.pointer} is {p.now}"]
    if p.held:
        return [*lines, f"held        {p.pointer} stays {p.now}: {'; '.join(p.held)}"]
    return [*lines, f"in use      {p.now}"] if p.now else lines
