"""``simulate``, ``reproduce``, ``compare`` and ``audit``: worlds and attacks of our own making; nobody's rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.screen import MOST, Grid, Json, Place, show
from flows.verbs.runs import chosen_store

if TYPE_CHECKING:
    from flows.jobs.audit import Audited
    from flows.jobs.simulated_logs import WrittenLog
    from pipeline.audits.laws import OneRun
    from pipeline.online.cells import Kept


def simulate(
    world: Annotated[
        str, typer.Argument(help="A recipe with [world]; with --logs a world (docs/research.md) or a shipped dataset.")
    ] = "",
    logs: Annotated[bool, typer.Option("--logs", help="Write a simulated log with card and recipe.")] = False,
    from_run: Annotated[
        str, typer.Option(metavar="RUN", help="Sample from what this run released, instead of a world.")
    ] = "",
    behaviour: Annotated[
        str | None, typer.Option(help="Logging policy: uniform, near-optimal-0.3, or one of the world's own.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(min=1, max=MOST, help="Number of episodes; default 10000.")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, max=MOST, help="Steps an episode; default the world's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the log; default 0.")] = None,
    bins: Annotated[str | None, typer.Option(help="ICU-Sepsis: 4, 8 or 32 bins of the SOFA score, or all.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Parameter of the world; may be repeated.")
    ] = None,
    episodes_per_user: Annotated[int | None, typer.Option(min=1, max=MOST, help="Episodes a user; default 1.")] = None,
    rho: Annotated[float | None, typer.Option(help="Lifetime cap of the new lineage (zCDP); default 4.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the new dataset; default made from what is asked.")] = None,
    to: Annotated[
        Path | None, typer.Option(help="Folder to write; default simulated/NAME in the home, or a shipped log's own.")
    ] = None,
    as_json: Json = False,
) -> None:
    """An online agent in a known world beside its baselines; with --logs a log of the world, ready to ingest and run.

    A simulation broken off goes on where it was: finished runs are kept in the home.  `simulate DATASET --logs` and
    nothing else writes the log of a shipped dataset anew, byte for byte.
    """
    from flows import api
    from flows.jobs.simulated_logs import LogOptions
    from pipeline.declaration.card import CardError
    from pipeline.worlds.catalog import WORLDS

    store = chosen_store()
    params = tuple(param or ())
    asked = LogOptions(behaviour, episodes, horizon, seed, bins, params, episodes_per_user, rho, name, to)
    if logs:
        result = api.simulate_logs(world, asked, from_run=from_run or None, store=store)
        show(result, as_json, lambda: _written(result))
    elif not world or world in WORLDS or asked != LogOptions():
        raise CardError("simulate: name a recipe that has [world], or say --logs to write a log; see --help")
    else:
        played = api.simulate(world, store=store)
        show(played, as_json, lambda: _played(played))


def _played(result: Kept) -> list[str]:
    from pipeline.declaration.numbers import number

    lines = [
        f"{r['agent']:22} regret {number(r['mean']):>9} ± {number(r['std']):<8} {r['trust']}" for r in result["rows"]
    ]
    head = f"{result['world']}, {result['episodes']:,} episodes; simulation, not private"
    loses = f"its policy loses {number(result['suboptimality'])} of an episode's value; run {result['run']}"
    true = result["true_epsilon"]
    asked = [] if result["epsilon"] is None else [f"asked ε = {number(result['epsilon'], toward='up')}"]
    real = [] if true is None else [f"the noise drawn is worth ε = {number(true, toward='up')}"]
    promise = "; ".join([*asked, *real]) or "no noise, no promise"
    proposal = [f"proposal       {result['proposal']}"] if result["proposal"] else []
    return [head, *lines, loses, f"would promise  {promise}", *proposal, f"report         {result['report']}"]


def _written(result: WrittenLog) -> list[str]:
    files = result["files"]
    if "folder" not in result or "recipe" not in result:
        return list(files)
    lines = [f"{result['dataset']}: {result['episodes']:,} simulated episodes in {len(files)} files"]
    if exact := result.get("values"):
        lines.append("exact       " + " | ".join(f"{k} {v:.4f}" for k, v in exact.items()))
    if "from_run" in result and "guarantee" in result:
        claim = result["guarantee"]["claim"]
        lines.append(f"privacy     nothing beyond the release of {result['from_run']}; its claim: {claim}")
    return [*lines, f"next        reticent ingest {result['folder']}", f"            reticent run {result['recipe']}"]


def reproduce(
    name: Annotated[str, typer.Argument(help="A study, such as 003-figure-1a; all for every one.")],
    full: Annotated[bool, typer.Option("--full", help="More episodes, worlds and runs.")] = False,
    as_json: Json = False,
) -> None:
    """Measure a shipped study of a paper anew and say which claims hold, and where (simulation, not private)."""
    from flows import api

    result = api.reproduce(name, full=full, store=chosen_store())
    show(result, as_json, lambda: _verdicts(result))


def _verdicts(result: Kept) -> list[str]:
    """The claims with their verdicts, and where the page is."""
    lines = [f"{'yes' if c['holds'] else 'no':4}{c['claim']}\n    {c['regime']}" for c in result["claims"]]
    return [*lines, *(f"page    {file}" for file in result["files"] if file.endswith("page.html"))]


def compare(
    recipes: Annotated[list[str], typer.Argument(help="Studies: a path, or a name such as trust_riverswim.")],
    full: Annotated[bool, typer.Option("--full", help="The study's larger sizes.")] = False,
    as_json: Json = False,
) -> None:
    """Measure a study: who needs how many episodes for the same quality, which claims hold (simulation, not private).

    A study broken off goes on where it was: finished runs are kept in the home.  What changed between two runs of
    your own data is `compare-runs A B`.
    """
    from flows import api

    store = chosen_store()
    results = [api.compare(name, full=full, store=store) for name in recipes]
    result = results[0] if len(results) == 1 else _together(results)
    show(result, as_json, lambda: [line for r in results for line in [*_prices(r), *_verdicts(r)]])


def _together(results: Sequence[Kept]) -> Kept:
    """Several comparisons as one object."""
    return {
        "name": ", ".join(r["name"] for r in results),
        "rows": [row for r in results for row in r["rows"]],
        "claims": [{"name": r["name"], **claim} for r in results for claim in r["claims"]],
        "needed": [{"name": r["name"], **row} for r in results for row in r.get("needed", ())],
        "files": [file for r in results for file in r["files"]],
    }


def _prices(result: Kept) -> list[str]:
    """Episodes needed by trust model and budget."""
    from pipeline.declaration.numbers import number
    from pipeline.online.study import first_meeting

    by_agent: dict[str, list[Kept]] = {}
    least = min((r["episodes"] for r in result["rows"] if r["variant"] != "control"), default=0)
    for row in result.get("needed", ()):
        by_agent.setdefault(f"  {row['trust']:8} {row['agent']:18}", []).append(row)
    lines = [f"{result['name']}: episodes until suboptimality stays ≤ 10 % of uniform choice's"] if by_agent else []
    for who, rows in by_agent.items():
        told = [
            ("no noise: " if r["epsilon"] is None else f"ε = {number(r['epsilon'])}: ")
            + first_meeting(r["episodes"], least, r["most"])
            for r in rows
        ]
        lines.append(who + " | ".join(told))
    return lines


def audit(
    recipe: str,
    draws: Annotated[int, typer.Option(min=100, max=MOST, help="Releases of each neighbour.")] = 20_000,
    canaries: Annotated[
        int, typer.Option(min=0, help="Also send so many made-up people through ingest and run; try 2000.")
    ] = 0,
    table: Annotated[
        bool, typer.Option("--table", help="Draw with the fast sampler, not the recipe's own: seconds, not minutes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Attack a recipe's mechanisms with made-up neighbours: a proved lower bound on the loss beside the claim.

    Exits 0 whatever was proved; `violates` says whether a claim is broken.
    """
    from flows import api
    from reports.audit_page import summary

    result = api.audit(recipe, draws=draws, canaries=canaries, table=table, store=chosen_store())
    show(
        result.answer(),
        as_json,
        lambda: [
            summary(result.name, result.verdicts),
            _attacks(result),
            *_whole(result.one_run),
            Place("report", str(result.folder / "page.html")),
        ],
    )


def _attacks(result: Audited) -> Grid:
    from reports.audit_page import bound, claim

    head = ("mechanism", "trust", "claimed", "proved ≥", "of it", "the pair spends", "broken", "seconds")
    return Grid(
        head,
        [
            (
                v.mechanism,
                v.trust,
                claim(v),
                bound(v),
                f"{v.ratio:.0%}",
                f"{v.attained:.0%}",
                "yes" if v.violates else "no",
                str(round(seconds, 2)),
            )
            for v, seconds in zip(result.verdicts, result.seconds, strict=True)
        ],
        left=2,
    )


def _whole(found: OneRun | None) -> list[str]:
    if found is None:
        return []
    return [
        f"  whole pipeline, {found.canaries:,} people, {found.right} of {found.guesses} guesses right: "
        f"ε ≥ {found.lower_bound_epsilon:.3g} proved, {found.claimed_epsilon:.3g} claimed (in or out)"
    ]
