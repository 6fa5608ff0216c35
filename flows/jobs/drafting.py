"""A card proposed from files or from a frame; nothing is written, and ``register`` enters the look in the ledger."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pipeline.logs.frames import FRAME
from pipeline.operator.draft import draft_card
from pipeline.operator.proposal import Draft
from pipeline.operator.whole_log import frame_of, read_files

_NAME = re.compile(r"[^a-z0-9_-]+")


def draft_job(
    log: Sequence[str | Path] | object,
    *,
    users: Sequence[str] = (),
    roles: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Draft:
    """Propose a card for a log that is at hand: a look at raw rows, for the operator only.

    Parameters
    ----------
    log
        Paths of files, or a data frame.
    users
        Columns that may name people; of several the one that protects most is taken.
    roles
        What a person knows: ``action``, ``state``, ``reward``, ``order``, ``episode``, ``terminated`` -> column.
    name
        Of the dataset; None: after the first file.

    Raises
    ------
    CardError
        If a file or a column is not there, or the columns that are needed cannot be told.
    LogError
        If a file cannot be read.
    """
    paths = _paths(log)
    frame, lost = read_files(paths) if paths else (frame_of(log), 0)
    files = [path.name for path in paths] or [FRAME]
    called = name or _NAME.sub("_", Path(files[0]).stem.lower()).strip("_-") or "log"
    today = datetime.now(UTC).date().isoformat()
    return draft_card(frame, files, dict(roles or {}), users, called, today, malformed=lost)


def _paths(log: object) -> list[Path]:
    if isinstance(log, str | Path):
        return [Path(log)]
    if isinstance(log, list | tuple) and all(isinstance(one, str | Path) for one in log):
        return [Path(str(one)) for one in log]
    return []
