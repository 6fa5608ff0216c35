"""Who is in which lineage: keyed hashes of user ids, beside the chain, for the operator alone (privacy.md §0.2-8).

A person belongs to the first of several disjoint lineages that ingested them, for good; the others set their rows
aside.  So one person's overlap decides nothing but where their own rows count.  Ids that were pseudonymised anew are
other ids.
"""

# pyright: reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from pipeline.arrays import Bools, Integers
from pipeline.files import whole_file, write_file
from pipeline.ledger.chain import Body, BudgetError, Entry
from pipeline.privacy.release import HELD_OUT

Hashes = NDArray[np.uint64]

_BYTES = 32
# of a mode: accounts that are neither the owner nor of its group
_OTHERS = stat.S_IRWXO
# in the INTENT of whoever was split by the key
MARK = "people_key"
_LOST = (
    "It is the key by which this ledger knows people and says who evaluates: under another one, people who taught "
    "would judge. Copy it back from its backup, or from the host that made it (docs/operate.md). Nothing was read"
)
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
    """Where the key of a ledger's hashes lies: beside a ledger file, else in the operator's store."""
    return store / ".people-key" if "://" in where else Path(f"{where}.people-key")


def read_key(file: Path) -> bytes:
    """The secret of a ledger; made once, mode 0600.

    Raises BudgetError if it is no key, or every account of this host may read it.
    """
    if not file.exists():
        # two lineages may come at once: the first one's key stays
        with suppress(FileExistsError), whole_file(file, private=True, over=False, alone=False) as fresh:
            write_file(fresh, secrets.token_hex(_BYTES))
    if file.stat().st_mode & _OTHERS:
        mode = stat.S_IMODE(file.stat().st_mode)
        raise BudgetError(
            f"every account of this host may read {file} (mode {mode:o}): it is the key that turns a guessed id into a "
            "person of the ledger. Write `chmod 600` on it; whoever may have read it counts as an operator "
            "(docs/privacy.md). Nothing was read"
        )
    try:
        found = bytes.fromhex(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        found = b""
    if len(found) != _BYTES:
        raise BudgetError(f"{file} is damaged: it is the key by which people are known; restore it")
    return found


def mark_of(key: bytes) -> str:
    """What the ledger keeps of a key, to know it again."""
    return hashlib.sha256(key).hexdigest()[:16]


def known_key(connection: sa.Connection, entries: Sequence[Entry], file: Path) -> bytes:
    """The secret of a ledger: made where nobody was claimed or split by one yet, and else the very one of then.

    Raises BudgetError if the file is lost, or holds another key: people would be claimed and split anew.
    """
    charged = [e.body for e in entries if e.kind == "INTENT"]
    marks = {told[MARK] for told in charged if MARK in told}
    if sa.inspect(connection).has_table(_people.name):
        marks |= {*connection.execute(sa.select(_people.c.key).distinct()).scalars()}
    # an older version split people, and kept no mark
    none: Body = {}
    parted = ((t.get("joint") or none, t.get("counter", none)) for t in charged)
    split = [joint for joint, counter in parted if joint.get("variant") == HELD_OUT or "share" in counter]
    if not file.exists() and (marks or split):
        raise BudgetError(f"{file} is lost. {_LOST}")
    found = read_key(file)
    if marks and mark_of(found) not in marks:
        raise BudgetError(f"{file} is another key than the ledger's: {mark_of(found)}, not {min(marks)}. {_LOST}")
    return found


def hash_people(users: Iterable[str], key: bytes) -> Hashes:
    """HMAC-SHA256 of each id, its first 16 bytes.

    Returns ``(n, 2)``.
    """
    found = b"".join(hmac.digest(key, user.encode(), "sha256")[:16] for user in users)
    return np.frombuffer(found, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def claim(
    connection: sa.Connection, lineage: str, apart: Iterable[str], people: Sequence[Sequence[str]], key: bytes
) -> list[str | None]:
    """Take for a lineage whoever no lineage apart from it has.

    Returns for each of the people None if they are of a lineage apart, else the text under which the ledger knows them
    from now on: that of this lineage, else of another one, else the first.
    Raises BudgetError if people of this ledger are known under another key.
    """
    _metadata.create_all(connection)
    mark = mark_of(key)
    if strange := connection.execute(sa.select(_people.c.key).where(_people.c.key != mark).limit(1)).scalar():
        raise BudgetError(
            f"{lineage}: the people of this ledger are known under key {strange}, here it is {mark}; copy the file "
            ".people-key of the host that ingested first (docs/privacy.md)"
        )
    lineages = connection.execute(sa.select(_people.c.lineage).distinct()).scalars().all()
    known: list[str | None] = [texts[0] for texts in people]
    left = np.flatnonzero(~_among(hash_people((texts[0] for texts in people), key), _known(connection, [lineage])))
    # one row a text of those who are not known by the one form of their id
    strange = [people[int(i)] for i in left]
    texts = [text for spellings in strange for text in spellings]
    of = np.array([i for i, spellings in enumerate(strange) for _ in spellings], dtype=np.int64)
    asked = hash_people(texts, key)
    ours, taken, anyones = (
        _first_of(_among(asked, _known(connection, names)), of, len(strange))
        for names in ([lineage], sorted(apart), sorted(lineages))
    )
    form = _first_of(np.ones(len(asked), dtype=bool), of, len(strange))
    text = np.where(ours >= 0, ours, np.where(anyones >= 0, anyones, form))
    others = (ours < 0) & (taken >= 0)
    for i, place, other in zip(left, text, others, strict=True):
        known[i] = None if other else texts[place]
    fresh = asked[text[(ours < 0) & ~others]]
    if len(fresh):
        told = {"lineage": lineage, "key": mark, "hashes": fresh.astype("<u8").tobytes()}
        connection.execute(_people.insert().values(**told))
    return known


def _first_of(there: Bools, of: Integers, people: int) -> Integers:
    """For each of the people the first place that is marked of theirs; -1 where none is."""
    first = np.full(people, -1)
    at = np.flatnonzero(there)[::-1]
    first[of[at]] = at
    return first


def knows_people(connection: sa.Connection) -> bool:
    """Whether anybody was ever claimed in a ledger; where nobody was declared disjoint, nobody needs to be."""
    there = sa.inspect(connection).has_table(_people.name)
    return there and connection.execute(sa.select(_people.c.id).limit(1)).scalar() is not None


def _known(connection: sa.Connection, lineages: Sequence[str]) -> Hashes:
    found = connection.execute(sa.select(_people.c.hashes).where(_people.c.lineage.in_(lineages))).scalars()
    return np.frombuffer(b"".join(found), dtype="<u8").reshape(-1, 2).astype(np.uint64)


def _among(asked: Hashes, known: Hashes) -> Bools:
    """Which rows are in ``known``: by the first word, and the few that agree in it by both."""
    likely = np.isin(asked[:, 0], known[:, 0])
    both = {(a, b) for a, b in known[np.isin(known[:, 0], asked[likely, 0])].tolist()}
    return likely & np.array([(a, b) in both for a, b in asked.tolist()], dtype=bool).reshape(len(asked))
