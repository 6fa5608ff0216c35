"""Region in which an estimator's coverage was measured: three inequalities, and a committed table of runs inside it.

A table holds a row a cell: the number of runs in fresh worlds, and in how many the intervals of value and of
improvement held; it counts for the very code that it names.  A run is *calibrated* if it lies in the region of its
estimator, and intervals held there.  The rule is no part of the estimator: its digest is of the code that makes
intervals.
"""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path

from pipeline.declaration.card import Card
from pipeline.declaration.code import syntax_digest
from pipeline.declaration.numbers import number
from pipeline.facts.evaluation import MOST_PEOPLE_ROOT_RHO, Diagnostic

TABULAR, ONE_STEP, LINEAR, OBSERVED = "tabular-dr", "one-step-dr", "linear-dr", "observed-dr"
# suffix of an estimator that weighs rows by logged probabilities
LOGGED = "-logged"
_SHARED = ("evaluation.intervals", "statistics.moment_layout", "statistics.scores")
# the code that makes an estimate and its interval, digested and never imported here: another text is another estimator
_OF_TABLES = ("agents.doubly_robust", "learners.tabular_evaluation", "logs.doubly_robust_rows")
# shares that confirm a policy are shrunk by the learner's arithmetic
_SHRUNK = ("agents.one_step", "agents.one_step_pooling")
_OF_ONE_STEP = ("agents.one_step_value", "learners.one_step_evaluation", "statistics.one_step_layout", *_SHRUNK)
TABULAR_CODE = tuple(f"pipeline.{name}" for name in (*_OF_TABLES, *_SHARED))
ONE_STEP_CODE = tuple(f"pipeline.{name}" for name in (*_OF_ONE_STEP, "logs.one_step_sums", *_SHARED))
LINEAR_CODE = tuple(f"pipeline.{name}" for name in ("learners.linear_evaluation", *_OF_TABLES, *_SHARED))
_OF_OBSERVED = ("agents.observed_value", "learners.observed_evaluation", "logs.observed_rows")
_MOVED = "statistics.observed_layout"
OBSERVED_CODE = tuple(f"pipeline.{name}" for name in (*_OF_OBSERVED, "mdp.linear_policy", _MOVED, *_SHARED))
MEASURED = {
    name: (Path(__file__).with_name(f"coverage_{table}.csv"), code)
    for name, table, code in (
        (TABULAR, "tabular", TABULAR_CODE),
        (TABULAR + LOGGED, "tabular_logged", TABULAR_CODE),
        (ONE_STEP, "one_step", ONE_STEP_CODE),
        (LINEAR, "linear", LINEAR_CODE),
        (LINEAR + LOGGED, "linear_logged", LINEAR_CODE),
        (OBSERVED, "observed", OBSERVED_CODE),
    )
}


@dataclass(frozen=True)
class Region:
    """Three inequalities, each least and most: ``of``, steps, and held-out people times the root of rho.

    rho counts up to 1: a larger one lowers the noise, but not the sampling error.

    ``each``: least people times that root for each state to the power 3/2: the noise of a state's visits is that
    of all its successors, so it grows with the root of the number of states.
    ``of``: rows of a table: live states, or features of an observation and an action.
    """

    states: tuple[int, int]
    steps: tuple[int, int]
    people_root_rho: tuple[float, float]
    each: float = 0.0
    of: str = "states"

    def ends(self, states: int) -> Mapping[str, tuple[float, float]]:
        """Least and most of each number, for so many states."""
        least, most = self.people_root_rho
        bounds = max(least, self.each * states**1.5), most
        return {self.of: self.states, "steps": self.steps, "people who judge × √ρ, ρ at most 1": bounds}

    def holds(self, states: int, steps: int, people_root_rho: float) -> bool:
        """True where a run lies in the region."""
        numbers = zip((states, steps, people_root_rho), self.ends(states).values(), strict=True)
        return all(least <= x <= most for x, (least, most) in numbers)


