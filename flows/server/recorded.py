"""The same jobs as recorded Prefect flows of coarse tasks.

A task that may draw noise is never retried and never cached: a second draw is a second release.
Nothing raw is a parameter or a result here: tasks are closures, and neither results nor inputs are persisted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from prefect import flow, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.config.setting import Step
from reports.night import Page

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


def recorded(name: str, job: Callable[[Step], T], page: Callable[[T], Page] | None = None) -> T:
    """Run a job as a flow on the server that ``PREFECT_API_URL`` names; ``page`` is what it shows there."""
    caught: list[Exception] = []

    @flow(name=name, retries=0, persist_result=False, validate_parameters=False)
    def body() -> T:
        result = quietly(lambda: job(task_step), caught)
        if page is not None:
            publish(page(result))
        return result

    try:
        return body()
    except StepError:
        pass
    raise caught[-1]


def publish(page: Page) -> None:
    """Artifacts of the flow run that is running: a text, a link, and a table where there is one."""
    create_markdown_artifact(page.markdown, key=page.key, description=page.title)
    create_link_artifact(page.link, link_text=page.link, key=f"{page.key}-report", description=page.title)
    if page.rows:
        create_table_artifact(
            [dict(row) for row in page.rows], key=f"{page.key}-ledger", description=f"{page.title}: what was charged"
        )
