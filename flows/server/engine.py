"""Where a job runs: in this process, or, if ``PREFECT_API_URL`` names a server, as a recorded flow there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from flows.config.setting import Step, plain_step

if TYPE_CHECKING:
    from reports.night import Page

T = TypeVar("T")


def carry_out(name: str, job: Callable[[Step], T], page: Callable[[T], Page] | None = None) -> T:
    """Run ``job`` once.

    Parameters
    ----------
    name
        Of the flow.
    job
        Is given the step of the place it runs in.
    page
        What a server shows of its result.
    """
    if not os.environ.get("PREFECT_API_URL"):
        return job(plain_step)
    from flows.server.recorded import recorded

    return recorded(name, job, page)
