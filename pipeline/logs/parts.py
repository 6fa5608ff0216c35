"""The people of a snapshot in two parts, by a keyed hash of their id: one part learns, the other evaluates.

Which part a person is in depends on their id and a secret alone, never on rows or on other people.  The secrecy keeps
somebody who may choose ids from choosing who evaluates.  The parts are as secret as the rows; they lie in the
snapshot's folder until their release is on disk, and leave with it.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from pipeline.declaration.card import Card
from pipeline.files import open_private, private_folder, whole_folder
from pipeline.logs.contribution_bounding import Hashes, hash_frame, pick_new
from pipeline.logs.store import Snapshot, part_file
from pipeline.logs.summing import PARTS

LEARN, EVALUATE = "learn", "evaluate"
_WORD = 8


def part_key(secret: bytes, dataset: str) -> bytes:
    """The key by which a lineage's people are split.

    Parameters
    ----------
    secret
        Of the ledger.
    dataset
        Name of the lineage.
    """
    return hmac.digest(secret, f"split\x1f{dataset}".encode(), "sha256")


def evaluates(users: Iterable[str], share: Fraction, key: bytes) -> list[bool]:
    """Whether each person is of the part that evaluates; a larger share holds the people of a smaller one.

    Parameters
    ----------
    users
        Ids as text, each person once.
    share
        Of all people, between 0 and 1.
    key
        From :func:`part_key`.
    """
    most = int(share * 2 ** (8 * _WORD))
    return [int.from_bytes(hmac.digest(key, user.encode(), "sha256")[:_WORD], "big") < most for user in users]


@dataclass(frozen=True)
class Split:
    """Who learns and who evaluates, of any rows.

    Parameters
    ----------
    share
        Of the people who evaluate.
    key
        From :func:`part_key`.
    """

    share: Fraction
    key: bytes = field(repr=False)

    def cut(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows of those who learn and of those who evaluate, in their order."""
        users = rows.select("user_id").unique(maintain_order=True)
        chosen = evaluates(users["user_id"].cast(pl.String), self.share, self.key)
        users = users.filter(pl.Series(chosen, dtype=pl.Boolean))
        learn = rows.join(users, on="user_id", how="anti", maintain_order="left")
        return learn, rows.join(users, on="user_id", how="semi", maintain_order="left")


def split_people(snapshot: Snapshot, share: Fraction, secret: bytes) -> tuple[Snapshot, Snapshot]:
    """Write both parts of a snapshot, a partition in memory at a time; what is there already is kept.

    Parameters
    ----------
    snapshot
        What ``ingest`` wrote; each person is whole in one of its partitions.
    share
        Of the people who evaluate.
    secret
        Of the ledger.

    Returns
    -------
    Who learns, and who evaluates: each with as many partitions, some of which may be empty.
    """
    key = part_key(secret, snapshot.dataset)
    told = f"{share} {snapshot.data_digest} {key.hex()}"
    home = snapshot.folder / f"{PARTS}{hashlib.sha256(told.encode()).hexdigest()[:16]}"
    if not home.is_dir():
        with whole_folder(home, private=True, beside=f"{PARTS}new") as fresh:
            _write(snapshot, Split(share, key), fresh)
    return _part(snapshot, home / LEARN), _part(snapshot, home / EVALUATE)


def _write(snapshot: Snapshot, split: Split, fresh: Path) -> None:
    for name in (LEARN, EVALUATE):
        private_folder(fresh / name)
    for i, file in enumerate(snapshot.part_files):
        for name, rows in zip((LEARN, EVALUATE), split.cut(pl.read_parquet(file)), strict=True):
            _write_rows(rows, fresh / name, i)


def _write_rows(rows: pl.DataFrame, folder: Path, i: int) -> None:
    with open_private(part_file(folder, i)) as file:
        rows.write_parquet(file, compression="zstd")


def hold_apart(snapshots: Sequence[Snapshot], card: Card, split: Split, seen: Hashes, key: bytes, home: Path) -> Hashes:
    """Write the people who evaluate and were never asked before, each once, with what first came of them.

    Parameters
    ----------
    snapshots
        Since they were last asked, oldest first; a partition is in memory at a time.
    card
        Its people never recur.
    split
        Who evaluates.
    seen, key
        ``(n, hash_width)`` of all who were counted or asked, and the operator's random key of these hashes.
    home
        A fresh folder for their rows; as secret as the log.

    Returns
    -------
    Their hashes, to add to ``seen``.
    """
    known = hash_frame(seen)
    fresh = known.clear()
    private_folder(home)
    for i, part in enumerate(p for s in snapshots for p in s.part_files):
        _, mine = split.cut(pl.read_parquet(part))
        new = pick_new(mine, card, pl.concat([known, fresh]), key)
        mine = mine.join(new, on="user_id", how="semi", maintain_order="left")
        _write_rows(mine, home, i)
        fresh = pl.concat([fresh, new.select(fresh.columns)])
    return fresh.to_numpy().astype(np.uint64)


def those_apart(home: Path, card: Card) -> Snapshot:
    """The people that :func:`hold_apart` wrote, as a snapshot of their own; there may be none.

    Parameters
    ----------
    home, card
        See there.
    """
    parts = len(list(home.iterdir()))
    return _part(Snapshot(card.name, 0, home, card.kind, card.domain_hash(), "", "", 0, 0, 0, 0, {}, parts), home)


def _part(snapshot: Snapshot, folder: Path) -> Snapshot:
    rows = sum(pq.read_metadata(part_file(folder, i)).num_rows for i in range(snapshot.partitions))
    return replace(snapshot, folder=folder, rows=rows)
