"""Of how many people a rule of the log set rows aside: the counts that may stop a run before its budget is spent.

Stopping a run because of what rows look like is a release of its own, so these are counts of *people*, seen through
noise (privacy.md §0.2-2).  Up to two rules are counted side by side: one person moves each count by one, R in all
(L2²).  Of more rules a person counts under the first one broken only, which moves two counts at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pipeline.statistics.layout import Integers, Rates, Relation, Sensitivity, Table, added_cost

TABLE = "set_aside"
# above this, counting a person once is the cheaper way
_SIDE_BY_SIDE = 2

# rules that the rows of a person broke, joined by "+", and how many such people there are
People = Mapping[str, int]


@dataclass(frozen=True)
class GateLayout:
    """See :class:`~pipeline.statistics.layout.Layout`.

    Parameters
    ----------
    dataset, data_kind
        Name of the lineage, and ``real`` or ``synthetic`` as registered.
    rules
        Names of the rules that are counted, at least one; a person who broke several of more than two counts under
        the first of them.
    """

    dataset: str
    data_kind: str
    rules: tuple[str, ...]
    dynamics = "people"

    @property
    def once(self) -> bool:
        """Whether a person counts under the first rule broken only."""
        return len(self.rules) > _SIDE_BY_SIDE

    @property
    def tables(self) -> tuple[Table]:
        """One table ``(R,)``, in the order of the rules."""
        r, named = len(self.rules), ", ".join(self.rules)
        if self.once:
            rule = f"2 (L2², L1): one person counts once, under the first rule broken of {named}"
            replace, alone = Sensitivity(2, 2, rule), Sensitivity(1, 1, rule)
        else:
            rule = f"R = {r} (L2², L1): one person counts at most once under each of {named}"
            replace = alone = Sensitivity(r, r, rule)
        return (Table(TABLE, (r,), "person", replace, alone),)

    def cost(self, rates: Rates, relation: Relation = "replace") -> Fraction:
        """See :class:`~pipeline.statistics.layout.Layout`."""
        return added_cost(self, rates, relation)

    def joint(self) -> None:
        """See :class:`~pipeline.statistics.layout.Layout`: there is one table only."""

    def extremes(self) -> Iterable[People]:
        """Somebody of whom nothing is set aside, somebody for each rule, and somebody who broke them all."""
        return [{}, *({rule: 1} for rule in self.rules), {"+".join(self.rules): 1}]

    def count(self, people: People) -> dict[str, Integers]:
        """The table, exact.

        Parameters
        ----------
        people
            How many people broke which rules; rules that are not of this layout count nowhere.
        """
        counts = dict.fromkeys(self.rules, 0)
        for broken, number in people.items():
            ours = [rule for rule in self.rules if rule in broken.split("+")]
            for rule in ours[:1] if self.once else ours:
                counts[rule] += number
        return {TABLE: np.array(list(counts.values()), dtype=np.int64)}
