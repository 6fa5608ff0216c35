"""Log to edition: a card proposed for files or a frame, and the next edition of a card's log, by hand or by a night."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TypedDict, cast

from flows.config.home import CardLike, Home, card_at
from flows.config.setting import ALONE, Work
from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.toml import LogError
from pipeline.ledger.account import claims_needed, registration
from pipeline.ledger.chain import NoLedgerError
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.people import apart_from, key_file, read_key
from pipeline.logs.editions import check_delivery, earlier_twin
from pipeline.logs.ingest import ingest
from pipeline.logs.sources import FRAME, frame_file
from pipeline.logs.store import Snapshot
from pipeline.operator.advice import Draft
from pipeline.operator.draft import draft_card
from pipeline.operator.ingest_report import IngestReport, ingest_report
from pipeline.operator.roles import frame_of, read_files

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
    listed = cast("Sequence[object]", log) if isinstance(log, list | tuple) else ()
    return [Path(str(one)) for one in listed] if all(isinstance(one, str | Path) for one in listed) else []


class Ingested(TypedDict):
    """What ``ingest --json`` prints: sizes of the snapshot, and rows set aside by rule; operator only.

    ``same_as`` is the first edition of the very same bytes, ``problem`` says how the log does not fit its card, and
    ``report`` what became of people.
    """

    dataset: str
    snapshot: int
    rows: int
    users: int
    episodes: int
    quarantined: dict[str, int]
    partitions: int
    folder: str
    same_as: int | None
    problem: str | None
    report: IngestReport


def ingest_job(
    card: CardLike,
    home: Home,
    work: Work = ALONE,
    frame: object = None,
) -> Ingested:
    """Logs -> the next edition and its quarantine, whatever came in; operator-only facts.

    Parameters
    ----------
    card
        Loaded, or its path or name.
    home
        Where the store is.
    work
        Who is told how many bytes are done of how many, and what an operator should know.
    frame
        The log itself, a table of polars, pandas or Arrow, in place of the card's files.

    Raises
    ------
    CardError
        If the card or a file is wrong.
    """
    card = card_at(card, home.shelf)
    with frame_file(frame, home.store / card.name) as files:
        s = work.step("ingest", lambda: ingest_edition(card, home, work, files=files))
    problem: str | None = None
    try:
        check_delivery(card, s)
    except LogError as e:
        problem = str(e)
    return {
        "dataset": s.dataset,
        "snapshot": s.number,
        "rows": s.rows,
        "users": s.users,
        "episodes": s.episodes,
        "quarantined": dict(s.quarantined),
        "partitions": s.partitions,
        "folder": str(s.folder),
        "same_as": earlier_twin(home.store, s),
        "problem": problem,
        "report": ingest_report(s, card),
    }


def ingest_edition(
    card: AnyCard,
    home: Home,
    work: Work = ALONE,
    night: date | None = None,
    files: Sequence[Path] | None = None,
) -> Snapshot:
    """The next edition of a card's log, or that of a scheduled night: see :func:`~pipeline.logs.ingest.ingest`."""
    if isinstance(card, Card) and card.loses_last_step:
        work.say(f"warning: {card.name} declares no ends, so the last step counts in no table; e.g. ends = ['end']")
    return ingest(
        card,
        home.store,
        night=night,
        resources=replace(home.resources, progress=work.progress, say=work.say),
        claims=claims_of(card, home),
        files=files,
    )


@dataclass(frozen=True)
class LedgerClaims:
    """See :class:`~pipeline.logs.work.Claims`.

    Parameters
    ----------
    ledger, lineage, key
        Of a registered lineage of real people, and the secret under which the ledger knows people.
    since, apart
        What was declared when the ingest began.
    """

    ledger: Ledger
    lineage: str
    key: bytes
    since: int
    apart: Sequence[str]

    def claim(self, users: Sequence[str]) -> Sequence[bool]:
        """See :class:`~pipeline.logs.work.Claims`."""
        return self.ledger.claim(self.lineage, users, self.key)


def claims_of(card: AnyCard, home: Home) -> LedgerClaims | None:
    """Who is in a card's lineage; None of synthetic people, and before it is registered."""
    if card.kind != "real":
        return None
    try:
        ledger = open_ledger(home.ledger_of(card), create=False)
    except NoLedgerError:
        return None
    entries = ledger.entries()
    if registration(entries, card.name) is None:
        return None
    key, apart = read_key(key_file(ledger.where, home.store)), sorted(apart_from(entries, card.name))
    return LedgerClaims(ledger, card.name, key, claims_needed(entries, card.name), apart)
