"""Every layout says how far one person moves its sums; all are held to one enumeration, and so are broken twins.

A case is a layout, all people of a tiny domain, and the shipped code that sums one of them.  Alone and together, under
*replace one* and under *add or remove one*, nobody may move further than the layout says; where the domain holds the
worst pair, somebody has to move just as far.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.spatial.distance import cdist

from pipeline.logs.aggregate import count_person
from pipeline.logs.ingest import count_people
from pipeline.logs.store import quarantine_schema
from pipeline.mdp.features import FeatureMap
from pipeline.privacy.release import SET_ASIDE
from pipeline.statistics.ask import Ask
from pipeline.statistics.count_layout import CountLayout, StartLayout
from pipeline.statistics.layout import GateLayout, Layout, Relation, Sensitivity, Table
from pipeline.statistics.linear_plan import LinearTerms
from pipeline.statistics.linear_sums import CallLayout, OneShotLayout, _counted, call_window, count_rows
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.regression import Window
from tests.conftest import slow
from tests.statistics import lq_people
from tests.statistics.linear_people import overdrawn, people, plan_of, random_map, rows_of
from tests.statistics.test_sensitivity import episodes, tiny, vectors

RELATIONS: tuple[Relation, ...] = ("replace", "add_remove")
SMALL = {"value_steps": 64, "weight_steps": 16}


@dataclass(frozen=True)
class Case:
    """``sums``: table -> what each person of the domain adds ``(people, n)``."""

    layout: Layout
    sums: Mapping[str, np.ndarray]


def counted(released: str = "two_tables", start: bool = False, **card: Any) -> Case:
    declared = tiny(**card)
    layout = StartLayout(declared) if start else CountLayout(declared, released)
    rewards = [0.0, 1.0]
    everyone = [(e,) for e in episodes(declared, rewards)]
    return Case(layout, vectors(declared, everyone, [t.name for t in layout.tables]))


def nearly_parallel() -> FeatureMap:
    """Features so alike that somebody moves a table most against nobody at all."""
    f = np.array([[[10, 0], [10, 1]], [[10, 2], [9, 1]], [[10, 0], [9, 2]]], dtype=np.int64)
    square = int((f * f).sum(-1).max())
    return FeatureMap(f, square, Fraction(1, square))


def of_call(half: str, variant: str, features: FeatureMap | None = None) -> Case:
    """What single rows, and none, add to one call, whose planner asks for a value that overdraws its window."""
    features = random_map(3) if features is None else features
    plan = plan_of(features, LinearTerms(Ask(Fraction(1)), variant, **SMALL))
    quantiser, bound = call_window(plan, 0, half, Window(0.0, 1.0))
    layout = CallLayout(plan, 0, half, bound)
    found: dict[str, list[np.ndarray]] = {t.name: [] for t in layout.tables}
    for person in people(3, 2, True):
        rows = rows_of(person[:1], features, lambda side: True)
        # only the regression after a variance step is weighted
        for weight in (None, lambda f: np.where(f.sum(-1) > 0, 1.0, 0.3))[: 2 if half == "D" else 1]:
            gram, targets = rows.sums(0, "both", overdrawn(-100.0, 100.0), quantiser, weight, plan.extent())
            W = plan.weight(half) if weight is None else 1
            for t, x in zip(layout.tables, (gram, *targets), strict=True):
                found[t.name].append((x * W).ravel())
    return Case(layout, {name: np.array(each) for name, each in found.items()})


def of_one_shot(features: FeatureMap | None = None) -> Case:
    """The same row at every step, and none: what a person of two steps adds."""
    features = random_map(0) if features is None else features
    plan = plan_of(features, LinearTerms(Ask(Fraction(1)), "one_shot", value_steps=8))
    layout = OneShotLayout(plan)
    grams, tables = [], []
    for s, a, s2, r in np.ndindex(3, 2, 4, 2):
        visits, rewards = np.zeros((2, 3, 2, 4), np.int64), np.zeros((2, 3, 2))
        visits[:, s, a, s2], rewards[:, s, a] = 1, r
        rows = count_rows(plan, {"both": visits}, rewards)
        gram, table = _counted(plan, rows)
        grams.append(gram.ravel())
        tables.append(table.ravel())
    grams.append(np.zeros_like(grams[0]))
    tables.append(np.zeros_like(tables[0]))
    return Case(layout, {"gram": np.array(grams), "target": np.array(tables)})


def of_moments() -> Case:
    layout = lq_people.layout_of()
    each = [layout.add([one]) for one in lq_people.everybody()]
    return Case(layout, {name: np.array([sums[name].ravel() for sums in each]) for name in ("gram", "target")})


CASES: dict[str, Callable[[], Case]] = {
    "counts, per step": counted,
    "counts, per step, finer rewards": lambda: counted(horizon=1, steps=3),
    "counts, per step, declared total": lambda: counted(total=1.0),
    "counts, stationary": lambda: counted(dynamics="stationary"),
    "counts, stationary, cap 1": lambda: counted(dynamics="stationary", cap=1),
    "counts, one table": lambda: counted(released="one_table"),
    "first states": lambda: counted(start=True, dynamics="stationary"),
    "a call for variances": lambda: of_call("D'", "centred"),
    "a call for the regression": lambda: of_call("D", "centred"),
    "a call for the paper's targets": lambda: of_call("D", "paper"),
    "a call where nobody is the worst neighbour": lambda: of_call("D", "centred", nearly_parallel()),
    "one-shot tables": of_one_shot,
    "one-shot tables where nobody is the worst neighbour": lambda: of_one_shot(nearly_parallel()),
    "lq moments": of_moments,
}


@cache
def case_of(name: str) -> Case:
    return CASES[name]()


def moved(case: Case, rates: Mapping[str, Fraction], relation: Relation) -> float:
    """Largest ``sum rate * |move|^2`` of the enumerated people."""
    at = np.concatenate([x * float(rates[name]) ** 0.5 for name, x in case.sums.items() if name in rates], axis=1)
    # who adds the same is as far from everybody
    at = np.unique(at, axis=0)
    squares = (at * at).sum(1)
    if relation == "add_remove":
        return float(squares.max())
    return float((squares[:, None] + squares - 2 * at @ at.T).max())


def sensitivity(table: Table, relation: Relation) -> Sensitivity:
    return table.replace if relation == "replace" else table.add_remove


def in_l1(x: np.ndarray, relation: Relation) -> int:
    if relation == "add_remove":
        return int(np.abs(x).sum(1).max())
    x = np.unique(x, axis=0)
    return int(cdist(x, x, "cityblock").max())


def hold(case: Case, relation: Relation) -> None:
    """Nobody moves further than the layout says, in one table or in all of them."""
    for t in case.layout.tables:
        said, found = sensitivity(t, relation), moved(case, {t.name: Fraction(1)}, relation)
        assert found <= said.l2_squared * (1 + 1e-9), f"{t.name} moves by {found}, said is {said.l2_squared}"
        assert in_l1(case.sums[t.name], relation) <= said.l1
        assert case.layout.cost({t.name: Fraction(1)}, relation) <= said.l2_squared
    rng = np.random.default_rng(0)
    for _ in range(5):
        scale = {t.name: sensitivity(t, relation).l2_squared for t in case.layout.tables}
        rates = {name: Fraction(int(rng.integers(1, 100)), 100 * square) for name, square in scale.items()}
        found, cost = moved(case, rates, relation), case.layout.cost(rates, relation)
        assert found <= cost * (1 + 1e-9), f"together they move by {found}, said is {float(cost)}"


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", CASES)
def test_nobody_moves_further_than_the_layout_says(name, relation):
    hold(case_of(name), relation)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("name", [n for n in CASES if n.startswith(("counts", "first", "lq"))])
def test_somebody_moves_each_table_just_as_far(name, relation):
    """Over-charging fails too."""
    case = case_of(name)
    for t in case.layout.tables:
        said = sensitivity(t, relation)
        assert moved(case, {t.name: Fraction(1)}, relation) == pytest.approx(said.l2_squared, rel=1e-9)
        assert name == "lq moments" or in_l1(case.sums[t.name], relation) == said.l1


class Halved:
    """A broken twin of any layout: whatever it says under *replace one* is what adding one moves."""

    def __init__(self, layout: Layout) -> None:
        self.tables = tuple(replace(t, replace=t.add_remove) for t in layout.tables)
        self.cost = lambda rates, relation="replace": layout.cost(rates, "add_remove")


class Forgetful:
    """A broken twin of any layout: its last table costs nothing where several are bounded together."""

    def __init__(self, layout: Layout) -> None:
        *_, last = (t.name for t in layout.tables)
        self.tables = layout.tables
        self.cost = lambda rates, relation="replace": layout.cost(
            {name: Fraction(0) if name == last else rate for name, rate in rates.items()}, relation
        )


@pytest.mark.parametrize("name", CASES)
def test_twins_that_say_add_or_remove_where_people_are_replaced_or_forget_a_table_are_caught(name):
    case = case_of(name)
    with pytest.raises(AssertionError):
        hold(replace(case, layout=Halved(case.layout)), "replace")
    if name != "first states":
        with pytest.raises(AssertionError, match="together"):
            hold(replace(case, layout=Forgetful(case.layout)), "replace")


@pytest.mark.parametrize("name", ["counts, per step", "counts, stationary, cap 1", "counts, one table", "lq moments"])
def test_the_worst_pair_of_extreme_people_is_as_far_apart_as_claimed(name):
    lq, layout = name == "lq moments", case_of(name).layout
    noisy = PrivateSum(layout, tuple(t.mechanism(2 * (t.replace.l2_squared // 2 + 1)) for t in layout.tables))
    summed = lq_people.plan_of(n=2, d=2, steps=4096) if lq else noisy

    def sum_of(person: Any) -> Mapping[str, np.ndarray]:
        return summed.layout.add([person]) if lq else count_person(summed.layout.card, person)

    one, other = (sum_of(p) for p in summed.worst_pair(sum_of))
    loss = sum(((one[m.table] - other[m.table]) ** 2).sum() / (2 * m.variance) for m in summed.mechanisms)
    assert (0.99 if lq else 0.8) < loss / float(summed.rho) <= 1 + 1e-9


RULES = ("gap", "repeat", "unknown_label", "bad_reward", "over_cap")
# what one person's rows may break, rule by rule how many rows, filed more than once or never
PEOPLE = [
    [rule for rule, rows in zip(RULES[:4], counts, strict=True) for _ in range(rows)]
    for counts in itertools.product((0, 1, 3), repeat=4)
]
CROWD = [("ann", "gap"), ("ann", "gap"), ("bob", "unknown_label"), ("bob", "repeat"), (None, "malformed_line")]


def gated(tmp_path, card, layout, person):
    """What the shipped code counts of the crowd and one more person, who lies in a partition of their own id."""
    filed = [*CROWD, *(("zoe", rule) for rule in person)]
    rows = [
        {"rule": rule, "effect": "drop_step", "file": "log.csv", "line": i, "text": None}
        | {"source": dict.fromkeys(card.log.roles.values(), user)}
        for i, (user, rule) in enumerate(filed)
    ]
    frame = pl.DataFrame(rows, schema=quarantine_schema(card))
    # a partition may have filed some of a person's rows apart
    apart = frame["rule"] == "repeat"
    frame.filter(~apart).write_parquet(tmp_path / "quarantine-0000.parquet")
    frame.filter(apart).write_parquet(tmp_path / "quarantine-0000-more.parquet")
    return layout.count(count_people(tmp_path, card))[SET_ASIDE]


@pytest.mark.parametrize("number", [slow(2), 4])
def test_the_largest_move_of_all_people_is_the_sensitivity(tmp_path, make_card, number):
    layout, card = GateLayout("tiny", "synthetic", RULES[:number]), make_card()
    (table,) = layout.tables
    points = np.array([gated(tmp_path, card, layout, person) for person in PEOPLE])
    moves = points[:, None] - points[None]
    # the cheaper of the two ways
    assert (moves**2).sum(-1).max() == table.replace.l2_squared == min(number, 2)
    assert np.abs(moves).sum(-1).max() == table.replace.l1
    nobody = points[PEOPLE.index([])]
    assert ((points - nobody) ** 2).sum(-1).max() == table.add_remove.l2_squared


def test_broken_twins_that_count_under_each_of_many_rules_or_count_rows_move_further(tmp_path, make_card, monkeypatch):
    layout, card = GateLayout("tiny", "synthetic", RULES[:4]), make_card()
    with monkeypatch.context() as patch:
        patch.setattr(GateLayout, "once", property(lambda self: False))
        points = np.array([gated(tmp_path, card, layout, person) for person in PEOPLE])
    assert ((points[:, None] - points[None]) ** 2).sum(-1).max() == 4 > layout.tables[0].replace.l2_squared
    rows = np.array([[person.count(rule) for rule in RULES[:2]] for person in PEOPLE])
    assert ((rows[:, None] - rows[None]) ** 2).sum(-1).max() > GateLayout("t", "real", RULES[:2]).tables[0].replace.l1


@pytest.mark.parametrize("number", [1, 2, 5])
def test_the_extremes_attain_the_sensitivity_and_who_joins_is_counted_once_or_under_each_rule(number):
    """Every subset of the rules that a person may be counted under, as the layout says."""
    layout = GateLayout("tiny", "synthetic", RULES[:number])
    (table,) = layout.tables
    summed = PrivateSum(layout, (table.mechanism(9),))
    one, other = summed.worst_pair(layout.count)
    move = layout.count(one)[SET_ASIDE] - layout.count(other)[SET_ASIDE]
    assert (move**2).sum() == table.replace.l2_squared and summed.rho == Fraction(table.replace.l2_squared, 18)
    most = 1 if layout.once else number
    people = [p for p in itertools.product((0, 1), repeat=number) if sum(p) <= most]
    assert table.add_remove.l2_squared == table.add_remove.l1 == max(map(sum, people))
    assert table.replace.l1 == max(sum(abs(a - b) for a, b in zip(p, q, strict=True)) for p in people for q in people)
