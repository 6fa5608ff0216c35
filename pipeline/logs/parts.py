"""Evaluation split: the people of a snapshot in two parts, by a keyed hash of their id; one learns, one evaluates.

The split is the ledger's: people who are held out in one of its real lineages are held out in all.  Lineages that were
registered before a ledger reserved people, and synthetic ones, have a separate split each.

A person's part depends on their id and a secret alone, never on rows or on other people.  The secrecy keeps a person
who can choose ids from choosing who evaluates.  The parts are as secret as the rows; they lie in the snapshot's folder
until their release is on disk, and are then removed.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
import hashlib
import hmac
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from pipeline.declaration.card import CardError
from pipeline.files import open_private, private_folder, remove_file, remove_tree, whole_folder
from pipeline.logs.contribution_bounding import canonical
from pipeline.logs.store import Snapshot, check_parts, find_snapshot, part_file

LEARN, EVALUATE = "learn", "evaluate"
# prefix of the folders, in a snapshot's folder, that hold its evaluation split
_PARTS = ".parts-"
_WORD = 8


def part_key(secret: bytes, dataset: str) -> bytes:
    """Key by which people are split.

    ``dataset``: name of a lineage with a separate split; empty: that of the whole ledger.
    """
    return hmac.digest(secret, f"split\x1f{dataset}".encode(), "sha256")


def evaluates(users: Iterable[str], share: Fraction, key: bytes) -> list[bool]:
    """Whether each person evaluates; a larger share includes the people of a smaller one.

    ``share``: expected share of all people, between 0 and 1.
    """
    return _below(_places(users, key), share)


def _below(places: Iterable[int], share: Fraction) -> list[bool]:
    most = int(share * 2 ** (8 * _WORD))
    return [place < most for place in places]


def _places(users: Iterable[str], key: bytes) -> Iterator[int]:
    # copies of one keyed hash: half of the time of a new one for each person
    empty = hmac.new(key, digestmod="sha256")
    for user in users:
        keyed = empty.copy()
        keyed.update(user.encode())
        yield int.from_bytes(keyed.digest()[:_WORD], "big")


@dataclass(frozen=True)
class Split:
    """Evaluation split of any rows; people who are reserved and do not evaluate are in neither part.

    ``reserve``: share of the people who never learn.
    """

    share: Fraction
    key: bytes = field(repr=False)
    reserve: Fraction = Fraction(0)

    def cut(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Rows of the people who learn and of those who evaluate, in their order."""
        users = rows.select("user_id").unique(maintain_order=True)
        places = [*_places(users["user_id"].cast(pl.String).to_list(), self.key)]

        def chosen(share: Fraction) -> pl.DataFrame:
            return users.filter(pl.Series(_below(places, share), dtype=pl.Boolean))

        judges = chosen(self.share)
        reserved = judges if self.reserve <= self.share else chosen(self.reserve)
        learn = rows.join(reserved, on="user_id", how="anti", maintain_order="left")
        return learn, rows.join(judges, on="user_id", how="semi", maintain_order="left")


def editions_until(snapshot: Snapshot, edition: int) -> list[Snapshot]:
    """All editions of a lineage up to one, intact.

    Raises CardError if one was purged, because its people are then unknown.
    Raises DamagedError if one differs from what ingest wrote.
    """
    editions: list[Snapshot] = []
    for number in range(1, edition + 1):
        earlier = find_snapshot(snapshot.folder.parent.parent, snapshot.dataset, number)
        if earlier is None:
            raise CardError(
                f"{snapshot.dataset}: [evaluate] since = {edition}: edition {number} was purged, so nobody knows who "
                "came in later; take 'since' out. Nothing was charged"
            )
        check_parts(earlier)
        editions.append(earlier)
    return editions


def split_people(snapshot: Snapshot, split: Split, before: Sequence[Snapshot] = ()) -> tuple[Snapshot, Snapshot]:
    """Write both parts of a snapshot, a partition in memory at a time, unless they exist.

    Returns the parts that learn and evaluate, each with as many partitions, some of which may be empty.
    """
    earlier = " ".join(s.data_digest for s in before)
    description = f"{split.share} {split.reserve} {snapshot.data_digest} {split.key.hex()} {earlier}"
    home = snapshot.folder / f"{_PARTS}{hashlib.sha256(description.encode()).hexdigest()[:16]}"
    if not home.is_dir():
        with whole_folder(home, private=True, beside=f"{_PARTS}new") as fresh:
            _write(snapshot, split, before, fresh)
    return _part(snapshot, home / LEARN), _part(snapshot, home / EVALUATE)


def _write(snapshot: Snapshot, split: Split, before: Sequence[Snapshot], fresh: Path) -> None:
    for name in (LEARN, EVALUATE):
        private_folder(fresh / name)
    former_judges = _judges(before, split)
    for i, file in enumerate(snapshot.part_files):
        learn, evaluate = split.cut(pl.read_parquet(file))
        if before:
            evaluate = evaluate.filter(~_canonical_ids(evaluate).is_in(former_judges.implode()))
        for name, rows in zip((LEARN, EVALUATE), (learn, evaluate), strict=True):
            with open_private(part_file(fresh / name, i)) as part:
                rows.write_parquet(part, compression="zstd")


def _judges(editions: Sequence[Snapshot], split: Split) -> pl.Series:
    """Ids, as text, of the people of these editions who would evaluate."""
    parts = (pl.read_parquet(p, columns=["user_id"]).unique() for s in editions for p in s.part_files)
    # an edition of an older version may have ids that are not canonical
    judges = [
        users.filter(pl.Series(evaluates(users, split.share, split.key), dtype=pl.Boolean))
        for users in map(_canonical_ids, parts)
    ]
    return pl.concat([pl.Series("user_id", [], dtype=pl.String), *judges]).unique()


def _canonical_ids(rows: pl.DataFrame) -> pl.Series:
    return rows.select(canonical(pl.col("user_id").cast(pl.String))).to_series()


def _part(snapshot: Snapshot, folder: Path) -> Snapshot:
    rows = sum(pq.read_metadata(part_file(folder, i)).num_rows for i in range(snapshot.partitions))
    return replace(snapshot, folder=folder, rows=rows)


def forget(snapshot: Snapshot) -> None:
    """Remove the rows of evaluation splits, and partial sums of an older version."""
    for path in snapshot.folder.glob(".sums*"):
        remove_file(path)
    for folder in snapshot.folder.glob(f"{_PARTS}*"):
        remove_tree(folder)
