"""What a release costs one person where a part of the people learns and the others evaluate what was learnt.

A person is in one part only, chosen by a keyed hash of their id, whatever their rows are.  Replacing them by somebody
of the same part moves that part alone; by somebody of the other part, one part loses a person and one gains one:

    max(ρ_A, ρ_B, ρ_A± + ρ_B±),

where ± is the cost of adding or removing one.  What part B is asked rests on the answer of A; the loss of an adaptive
composition is bounded answer by answer, so that changes nothing.  (Proved in docs/evaluation_methods.md.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NotRequired, TypedDict

from pipeline.mdp.features import FeatureMap
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.joint_loss import RegressionFacts, StageFacts, joint_loss, stage_loss
from pipeline.statistics.layout import Layout, Rates, Relation, Table
from pipeline.statistics.moment_layout import moments_cost
from pipeline.statistics.private_sum import PrivateSum

RULE = "max(ρ_A, ρ_B, ρ_A± + ρ_B±): people in two parts by a keyed hash of their id; ±: one person joins or leaves"


class SumFacts(TypedDict):
    """One private sum of a part: its tables, their squared moves under *add or remove one*, and what bounds them."""

    tables: list[str]
    add_remove: list[int]
    joint: dict[str, int] | None


class PartFacts(TypedDict):
    """One part: exact costs, and the private sums that they are of; or the regressions, whose scales follow answers."""

    rho_exact: str
    rho_add_remove: str
    sums: list[SumFacts]
    regressions: NotRequired[RegressionFacts]


class HeldOutFacts(TypedDict):
    """What is read of ``joint`` of a release on two parts."""

    learn: PartFacts
    evaluate: PartFacts


Cost = tuple[Fraction, Fraction]


def parts_cost(learn: Cost, evaluate: Cost) -> Fraction:
    """Exact zCDP cost of both parts together."""
    (a, a_joining), (b, b_joining) = learn, evaluate
    return max(a, b, a_joining + b_joining)


def part_facts(sums: Sequence[PrivateSum]) -> PartFacts | None:
    """What a part costs, and what that rests on; None where a table has no noise."""
    if any(s.rho is None for s in sums):
        return None
    replace = sum((s.rho or Fraction(0) for s in sums), Fraction(0))
    listed = [_facts(s) for s in sums]
    mechanisms = [m for s in sums for m in s.mechanisms]
    return {"rho_exact": str(replace), "rho_add_remove": str(_joining(mechanisms, listed)), "sums": listed}


# before the name of whatever is drawn of the people who evaluate
OTHERS = "b_"


@dataclass(frozen=True)
class OthersLayout(Layout):
    """The same tables of other people, so by other names."""

    ours: Layout

    @property
    def dataset(self) -> str:
        """Name of the lineage."""
        return self.ours.dataset

    @property
    def data_kind(self) -> str:
        """``real`` or ``synthetic``, as registered."""
        return self.ours.data_kind

    @property
    def dynamics(self) -> str:
        """What the tables hold."""
        return self.ours.dynamics

    @property
    def tables(self) -> tuple[Table, ...]:
        """In the same order."""
        return tuple(replace(t, name=OTHERS + t.name) for t in self.ours.tables)

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        return self.ours.cost({name.removeprefix(OTHERS): rate for name, rate in rates.items()}, relation)

    def joint(self) -> dict[str, object] | None:
        return self.ours.joint()

    def extremes(self) -> Iterable[Any]:
        return self.ours.extremes()


def of_others(ours: PrivateSum) -> PrivateSum:
    """The same private sum of the people who evaluate."""
    named = tuple(replace(m, table=OTHERS + m.table) for m in ours.mechanisms)
    return replace(ours, layout=OthersLayout(ours.layout), mechanisms=named)


def their_names(drawn: Release) -> Release:
    """A release of the people who evaluate, as it is published: every name begins with :data:`OTHERS`."""
    named = tuple(replace(m, table=OTHERS + m.table) for m in drawn.mechanisms)
    return replace(drawn, mechanisms=named, tables={OTHERS + name: x for name, x in drawn.tables.items()})


def our_names(published: Release, ours: PrivateSum) -> Release:
    """What :func:`their_names` made other names of."""
    tables = {m.table: published.tables[OTHERS + m.table] for m in ours.mechanisms}
    return replace(published, mechanisms=ours.mechanisms, tables=tables, derived={}, joint=None, joint_rho=None)


def _facts(s: PrivateSum) -> SumFacts:
    joint = s.layout.joint()
    return {
        "tables": [t.name for t in s.layout.tables],
        "add_remove": [t.add_remove.l2_squared for t in s.layout.tables],
        "joint": None if joint is None else {n: x for n, x in joint.items() if isinstance(x, int)},
    }


def _joining(mechanisms: Sequence[Mechanism], sums: Sequence[SumFacts]) -> Fraction:
    """Somebody who joins may move every table at its worst."""
    square = {name: s for told in sums for name, s in zip(told["tables"], told["add_remove"], strict=True)}
    return sum((Fraction(square[m.table], 2 * _variance(m)) for m in mechanisms), Fraction(0))


def _variance(m: Mechanism) -> int:
    if m.variance is None:
        raise ValueError(f"table {m.table} has no Gaussian noise")
    return m.variance


def _replacing(mechanisms: Sequence[Mechanism], told: SumFacts) -> Fraction:
    rates = {m.table: Fraction(1, 2 * _variance(m)) for m in mechanisms}
    facts = told["joint"]
    if facts is None:
        return sum((m.rho or Fraction(0) for m in mechanisms), Fraction(0))
    if "scores" in facts:
        scores, halved = facts["scores"], facts.get("halved", 0)
        sums, squares, people = (rates[name] for name in told["tables"])
        rho = moments_cost(scores, facts["steps"], sums, squares, people, "replace", halved)
        # no fewer scores than are summed, and no shorter ones than their sums alone would cost
        if (scores,) != mechanisms[0].shape or not 0 <= halved <= scores or rho < (mechanisms[0].rho or 0):
            raise ValueError(f"sums of {scores} scores, {halved} halved, said to cost {float(rho):.3g}: they cost more")
        return rho
    count, total = mechanisms
    stage = StageFacts(rows=facts["rows"], cap=facts["cap"], keys=facts["keys"], steps=facts["steps"])
    return stage_loss(count, total, stage)


def held_out_loss(mechanisms: Sequence[Mechanism], facts: HeldOutFacts, features: FeatureMap | None = None) -> Fraction:
    """Exact zCDP cost of a release on two parts, again: from what it lists, without plan or data."""
    learn, evaluate = part_costs(mechanisms, facts, features)
    return parts_cost(learn, evaluate)


def part_costs(
    mechanisms: Sequence[Mechanism], facts: HeldOutFacts, features: FeatureMap | None = None
) -> tuple[Cost, Cost]:
    """What replacing one person costs in each part, and what adding or removing one does: from what a release lists.

    Raises ValueError if a table has no noise, is of no part or of both, or one that joins is said to move more than one
    that is replaced.
    """
    listed, costs = {m.table: m for m in mechanisms}, list[Cost]()
    named = [name for part in (facts["learn"], facts["evaluate"]) for s in part["sums"] for name in s["tables"]]
    # tables of regressions are named by none: their own loss refuses what is no such table
    left, asked = [m for m in mechanisms if m.table not in named], facts["learn"].get("regressions")
    twice = len(set(named)) < len(named) or len(listed) < len(mechanisms)
    if twice or not set(named) <= set(listed) or bool(left) != (asked is not None):
        raise ValueError("some table is of no part of the people, or of both")
    for part in (facts["learn"], facts["evaluate"]):
        for s in part["sums"]:
            for name, square in zip(s["tables"], s["add_remove"], strict=True):
                if not 4 * square >= listed[name].l2_squared >= square:
                    raise ValueError(f"table {name}: {square} for one who joins, {listed[name].l2_squared} replaced")
        mine = [[listed[name] for name in s["tables"]] for s in part["sums"]]
        replace = sum((_replacing(m, s) for m, s in zip(mine, part["sums"], strict=True)), Fraction(0))
        costs.append((replace, _joining([m for of in mine for m in of], part["sums"])))
    (first, joining), second = costs
    if asked is None:
        return (first, joining), second
    if features is None:
        raise ValueError("the features of the regressions are not at hand")
    more = [joint_loss(left, asked, features, of) for of in ("replace", "add_remove")]
    return (first + more[0], joining + more[1]), second
