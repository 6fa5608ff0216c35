"""``reticent store purge CARD``: retention of raw rows; ``store export CARD``: raw rows for another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.terminal.screen import Context, Json, show

app = typer.Typer(help="The operator's store of raw rows.", no_args_is_help=True)


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
    from flows.jobs.retention import purge_job

    options: Context = context.obj
    r = purge_job(card, options.home_folder(), keep=keep, quarantine_only=quarantine_only, yes=yes)
    doing = "removed" if r["purged"] else "would remove"
    lines = [f"{doing} {path}" for path in r["paths"]] or ["nothing to remove"]
    if r["paths"]:
        lines.append(f"{r['bytes']:,} bytes of {r['dataset']}" + ("" if r["purged"] else "; say --yes to do it"))
        lines += [f"not undone: {what}" for what in r["not_undone"]]
    show(r, as_json, lambda: lines)


@app.command("export")
def export(
    context: typer.Context,
    card: str,
    to: Annotated[Path, typer.Option(help="Folder to write into; what MINARI_DATASETS_PATH names.")],
    as_json: Json = False,
) -> None:
    """The newest snapshot as a Minari data set: raw rows, for the operator only; the ledger notes the look."""
    from flows.jobs.exporting import export_job

    options: Context = context.obj
    r = export_job(card, options.home_folder(), to)
    lines = [
        f"{r['minari']}: {r['episodes']:,} episodes, {r['steps']:,} steps in {r['folder']}",
        f"OPERATOR ONLY: raw rows, not for publication.  This look is entry {r['ledger_entry']} of the ledger.",
    ]
    show(r, as_json, lambda: lines)
