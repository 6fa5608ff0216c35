"""``reticent simulate``: an online agent in a known world; simulated logs of it, or from a release; exact values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.terminal.progress import progress_line, working
from flows.terminal.screen import Context, Json, say, show

if TYPE_CHECKING:
    from flows.jobs.simulated_logs import Asked


def simulate(
    context: typer.Context,
    world: Annotated[
        str, typer.Argument(help="A recipe with [world]; with --logs a world (see --values) or a shipped dataset.")
    ] = "",
    logs: Annotated[bool, typer.Option("--logs", help="Write a simulated log with card and recipe.")] = False,
    from_run: Annotated[
        str, typer.Option(metavar="RUN", help="Sample from what this run released, instead of a world.")
    ] = "",
    values: Annotated[bool, typer.Option("--values", help="Print exact values of WORLD, or of all; no log.")] = False,
    behaviour: Annotated[
        str | None, typer.Option(help="Logging policy: uniform, near-optimal-0.3, or one of the world's own.")
    ] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Number of episodes; default 10000.")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="Steps of an episode; default the world's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the log; default 0.")] = None,
    bins: Annotated[str | None, typer.Option(help="ICU-Sepsis: 4, 8 or 32 bins of the SOFA score, or all.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Parameter of the world; may be repeated.")
    ] = None,
    episodes_per_user: Annotated[int | None, typer.Option(min=1, help="Episodes of one user; default 1.")] = None,
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
    from flows.jobs.simulated_logs import Asked, simulate_from_run, simulate_logs, world_table
    from flows.verbs.report import run_folder
    from pipeline.declaration.card import CardError
    from pipeline.environments.worlds import WORLDS

    options: Context = context.obj
    params = tuple(param or ())
    asked = Asked(behaviour, episodes, horizon, seed, bins, params, episodes_per_user, rho, name, to)
    if values:
        table = world_table([world] if world else WORLDS, asked, options.home_folder())
        show(table, as_json, lambda: _values(table))
        return
    if not logs:
        _play(options, world, asked, as_json)
        return
    if bool(world) == bool(from_run):
        raise CardError(f"simulate --logs: name a world or --from-run RUN; worlds: {', '.join(WORLDS)}")
    with working("simulating") as work:
        work.say("simulating")
        if from_run:
            result = simulate_from_run(run_folder(options, from_run), asked, options.home_folder())
        else:
            result = simulate_logs(world, asked, options.home_folder())
    show(result, as_json, lambda: _summary(result))


def _play(options: Context, recipe: str, asked: Asked, as_json: bool) -> None:
    from flows.config.shelf import find_recipe
    from flows.jobs.simulated_logs import Asked
    from flows.jobs.study import play_job
    from flows.server.engine import carry_out
    from pipeline.declaration.card import CardError
    from pipeline.environments.worlds import WORLDS

    if not recipe or recipe in WORLDS or asked != Asked():
        raise CardError(
            "simulate: name a recipe that has [world], or say --logs to write a log, --values for values; see --help"
        )
    path, home = find_recipe(recipe), options.home_folder()
    with progress_line(path.stem, "runs") as progress:
        result = carry_out("simulate", lambda step: play_job(path, home, step, say=say, progress=progress))
    show(result, as_json, lambda: _played(result))


def _played(result: Mapping[str, Any]) -> list[str]:
    from pipeline.declaration.numbers import number
    from reports.studies.simulation import promise

    lines = [
        f"{r['agent']:22} regret {number(r['mean']):>9} ± {number(r['std']):<8} {r['trust']}" for r in result["rows"]
    ]
    head = f"{result['world']}, {result['episodes']:,} episodes; simulation, not private"
    page = next(file for file in result["files"] if file.endswith("page.html"))
    return [head, *lines, f"would promise  {promise(result['rows'][0])}", f"report         {page}"]


def _summary(result: Mapping[str, Any]) -> list[str]:
    files = result["files"]
    if "folder" not in result:
        return list(files)
    lines = [f"{result['dataset']}: {result['episodes']:,} simulated episodes in {len(files)} files"]
    if exact := result.get("values"):
        lines.append("exact       " + " | ".join(f"{k} {v:.4f}" for k, v in exact.items()))
    if promise := result.get("guarantee"):
        lines.append(f"privacy     nothing beyond the release of {result['from_run']}; its claim: {promise['claim']}")
    return [*lines, f"next        reticent ingest {result['folder']}", f"            reticent run {result['recipe']}"]


def _values(table: Mapping[str, Any]) -> list[str]:
    lines = [f"{'world':24} {'H':>3} {'states':>6} {'actions':>7}  exact values of one episode"]
    for r in table["worlds"]:
        exact = " | ".join(f"{k} {v:.6g}" for k, v in r["values"].items())
        lines.append(f"{r['world']:24} {r['horizon']:>3} {r['states']:>6} {r['actions']:>7}  {exact}")
    return lines
