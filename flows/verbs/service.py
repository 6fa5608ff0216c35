"""``serve``, ``trigger``, ``alert`` and ``doctor``: scheduled runs on a Prefect server, and whether all is well."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.screen import Context, Json, show
from flows.terminal.terminal import Grid


def serve(
    context: typer.Context,
    recipe: Annotated[str, typer.Argument(help="What nightly runs where it is not told; a path or a name.")] = "demo",
    cron: Annotated[
        str | None, typer.Option(help="Run nightly by this schedule. Without: an example that is not active.")
    ] = None,
    timezone: Annotated[str, typer.Option(help="Of the schedule.")] = "UTC",
    limit: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of a server of its own.")] = 4200,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the server.")] = 120.0,
    as_json: Json = False,
) -> None:
    """Register and serve nightly, simulate and reproduce; starts a Prefect server if PREFECT_API_URL names none."""
    from flows import api_service
    from flows.store import Store

    options: Context = context.obj
    store = Store.at(options.home_folder())
    api_service.serve(recipe, cron=cron, timezone=timezone, limit=limit, port=port, wait=wait, store=store)
    show({"served": ["nightly", "simulate", "reproduce"]}, as_json, lambda: ["stopped"])


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
    import json

    from flows import api_service
    from pipeline.declaration.toml import read_pairs

    r = api_service.trigger(deployment, read_pairs(param or (), json.loads), timeout=timeout if wait else None)
    lines = [f"{r['deployment']}: {r['name']} is {r['state'].lower()}   (flow run {r['flow_run']})"]
    lines += [f"  {r['message']}"] if r["message"] else []
    show(r, as_json, lambda: lines)
    if wait and r["state"] != "COMPLETED":
        raise typer.Exit(1)


def alert(
    block: Annotated[str, typer.Argument(help="A saved notification block: KIND/NAME, e.g. slack-webhook/ops.")],
    text: Annotated[str, typer.Argument(help="What is sent.")],
    as_json: Json = False,
) -> None:
    """Send a text by a notification block of the Prefect server: RETICENT_ALERT="reticent alert slack-webhook/ops"."""
    from flows import api_service

    api_service.alert(block, text)
    show({"block": block, "sent": text}, as_json, lambda: [f"sent by {block}"])


def doctor(context: typer.Context, as_json: Json = False) -> None:
    """What is installed, which extras, whether store and ledger are well, and whether a server answers.

    Exit 1: something is wrong.
    """
    from dataclasses import asdict

    from flows import api_service
    from flows.store import Store

    options: Context = context.obj
    health = api_service.doctor(store=Store.at(options.home_folder()))
    words = {True: "ok", False: "WRONG", None: "–"}
    rows = [(words[f.ok], f.what, f.found, "" if f.ok else f.do) for f in health.findings]
    told = {"ok": health.ok, "findings": [asdict(f) for f in health.findings]}
    show(told, as_json, lambda: [Grid(("", "what", "found", "to do"), rows, left=4, most=len(rows))])
    if not health.ok:
        raise typer.Exit(1)
