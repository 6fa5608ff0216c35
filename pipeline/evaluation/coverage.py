"""Over which range the coverage of an estimator was measured: a committed table, which counts for that very code.

``coverage.csv`` holds a row a cell: how many runs in fresh worlds, and in how many the intervals of value and of
improvement held.  A run is *calibrated* if it lies in the box that the cells of its estimator and code span.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

# at least so many runs, this share of them inside, and in no cell fewer than that
_RUNS, _INSIDE, _WORST = 150, 0.95, 0.9
_AXES = ("states", "horizon", "people", "rho")
COVERAGE = Path(__file__).with_name("coverage.csv")


@cache
def _rows() -> list[dict[str, str]]:
    with COVERAGE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def covered(estimator: str, code: str, states: int, horizon: int, people: float, rho: float) -> bool:
    """Whether intervals of an estimator held wherever they were measured, and a run lies between these places.

    Parameters
    ----------
    estimator, code
        Of the run: its name, and a digest of the code that makes an interval of a release.
    states, horizon
        Declared.
    people
        Declared people of the whole log.
    rho
        Budget of the run; infinite without noise.
    """
    found = [r for r in _rows() if (r["estimator"], r["code"]) == (estimator, code)]
    runs = sum(int(r["runs"]) for r in found)
    for held in ("value_held", "gain_held"):
        shares = [float(r[held]) for r in found]
        inside = sum(s * int(r["runs"]) for s, r in zip(shares, found, strict=True))
        if runs < _RUNS or inside < _INSIDE * runs or min(shares) < _WORST:
            return False
    at = dict(zip(_AXES, (states, horizon, people, rho), strict=True))
    ends = {axis: [float(r[axis]) for r in found] for axis in _AXES}
    return all(min(ends[axis]) <= x <= max(ends[axis]) for axis, x in at.items())
