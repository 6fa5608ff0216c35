"""A year of nights: ``python -P -m tests.campaigns.year`` rewrites its rows and prints them.

Two parts.  *Nights* plays 365 nights of each counter through the whole program (year_nights.py): wall time, what was
charged, what was refused, every broken promise.  *Values* asks what the policies of such a year are worth, against
re-releasing every night at the same yearly budget (year_values.py).  ``nights``, ``values`` as arguments: one part.
"""

from __future__ import annotations

import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np

from pipeline.privacy.continual import continual
from tests.campaigns.rows import Row, plain, write
from tests.campaigns.year_nights import Year
from tests.campaigns.year_values import MARKS, METHODS, Study

SEEDS = range(10)
PEOPLE = (30, 300)


def variances() -> list[Row]:
    """Variance of the sums after T nights, in units of one release at the same budget."""
    rows: list[Row] = []
    for leaves in (365, 512):
        for kind in ("tree", "toeplitz"):
            counter = continual(kind, leaves)
            errors = [counter.cost * counter.error(t) for t in range(1, leaves + 1)]
            told = {"largest": max(errors), "mean": float(np.mean(errors)), "last night": errors[-1]}
            shown = {name: f"{x:.1f}" for name, x in told.items()}
            rows.append({"counter": kind, "nights": leaves, **shown, "re-release": leaves})
    return rows


def values(people: int) -> list[Row]:
    """Mean and standard error of the true value of each method's policy on each mark."""
    found = [Study(people=people, seed=seed).values() for seed in SEEDS]
    rows: list[Row] = []
    for method in METHODS:
        v = np.array([one[method] for one in found])
        ends = zip(MARKS, v.mean(0), v.std(0, ddof=1) / len(v) ** 0.5, strict=True)
        rows.append({"night": method, **{str(night): f"{mean:.2f} ± {se:.2f}" for night, mean, se in ends}})
    return rows


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


def main(parts: list[str]) -> int:
    """Run the parts, print and keep them; 1 where a promise was broken."""
    made = {"year_variances": (variances(), "none")}
    if "nights" in parts:
        made["year_nights"] = [nights(kind) for kind in ("tree", "toeplitz")], "0"
    if "values" in parts:
        made |= {f"year_values_{people}": (values(people), f"0 .. {SEEDS[-1]}") for people in PEOPLE}
    for name, (rows, seeds) in made.items():
        write(name, rows, seeds)
        print(plain(name))
    return int(any(row["broken"] for row in made.get("year_nights", ([], ""))[0]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or ["nights", "values"]))
