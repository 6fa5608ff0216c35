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

from flows.jobs import Step, demo_job, ingest_job, run_job
from flows.shelf import Home, home_folder

T = TypeVar("T")


def task_step(name: str, work: Callable[[], T], /) -> T:
    """Run one unit of work as a Prefect task: no retries, no cache, no stored result."""

    @task(name=name, retries=0, cache_policy=NO_CACHE, persist_result=False)
    def once() -> T:
        return work()

    return once()


def recorded(name: str, job: Callable[[Step], dict[str, Any]]) -> dict[str, Any]:
    """Run a job as a flow on the server that ``PREFECT_API_URL`` names."""

    @flow(name=name, retries=0, persist_result=False, validate_parameters=False)
    def body() -> dict[str, Any]:
        return job(task_step)

    return body()


@flow(name="run", retries=0, persist_result=False)
def run_flow(recipe: str, home: str | None = None) -> dict[str, Any]:
    """The offline job of a recipe as a flow: release, plan and report are tasks."""
    return run_job(recipe, _home(home), task_step)


@flow(name="ingest", retries=0, persist_result=False)
def ingest_flow(card: str, home: str | None = None) -> str:
    """Ingest as a flow; returns the lineage only, since row counts are for the operator."""
    return ingest_job(card, _home(home), task_step)["dataset"]


@flow(name="demo", retries=0, persist_result=False)
def demo_flow(home: str | None = None) -> dict[str, Any]:
    """The demo as a flow."""
    return demo_job(_home(home), task_step)


def _home(home: str | None) -> Home:
    return Home(home_folder(Path(home) if home else None))
