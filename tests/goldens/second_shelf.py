"""What the ledgers of the second home hold.

The home holds what the first does not: evaluated runs of three families, several looks at one lineage, a run beside
another, a one-step counter with epochs, a counter whose people evaluate on dates, real lineages that were declared
disjoint, an ingest and a sum that were killed, and the demo.  Commit db8ae630 made it, by code that is in the history
alone: later versions cannot make it, and need not.
"""

from pathlib import Path
from typing import Any

from tests.goldens.adapter import said


def charged(home: Path) -> dict[str, Any]:
    """Cap, spending and every charge of both ledgers, by lineage."""
    shown = [said(home, "ledger", "show", *of) for of in ((), ward(home))]
    return {
        d["name"]: {
            "cap_rho": d["cap_rho"],
            "spent_rho": d["spent_rho"],
            "entries": [{k: e.get(k) for k in ("entry", "run", "state", "rho", "night")} for e in d["entries"]],
        }
        for answer in shown
        for d in answer["datasets"]
    }


def ward(home: Path) -> tuple[str, Path]:
    """How a verb is told of the ledger of the two wards."""
    return "--card", home / "shelf" / "ward_a"
