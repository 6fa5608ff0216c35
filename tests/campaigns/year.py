"""A year of nights: ``python -P -m tests.campaigns.year`` rewrites ``results/year.json`` and prints its tables.

Two parts.  *Nights* plays 365 nights of each counter through the whole program (year_nights.py): wall time, what was
charged, what was refused, every broken promise.  *Values* asks what the policies of such a year are worth, against
re-releasing every night at the same yearly budget (year_values.py).  ``nights``, ``values`` as arguments: one part.
"""

from __future__ import annotations

import json
import sys
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.privacy.continual import continual
from tests.campaigns.year_nights import Year
from tests.campaigns.year_values import MARKS, METHODS, Study

RESULTS = Path(__file__).resolve().parent / "results" / "year.json"
SEEDS = range(10)
PEOPLE = (30, 300)


def variances() -> list[dict[str, Any]]:
    """Variance of the sums after T nights, in units of one release at the same budget."""
    rows = []
    for leaves in (365, 512):
        for kind in ("tree", "toeplitz"):
            counter = continual(kind, leaves)
            errors = [counter.cost * counter.error(t) for t in range(1, leaves + 1)]
            rows.append(
                {
                    "counter": kind,
                    "nights": leaves,
                    "largest": max(errors),
                    "mean": float(np.mean(errors)),
                    "last": errors[-1],
                    "re_release": leaves,
                }
            )
    return rows


def values(people: int) -> dict[str, Any]:
    """Mean and standard error of the true value of each method's policy on each mark."""
    found = [Study(people=people, seed=seed).values() for seed in SEEDS]
    told = {}
    for method in METHODS:
        v = np.array([one[method] for one in found])
        told[method] = {"mean": v.mean(0).tolist(), "se": (v.std(0, ddof=1) / len(v) ** 0.5).tolist()}
    return {"people_a_night": people, "rho": 1.0, "seeds": len(found), "nights": list(MARKS), "values": told}


def nights(kind: str) -> dict[str, Any]:
    """A year of one counter."""
    with tempfile.TemporaryDirectory() as folder:
        return Year(Path(folder), counter=kind).play()


def main(parts: list[str]) -> int:
    """Run the parts, print and keep them; 1 where a promise was broken."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    kept["variances"] = variances()
    if "nights" in parts:
        kept["years"] = [nights(kind) for kind in ("tree", "toeplitz")]
    if "values" in parts:
        kept["values"] = [values(people) for people in PEOPLE]
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    for line in tables(kept):
        print(line)
    return int(any(year["broken"] for year in kept.get("years", [])))


def tables(kept: dict[str, Any]) -> list[str]:
    """What was found, as the page shows it."""
    lines = ["| counter | nights | largest | mean | last night | re-release |", "|---|---|---|---|---|---|"]
    for r in kept["variances"]:
        told = " | ".join(f"{r[k]:.1f}" for k in ("largest", "mean", "last"))
        lines.append(f"| {r['counter']} | {r['nights']} | {told} | {r['re_release']} |")
    lines += ["", "| counter | outcomes | INTENTs | ledger total | broken | seconds |", "|---|---|---|---|---|---|"]
    for y in kept.get("years", []):
        outcomes = ", ".join(f"{n} {what}" for what, n in y["outcomes"].items())
        total = f"{float(Fraction(y['ledger_total'])):.9f}"
        cells = (y["counter"], outcomes, y["intents"], total, len(y["broken"]), y["seconds"])
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    for v in kept.get("values", []):
        lines += ["", f"{v['people_a_night']} people a night, rho = {v['rho']:g} for the year, {v['seeds']} seeds"]
        lines += ["| night | " + " | ".join(map(str, v["nights"])) + " |", "|---" * (1 + len(v["nights"])) + "|"]
        for method, told in v["values"].items():
            cells = [f"{m:.2f} ± {s:.2f}" for m, s in zip(told["mean"], told["se"], strict=True)]
            lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:] or ["nights", "values"]))
