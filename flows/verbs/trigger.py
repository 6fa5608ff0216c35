"""``reticent trigger DEPLOYMENT``: start a deployed flow on the Prefect server."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.screen import Json, show


def trigger(
    deployment: Annotated[str, typer.Argument(help="nightly, simulate, reproduce; or FLOW/DEPLOYMENT.")],
    param: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A parameter; may be repeated. JSON where it is.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit 1 if it did not complete.")] = False,
    timeout: Annotated[float, typer.Option(help="With --wait: give up after so many seconds.")] = 86_400.0,
    as_json: Json = False,
) -> None:
    """Start a deployed flow on the server that PREFECT_API_URL names; `serve` or a worker runs it."""
    from flows.server.triggering import trigger_job

    r = trigger_job(deployment, param or (), timeout if wait else None)
    lines = [f"{r['deployment']}: {r['name']} is {r['state'].lower()}   (flow run {r['flow_run']})"]
    lines += [f"  {r['message']}"] if r["message"] else []
    show(r, as_json, lambda: lines)
    if wait and r["state"] != "COMPLETED":
        raise typer.Exit(1)
