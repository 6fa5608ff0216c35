"""The Python door to worlds of our own making: simulations, studies, attacks.  Nobody's rows are read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from flows.api import named
from flows.config.home import find_recipe
from flows.jobs.playing import play_job
from flows.jobs.simulated_logs import LogOptions, WrittenLog, simulate_from_run, world_folder
from flows.jobs.simulated_logs import simulate_logs as written_log
from flows.store import Store

if TYPE_CHECKING:
    from flows.api import RecipeLike
    from flows.jobs.audit import Audited
    from pipeline.studies.study import Kept


class WorldValues(TypedDict):
    """Sizes of a world, and exact values of one episode by policy."""

    world: str
    horizon: int
    states: int
    actions: int
    values: dict[str, float]


class WorldTable(TypedDict):
    """What ``simulate --values --json`` prints."""

    worlds: list[WorldValues]


def simulate(recipe: RecipeLike, *, store: Store | None = None) -> Kept:
    """An online agent in a known world beside its baselines, published as a run (simulation, not private).

    Parameters
    ----------
    recipe
        Loaded, or its path or name; it has ``[world]``.
    store
        Where run and ledger are; None: the default one.

    Returns
    -------
    What ``simulate --json`` prints; ``store.open(told["run"])`` is the run.

    Raises
    ------
    CardError
        If the recipe is wrong.
    """
    path = find_recipe(named(recipe))
    return (store or Store()).carry_out(
        "simulate", lambda home, work: play_job(path, home, work), label=path.stem, unit="runs"
    )


def simulate_logs(
    world: str = "",
    asked: LogOptions | None = None,
    *,
    from_run: str | Path | None = None,
    store: Store | None = None,
) -> WrittenLog:
    """Write a simulated log with its card and recipe, ready to register, ingest and run.

    Parameters
    ----------
    world
        A world, or a shipped dataset whose log is written anew; empty with ``from_run``.
    asked
        Behaviour, episodes, horizon, seed and so on; None: the defaults.
    from_run
        Sample from what this run released, in place of a world.
    store
        Below whose folder logs without one of their own go; None: the default one.

    Raises
    ------
    CardError
        If both or neither of ``world`` and ``from_run`` are given, or what is asked does not fit the world.
    """
    from pipeline.declaration.card import CardError
    from pipeline.environments.worlds import WORLDS

    if bool(world) == (from_run is not None):
        raise CardError(f"simulate --logs: name a world or --from-run RUN; worlds: {', '.join(WORLDS)}")
    place = store or Store()
    with place.working("simulating") as (home, work):
        work.say("simulating")
        if from_run is None:
            return written_log(world, asked or LogOptions(), home)
        return simulate_from_run(place.open(from_run).folder, asked or LogOptions(), home)


def world_values(
    worlds: Sequence[str] = (), asked: LogOptions | None = None, *, store: Store | None = None
) -> WorldTable:
    """Exact values of worlds by dynamic programming; writes nothing.

    Parameters
    ----------
    worlds
        Their names; empty: all that are shipped.
    asked
        Parameters and horizon, and a logging policy to value beside.
    store
        Whose catalog holds the worlds that have a file; None: the default one.
    """
    from pipeline.environments.worlds import WORLDS, load_world
    from pipeline.evaluation.exact import world_values as exact_values
    from pipeline.mdp.planning import policy_value

    said, home, rows = asked or LogOptions(), (store or Store()).home, list[WorldValues]()
    for name in worlds or WORLDS:
        world = load_world(name, world_folder(name, home), **said.arguments())
        horizon = world.steps(said.horizon)
        values = exact_values(world, horizon)
        if said.behaviour is not None:
            values[said.behaviour] = policy_value(world.mdp(horizon), world.behaviours(said.behaviour, horizon))
        # twins of a state share its label
        live = {label for s, label in enumerate(world.raw_labels) if s not in world.ends}
        rows.append(
            {"world": name, "horizon": horizon, "states": len(live), "actions": world.shape[1], "values": values}
        )
    return {"worlds": rows}


def reproduce(name: str, *, full: bool = False, store: Store | None = None) -> Kept:
    """Measure a paper's figure or table anew, and say which of its claims hold (simulation, not private).

    Parameters
    ----------
    name
        A study, such as ``003-figure-1a``; ``all`` for every one.
    full
        More episodes, worlds and runs.
    store
        Below whose folder the page goes; None: the default one.

    Returns
    -------
    ``name, rows, claims, files``.

    Raises
    ------
    CardError
        If there is no such study.
    """
    from flows.jobs.reproduce import reproduce_job

    return (store or Store()).carry_out(
        "reproduce", lambda home, work: reproduce_job(name, home, work, full=full), label=name, unit="cells"
    )


def compare(recipe: RecipeLike, *, full: bool = False, store: Store | None = None) -> Kept:
    """What privacy and trust cost: none, central, joint, shuffle, local at the same (ε, δ) (simulation, not private).

    Parameters
    ----------
    recipe
        Its path or name; it has ``[compare]``.
    full
        The recipe's larger grid.
    store
        Below whose folder the page goes; None: the default one.

    Returns
    -------
    ``name, rows, claims, needed, bar, files``.

    Raises
    ------
    CardError
        If the recipe is wrong.
    """
    from flows.jobs.reproduce import compare_job

    path = find_recipe(named(recipe))
    return (store or Store()).carry_out(
        "compare", lambda home, work: compare_job(path, home, work, full=full), label=path.stem, unit="runs"
    )


def audit(
    recipe: RecipeLike, *, draws: int = 20_000, canaries: int = 0, table: bool = False, store: Store | None = None
) -> Audited:
    """Attack a recipe's mechanisms with made-up neighbours: a proved lower bound on the loss beside the claim.

    Parameters
    ----------
    recipe
        Loaded, or its path or name.
    draws
        Releases of each neighbour.
    canaries
        So many made-up people go through ingest and run as well.
    table
        Draw with the fast sampler in place of the recipe's own: the same law.
    store
        Below whose folder the page goes; None: the default one.

    Returns
    -------
    Its verdicts; ``violates`` says whether a claim is broken.

    Raises
    ------
    CardError
        If the recipe is wrong, or adds no noise.
    """
    from flows.jobs.audit import audit_job

    with (store or Store()).working("audit", "releases") as (home, work):
        return audit_job(named(recipe), home, work, draws=draws, canaries=canaries, table=table)
