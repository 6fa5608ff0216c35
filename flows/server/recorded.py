"""The same jobs as recorded Prefect flows of coarse tasks.

A task that may draw noise is never retried and never cached: a second draw is a second release.
Nothing raw is a parameter or a result here: tasks are closures, and neither results nor inputs are persisted.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar, cast

from prefect import flow, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.config.home import Calls, Step
from pipeline.transaction.drawing import GateError
from reports.run.comparison import ServedPage

P = ParamSpec("P")
T = TypeVar("T")
REPORTS = "RETICENT_REPORTS_URL"
"""Names the address under which the home's ``runs/`` is served."""


class StepError(Exception):
    """The kind of an error, for a server; the text may hold operator-only counts."""


def quietly(work: Callable[[], T], caught: list[Exception]) -> T | None:
    """Run ``work``; keep an error for the caller and raise only its kind.

    A run that its gate stopped ends like any other on a server: it returns None, and the caller has the error.
    """
    try:
        return work()
    except GateError as e:
        caught.append(e)
        return None
    except Exception as e:
        caught.append(e)
    # raised outside the handler, so that the original is not its context
    raise StepError(f"{type(caught[-1]).__name__}: the operator's shell has the text")


def task_step(name: str) -> Calls:
    """A part of a job as a Prefect task: no retries, no cache, no stored result."""

    def called(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        caught: list[Exception] = []

        @task(name=name, retries=0, cache_policy=NO_CACHE, persist_result=False)
        def once() -> T | None:
            return quietly(lambda: work(*args, **kwargs), caught)

        return _result_of(once, caught)

    return called


def recorded(name: str, job: Callable[[Step], T], page: Callable[[T], ServedPage] | None = None) -> T:
    """Run a job as a flow on the server that ``PREFECT_API_URL`` names; ``page`` makes the page shown there."""
    caught: list[Exception] = []

    @flow(name=name, retries=0, persist_result=False, validate_parameters=False)
    def body() -> T | None:
        result = quietly(lambda: job(task_step), caught)
        if page is not None and result is not None:
            publish(page(result))
        return result

    return _result_of(body, caught)


def _result_of(work: Callable[[], T | None], caught: list[Exception]) -> T:
    """The result of a recorded ``work``, or the error that it kept."""
    with suppress(StepError):
        result = work()
        if not caught:
            # only a stopped run has no result
            return cast(T, result)
    raise caught[-1]


def publish(page: ServedPage) -> None:
    """Artifacts of the flow run that is running: a text, the report, and a table where there is one."""
    create_markdown_artifact(page.markdown, key=page.key, description=page.title)
    # so that the report opens on any machine: a link where ``runs/`` is served, else its text
    key, text = f"{page.key}-report", page.file.with_suffix(".md")
    if url := os.environ.get(REPORTS):
        link = f"{url.rstrip('/')}/{page.file.parent.name}/{page.file.name}"
        create_link_artifact(link, link_text=page.file.name, key=key, description=page.title)
    elif text.is_file():
        create_markdown_artifact(text.read_text(encoding="utf-8"), key=key, description=page.title)
    if page.rows:
        create_table_artifact(
            [dict(row) for row in page.rows], key=f"{page.key}-ledger", description=f"{page.title}: what was charged"
        )
