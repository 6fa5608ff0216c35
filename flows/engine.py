"""Where a job runs: in this process, or, if ``PREFECT_API_URL`` names a server, as a recorded flow there."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from flows.setting import Step, plain_step


def carry_out(name: str, job: Callable[[Step], dict[str, Any]]) -> dict[str, Any]:
    """Run ``job`` once with the step of the place it runs in."""
    if not os.environ.get("PREFECT_API_URL"):
        return job(plain_step)
    from flows.recorded import recorded

    return recorded(name, job)
