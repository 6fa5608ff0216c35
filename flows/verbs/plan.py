"""``reticent plan RECIPE``: what a run would spend and what is left; reads no rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from flows.screen import Context, Json, show


def plan(
    context: typer.Context,
    recipe: str,
    people: Annotated[int | None, typer.Option(min=1, help="For the quality: people instead of the card's.")] = None,
    quality: Annotated[bool, typer.Option(help="Simulate what quality to expect, on declarations alone.")] = True,
    as_json: Json = False,
) -> None:
    """Every mechanism with sensitivity, scale and cost, and the quality to expect, before anything is spent."""
    from flows.foresight import foresee_job, quality_lines
    from flows.planning import plan_job
    from reports.format import number

    def up(loss: float) -> str:
        return number(loss, toward="up")

    options: Context = context.obj
    r = plan_job(recipe, options.home_folder())
    if quality:
        r |= {"quality": foresee_job(recipe, options.home_folder(), people)}
    lines = [f"{r['recipe']} on {r['dataset']} ({r['agent']})"]
    for m in r["mechanisms"]:
        cost = "no noise" if m["rho"] is None else f"ρ = {m['rho']:.4g}"
        if "table" not in m:
            scale = "adaptive scale" if m["adaptive"] else "fixed scale"
            lines.append(f"  {m['name']:14} {', '.join(m['tables']):44} {scale}  {cost}")
            continue
        lines.append(
            f"  {m['table']:6} {m['name']:17} {m['cells']:>8,} cells"
            f"  sensitivity {m['sensitivity']:.4g}  scale {m['scale']:.4g}  {cost}"
        )
    if r["rho"] is not None:
        sum_of = "together" if "joint" in r else "total"
        lines.append(f"{sum_of} ρ = {up(r['rho'])}, ε = {up(r['epsilon'])} at δ = {r['delta']:g}")
    if r.get("squares_a_direction_needs"):
        lines.append(
            "a direction of (x, u) is told from the noise if its squares sum to "
            f"{number(r['squares_a_direction_needs'])}; all declared rows add up to at most {r['most_squares']:,}"
        )
    if "counter" in r:
        lines += _nights(r["counter"])
    elif r["replays"]:
        lines.append("committed already on the latest snapshot: a run replays it and spends nothing")
    if r["limit"]["of"] != "lifetime":
        limit = r["limit"]
        lines.append(f"this {limit['of']}: ρ = {limit['cap_rho']:g}, left {number(limit['left_rho'], toward='down')}")
    left = (
        f"left after it {number(r['remaining_after'], toward='down')}"
        if r["allowed"]
        else f"refused: left now {number(r['limit']['left_rho'], toward='down')}"
    )
    lines.append(f"lineage: cap {r['cap_rho']:g}, spent {up(r['spent_before'])}, {left}")
    if r["allowed"] and not r["replays"] and r["epsilon"] is not None:
        lines.append(
            f"lineage's ε at δ = {r['delta_of_lineage']:g}: {up(r['epsilon_before'])} → {up(r['epsilon_after'])}"
        )
    if not r["allowed"]:
        over = "counter" in r and r["counter"]["night"] is None
        lines.append("today is no night of this counter: see 'first' and 'nights'" if over else _still_fits(r["fits"]))
    show(r, as_json, lambda: lines + _grid(r) + (["", *quality_lines(r["quality"], number)] if quality else []))


def _nights(c: Mapping[str, Any]) -> list[str]:
    from reports.format import number

    tonight = "tonight" if "tonight" in c["times_one_release"] else "worst"
    charge = "replays the last night and charges nothing" if c["replays"] else f"charges ρ = {c['charge_rho']:.4g}"
    night = "no night of it" if c["night"] is None else f"night {c['night']}"
    sds = ", ".join(f"{table} ± {number(sd[tonight], 3)}" for table, sd in c["standard_deviation"].items())
    times, worst = (number(c["times_one_release"][k], 3, "up") for k in (tonight, "worst"))
    return [
        f"counter ({c['kind']}, {c['nights']} nights from {c['first']} to {c['last']}): paid once for all of them, "
        f"{c['drawn']} drawn",
        f"today is {night}, {c['left']} left after it; a run {charge}",
        f"noise on the sums: {sds}; variance {times} × one release (at worst {worst} ×, re-releasing {c['nights']} ×)",
    ]


def _still_fits(fits: Mapping[str, float] | None) -> str:
    if fits is None:
        return "nothing fits any more: a larger cap is a decision of its own (`reticent register --amend`)"
    asked = f"epsilon = {fits['epsilon']:g}" if "epsilon" in fits else f"rho = {fits['rho']:g}"
    ratio = f" (visits = {fits['ratio']:.3g} × noise)" if "ratio" in fits else ""
    return f"what still fits: {asked}{ratio}"


def _grid(r: Mapping[str, Any]) -> list[str]:
    """Visits of a cell in units of its noise, budgets down and people across."""
    if not r["what_if"]:
        return []
    people = sorted({row["people"] for row in r["what_if"]})
    lines = [
        "",
        "What would I need?  Visits of one (step, state, action) over the noise on them, if all were visited alike:",
        f"  {'':14}" + "".join(f"{f'n = {n:,.0f}':>16}" for n in people),
    ]
    for start in range(0, len(r["what_if"]), len(people)):
        rows = r["what_if"][start : start + len(people)]
        asked = f"ρ = {rows[0]['rho']:g}" if rows[0]["rho"] is not None else f"ε = {rows[0]['epsilon']:g}"
        lines.append(f"  {asked:14}" + "".join(f"{row['ratio']:>16.3g}" for row in rows))
    needed = ", ".join(f"{n:,} for {level}" for level, n in r["people_needed"].items())
    return [
        *lines,
        f"people needed at this budget: {needed}  (below 1 noise drowns the counts, 3 is usable, 10 is good)",
    ]
