"""Where a job runs: in this process, or, if ``PREFECT_API_URL`` names a server, as a recorded flow there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flows.config.setting import Step, plain_step

if TYPE_CHECKING:
    from reports.night import Page


def carry_out(
    name: str, job: Callable[[Step], dict[str, Any]], page: Callable[[dict[str, Any]], Page] | None = None
) -> dict[str, Any]:
    """Run ``job`` once with the step of the place it runs in; ``page`` is what a server shows of it.

    Parameters
    ----------
    name
        Of the flow, as a server shows it.
    job
        The job, given the step that runs its units of work.
    """
    if not os.environ.get("PREFECT_API_URL"):
        return job(plain_step)
    from flows.server.recorded import recorded

    return recorded(name, job, page)
