"""Over which range the coverage of an estimator was measured: a committed table, which counts for that very code.

A table holds a row a cell: how many runs in fresh worlds, and in how many the intervals of value and of improvement
held.  A run is *calibrated* if it lies in the box that the cells of its estimator and code span.
"""

from __future__ import annotations

import csv
import math
from fractions import Fraction
from functools import cache
from pathlib import Path

from pipeline.declaration.card import Card
from pipeline.declaration.code import syntax_digest

TABULAR, ONE_STEP, LINEAR = "tabular-dr", "one-step-dr", "linear-dr"
# behind the name of an estimator whose rows tell themselves how likely practice was to do what it did
LOGGED = "-logged"
_SHARED = ("evaluation.intervals", "statistics.moment_layout", "statistics.scores")
# the code that makes an estimate and its interval of a release, digested and never imported here: another text is
# another estimator
_OF_TABLES = ("agents.doubly_robust", "learners.tabular_evaluation", "logs.doubly_robust_rows")
# shares that confirm a policy are shrunk by the learner's arithmetic
_SHRUNK = ("agents.one_step", "agents.one_step_pooling")
_OF_ONE_STEP = ("agents.one_step_value", "learners.one_step_evaluation", "statistics.one_step_layout", *_SHRUNK)
_ROWS = ("logs.one_step_rows", "logs.one_step_scores", "logs.one_step_sums")
TABULAR_CODE = tuple(f"pipeline.{name}" for name in (*_OF_TABLES, *_SHARED))
ONE_STEP_CODE = tuple(f"pipeline.{name}" for name in (*_OF_ONE_STEP, *_ROWS, *_SHARED))
LINEAR_CODE = tuple(f"pipeline.{name}" for name in ("learners.linear_evaluation", *_OF_TABLES, *_SHARED))
MEASURED = {
    name: (Path(__file__).with_name(f"coverage_{table}.csv"), code)
    for name, table, code in (
        (TABULAR, "tabular", TABULAR_CODE),
        (TABULAR + LOGGED, "tabular_logged", TABULAR_CODE),
        (ONE_STEP, "one_step", ONE_STEP_CODE),
        (LINEAR, "linear", LINEAR_CODE),
        (LINEAR + LOGGED, "linear_logged", LINEAR_CODE),
    )
}
# at least so many runs, this share of them inside, and at no size, over all budgets, fewer than that
_RUNS, _INSIDE, _WORST = 150, 0.95, 0.9
_SIZE = ("states", "horizon", "people")


@cache
def code_of(estimator: str) -> str:
    """Digest of the code of an estimator."""
    return syntax_digest(MEASURED[estimator][1])[:16]


def _at(states: int, horizon: int, people: float, rho: float) -> tuple[float, ...]:
    """Where a run lies: states, steps, people who judge, rho, people times the root of rho, and that against states.

    The noise of a state's visits is that of all its successors: people in a state stand against the root of states.
    """
    heard = people * math.sqrt(rho)
    return states, horizon, people, rho, heard, heard / states**1.5


def covered(estimator: str, card: Card, share: float, rho: Fraction | None) -> bool:
    """Whether intervals of an estimator held over the cells of its table, and a run lies between these places.

    Bins that hide part of the state are never covered: the interval is of the binned process, not of people.

    ``rho``: its budget; None without noise.
    """
    d = card.domain
    if d.markov != "declared" or rho is None:
        return False
    with MEASURED[estimator][0].open(encoding="utf-8", newline="") as file:
        found = [r for r in csv.DictReader(file) if r["code"] == code_of(estimator)]
    runs = sum(int(r["runs"]) for r in found)
    for held in ("value_held", "gain_held"):
        sizes: dict[str, list[float]] = {}
        for r in found:
            each = sizes.setdefault(" ".join(r[k] for k in _SIZE), [0.0, 0.0])
            each[0] += float(r[held]) * int(r["runs"])
            each[1] += int(r["runs"])
        inside = sum(i for i, _ in sizes.values())
        if runs < _RUNS or inside < _INSIDE * runs or min(i / n for i, n in sizes.values()) < _WORST:
            return False
    here = _at(len(d.live_states), d.horizon, card.unit.users_public * share, float(rho))
    places = [
        _at(int(r["states"]), int(r["horizon"]), int(r["people"]) * float(r["share"]), float(r["rho"]))
        for r in found
        if r["dynamics"] == d.dynamics
    ]
    return all(ends and min(ends) <= x <= max(ends) for x, *ends in zip(here, *places, strict=True))
