"""``demo``, ``run``, ``nightly``; of runs that are there ``report``, ``compare-runs``, ``promote``; and the service."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.screen import Block, Grid, Json, Pairs, Place, say, show, working

if TYPE_CHECKING:
    from flows.jobs.opened import Run
    from flows.store import Store
    from pipeline.facts.answers import Promotion, RunAnswer
    from pipeline.facts.learnt import ValueFacts
    from pipeline.facts.verdict import Verdict


def report(run: str, card: CardOption = None, as_json: Json = False) -> None:
    """Draw report.html and report.md again, from the run's folder; never other pages than the ledger vouches for."""
    from flows.jobs.proof import draw_pages
    from pipeline.learners.offline_agents import read_view

    made = opened(run, card)
    with working("drawing the report"):
        draw_pages(made.folder, made.facts, read_view(made.facts, made.folder), made.evidence()[0])
    result = {"run": made.name, "folder": str(made.folder), "report": str(made.report.file)}
    show(result, as_json, lambda: [result["report"]])


# set by the options that every verb has
_CHOSEN: ContextVar[Callable[[], Store]] = ContextVar("store")


def choose_store(make: Callable[[], Store]) -> None:
    """Say which store the options of the command name."""
    _CHOSEN.set(make)


def chosen_store() -> Store:
    """The store that the options of the command name."""
    return _CHOSEN.get()()


def opened(run: str, card: str | None = None) -> Run:
    """The run that is named, in the home of the command's options."""
    return chosen_store().open(run, card)


CardOption = Annotated[
    str | None, typer.Option("--card", help="The card of the run's dataset; a real one names the ledger too.")
]
Night = Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="The date of the night; default today.")]


def compare_runs(
    a: Annotated[str, typer.Argument(help="A run, its folder, or current.")],
    b: Annotated[str, typer.Argument(help="The newer run.")],
    as_json: Json = False,
) -> None:
    """Decisions or gains that differ, intervals, budget and settings; reads nothing but the two runs' folders."""
    from reports.run.comparison import sentences

    result = opened(a).compare(opened(b))
    show(result.model_dump(), as_json, lambda: [f"{result.a} → {result.b}", *sentences(result)])


def promote(
    run: Annotated[str, typer.Argument(help="A run, or the beginning of its name.")] = "",
    rollback: Annotated[bool, typer.Option("--rollback", help="Back to the run before, and never here again.")] = False,
    pointer: Annotated[str, typer.Option(help="Which pointer; a recipe names its own in [promote].")] = "current",
    card: CardOption = None,
    as_json: Json = False,
) -> None:
    """Point runs/current to a run that verifies, whatever the recipe's rule says, or back to the run before."""
    from pipeline.declaration.card import CardError

    if bool(run) == rollback:
        raise CardError("promote: give a RUN, or --rollback alone")
    store = chosen_store()
    r = store.roll_back(pointer=pointer) if rollback else store.promote(run, pointer=pointer, card=card)
    was = "" if r["before"] in (None, r["now"]) else f", was {r['before']}"
    show(r, as_json, lambda: [f"{pointer} is {r['now']}{was}"])


