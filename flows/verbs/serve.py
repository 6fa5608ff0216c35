"""``reticent serve``: scheduled deployments."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.screen import Context, Json, say, show


def serve(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="What nightly runs where it is not told; a path or a name.")] = "demo",
    cron: Annotated[
        str | None, typer.Option(help="Run nightly by this schedule. Without: an example that is not active.")
    ] = None,
    timezone: Annotated[str, typer.Option(help="Of the schedule.")] = "UTC",
    limit: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    port: Annotated[int, typer.Option(help="Of the server started where PREFECT_API_URL names none.")] = 4200,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the server.")] = 120.0,
    as_json: Json = False,
) -> None:
    """Register and serve nightly, simulate and reproduce; starts a Prefect server if PREFECT_API_URL names none."""
    from flows.config.setting import setting
    from flows.server.serving import Service, server
    from flows.server.serving import serve as serve_deployments

    options: Context = context.obj
    home = options.home_folder()
    # a recipe that is wrong is told now, not at night
    path = setting(recipe, home).recipe.path
    service = Service(home.root, str(path), cron, timezone, limit, wait)
    with server(home.root, port, say):
        serve_deployments(service, say)
    show({"served": ["nightly", "simulate", "reproduce"]}, as_json, lambda: ["stopped"])
