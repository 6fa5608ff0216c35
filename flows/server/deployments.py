"""What a Prefect server may start: ``nightly``, ``simulate``, ``reproduce``.  Parameters are checked by pydantic.

A deployed run has no shell and no folder of its own: homes and recipes are absolute paths, and the text of an error
goes to the service's own log, never to the server.
"""

import os
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from prefect import flow
from prefect.schedules import Schedule
from prefect.types.entrypoint import EntrypointType
from pydantic import Field

from flows.config.home import Home, choose_resources, find_recipe
from flows.jobs.nightly import run_night
from flows.jobs.simulated_logs import Asked, simulate_logs
from flows.jobs.study import play_job, reproduce_job
from flows.server.recorded import publish, quietly, task_step
from flows.terminal.screen import say
from pipeline.declaration.card import CardError
from reports.night import Page, log_page, night_page, simulation_page, study_page

EXAMPLE_CRON = "15 2 * * *"

Folder = Annotated[str, Field(pattern=r"^/", description="Absolute path; default: RETICENT_HOME of the service.")]
RecipeName = Annotated[
    str,
    Field(pattern=r"^(/.+\.toml|[a-z0-9][a-z0-9_\-]*)$", description="Absolute path, or the name of a shipped recipe."),
]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_\-:.]*$")]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Budget = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@flow(name="nightly", retries=0, persist_result=False, log_prints=False)
def nightly(recipe: RecipeName, home: Folder | None = None, night: date | None = None) -> None:
    """What the recipe declares for this date: ingest, release, learn, report, compare with the run in use."""

    def job() -> Page:
        return night_page(run_night(recipe, _home(home), task_step, say=say, day=night))

    _deployed(job)


@flow(name="simulate", retries=0, persist_result=False, log_prints=False)
def simulate(
    recipe: RecipeName | None = None,
    world: Name | None = None,
    episodes: Count = 10_000,
    behaviour: str | None = None,
    horizon: Count | None = None,
    seed: Seed = 0,
    bins: str | None = None,
    params: list[str] | None = None,
    episodes_per_user: Count = 1,
    rho: Budget = 4.0,
    name: Name | None = None,
    home: Folder | None = None,
) -> None:
    """An online agent by its recipe, or, by the other parameters, a simulated log of a world with card and recipe."""
    asked = Asked(behaviour, episodes, horizon, seed, bins, tuple(params or ()), episodes_per_user, rho, name)

    def job() -> Page:
        if (recipe is None) == (world is None):
            raise CardError("simulate: give either a recipe that has [world], or a world to log")
        if recipe is not None:
            return simulation_page(play_job(find_recipe(recipe), _home(home), task_step, say=say))
        return log_page(task_step("simulate", lambda: simulate_logs(str(world), asked, _home(home))))

    _deployed(job)


@flow(name="reproduce", retries=0, persist_result=False, log_prints=False)
def reproduce(name: Name, full: bool = False, home: Folder | None = None) -> None:
    """A paper's figure or table, measured anew."""
    _deployed(lambda: study_page(reproduce_job(name, _home(home), task_step, full=full, say=say)))


FLOWS = (nightly, simulate, reproduce)


def deployments(home: Path, recipe: str, cron: str | None, timezone: str, *, there: bool) -> list[Any]:
    """The three deployments of a service.

    Parameters
    ----------
    recipe
        What ``nightly`` runs where it is not told.
    cron
        Its schedule, active.  None: an example that is not, or whatever the server has.
    there
        Whether the server has ``nightly`` already; its schedules are the operator's.
    """
    found: list[Any] = []
    for each in FLOWS:
        parameters: dict[str, Any] = {"home": str(home)}
        schedules: list[Any] | None = None
        if each is nightly:
            parameters["recipe"] = recipe
            if cron is not None or not there:
                schedules = [Schedule(cron=cron or EXAMPLE_CRON, timezone=timezone, active=cron is not None)]
        found.append(
            each.to_deployment(
                each.name,
                parameters=parameters,
                schedules=schedules,
                enforce_parameter_schema=True,
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
        )
    return found


def _deployed(job: Callable[[], Page]) -> None:
    """Run a job and show its page; an error's text stays with the service, the server learns its kind."""
    caught: list[Exception] = []
    try:
        page = quietly(job, caught)
    finally:
        for error in caught:
            print(f"reticent: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    if page is not None:
        publish(page)


def _home(home: str | None) -> Home:
    named = home or os.environ.get("RETICENT_HOME", "")
    if not Path(named).is_absolute():
        raise CardError("a deployed run needs an absolute home: give the parameter home, or set RETICENT_HOME")
    return Home(Path(named), resources=choose_resources())
