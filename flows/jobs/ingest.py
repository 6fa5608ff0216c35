"""Ingest: the next edition of a card's log, asked for by hand or by a scheduled night."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TypedDict

from flows.config.home import Home, find_card
from flows.config.setting import Step, plain_step
from pipeline.declaration.card import AnyCard, Card, load_any_card
from pipeline.declaration.toml import LogError
from pipeline.ledger.account import claims_needed, registration
from pipeline.ledger.chain import NoLedgerError
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.people import key_file, read_key
from pipeline.ledger.sharing import apart_from
from pipeline.logs.editions import check_delivery, earlier_twin
from pipeline.logs.ingest import ingest
from pipeline.logs.store import Snapshot


class Ingested(TypedDict):
    """What ``ingest --json`` prints: sizes of the snapshot, and rows set aside by rule; operator only.

    ``same_as`` is the first edition of the very same bytes, ``problem`` says how the log does not fit its card.
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


def ingest_job(
    card_name: str,
    home: Home,
    step: Step = plain_step,
    progress: Callable[[int, int | None], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Ingested:
    """Logs -> the next edition and its quarantine, whatever came in; operator-only facts.

    Parameters
    ----------
    card_name
        Path or name of the card.
    home
        Where the store is.
    step
        Runs the unit of work.
    progress, say
        Told how many bytes are done of how many, and what an operator should know.

    Raises
    ------
    CardError
        If the card or a file is wrong.
    """
    return ingest_card(load_any_card(find_card(card_name, home.shelf)), home, step, progress, say)


def ingest_card(
    card: AnyCard,
    home: Home,
    step: Step = plain_step,
    progress: Callable[[int, int | None], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Ingested:
    """The same for a card that is loaded."""
    s = step("ingest", lambda: ingest_edition(card, home, progress, say))
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
    }


def ingest_edition(
    card: AnyCard,
    home: Home,
    progress: Callable[[int, int | None], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
    night: date | None = None,
) -> Snapshot:
    """The next edition of a card's log, or that of a scheduled night: see :func:`~pipeline.logs.ingest.ingest`."""
    if isinstance(card, Card) and card.loses_last_step:
        say(f"warning: {card.name} declares no ends, so the last step counts in no table; e.g. ends = ['end']")
    memory, claims = home.resources.memory, claims_of(card, home)
    return ingest(card, home.store, night=night, progress=progress, say=say, memory=memory, claims=claims)


@dataclass(frozen=True)
class LedgerClaims:
    """See :class:`~pipeline.logs.set_aside.Claims`.

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
        """See :class:`~pipeline.logs.set_aside.Claims`."""
        return self.ledger.claim(self.lineage, users, self.key)


def claims_of(card: AnyCard, home: Home) -> LedgerClaims | None:
    """Who is in a card's lineage; None of synthetic people, and before it is registered.

    Parameters
    ----------
    card, home
        Of the dataset, and where the store is.
    """
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
