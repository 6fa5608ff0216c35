"""``reticent run RECIPE``: the offline job on a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from flows.progress import progress_line
from flows.screen import Context, Json, say, show


def run(
    context: typer.Context,
    recipe: str,
    night: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="With [nightly]: the date of the leaf; default today.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Release, policy, certificate and report from the latest snapshot of the recipe's card."""
    from flows.engine import carry_out
    from flows.jobs import run_job

    options: Context = context.obj
    day = None if night is None else night.date()
    with progress_line("counting") as progress:
        home = options.home_folder(progress)
        result = carry_out("run", lambda step: run_job(recipe, home, step, say=say, day=day))
    show(result, as_json, lambda: summary(result))


def summary(result: Mapping[str, Any]) -> list[str]:
    """What a person wants to know of a run, in a few lines."""
    from reports.format import number

    v, g, b = result["value"], result["guarantee"], result["ledger"]
    promised = "not private (exact counts of simulated data)"
    if g["epsilon"] is not None:
        promised = (
            f"ε = {number(g['epsilon'], toward='up')} at δ = {g['delta']:g} (ρ = {number(g['rho'], toward='up')}), "
            f"{g['trust_model']}, replace one person"
        )
    status = "bound" if v["status"] == "bound" else "estimate, not a guarantee"
    lines = [
        f"guarantee   {promised}; claim: {g['claim']}",
        f"value       {_interval(v)} ({status}){_empty(v)}",
        f"budget      spent ρ = {number(b['spent_rho'], toward='up')}, left {number(b['remaining_rho'], toward='down')}"
        + ("   (replayed: nothing was drawn)" if result["replayed"] else ""),
    ]
    if t := result.get("truth"):
        lines.append(
            f"truth       policy {t['v_policy']:.4f} | optimal {t['v_star']:.4f} | behaviour {t['v_behavior']:.4f} "
            f"| uniform {t['v_uniform']:.4f}"
        )
    if c := result.get("counter"):
        times = number(c["times_one_release"], 3, "up")
        lines.insert(1, f"night       {c['night']} of {c['nights']} ({c['date']}); noise {times} × that of one release")
    return [*lines, f"report      {result['report']}"]


def _interval(value: Mapping[str, Any]) -> str:
    """Rounded outward; at least the lower end where no upper one is given."""
    from reports.format import interval, number

    if value["upper"] is None and value.get("estimate") is not None:
        return number(value["estimate"])
    if value["upper"] is None:
        return interval(value)
    return f"{number(value['lower'], toward='down')} to {number(value['upper'], toward='up')}"


def _empty(value: Mapping[str, Any]) -> str:
    """An interval that holds every possible value says nothing, and the line says so."""
    if value["upper"] is None:
        return ""
    full = value["lower"] <= value["lower_trivial"] and value["upper"] >= value["upper_trivial"]
    return ": all that is possible, so this run says nothing about the value" if full else ""
