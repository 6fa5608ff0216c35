"""Tables of integers that are summed over people, their sensitivity to one person, and the sums themselves.

"Move" means the change by replacing one person, or by adding or removing one (:data:`Relation`).

The smallest layout stands at the end: the number of people of whom a rule of the log set rows aside.  Stopping a run
because of its rows is a release, so these are noisy counts of *people* (privacy.md §0.2-2).  Up to two rules are
counted side by side: one person moves each count by one, R in all (L2²).  Of more rules a person
counts under the first one broken only, which moves two counts at most.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card
from pipeline.privacy.release import SET_ASIDE, Mechanism
from pipeline.statistics.ask import Ask

Tables = Mapping[str, Integers]
Rates = Mapping[str, Fraction]
Relation = Literal["replace", "add_remove"]
# tables whose variances keep a fixed ratio, and their share of the budget; all shares sum to 1
Groups = Sequence[tuple[Mapping[str, int], Fraction]]


def as_integers(x: Array, low: int, high: int) -> Integers:
    """``x`` truncated to integers, then clipped: NaN has no float bounds, but its integer has."""
    with np.errstate(invalid="ignore"):
        k = x.astype(np.int64)
    return np.clip(k, low, high, out=k)


@dataclass(frozen=True)
class Sensitivity:
    """Largest change of one table by one person.

    ``l2_squared``, ``l1``: squared Euclidean and L1 length of the largest move, in the table's integers.
    """

    l2_squared: int
    l1: int
    rule: str


@dataclass(frozen=True)
class Table:
    """One table of integers that is summed over people.

    ``unit``: what one integer stands for.
    ``symmetric``: the last two axes hold symmetric matrices: noise is drawn on and above the diagonal, with half the
    variance above it, which is isotropic in svec coordinates.
    """

    name: str
    shape: tuple[int, ...]
    unit: str
    replace: Sensitivity
    add_remove: Sensitivity
    symmetric: bool = False

    def mechanism(self, variance: int | None = None, scale: Fraction | None = None) -> Mechanism:
        """The table with its noise: Gaussian of ``variance``, Laplace of ``scale``, or none (simulation only)."""
        s = self.replace
        return Mechanism(self.name, self.shape, self.unit, s.l2_squared, s.l1, s.rule, variance=variance, scale=scale)


class Layout(Protocol):
    """Tables that are summed over people, with their sensitivity to one person."""

    @property
    def dataset(self) -> str:
        """Name of the lineage."""
        ...

    @property
    def data_kind(self) -> str:
        """``real`` or ``synthetic``, as registered."""
        ...

    @property
    def dynamics(self) -> str:
        """Kind of tables: ``per_step``, ``stationary`` or ``linear_quadratic``."""
        ...

    @property
    def tables(self) -> tuple[Table, ...]:
        """In the order in which they are drawn and listed."""
        ...

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """Exact upper bound on the sum over tables of ``rate * |move|^2``, over all moves of one person.

        ``rates``: table -> weight of its squared move; ``1 / (2 variance)`` makes this a zCDP cost.
        """
        return added_cost(self, rates, relation)

    def joint(self) -> dict[str, object] | None:
        """Plain values from which a bound on all tables together is computed; None where their costs add up."""
        return None

    def extremes(self) -> Iterable[Any]:
        """Made-up people with extreme rows, in the form that the summing code takes; the worst pair is among them."""
        ...


class SharedLayout(Layout, Protocol):
    """A layout with a split of one budget over its tables."""

    def groups(self, ask: Ask) -> Groups:
        """Weights of the variances of each group of tables, and the group's share: each alone, and alike.

        Raises ValueError for another calibration than ``tight``: no paper prints scales for counts.
        """
        if ask.calibration != "tight":
            raise ValueError("no paper prints scales for these counts; use calibration 'tight'")
        return [({t.name: 1}, Fraction(1, len(self.tables))) for t in self.tables]


@dataclass(frozen=True)
class CardLayout(Layout):
    """A layout of a card's rows, with the facts of its lineage."""

    card: Card

    @property
    def dataset(self) -> str:
        """Name of the lineage."""
        return self.card.name

    @property
    def data_kind(self) -> str:
        """``real`` or ``synthetic``, as registered."""
        return self.card.kind

    @property
    def dynamics(self) -> str:
        """``per_step``, or ``stationary``: one table for all steps."""
        return self.card.domain.dynamics


def added_cost(layout: Layout, rates: Rates, relation: Relation) -> Fraction:
    """:meth:`Layout.cost` where one person may move every table at its worst: the costs add up.

    Raises ValueError if a rate is of no table of the layout.
    """
    moves = {t.name: t.replace if relation == "replace" else t.add_remove for t in layout.tables}
    if unknown := set(rates) - set(moves):
        raise ValueError(f"this layout has tables {sorted(moves)}; got {sorted(unknown)}")
    return sum((rate * moves[name].l2_squared for name, rate in rates.items()), Fraction(0))


@dataclass(frozen=True)
class ExactSums:
    """Exact sums over people.  Only a private sum may read them; printing them shows no number.

    ``tables``: table -> int64 array of its shape, in the table's integers.
    """

    dataset: str
    data_kind: str
    dynamics: str
    tables: Tables = field(repr=False)


# largest number of rules at which counting them side by side is cheaper than counting a person once
_SIDE_BY_SIDE = 2

# rules that the rows of a person broke, joined by "+" -> number of such people
People = Mapping[str, int]


@dataclass(frozen=True)
class GateLayout:
    """See :class:`~pipeline.statistics.layout.Layout`.

    ``rules``: names of the rules that are counted, at least one; a person who broke several of more than two counts
    under the first of them.
    """

    dataset: str
    data_kind: str
    rules: tuple[str, ...]
    dynamics = "people"

    @property
    def once(self) -> bool:
        """True where a person counts under the first broken rule only."""
        return len(self.rules) > _SIDE_BY_SIDE

    @property
    def tables(self) -> tuple[Table]:
        """One table ``(R,)``, in the order of the rules."""
        r, names = len(self.rules), ", ".join(self.rules)
        if self.once:
            rule = f"2 (L2², L1): one person counts once, under the first rule broken of {names}"
            replace, added = Sensitivity(2, 2, rule), Sensitivity(1, 1, rule)
        else:
            rule = f"R = {r} (L2², L1): one person counts at most once under each of {names}"
            replace = added = Sensitivity(r, r, rule)
        return (Table(SET_ASIDE, (r,), "person", replace, added),)

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        return added_cost(self, rates, relation)

    def joint(self) -> None:
        """There is one table only."""

    def extremes(self) -> Iterable[People]:
        """A person without a broken rule, one for each rule, and one who broke them all."""
        return [{}, *({rule: 1} for rule in self.rules), {"+".join(self.rules): 1}]

    def count(self, people: People) -> dict[str, Integers]:
        """The table, exact."""
        counts = dict.fromkeys(self.rules, 0)
        for broken, number in people.items():
            broken_rules = [rule for rule in self.rules if rule in broken.split("+")]
            for rule in broken_rules[:1] if self.once else broken_rules:
                counts[rule] += number
        return {SET_ASIDE: np.array(list(counts.values()), dtype=np.int64)}
