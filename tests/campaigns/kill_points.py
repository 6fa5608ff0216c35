"""Kill -9 from inside: the process dies just before or just after its n-th step that leaves a trace somewhere."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

import flows.jobs.run
import pipeline.files
import pipeline.learners.tabular
import pipeline.ledger.attempts
import pipeline.ledger.database
from pipeline.files import Disk
from pipeline.ledger.ledger import Ledger
from pipeline.statistics.private_sum import PrivateSum

STEPS: tuple[tuple[Any, str], ...] = (
    *((Disk, name) for name in sorted(vars(Disk)) if not name.startswith("_")),
    (DefaultDialect, "do_commit"),
    (Ledger, "intent"),
    (Ledger, "draw"),
    (Ledger, "commit"),
    (Ledger, "publish"),
    (pipeline.ledger.database, "insert"),
    (pipeline.ledger.attempts, "grant_lease"),
    (pipeline.ledger.attempts, "end_leases"),
    (pipeline.learners.tabular, "aggregate"),
    (PrivateSum, "draw"),
    (flows.jobs.run, "publish_run"),
    (pipeline.files, "put_in_place"),
)


def arm(at: int | None, note: Callable[[int, str], None]) -> None:
    """Wrap every step of this process: count its beginnings and ends, and die at number ``at``; never where None."""
    count = 0

    def reached(label: str) -> None:
        nonlocal count
        count += 1
        note(count, label)
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def armed(work: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(work)
        def step(*args: Any, **kwargs: Any) -> Any:
            reached(f"before {name}")
            result = work(*args, **kwargs)
            reached(f"after {name}")
            return result

        return step

    for owner, name in STEPS:
        setattr(owner, name, armed(getattr(owner, name), name))
