"""``reticent register CARD``: create the lineage in its ledger."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.screen import Context, Json, show


def register(
    context: typer.Context,
    card: str,
    amend: Annotated[bool, typer.Option("--amend", help="Change registered values; an entry of its own.")] = False,
    as_json: Json = False,
) -> None:
    """Fix cap, delta, unit, domain and kind of a dataset in the ledger it names."""
    from flows.jobs.run import register_job

    options: Context = context.obj
    r = register_job(card, options.home_folder(), amend=amend)
    show(
        r,
        as_json,
        lambda: [
            f"{r['dataset']}: {r['action']} ({r['kind']}), cap ρ = {r['cap_rho']:g}, "
            f"spent {r['spent_rho']:.4g}, ledger {r['ledger']}"
        ],
    )
