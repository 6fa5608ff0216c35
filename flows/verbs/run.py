"""``reticent run RECIPE``: the offline job on a snapshot."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.progress import working
from flows.terminal.screen import Context, Json, show
from flows.terminal.terminal import Block, Pairs, Place

if TYPE_CHECKING:
    from reports.facts.answers import RunAnswer
    from reports.facts.learnt import ValueFacts


def run(
    context: typer.Context,
    recipe: str,
    night: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="With [nightly]: the date of the leaf; default today.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Release, policy, certificate and report from the latest snapshot of the recipe's card."""
    from flows.jobs.run import run_recipe
    from flows.server.engine import carry_out

    options: Context = context.obj
    day = None if night is None else night.date()
    with working("run") as work:
        home = options.home_folder(work.progress)
        result = carry_out("run", lambda step: run_recipe(recipe, home, step, say=work.say, day=day))
    show(result.model_dump(), as_json, lambda: summary(result))


def summary(result: RunAnswer) -> list[Block]:
    """What a person wants to know of a run, in a few lines."""
    from reports.format import number

    v, g, b = result.value, result.guarantee, result.ledger
    promised = "not private (exact counts of simulated data)"
    if g.epsilon is not None:
        promised = (
            f"ε = {number(g.epsilon, toward='up')} at δ = {g.delta:g} (ρ = {number(g.rho, toward='up')}), "
            f"{g.trust_model}, replace one {g.protected or 'person'}"
        )
    status = "bound" if v.status == "bound" else "estimate, not a guarantee"
    rows = [
        ("guarantee", f"{promised}; claim: {g.claim}"),
        ("value", f"{_interval(v)} ({status}){_empty(v)}"),
        (
            "budget",
            f"spent ρ = {number(b.spent_rho, toward='up')}, left {number(b.remaining_rho, toward='down')}"
            + ("   (replayed: nothing was drawn)" if result.replayed else ""),
        ),
    ]
    if t := result.truth:
        true = {"policy": t.v_policy, "optimal": t.v_star, "behaviour": t.v_behavior, "uniform": t.v_uniform}
        rows.append(("truth", " | ".join(f"{name} {x:.4f}" for name, x in true.items())))
    if c := result.counter:
        times = number(c.times_one_release, 3, "up")
        rows.insert(1, ("night", f"{c.night} of {c.nights} ({c.date}); noise {times} × that of one release"))
    return [Pairs(rows), Place("report", result.report)]


def _interval(v: ValueFacts) -> str:
    """Rounded outward; at least the lower end where no upper one is given."""
    from reports.format import interval, number

    return number(v.estimate) if v.upper is None and v.estimate is not None else interval(v.lower, v.upper)


def _empty(v: ValueFacts) -> str:
    """An interval that holds every possible value says nothing, and the line says so."""
    if v.upper is None or v.lower > v.lower_trivial or v.upper < v.upper_trivial:
        return ""
    return ": all that is possible, so this run says nothing about the value"
