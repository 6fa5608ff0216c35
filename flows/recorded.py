"""The same jobs as recorded Prefect flows of coarse tasks; the only module that imports Prefect.

A task that may draw noise is never retried and never cached: a second draw is a second release (stack.md §2).
Nothing raw is a parameter or a result here: tasks are closures, and neither results nor inputs are persisted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows.jobs import demo_job, ingest_job, run_job
from flows.setting import Step
from flows.shelf import Home, home_folder

T = TypeVar("T")


class StepError(Exception):
    """What a server may know of an error: its kind.  The text may hold operator-only counts (design §3.5)."""


def quietly(work: Callable[[], T], caught: list[Exception]) -> T:
    """Run ``work``; keep an error for the caller and raise only its kind."""
    try:
        return work()
    except Exception as e:
        caught.append(e)
    # raised outside the handler, so that the original is not its context
    raise StepError(f"{type(caught[-1]).__name__}: the operator's shell has the text")


def task_step(name: str, work: Callable[[], T], /) -> T:
    """Run one unit of work as a Prefect task: no retries, no cache, no stored result."""
    caught: list[Exception] = []

    @task(name=name, retries=0, cache_policy=NO_CACHE, persist_result=False)
    def once() -> T:
        return quietly(work, caught)

    try:
        return once()
    except StepError:
        pass
    raise caught[-1]


def recorded(name: str, job: Callable[[Step], dict[str, Any]]) -> dict[str, Any]:
    """Run a job as a flow on the server that ``PREFECT_API_URL`` names."""
    caught: list[Exception] = []

    @flow(name=name, retries=0, persist_result=False, validate_parameters=False)
    def body() -> dict[str, Any]:
        return quietly(lambda: job(task_step), caught)

    try:
        return body()
    except StepError:
        pass
    raise caught[-1]


@flow(name="run", retries=0, persist_result=False)
def run_flow(recipe: str, home: str | None = None) -> dict[str, Any]:
    """The offline job of a recipe as a flow: release, plan and report are tasks."""
    return quietly(lambda: run_job(recipe, _home(home), task_step), [])


@flow(name="ingest", retries=0, persist_result=False)
def ingest_flow(card: str, home: str | None = None) -> str:
    """Ingest as a flow; returns the lineage only, since row counts are for the operator."""
    return quietly(lambda: ingest_job(card, _home(home), task_step)["dataset"], [])


@flow(name="demo", retries=0, persist_result=False)
def demo_flow(home: str | None = None) -> dict[str, Any]:
    """The demo as a flow."""
    return quietly(lambda: demo_job(_home(home), task_step), [])


def _home(home: str | None) -> Home:
    return Home(home_folder(Path(home) if home else None))
