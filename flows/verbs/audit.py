"""``reticent audit RECIPE``: attack the shipped mechanisms; reads no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.progress import progress_line
from flows.terminal.screen import Context, Json, say, show
from flows.terminal.terminal import Grid, Place

if TYPE_CHECKING:
    from flows.jobs.audit import Audited
    from pipeline.audits.laws import OneRun


def audit(
    context: typer.Context,
    recipe: str,
    draws: Annotated[int, typer.Option(min=100, help="Releases of each neighbour.")] = 20_000,
    canaries: Annotated[
        int, typer.Option(min=0, help="Also send so many made-up people through ingest and run; try 2000.")
    ] = 0,
    table: Annotated[
        bool, typer.Option("--table", help="Draw with the fast sampler, not the recipe's own: seconds, not minutes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Attack a recipe's mechanisms with made-up neighbours: a proved lower bound on the loss beside the claim.

    Exits 0 whatever was proved; `violates` says whether a claim is broken.
    """
    from flows.jobs.audit import audit_job
    from reports.audit import summary

    options: Context = context.obj
    with progress_line("audit", "releases") as progress:
        result = audit_job(
            recipe, options.home_folder(), draws=draws, canaries=canaries, table=table, say=say, progress=progress
        )
    show(
        result.answer(),
        as_json,
        lambda: [
            summary(result.name, result.verdicts),
            _attacks(result),
            *_whole(result.one_run),
            Place("report", str(result.folder / "page.html")),
        ],
    )


def _attacks(result: Audited) -> Grid:
    from reports.audit import bound, claim

    head = ("mechanism", "trust", "claimed", "proved ≥", "of it", "the pair spends", "broken", "seconds")
    return Grid(
        head,
        [
            (
                v.mechanism,
                v.trust,
                claim(v),
                bound(v),
                f"{v.ratio:.0%}",
                f"{v.attained:.0%}",
                "yes" if v.violates else "no",
                str(round(seconds, 2)),
            )
            for v, seconds in zip(result.verdicts, result.seconds, strict=True)
        ],
        left=2,
    )


def _whole(found: OneRun | None) -> list[str]:
    if found is None:
        return []
    return [
        f"  whole pipeline, {found.canaries:,} people, {found.right} of {found.guesses} guesses right: "
        f"ε ≥ {found.lower_bound_epsilon:.3g} proved, {found.claimed_epsilon:.3g} claimed (in or out)"
    ]
