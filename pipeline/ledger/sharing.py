"""Which lineages may hold the same people, and what one person loses to all of them (privacy.md §0.2-8).

A lineage that is registered again under another name holds the same people.  So the real lineages of a ledger are
charged together, unless two of them were declared disjoint at ``register``: then nobody's rows count in both, and what
somebody loses who is in the one, or instead in the other, is the cost of leaving the one and joining the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement

from pipeline.ledger.account import registration, spent_of
from pipeline.ledger.chain import Entry

Group = frozenset[str]


@dataclass(frozen=True)
class Move:
    """What may be changed of one person's rows: those in ``replaced`` lineages, and those in lineages left or joined.

    Parameters
    ----------
    replaced
        Lineages that hold rows of the person before and after.
    joined
        Lineages that hold rows of the person before or after, not both.
    """

    replaced: Group
    joined: Group

    @property
    def lineages(self) -> Group:
        """All that hold rows of the person."""
        return self.replaced | self.joined


def apart_from(entries: Sequence[Entry], lineage: str) -> Group:
    """The lineages that share nobody with this one: it declares so, or they do.

    Parameters
    ----------
    entries, lineage
        Of the ledger, in order, and the name of the dataset.
    """
    declared = {name: _declared(entries, name) for name in _real(entries)}
    return frozenset(n for n in declared if n in declared.get(lineage, ()) or lineage in declared[n])


def moves(entries: Sequence[Entry], lineage: str) -> list[Move]:
    """The largest changes of one person's rows that concern a lineage; a synthetic one concerns nobody else."""
    real = _real(entries)
    if lineage not in real:
        return [Move(frozenset({lineage}), frozenset())]
    apart = {name: apart_from(entries, name) for name in real}
    groups = list(_largest(frozenset(), real, apart))
    found = [Move(a & b, a ^ b) for a, b in combinations_with_replacement(groups, 2)]
    return [m for m in found if lineage in m.lineages]


def lost(entries: Sequence[Entry], move: Move, counted: Callable[[Entry], bool] = lambda e: True) -> Fraction:
    """What one person loses, whose rows are changed so: an exact zCDP rho."""
    charged = [e for e in entries if e.kind == "INTENT" and counted(e)]

    def spent(lineage: str, cost: Callable[[Entry], str]) -> Fraction:
        return spent_of([(e.body.get("partition"), Fraction(cost(e))) for e in charged if e.lineage == lineage])

    replaced = (spent(name, lambda e: e.body["rho"]) for name in move.replaced)
    # leaving is being replaced by nobody, so it never costs more
    joined = (spent(name, _joining) for name in move.joined)
    return sum((*replaced, *joined), Fraction(0))


def worst_loss(entries: Sequence[Entry], lineage: str) -> Fraction:
    """What one person of a lineage has lost at most, to all lineages together."""
    return max(lost(entries, move) for move in moves(entries, lineage))


def _joining(e: Entry) -> str:
    """What an entry charges somebody who leaves or joins; a retry that took a charge over pays nothing again."""
    return min(e.body.get("rho_add_remove", e.body["rho"]), e.body["rho"], key=Fraction)


def _real(entries: Sequence[Entry]) -> Group:
    names = {e.lineage for e in entries if e.kind == "REGISTER"}
    return frozenset(n for n in names if (registration(entries, n) or {}).get("kind") == "real")


def _declared(entries: Sequence[Entry], lineage: str) -> Group:
    return frozenset((registration(entries, lineage) or {}).get("disjoint_from", ()))


def _largest(chosen: Group, left: Group, apart: dict[str, Group]) -> Sequence[Group]:
    """Largest sets of lineages that one person may be in: no two of them are disjoint."""
    if not left:
        return [chosen]
    first = min(left)
    within = _largest(chosen | {first}, left - apart[first] - {first}, apart)
    without = _largest(chosen, left - {first}, apart) if left & apart[first] else []
    # a set that could take the first one in is not among the largest
    return [*within, *(g for g in without if g & apart[first])]
