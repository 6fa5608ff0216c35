"""A year of nights: ``python -P -m tests.campaigns.year`` rewrites its rows.

365 nights of each counter through the whole program (year_nights.py): wall time, what was charged, what was refused,
every broken promise.
"""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path

from tests.campaigns.rows import Row, write
from tests.campaigns.year_nights import Year


def nights(kind: str) -> Row:
    """A year of one counter."""
    with tempfile.TemporaryDirectory() as folder:
        year = Year(Path(folder), counter=kind).play()
    return {
        "counter": kind,
        "outcomes": ", ".join(f"{n} {what}" for what, n in year["outcomes"].items()),
        "INTENTs": year["intents"],
        "ledger total": f"{float(Fraction(year['ledger_total'])):.9f}",
        "charged once": year["ledger_total"] == year["charged_once"],
        "policies": year["policies"],
        "broken": len(year["broken"]),
        "seconds": year["seconds"],
    }


def main() -> int:
    """Play both years and keep what came of them; 1 where a promise was broken."""
    rows = [nights(kind) for kind in ("tree", "toeplitz")]
    write("year", rows)
    return int(any(row["broken"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
