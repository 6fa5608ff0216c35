"""Lineages that share nobody, as earlier versions declared them: no verb does so any more."""

import sqlalchemy as sa

from pipeline.ledger.account import registration
from pipeline.ledger.chain import Entry
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.people import knows_people


def disjoint(book: Ledger, lineage: str, *names: str) -> Entry:
    """Declare a registered lineage that was never charged disjoint from others, and take back whom it claimed."""
    with book._chain.open() as page:
        now = registration(page.entries, lineage)
        assert now
        if knows_people(page.connection):
            page.connection.execute(sa.text("DELETE FROM people WHERE lineage = :name"), {"name": lineage})
        apart = sorted({*now.get("disjoint_from", ()), *names})
        return page.append(lineage, "AMEND", {**now, "disjoint_from": apart})
