"""``reticent run RECIPE``: the offline job on a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from flows.terminal.progress import working
from flows.terminal.screen import Context, Json, show
from flows.terminal.terminal import Block, Pairs, Place


def run(
    context: typer.Context,
    recipe: str,
    night: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="With [nightly]: the date of the leaf; default today.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Release, policy, certificate and report from the latest snapshot of the recipe's card."""
    from flows.jobs.run import run_job
    from flows.server.engine import carry_out

    options: Context = context.obj
    day = None if night is None else night.date()
    with working("run") as work:
        home = options.home_folder(work.progress)
        result = carry_out("run", lambda step: run_job(recipe, home, step, say=work.say, day=day))
    show(result, as_json, lambda: summary(result))


def summary(result: Mapping[str, Any]) -> list[Block]:
    """What a person wants to know of a run, in a few lines."""
    from reports.format import number

    v, g, b = result["value"], result["guarantee"], result["ledger"]
    promised = "not private (exact counts of simulated data)"
    if g["epsilon"] is not None:
        promised = (
            f"ε = {number(g['epsilon'], toward='up')} at δ = {g['delta']:g} (ρ = {number(g['rho'], toward='up')}), "
            f"{g['trust_model']}, replace one {g.get('protected', 'person')}"
        )
    status = "bound" if v["status"] == "bound" else "estimate, not a guarantee"
    rows = [
        ("guarantee", f"{promised}; claim: {g['claim']}"),
        ("value", f"{_interval(v)} ({status}){_empty(v)}"),
        (
            "budget",
            f"spent ρ = {number(b['spent_rho'], toward='up')}, left {number(b['remaining_rho'], toward='down')}"
            + ("   (replayed: nothing was drawn)" if result["replayed"] else ""),
        ),
    ]
    if t := result.get("truth"):
        true = {"policy": "v_policy", "optimal": "v_star", "behaviour": "v_behavior", "uniform": "v_uniform"}
        rows.append(("truth", " | ".join(f"{name} {t[key]:.4f}" for name, key in true.items())))
    if c := result.get("counter"):
        times = number(c["times_one_release"], 3, "up")
        rows.insert(1, ("night", f"{c['night']} of {c['nights']} ({c['date']}); noise {times} × that of one release"))
    return [Pairs(rows), Place("report", str(result["report"]))]


def _interval(value: Mapping[str, Any]) -> str:
    """Rounded outward; at least the lower end where no upper one is given."""
    from reports.format import interval, number

    if value["upper"] is None and value.get("estimate") is not None:
        return number(value["estimate"])
    if value["upper"] is None:
        return interval(value["lower"], None)
    return f"{number(value['lower'], toward='down')} to {number(value['upper'], toward='up')}"


def _empty(value: Mapping[str, Any]) -> str:
    """An interval that holds every possible value says nothing, and the line says so."""
    if value["upper"] is None:
        return ""
    full = value["lower"] <= value["lower_trivial"] and value["upper"] >= value["upper_trivial"]
    return ": all that is possible, so this run says nothing about the value" if full else ""
