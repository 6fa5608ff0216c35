"""Who is in which lineage: keyed hashes of user ids, beside the chain, for the operator alone (privacy.md §0.2-8).

A person belongs to the first of several disjoint lineages that ingested them, for good; the others set their rows
aside.  So one person's overlap decides nothing but where their own rows count.  Ids that were pseudonymised anew are
other ids.

Which lineages may hold the same people, and what one person loses to all of them (privacy.md §0.2-8).

A lineage that is registered again under another name holds the same people.  So the real lineages of a ledger are
charged together, unless two of them were declared disjoint at ``register``: then nobody's rows count in both, and what
somebody loses who is in the one, or instead in the other, is the cost of leaving the one and joining the other.
"""

# pyright: reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from pipeline.files import whole_file, write_file
from pipeline.ledger.account import registration, spent_of
from pipeline.ledger.chain import BudgetError, Entry

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


Hashes = NDArray[np.uint64]

_BYTES = 32
# made when it is first needed: a ledger without it is whole
_metadata = sa.MetaData()
_people = sa.Table(
    "people",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("lineage", sa.String, nullable=False, index=True),
    sa.Column("key", sa.String(16), nullable=False),
    sa.Column("hashes", sa.LargeBinary, nullable=False),
)


def key_file(where: str, store: Path) -> Path:
    """Where the key of a ledger's hashes lies: beside a ledger file, else in the operator's store.

    Parameters
    ----------
    where, store
        The ledger as messages name it, and the store.
    """
    return store / ".people-key" if "://" in where else Path(f"{where}.people-key")


def read_key(file: Path) -> bytes:
    """The secret of a ledger; made once, mode 0600.

    Raises
    ------
    BudgetError
        If it is no key.
    """
    if not file.exists():
        # two lineages may come at once: the first one's key stays
        with suppress(FileExistsError), whole_file(file, private=True, over=False, alone=False) as fresh:
            write_file(fresh, secrets.token_hex(_BYTES))
    try:
        found = bytes.fromhex(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        found = b""
    if len(found) != _BYTES:
        raise BudgetError(f"{file} is damaged: it is the key by which people are known; restore it. Nothing was read")
    return found


def hash_people(users: Iterable[str], key: bytes) -> Hashes:
    """HMAC-SHA256 of each id, its first 16 bytes.

    Returns
    -------
    ``(n, 2)``.
    """
    found = b"".join(hmac.digest(key, user.encode(), "sha256")[:16] for user in users)
    return np.frombuffer(found, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def claim(
    connection: sa.Connection, lineage: str, apart: Iterable[str], users: Sequence[str], key: bytes
) -> list[bool]:
    """Take for a lineage whoever no lineage apart from it has.

    Returns
    -------
    For each of the people, whether they are of this lineage now.

    Raises
    ------
    BudgetError
        If people of this ledger are known under another key.
    """
    _metadata.create_all(connection)
    mark = hashlib.sha256(key).hexdigest()[:16]
    if strange := connection.execute(sa.select(_people.c.key).where(_people.c.key != mark).limit(1)).scalar():
        raise BudgetError(
            f"{lineage}: the people of this ledger are known under key {strange}, here it is {mark}; copy the file "
            ".people-key of the host that ingested first (docs/threat_model.md). Nothing was read"
        )
    asked = hash_people(users, key)
    ours = _among(asked, _known(connection, [lineage]))
    taken = ~ours & _among(asked, _known(connection, sorted(apart)))
    fresh = asked[~ours & ~taken]
    if len(fresh):
        told = {"lineage": lineage, "key": mark, "hashes": fresh.astype("<u8").tobytes()}
        connection.execute(_people.insert().values(**told))
    return (~taken).tolist()


def forget(connection: sa.Connection, lineage: str) -> None:
    """Take back every claim of a lineage that was never charged: it is declared disjoint now, and ingests anew."""
    _metadata.create_all(connection)
    connection.execute(_people.delete().where(_people.c.lineage == lineage))


def _known(connection: sa.Connection, lineages: Sequence[str]) -> Hashes:
    found = connection.execute(sa.select(_people.c.hashes).where(_people.c.lineage.in_(lineages))).scalars()
    return np.frombuffer(b"".join(found), dtype="<u8").reshape(-1, 2).astype(np.uint64)


def _among(asked: Hashes, known: Hashes) -> NDArray[np.bool_]:
    """Which rows are in ``known``: by the first word, and the few that agree in it by both."""
    likely = np.isin(asked[:, 0], known[:, 0])
    both = {(a, b) for a, b in known[np.isin(known[:, 0], asked[likely, 0])].tolist()}
    return likely & np.array([(a, b) in both for a, b in asked.tolist()], dtype=bool).reshape(len(asked))
