"""People of each lineage: keyed hashes of user ids, beside the chain, for the operator alone (privacy.md §0.2-8).

A person belongs to the first of several disjoint lineages that ingested them, for good; the others set their rows
aside.  So the overlap of one person decides only where their own rows count.  Ids that were pseudonymised anew are
other ids.
"""

# pyright: reportUnknownVariableType=false
import hashlib
import hmac
import secrets
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from pipeline.arrays import Bools, Hashes, Integers
from pipeline.files import whole_file, write_file
from pipeline.ledger.chain import Body, BudgetError, Entry
from pipeline.privacy.release import HELD_OUT

_BYTES = 32
# of a mode: accounts that are neither the owner nor of its group
_OTHERS = stat.S_IRWXO
# in an INTENT whose people were split by the key
MARK = "people_key"
_LOST = (
    "It is the key by which this ledger knows people and says who evaluates: under another one, people who taught "
    "would judge. Copy it back from its backup, or from the host that made it (docs/operate.md)"
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
    """Path of the key of a ledger's hashes: beside a ledger file, else in the operator's store."""
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
        key = bytes.fromhex(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        key = b""
    if len(key) != _BYTES:
        raise BudgetError(f"{file} is damaged: it is the key by which people are known; restore it")
    return key


def mark_of(key: bytes) -> str:
    """Digest by which the ledger recognises a key."""
    return hashlib.sha256(key).hexdigest()[:16]


def _marks(entries: Sequence[Entry]) -> set[str]:
    return {e.body[MARK] for e in entries if e.kind == "INTENT" and MARK in e.body}


def refuse_second_key(entries: Sequence[Entry], body: Body) -> None:
    """Refuse an INTENT under another key than those before it: two hosts may each have made one at the same time.

    Raises BudgetError if so.
    """
    marks, mark = _marks(entries), body.get(MARK)
    if marks and mark is not None and mark not in marks:
        raise BudgetError(
            f"the .people-key of this host is another key than the ledger's: {mark}, not {min(marks)}. {_LOST}"
        )


def known_key(connection: sa.Connection, entries: Sequence[Entry], file: Path) -> bytes:
    """The secret of a ledger: made where no people were claimed or split by one yet.

    Raises BudgetError if the file is lost, or holds another key: people would be claimed and split anew.
    """
    intents = [e.body for e in entries if e.kind == "INTENT"]
    marks = _marks(entries)
    if sa.inspect(connection).has_table(_people.name):
        marks |= {*connection.execute(sa.select(_people.c.key).distinct()).scalars()}
    # an older version split people, and kept no mark
    none: Body = {}
    terms = ((body.get("joint") or none, body.get("counter", none)) for body in intents)
    split = [joint for joint, counter in terms if joint.get("variant") == HELD_OUT or "share" in counter]
    if not file.exists() and (marks or split):
        raise BudgetError(f"{file} is lost. {_LOST}. Nothing was read")
    key = read_key(file)
    if marks and mark_of(key) not in marks:
        raise BudgetError(
            f"{file} is another key than the ledger's: {mark_of(key)}, not {min(marks)}. {_LOST}. Nothing was read"
        )
    return key


def hash_people(users: Iterable[str], key: bytes) -> Hashes:
    """HMAC-SHA256 of each id, its first 16 bytes.

    Returns ``(n, 2)``.
    """
    digests = b"".join(hmac.digest(key, user.encode(), "sha256")[:16] for user in users)
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def claim(
    connection: sa.Connection, lineage: str, apart: Iterable[str], people: Sequence[Sequence[str]], key: bytes
) -> list[str | None]:
    """Claim people for a lineage, except those whom a lineage apart from it has.

    ``people``: the spellings of each person's id.
    Returns for each of the people None if they are of a lineage apart, else the spelling under which the ledger knows
    them from now on: that of this lineage, else of another one, else the first.
    Raises BudgetError if people of this ledger are known under another key.
    """
    _metadata.create_all(connection)
    mark = mark_of(key)
    if other_key := connection.execute(sa.select(_people.c.key).where(_people.c.key != mark).limit(1)).scalar():
        raise BudgetError(
            f"{lineage}: the people of this ledger are known under key {other_key}, here it is {mark}; copy the file "
            ".people-key of the host that ingested first (docs/privacy.md)"
        )
    lineages = connection.execute(sa.select(_people.c.lineage).distinct()).scalars().all()
    known_as: list[str | None] = [spellings[0] for spellings in people]
    first_hashes = hash_people((spellings[0] for spellings in people), key)
    unknown = np.flatnonzero(~_among(first_hashes, _claimed(connection, [lineage])))
    # one row a spelling of those who are not known by their first one
    ids = [people[int(i)] for i in unknown]
    texts = [text for spellings in ids for text in spellings]
    owner = np.array([i for i, spellings in enumerate(ids) for _ in spellings], dtype=np.int64)
    hashes = hash_people(texts, key)
    ours, apart_places, any_places = (
        _first_places(_among(hashes, _claimed(connection, names)), owner, len(ids))
        for names in ([lineage], sorted(apart), sorted(lineages))
    )
    first_places = _first_places(np.ones(len(hashes), dtype=bool), owner, len(ids))
    place = np.where(ours >= 0, ours, np.where(any_places >= 0, any_places, first_places))
    of_others = (ours < 0) & (apart_places >= 0)
    for i, row, other in zip(unknown, place, of_others, strict=True):
        known_as[i] = None if other else texts[row]
    fresh = hashes[place[(ours < 0) & ~of_others]]
    if len(fresh):
        blob = fresh.astype("<u8").tobytes()
        connection.execute(_people.insert().values(lineage=lineage, key=mark, hashes=blob))
    return known_as


def _first_places(marked: Bools, owner: Integers, people: int) -> Integers:
    """The first marked row of each of the people, of whom ``owner`` names one a row; -1 where none is marked."""
    first = np.full(people, -1)
    rows = np.flatnonzero(marked)[::-1]
    first[owner[rows]] = rows
    return first


def knows_people(connection: sa.Connection) -> bool:
    """Whether people were ever claimed in a ledger: only those of lineages that were declared disjoint need to be."""
    has_table = sa.inspect(connection).has_table(_people.name)
    return has_table and connection.execute(sa.select(_people.c.id).limit(1)).scalar() is not None


def _claimed(connection: sa.Connection, lineages: Sequence[str]) -> Hashes:
    """Hashes of the people of these lineages."""
    blobs = connection.execute(sa.select(_people.c.hashes).where(_people.c.lineage.in_(lineages))).scalars()
    return np.frombuffer(b"".join(blobs), dtype="<u8").reshape(-1, 2).astype(np.uint64)


def _among(hashes: Hashes, known: Hashes) -> Bools:
    """Mask of the rows that are in ``known``: by the first word, and the few that agree in it by both."""
    likely = np.isin(hashes[:, 0], known[:, 0])
    both = {(a, b) for a, b in known[np.isin(known[:, 0], hashes[likely, 0])].tolist()}
    return likely & np.array([(a, b) in both for a, b in hashes.tolist()], dtype=bool).reshape(len(hashes))
