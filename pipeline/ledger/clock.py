"""What time it is for the ledger: of its entries, of monthly and yearly limits, of nights.  Always UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Read the clock."""
    return datetime.now(UTC)
