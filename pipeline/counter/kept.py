"""What a counter keeps in the operator's store: exact leaves, who was counted, and the noisy rows.

``counters/<key>/`` beside the snapshots, folders 0700, files 0600, and out of reach of ``store purge``:

* ``leaf-<night>.<attempt>.npy``: the exact count tables of one night, cells that are not 0 only.  With them the rows
  of old snapshots are no longer needed.
* ``seen-<night>.<attempt>.npy``: hashes of the people (or episodes) that the night counted, under the random key in
  ``key``.
* ``rows-<night>.<attempt>.npy``: what was released: every row with its noise, never the noise by itself.

A night's files are written before its release is renamed into place, and count once the ledger has its COMMIT.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.kept.files import sync
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.nights import Night
from pipeline.logs.newcomers import Hashes
from pipeline.logs.store import open_private, private_folder
from pipeline.privacy.continual import Continual
from pipeline.privacy.noise import Integers

_KINDS = ("leaf", "seen", "rows")


@dataclass(frozen=True)
class KeptCounter:
    """The folder of one counter and the nights that the ledger has committed.

    Parameters
    ----------
    size
        Cells of all tables together.
    """

    folder: Path
    counter: Continual
    nights: Sequence[Night]
    size: int

    @cached_property
    def _by_leaf(self) -> dict[int, Night]:
        return {t: n for n in self.nights for t in range(n.since, n.leaf + 1)}

    def settle(self) -> None:
        """Make the folder where there is none, drop what beaten attempts left, check that all is there.

        Raises
        ------
        BudgetError
            If a committed night's file, or the key of the hashes, is gone.
        """
        fresh = not self.nights
        if fresh:
            private_folder(private_folder(self.folder.parent) / self.folder.name)
        elif not self.folder.is_dir():
            raise BudgetError(self._gone("its folder"))
        needed = {_name(kind, n.leaf, n.attempt) for n in self.nights for kind in _KINDS}
        there = {p.name for p in self.folder.glob("*.npy")}
        last = self.nights[-1].leaf if self.nights else 0
        for name in there - needed:
            # a draw of a later night may be alive elsewhere, or wait for recovery
            if _night_of(name) <= last:
                (self.folder / name).unlink()
        if lost := sorted(needed - there):
            raise BudgetError(self._gone(lost[0]))
        if fresh:
            self._write("key", secrets.token_bytes(32))
        elif not (self.folder / "key").is_file():
            raise BudgetError(self._gone("key"))

    @property
    def key(self) -> bytes:
        """The random key of the hashes."""
        return (self.folder / "key").read_bytes()

    def seen(self, width: int) -> Hashes:
        """Hashes ``(n, width)`` of all that was counted so far."""
        found = [np.load(self._path("seen", n)) for n in self.nights]
        return np.concatenate([np.empty((0, width), dtype=np.uint64), *found])

    def leaf(self, t: int) -> Integers | None:
        """Exact leaf ``(size,)``; None where no run was made on that night."""
        night = self._by_leaf.get(t)
        if night is None or night.leaf != t:
            return None
        cells, counts = np.load(self._path("leaf", night))
        x = np.zeros(self.size, dtype=np.int64)
        x[cells] = counts
        return x

    def rows(self, t: int) -> Integers:
        """Noisy rows ``(rows(t), size)`` that were released for leaf ``t``.

        Raises
        ------
        BudgetError
            If they are not those that were committed.
        """
        night = self._by_leaf[t]
        found: Integers = np.load(self._path("rows", night))
        if digest(found) != night.commit.body["drawn_sha256"]:
            raise BudgetError(f"{self._path('rows', night)} is not what entry {night.commit.seq} committed: edited")
        before = sum(len(self.counter.rows(k)) for k in range(night.since, t))
        return found[before : before + len(self.counter.rows(t))]

    def write(self, night: int, attempt: int, leaf: Integers, seen: Hashes, rows: Integers) -> None:
        """Put a night's files on the disk; they count once the night is committed."""
        cells = np.flatnonzero(leaf)
        arrays = {"leaf": np.stack([cells, leaf[cells]]), "seen": seen, "rows": rows}
        for kind, array in arrays.items():
            path = self.folder / _name(kind, night, attempt)
            with open_private(path) as file:
                np.save(file, array, allow_pickle=False)
            sync(path)
        sync(self.folder)

    def _write(self, name: str, content: bytes) -> None:
        with open_private(self.folder / name) as file:
            file.write(content)
        sync(self.folder / name)
        sync(self.folder)

    def _path(self, kind: str, night: Night) -> Path:
        return self.folder / _name(kind, night.leaf, night.attempt)

    def _gone(self, what: str) -> str:
        return (
            f"{self.folder}: {what} of a counter that has begun is gone: restore the store. Without it nobody knows "
            "who was counted, and nothing starts anew. Nothing was read"
        )


def digest(rows: Integers) -> str:
    """Sha256 of released rows."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()


def _name(kind: str, night: int, attempt: int) -> str:
    return f"{kind}-{night:05d}.{attempt}.npy"


def _night_of(name: str) -> int:
    return int(name.split("-")[1].split(".")[0])
