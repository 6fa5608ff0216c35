"""``reticent audit RECIPE``: attack the shipped mechanisms; reads no rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from flows.terminal.progress import progress_line
from flows.terminal.screen import Context, Json, say, show
from flows.terminal.terminal import Grid, Place


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
    page = next(file for file in result["files"] if file.endswith("page.html"))
    show(
        result,
        as_json,
        lambda: [
            summary(result["name"], result["attacks"]),
            _attacks(result["attacks"]),
            *_whole(result.get("one_run")),
            Place("report", page),
        ],
    )


def _attacks(attacks: Sequence[Mapping[str, Any]]) -> Grid:
    from reports.audit import bound, claim

    head = ("mechanism", "trust", "claimed", "proved ≥", "of it", "the pair spends", "broken", "seconds")
    return Grid(
        head,
        [
            (
                v["mechanism"],
                v["trust"],
                claim(v),
                bound(v),
                f"{v['ratio']:.0%}",
                f"{v['attained']:.0%}",
                "yes" if v["violates"] else "no",
                str(v["seconds"]),
            )
            for v in attacks
        ],
        left=2,
    )


def _whole(found: Mapping[str, Any] | None) -> list[str]:
    if not found:
        return []
    return [
        f"  whole pipeline, {found['canaries']:,} people, {found['right']} of {found['guesses']} guesses right: "
        f"ε ≥ {found['lower_bound_epsilon']:.3g} proved, {found['claimed_epsilon']:.3g} claimed (in or out)"
    ]
