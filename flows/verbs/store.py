"""``reticent store purge CARD``: retention of raw rows."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.screen import Context, Json, show

app = typer.Typer(help="The operator's store of raw rows.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``purge`` a sub-command while it is the only one."""


@app.command("purge")
def purge(
    context: typer.Context,
    card: str,
    keep: Annotated[int, typer.Option(min=0, help="Newest snapshots that stay.")] = 0,
    quarantine_only: Annotated[bool, typer.Option(help="Only rows that ingest set aside; snapshots stay.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it only what would go is shown.")] = False,
    as_json: Json = False,
) -> None:
    """Remove raw rows; the ledger and the releases stay, and so does what they gave away."""
    from flows.retention import purge_job

    options: Context = context.obj
    r = purge_job(card, options.home_folder(), keep=keep, quarantine_only=quarantine_only, yes=yes)
    doing = "removed" if r["purged"] else "would remove"
    lines = [f"{doing} {path}" for path in r["paths"]] or ["nothing to remove"]
    if r["paths"]:
        lines.append(f"{r['bytes']:,} bytes of {r['dataset']}" + ("" if r["purged"] else "; say --yes to do it"))
        lines += [f"not undone: {what}" for what in r["not_undone"]]
    show(r, as_json, lambda: lines)
