"""The people of a snapshot in two parts, by a keyed hash of their id: one part learns, the other evaluates.

The split is the ledger's: whoever judges in one of its real lineages judges in all, and teaches in none.  Lineages that
were registered before a ledger reserved its judges, and synthetic ones, have each a split of their own.

Which part a person is in depends on their id and a secret alone, never on rows or on other people.  The secrecy keeps
somebody who may choose ids from choosing who evaluates.  The parts are as secret as the rows; they lie in the
snapshot's folder until their release is on disk, and leave with it.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from pipeline.declaration.card import CardError
from pipeline.files import open_private, private_folder, whole_folder
from pipeline.logs.contribution_bounding import canonical
from pipeline.logs.store import Snapshot, check_parts, find_snapshot, part_file
from pipeline.logs.summing import PARTS

LEARN, EVALUATE = "learn", "evaluate"
_WORD = 8


def part_key(secret: bytes, dataset: str) -> bytes:
    """The key by which people are split.

    ``dataset``: name of a lineage that is split by itself; empty: of the whole ledger.
    """
    return hmac.digest(secret, f"split\x1f{dataset}".encode(), "sha256")


def evaluates(users: Iterable[str], share: Fraction, key: bytes) -> list[bool]:
    """Whether each person is of the part that evaluates; a larger share holds the people of a smaller one.

    ``share``: of all people, between 0 and 1.
    """
    most = int(share * 2 ** (8 * _WORD))
    return [int.from_bytes(told[:_WORD], "big") < most for told in _keyed(users, key)]


def _keyed(users: Iterable[str], key: bytes) -> Iterator[bytes]:
    """HMAC-SHA-256 of each."""
    # the key is worked in once, not once a person
    begun = hmac.new(key, digestmod="sha256")
    for user in users:
        told = begun.copy()
        told.update(user.encode())
        yield told.digest()


@dataclass(frozen=True)
class Split:
    """Who learns and who evaluates, of any rows; whoever is reserved and does not evaluate does neither.

    ``reserve``: share of the people who never teach.
    """

    share: Fraction
    key: bytes = field(repr=False)
    reserve: Fraction = Fraction(0)

    def cut(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of those who learn and of those who evaluate, in their order."""
        users = rows.select("user_id").unique(maintain_order=True)
        ids = users["user_id"].cast(pl.String)

        def chosen(share: Fraction) -> pl.DataFrame:
            return users.filter(pl.Series(evaluates(ids, share, self.key), dtype=pl.Boolean))

        judges = chosen(self.share)
        kept = judges if self.reserve <= self.share else chosen(self.reserve)
        learn = rows.join(kept, on="user_id", how="anti", maintain_order="left")
        return learn, rows.join(judges, on="user_id", how="semi", maintain_order="left")


def editions_until(snapshot: Snapshot, edition: int) -> list[Snapshot]:
    """All editions of a lineage up to one, whole.

    Raises CardError if one was purged: nobody would know any more who was in it.
    Raises DamagedError if one is not what ingest wrote.
    """
    found: list[Snapshot] = []
    for number in range(1, edition + 1):
        there = find_snapshot(snapshot.folder.parent.parent, snapshot.dataset, number)
        if there is None:
            raise CardError(
                f"{snapshot.dataset}: [evaluate] since = {edition}: edition {number} was purged, so nobody knows who "
                "came in later; take 'since' out. Nothing was charged"
            )
        check_parts(there)
        found.append(there)
    return found


def split_people(snapshot: Snapshot, split: Split, before: Sequence[Snapshot] = ()) -> tuple[Snapshot, Snapshot]:
    """Write both parts of a snapshot, a partition in memory at a time; what is there already is kept.

    Returns who learns, and who evaluates: each with as many partitions, some of which may be empty.
    """
    earlier = " ".join(s.data_digest for s in before)
    told = f"{split.share} {split.reserve} {snapshot.data_digest} {split.key.hex()} {earlier}"
    home = snapshot.folder / f"{PARTS}{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    if not home.is_dir():
        with whole_folder(home, private=True, beside=f"{PARTS}new") as fresh:
            _write(snapshot, split, before, fresh)
    return _part(snapshot, home / LEARN), _part(snapshot, home / EVALUATE)


def _write(snapshot: Snapshot, split: Split, before: Sequence[Snapshot], fresh: Path) -> None:
    for name in (LEARN, EVALUATE):
        private_folder(fresh / name)
    known = _judges(before, split)
    for i, file in enumerate(snapshot.part_files):
        learn, evaluate = split.cut(pl.read_parquet(file))
        mine = _one_form(evaluate).is_in(known.implode())
        for name, rows in zip((LEARN, EVALUATE), (learn, evaluate.filter(~mine)), strict=True):
            _write_rows(rows, fresh / name, i)


def _judges(editions: Sequence[Snapshot], split: Split) -> pl.Series:
    """Who would judge of these editions, as text: of each person their own rows decide whether they were in one."""
    parts = (pl.read_parquet(p, columns=["user_id"]).unique() for s in editions for p in s.part_files)
    # an edition of before there was one form of ids may have others
    found = [
        users.filter(pl.Series(evaluates(users, split.share, split.key), dtype=pl.Boolean))
        for users in map(_one_form, parts)
    ]
    return pl.concat([pl.Series("user_id", [], dtype=pl.String), *found]).unique()


def _one_form(rows: pl.DataFrame) -> pl.Series:
    return rows.select(canonical(pl.col("user_id").cast(pl.String))).to_series()


def _write_rows(rows: pl.DataFrame, folder: Path, i: int) -> None:
    with open_private(part_file(folder, i)) as file:
        rows.write_parquet(file, compression="zstd")


def _part(snapshot: Snapshot, folder: Path) -> Snapshot:
    rows = sum(pq.read_metadata(part_file(folder, i)).num_rows for i in range(snapshot.partitions))
    return replace(snapshot, folder=folder, rows=rows)