# by the card's dynamics; a single step has one table, so it is stationary
_COUNTS = {
    "stationary": Region((2, 50), (1, 20), (320, MOST_PEOPLE_ROOT_RHO), 34),
    "per_step": Region((2, 40), (2, 12), (320, MOST_PEOPLE_ROOT_RHO), 40),
}
_OF_OBSERVATIONS = Region((4, 33), (1, 12), (9000, MOST_PEOPLE_ROOT_RHO), 60, "features")
_OF_LINEAR = {"per_step": Region((2, 8), (2, 10), (320, MOST_PEOPLE_ROOT_RHO), 100)}
REGIONS: Mapping[str, Mapping[str, Region]] = {
    TABULAR: _COUNTS,
    TABULAR + LOGGED: _COUNTS,
    # of steps apart one set of features shows too little of where a policy leads
    ONE_STEP: {"stationary": Region((2, 713), (1, 20), (1500, MOST_PEOPLE_ROOT_RHO))},
    LINEAR: _OF_LINEAR,
    LINEAR + LOGGED: _OF_LINEAR,
    # a linear policy differs by step, whatever the card declares
    OBSERVED: {"stationary": _OF_OBSERVATIONS, "per_step": _OF_OBSERVATIONS},
}
# largest share of people that were measured without a part in what the others taught
_MOST_JUDGE = 0.5
# most actions of one step, of counts: of more, the policy takes those of many thin cells that noise favours
_FEW_ACTIONS = 5
# at least so many runs in a region, this share of them inside, and at no size, over all budgets, fewer than that
_RUNS, _INSIDE, _WORST = 150, 0.95, 0.9
# a size of fewer runs is not judged alone
_ALONE = 8
_SIZE = ("dynamics", "states", "horizon", "people")


@cache
def code_of(estimator: str) -> str:
    """Digest of the code of an estimator."""
    return syntax_digest(MEASURED[estimator][1])[:16]


def _region(estimator: str, dynamics: str, horizon: int) -> Region | None:
    return REGIONS[estimator].get("stationary" if horizon == 1 else dynamics)


def _many_actions(estimator: str, card: Card) -> bool:
    """Whether a card of one step has more actions than counts were measured for."""
    counts = estimator.removesuffix(LOGGED) == TABULAR
    return counts and card.domain.horizon == 1 and len(card.domain.action_labels) > _FEW_ACTIONS


def _numbers_of(card: Card, share: float, rho: Fraction) -> tuple[int, int, float]:
    """The numbers of a run that a region bounds."""
    d, people = card.domain, people_root_rho(card.unit.users_public * share, float(rho))
    if d.observation is None or card.features is None:
        return len(d.live_states), d.horizon, people
    return card.features.observed(len(d.live_states), len(d.action_labels), d.observation).dimension, d.horizon, people


def few_teach(estimator: str, card: Card, apart: float, rho: Fraction | None) -> str | None:
    """Sentence on people who teach and are fewer than must judge; None where they are not, as in all runs measured.

    ``apart``: share of the people who do not teach, held out or reserved.
    """
    region = _region(estimator, card.domain.dynamics, card.domain.horizon)
    if region is None or rho is None or apart <= _MOST_JUDGE:
        return None
    *_, (least, _) = region.ends(_numbers_of(card, apart, rho)[0]).values()
    if people_root_rho(card.unit.users_public * (1 - apart), float(rho)) >= least:
        return None
    needed = number(least / (_MOST_JUDGE * math.sqrt(min(rho, 1))), 2, "up")
    return (
        "Fewer people would teach than must judge, and no interval was measured so: "
        f"{needed} people in all would do, of whom at most half judge or are reserved."
    )


def _apart(card: Card, share: float) -> float:
    """Share of the people who do not teach, by the card and a share that judges."""
    return max(share, card.budget.reserve or 0.0)


def people_root_rho(people: float, rho: float) -> float:
    """Held-out people times the root of rho, of rho at most 1."""
    return people * math.sqrt(min(rho, 1.0))


def inequalities(estimator: str, card: Card, share: float, rho: Fraction | None) -> tuple[Diagnostic, ...]:
    """The three inequalities for a page, each with the run's own number; none where no region is declared."""
    region = _region(estimator, card.domain.dynamics, card.domain.horizon)
    if region is None or rho is None:
        return ()
    numbers = _numbers_of(card, share, rho)
    return tuple(
        Diagnostic(f"Measured from {number(least)} to {number(most)}: {what}", x)
        for x, (what, (least, most)) in zip(numbers, region.ends(numbers[0]).items(), strict=True)
    )