def run(
    recipe: str,
    night: Night = None,
    edition: Annotated[
        int | None, typer.Option(min=1, help="Number of the snapshot that is released; default the newest.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Release, policy, certificate and report from an edition of the recipe's card."""
    from flows import api

    store, day = chosen_store(), None if night is None else night.date()
    result = api.run(recipe, edition=edition, night=day, store=store).said
    show(result.model_dump(), as_json, lambda: summary(result))


def summary(result: RunAnswer) -> list[Block]:
    """What a person wants to know of a run, in a few lines."""
    from pipeline.declaration.numbers import number
    from pipeline.facts.learnt import NO_GUARANTEE
    from reports.run.answer import shell_line

    v, g, b = result.value, result.guarantee, result.ledger
    promised = "not private (exact counts of simulated data)"
    if g.epsilon is not None:
        promised = (
            f"ε = {number(g.epsilon, toward='up')} at δ = {g.delta:g} (ρ = {number(g.rho, toward='up')}), "
            f"{g.trust_model}, replace one {g.protected or 'person'}"
        )
    status = f"{v.status}, not a guarantee" if v.status in NO_GUARANTEE else v.status
    rows = [
        ("verdict", shell_line(result.verdict, g.epsilon, binned=False)),
        *_hidden(result.verdict),
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
        rows.insert(2, ("night", f"{c.night} of {c.nights} ({c.date}); noise {times} × that of one release"))
    return [Pairs(rows), Place("report", result.report)]


def _hidden(verdict: Verdict) -> list[tuple[str, str]]:
    """The status of hidden traits before the first of its sentences."""
    from reports.run.answer import hidden_traits

    status = "" if verdict.confounding is None else verdict.confounding.status.replace("_", " ")
    return list(zip((status, ""), hidden_traits(verdict), strict=False))


def _interval(v: ValueFacts) -> str:
    """Rounded outward; at least the lower end where no upper one is given."""
    from pipeline.declaration.numbers import number
    from reports.page import interval

    return number(v.estimate) if v.upper is None and v.estimate is not None else interval(v.lower, v.upper)


def _empty(v: ValueFacts) -> str:
    """An interval that holds every possible value says nothing, and the line says so."""
    if v.upper is None or v.lower > v.lower_trivial or v.upper < v.upper_trivial:
        return ""
    return ": all that is possible, so this run says nothing about the value"


def demo(as_json: Json = False) -> None:
    """Register, ingest, release, plan and report on the shipped log; a second demo costs nothing."""
    from flows import api

    result = api.demo(store=chosen_store()).said
    show(result.model_dump(), as_json, lambda: summary(result))


def nightly(
    recipe: str,
    check: Annotated[bool, typer.Option("--check", help="Run nothing; exit 1 if somebody should look.")] = False,
    hours: Annotated[float, typer.Option(help="With --check: how old the last good night may be.")] = 30.0,
    night: Night = None,
    as_json: Json = False,
) -> None:
    """Ingest what is there, and do what the recipe declares for this date: a fresh release, or the last one stands.

    The night goes on where its log breaks the card, and exits 3 all the same.
    """
    from flows import api

    if check:
        _check(recipe, chosen_store(), hours, as_json)
        return
    day = None if night is None else night.date()
    result = api.nightly(recipe, night=day, store=chosen_store())
    show(result.model_dump(), as_json, lambda: [*summary(result), *_promotion(result.promotion)])
    if result.exit:
        raise typer.Exit(result.exit)


def _check(recipe: str, store: Store, hours: float, as_json: bool) -> None:
    from flows.api import night_problem
    from flows.jobs.nightly import alert

    found = night_problem(recipe, hours=hours, store=store)
    problem, last = found["problem"], found["last"]
    if problem is not None:
        alert(problem, say)
    lines = [f"{found['recipe']}: {'all is well' if problem is None else problem}"]
    lines += [f"  {k:10}{last[k]}" for k in ("at", "outcome", "kind", "text", "run", "done_at", "news_at") if k in last]
    show(found, as_json, lambda: lines)
    if problem is not None:
        raise typer.Exit(1)


def _promotion(p: Promotion) -> list[str]:
    lines: list[str] = []
    if (changes := p.changes) is not None:
        what, count = ("gains", changes.gains) if changes.gains is not None else ("cells", changes.cells)
        if count is not None:
            lines.append(f"changed     {count.differ:,} of {count.total:,} {what} against {changes.a}")
    if p.promoted:
        word = "" if p.accepted is None else f', on the word of the recipe: accept = "unchecked" (entry {p.accepted})'
        return [*lines, f"promoted    {p.pointer} is {p.now}{word}"]
    if p.held:
        stays = "leads to no run" if p.practice_since is not None else f"stays {p.now}"
        return [*lines, f"held        {p.pointer} {stays}: {'; '.join(p.held)}"]
    return [*lines, f"in use      {p.now}"] if p.now else lines


def serve(
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
    from flows import api

    store = chosen_store()
    api.serve(recipe, cron=cron, timezone=timezone, limit=limit, port=port, wait=wait, store=store)
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

    from flows.server.serving import trigger as start
    from pipeline.declaration.toml import read_pairs

    r = start(deployment, read_pairs(param or (), json.loads), timeout=timeout if wait else None)
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
    from flows.server.serving import alert as send

    send(block, text)
    show({"block": block, "sent": text}, as_json, lambda: [f"sent by {block}"])


def doctor(as_json: Json = False) -> None:
    """What is installed, which extras, whether store and ledger are well, and whether a server answers.

    Exit 1: something is wrong.
    """
    from dataclasses import asdict

    from flows import api

    health = api.doctor(store=chosen_store())
    words = {True: "ok", False: "WRONG", None: "–"}
    rows = [(words[f.ok], f.what, f.found, "" if f.ok else f.do) for f in health.findings]
    told = {"ok": health.ok, "findings": [asdict(f) for f in health.findings]}
    show(told, as_json, lambda: [Grid(("", "what", "found", "to do"), rows, left=4, most=len(rows))])
    if not health.ok:
        raise typer.Exit(1)
