"""Log to edition: a card proposed for files or a frame, and the next edition of a card's log, by hand or by a night."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, cast

from flows.config.home import ALONE, CardLike, Home, Work, card_at
from pipeline.declaration.card import AnyCard, Card
from pipeline.declaration.toml import LogError
from pipeline.logs.ingest import ingest
from pipeline.logs.sources import frame_file
from pipeline.logs.store import Snapshot, check_delivery, earlier_twin
from pipeline.operator.ingest_report import ingest_report

if TYPE_CHECKING:
    from pipeline.facts.promise import Dump
    from pipeline.ledger.ledger import Ledger
    from pipeline.operator.look import Answers
    from pipeline.operator.proposal import Draft

_NAME = re.compile(r"[^a-z0-9_-]+")


def draft_job(
    log: Sequence[str | Path] | object,
    *,
    users: Sequence[str] = (),
    roles: Mapping[str, str] | None = None,
    parts: Sequence[str] = (),
    name: str | None = None,
    answers: Answers | None = None,
) -> Draft:
    """Propose a card and a recipe for a log that is at hand: a look at raw rows, for the operator only.

    ``name``: of the dataset; None: after the first file.
    Raises CardError if a file or a column is not there, or the columns that are needed cannot be told; a QuestionError
    where only the operator can say.
    Raises LogError if a file cannot be read.
    """
    # an ingest proposes nothing
    from pipeline.operator.draft import draft_card
    from pipeline.operator.look import Answers, frame_of, read_files

    paths, told = _paths(log), answers or Answers()
    frame, lost, separator = read_files(paths, told.rename) if paths else (frame_of(log), 0, ",")
    called = name or _NAME.sub("_", (paths[0].stem if paths else "frame").lower()).strip("_-") or "log"
    today = datetime.now(UTC).date().isoformat()
    return draft_card(
        frame, paths, dict(roles or {}), users, parts, called, today, told, malformed=lost, separator=separator
    )


def _paths(log: object) -> list[Path]:
    if isinstance(log, str | Path):
        return [Path(log)]
    listed = cast("Sequence[object]", log) if isinstance(log, list | tuple) else ()
    return [Path(str(one)) for one in listed] if all(isinstance(one, str | Path) for one in listed) else []


def ingest_job(
    card: CardLike,
    home: Home,
    work: Work = ALONE,
    frame: object = None,
) -> Dump:
    """Logs -> the next edition and its quarantine, whatever came in; operator-only facts.

    ``work``: who is told how many bytes are done of how many, and what an operator should know.
    Returns sizes, and rows set aside by rule; ``same_as`` is the first edition of the very same bytes, ``problem`` says
    how the log does not fit its card, and ``report`` what became of people.
    Raises CardError if the card or a file is wrong.
    """
    card = card_at(card, home.shelf)
    with frame_file(frame, home.store / card.name) as files:
        s = work.step("ingest")(ingest_edition, card, home, work, files=files)
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
    """See :class:`~pipeline.logs.second_pass.Claims`."""

    ledger: Ledger
    lineage: str
    key: bytes
    since: int
    apart: Sequence[str]

    def claim(self, people: Sequence[Sequence[str]]) -> Sequence[str | None]:
        return self.ledger.claim(self.lineage, people, self.key)


def claims_of(card: AnyCard, home: Home) -> LedgerClaims | None:
    """Who is in a card's lineage; None of synthetic people, before it is registered, and where nobody needs to know.

    Earlier versions claimed all real people of a ledger, some under texts that are not the one form of their ids.
    """
    if card.kind != "real":
        return None
    # with its database it costs a third of a start, and synthetic people need none
    from pipeline.ledger.account import apart_from, claims_needed, registration
    from pipeline.ledger.chain import NoLedgerError
    from pipeline.ledger.ledger import open_ledger

    try:
        ledger = open_ledger(home.ledger_of(card), create=False)
    except NoLedgerError:
        return None
    entries = ledger.entries()
    if registration(entries, card.name) is None:
        return None
    key, apart = ledger.people_key(home.store), sorted(apart_from(entries, card.name))
    if not apart and not ledger.knows_people():
        return None
    return LedgerClaims(ledger, card.name, key, claims_needed(entries, card.name), apart)
