"""The people of a snapshot in two parts, by a keyed hash of their id: one part learns, the other evaluates.

Which part a person is in depends on their id and a secret alone, never on rows or on other people.  The secrecy keeps
somebody who may choose ids from choosing who evaluates.  The parts are as secret as the rows; they lie in the
snapshot's folder until their release is on disk, and leave with it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from pipeline.files import open_private, private_folder, whole_folder
from pipeline.logs.store import Snapshot, part_file
from pipeline.logs.summing import PARTS

if TYPE_CHECKING:
    from polars._typing import JoinStrategy

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
            _write(snapshot, share, key, fresh)
    return _part(snapshot, home / LEARN), _part(snapshot, home / EVALUATE)


def _write(snapshot: Snapshot, share: Fraction, key: bytes, fresh: Path) -> None:
    for name in (LEARN, EVALUATE):
        private_folder(fresh / name)
    for i, file in enumerate(snapshot.part_files):
        rows = pl.read_parquet(file)
        users = rows.select("user_id").unique(maintain_order=True)
        chosen = evaluates(users["user_id"].cast(pl.String), share, key)
        users = users.filter(pl.Series(chosen, dtype=pl.Boolean))
        hows: tuple[tuple[str, JoinStrategy], ...] = ((LEARN, "anti"), (EVALUATE, "semi"))
        for name, how in hows:
            with open_private(part_file(fresh / name, i)) as file:
                of_part = rows.join(users, on="user_id", how=how, maintain_order="left")
                of_part.write_parquet(file, compression="zstd")


def _part(snapshot: Snapshot, folder: Path) -> Snapshot:
    rows = sum(pq.read_metadata(part_file(folder, i)).num_rows for i in range(snapshot.partitions))
    return replace(snapshot, folder=folder, rows=rows)