def outside(estimator: str, card: Card, share: float, rho: Fraction | None, gate: Fraction = Fraction(0)) -> str | None:
    """Sentence on what keeps a run out of the region of its estimator, and what would bring it in; None inside of it.

    Too many held-out people are a matter of the share alone.

    ``gate``: rho that a gate takes beside.
    """
    region = _region(estimator, card.domain.dynamics, card.domain.horizon)
    if card.domain.markov != "declared":
        return "The declared states are bins that hide part of what was logged: no interval is of people."
    if region is None:
        there, here = "of several steps", "the card has one"
        if card.domain.horizon > 1:
            apart = 'where steps are apart (domain.dynamics = "per_step")', "the card's are alike"
            alike = 'where steps are alike (domain.dynamics = "stationary")', "the card's are apart"
            there, here = alike if card.domain.dynamics == "per_step" else apart
        numbers = _numbers_of(card, share, Fraction(1) if rho is None else rho)
        return f"Intervals were measured {there}, and {here}.{_measured_of_another(estimator, card, numbers)}"
    if rho is None:
        return None
    numbers = _numbers_of(card, share, rho)
    if _many_actions(estimator, card):
        has = len(card.domain.action_labels)
        limit = f"Intervals of one step were measured up to {_FEW_ACTIONS} actions, and the card has {has}."
        return f"{limit}{_measured_of_another(estimator, card, numbers)}"
    if region.holds(*numbers):
        return few_teach(estimator, card, _apart(card, share), rho)
    *shape, (what, (least, most)) = region.ends(numbers[0]).items()
    for x, (name, (low, high)) in zip(numbers, shape, strict=False):
        if not low <= x <= high:
            limit = (
                f"Intervals were measured from {number(low)} to {number(high)} {name}, and the card has {number(x)}."
            )
            return f"{limit}{_measured_of_another(estimator, card, numbers)}"
    people, root = card.unit.users_public, math.sqrt(min(rho, 1))
    limit = f"Intervals were measured from {number(least)} to {number(most)} {what}, and here are"
    limit += f" {number(numbers[2], 3)}: "
    if numbers[2] > most:
        return f"{limit}[evaluate] people = {number(most / (people * root), 2, 'down')} would do."
    needed = number(least / (share * root), 2, "up")
    larger_rho = (least / (share * people)) ** 2
    # what a recipe asks for pays the gate too
    asked = larger_rho * float(1 + gate / rho)
    budget = f", or ρ = {number(asked, 2, 'up')}" if larger_rho <= 1 else ""
    return f"{limit}{needed} people in all would do{budget}.{_measured_of_another(estimator, card, numbers, now=True)}"


def measured_elsewhere(estimator: str, card: Card, share: float, rho: Fraction) -> bool:
    """Whether ``dp-one-step``, or else ``dp-apvi``, was measured for just such a run."""
    numbers = _numbers_of(card, share, rho)
    return card.domain.markov == "declared" and bool(_measured_of_another(estimator, card, numbers, now=True))


def _measured_of_another(estimator: str, card: Card, numbers: tuple[int, int, float], *, now: bool = False) -> str:
    """Sentence, after a blank, on ``dp-one-step``, or else ``dp-apvi``, where it was measured for such a card.

    ``now``: and for so many people.
    """
    other, agent = (TABULAR, "dp-apvi") if estimator == ONE_STEP else (ONE_STEP, "dp-one-step")
    region = _region(other, card.domain.dynamics, card.domain.horizon)
    # no chances are logged for dp-one-step
    if region is None or card.domain.observation is not None or estimator.endswith(LOGGED):
        return ""
    if _many_actions(other, card):
        return ""
    _, _, (least, _) = region.ends(numbers[0]).values()
    if not region.holds(*(numbers if now else (*numbers[:2], least))):
        return ""
    few = f", from {number(least)} people who judge × √ρ on" if numbers[2] < least else ""
    return f" Those of {agent} were measured for such a card{few}."


@cache
def _rows(table: Path) -> tuple[dict[str, str], ...]:
    with table.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def measured(estimator: str) -> list[dict[str, str]]:
    """The rows of this very code that lie in the estimator's regions."""
    rows = list[dict[str, str]]()
    for r in _rows(MEASURED[estimator][0]):
        if r["code"] != code_of(estimator):
            continue
        states, steps = int(r["states"]), int(r["horizon"])
        region = _region(estimator, r["dynamics"], steps)
        people = people_root_rho(int(r["people"]) * float(r["share"]), float(r["rho"]))
        if region is not None and region.holds(states, steps, people):
            rows.append(r)
    return rows


def covered(estimator: str, card: Card, share: float, rho: Fraction | None) -> bool:
    """True where a run lies in the region of an estimator, and intervals held there.

    Bins that hide part of the state are never covered: the interval is of the binned process, not of people.

    ``rho``: its budget; None without noise.
    """
    d = card.domain
    region = _region(estimator, d.dynamics, d.horizon)
    if d.markov != "declared" or rho is None or region is None or _many_actions(estimator, card):
        return False
    if not region.holds(*_numbers_of(card, share, rho)) or few_teach(estimator, card, _apart(card, share), rho):
        return False
    rows = measured(estimator)
    runs = sum(int(r["runs"]) for r in rows)
    for column in ("value_held", "gain_held"):
        sizes: dict[str, list[float]] = {}
        for r in rows:
            each = sizes.setdefault(" ".join(r[k] for k in _SIZE), [0.0, 0.0])
            each[0] += float(r[column]) * int(r["runs"])
            each[1] += int(r["runs"])
        inside = sum(i for i, _ in sizes.values())
        if runs < _RUNS or inside < _INSIDE * runs or any(i < _WORST * n for i, n in sizes.values() if n >= _ALONE):
            return False
    return True
