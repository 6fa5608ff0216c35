"""``reticent plan RECIPE``: what a run would spend and what is left; reads no rows."""

from __future__ import annotations

import typer

from flows.screen import Context, Json, show


def plan(context: typer.Context, recipe: str, as_json: Json = False) -> None:
    """Every mechanism with sensitivity, scale and cost, before anything is spent."""
    from flows.planning import plan_job

    options: Context = context.obj
    r = plan_job(recipe, options.home_folder())
    lines = [f"{r['recipe']} on {r['dataset']} ({r['agent']})"]
    for m in r["mechanisms"]:
        cost = "no noise" if m["rho"] is None else f"ρ = {m['rho']:.4g}"
        lines.append(
            f"  {m['table']:6} {m['name']:17} {m['cells']:>8,} cells"
            f"  sensitivity {m['sensitivity']:.4g}  scale {m['scale']:.4g}  {cost}"
        )
    if r["rho"] is not None:
        lines.append(f"total ρ = {r['rho']:.4g}, ε = {r['epsilon']:.4g} at δ = {r['delta']:g}")
    if r["replays"]:
        lines.append("committed already on the latest snapshot: a run replays it and spends nothing")
    left = (
        f"left after it {r['remaining_after']:.4g}"
        if r["allowed"]
        else f"refused: left now {r['cap_rho'] - r['spent_before']:.4g}"
    )
    lines.append(f"lineage: cap {r['cap_rho']:g}, spent {r['spent_before']:.4g}, {left}")
    show(r, as_json, lambda: lines)
