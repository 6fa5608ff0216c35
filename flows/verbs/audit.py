"""``reticent audit RECIPE``: attack the shipped mechanisms; reads no rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from flows.progress import progress_line
from flows.screen import Context, Json, say, show


def audit(
    context: typer.Context,
    recipe: str,
    draws: Annotated[int, typer.Option(min=100, help="Releases of each neighbour.")] = 20_000,
    canaries: Annotated[
        int, typer.Option(min=0, help="Also send so many made-up people through ingest and run; try 2000.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Attack a recipe's mechanisms with made-up neighbours: a proved lower bound on the loss beside the claim.

    Exits 0 whatever was proved; `violates` says whether a claim is broken.
    """
    from flows.auditing import audit_job
    from reports.audit import summary

    options: Context = context.obj
    with progress_line("audit", "releases") as progress:
        result = audit_job(recipe, options.home_folder(), draws=draws, canaries=canaries, say=say, progress=progress)
    page = next(file for file in result["files"] if file.endswith("page.html"))
    show(
        result,
        as_json,
        lambda: [
            summary(result["name"], result["attacks"]),
            *(
                f"  {v['mechanism']:58} {v['trust']:8} claim ρ = {v['claimed_rho']:.4g}  proved ≥ "
                f"{v['lower_bound_rho']:.4g}  ({v['ratio']:.0%} of the claim, {v['seconds']} s)"
                for v in result["attacks"]
            ),
            *_whole(result.get("one_run")),
            f"report      {page}",
        ],
    )


def _whole(found: Mapping[str, Any] | None) -> list[str]:
    if not found:
        return []
    return [
        f"  whole pipeline, {found['canaries']:,} people, {found['right']} of {found['guesses']} guesses right: "
        f"ε ≥ {found['lower_bound_epsilon']:.3g} proved, {found['claimed_epsilon']:.3g} claimed (in or out)"
    ]
