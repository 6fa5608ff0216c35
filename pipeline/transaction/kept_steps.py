"""What a counter keeps in the operator's store: exact leaves, who was counted, and the noisy rows.

``counters/<key>/`` beside the snapshots, folders 0700, files 0600, and out of reach of ``store purge``:

* ``leaf-<night>.<attempt>.npy``: the exact count tables of one night, cells that are not 0 only.  With them the rows
  of old snapshots are no longer needed.
* ``seen-<night>.<attempt>.npy``: hashes of the people (or episodes) that the night counted, under the random key in
  ``key``.
* ``rows-<night>.<attempt>.npy``: what was released: every row with its noise, never the noise by itself.
* ``note-<night>.<attempt>.json``: the newest snapshot that is counted, which nobody else may know, and the keyed
  digests of leaf and seen; those of rows are in the ledger.

A night's files are written before its release is renamed into place, and count once the ledger has its COMMIT.  All of
them are checked before anything is charged, and again whenever one is read.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.files import open_private, private_folder, sync
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.nights import Night
from pipeline.logs.contribution_bounding import Hashes
from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.noise import Integers

_SUFFIXES = {"leaf": "npy", "seen": "npy", "rows": "npy", "note": "json"}


@dataclass(frozen=True)
class KeptCounter:
    """The folder of one counter and the nights that the ledger has committed.

    Parameters
    ----------
    size
        Cells of all tables together.
    """

    folder: Path
    counter: Factorisation
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
            If a committed night's file, or the key of the hashes, is gone, or is not what was written.
        """
        fresh = not self.nights
        if fresh:
            private_folder(private_folder(self.folder.parent) / self.folder.name)
        elif not self.folder.is_dir():
            raise BudgetError(self._gone("its folder"))
        needed = {_name(kind, n.leaf, n.attempt) for n in self.nights for kind in _SUFFIXES}
        there = {p.name for suffix in ("npy", "json") for p in self.folder.glob(f"*-*.{suffix}")}
        last = self.nights[-1].leaf if self.nights else 0
        for name in there - needed:
            # a draw of a later night may be alive elsewhere, or wait for recovery
            if _night_of(name) <= last:
                (self.folder / name).unlink()
        if lost := sorted(needed - there):
            raise BudgetError(self._gone(lost[0]))
        if fresh:
            self._write({"key": secrets.token_bytes(32)})
        elif not (self.folder / "key").is_file():
            raise BudgetError(self._gone("key"))
        for night in self.nights:
            self._kept(night, "leaf")
            self._kept(night, "seen")
            self._drawn(night)

    @property
    def key(self) -> bytes:
        """The random key of the hashes."""
        return (self.folder / "key").read_bytes()

    @property
    def snapshot(self) -> int:
        """Number of the newest snapshot that is counted; 0 before the first night."""
        return int(self._note(self.nights[-1])["snapshot"]) if self.nights else 0

    def seen(self, width: int) -> Hashes:
        """Hashes ``(n, width)`` of all that was counted so far."""
        found = [self._kept(n, "seen") for n in self.nights]
        return np.concatenate([np.empty((0, width), dtype=np.uint64), *found])

    def leaf(self, t: int) -> Integers | None:
        """Exact leaf ``(size,)``; None where no run was made on that night."""
        night = self._by_leaf.get(t)
        if night is None or night.leaf != t:
            return None
        cells, counts = self._kept(night, "leaf")
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
        found = self._drawn(night)
        before = sum(len(self.counter.rows(k)) for k in range(night.since, t))
        return found[before : before + len(self.counter.rows(t))]

    def write(
        self, night: int, attempt: int, leaf: Integers, seen: Hashes, rows: Integers, snapshot: int | None = None
    ) -> None:
        """Put a night's files on the disk; they count once the night is committed.

        Parameters
        ----------
        snapshot
            Number of the newest snapshot that is counted; None where nothing came in since the night before.
        """
        cells = np.flatnonzero(leaf)
        files = {kind: _bytes(a) for kind, a in (("leaf", np.stack([cells, leaf[cells]])), ("seen", seen))}
        digests = {kind: self._mac(_name(kind, night, attempt), content) for kind, content in files.items()}
        note = json.dumps({"snapshot": self.snapshot if snapshot is None else snapshot, **digests})
        signed = {"note": note, "digest": self._mac(_name("note", night, attempt), note.encode())}
        files |= {"rows": _bytes(rows), "note": json.dumps(signed).encode()}
        self._write({_name(kind, night, attempt): content for kind, content in files.items()})

    def _write(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            with open_private(self.folder / name) as file:
                file.write(content)
            sync(self.folder / name)
        sync(self.folder)

    def _path(self, kind: str, night: Night) -> Path:
        return self.folder / _name(kind, night.leaf, night.attempt)

    def _kept(self, night: Night, kind: str) -> Any:
        """The array of a file that the note of its night vouches for."""
        path, digest = self._path(kind, night), self._note(night)[kind]
        content = path.read_bytes()
        if not hmac.compare_digest(self._mac(path.name, content), str(digest)):
            raise BudgetError(self._edited(path))
        return np.load(io.BytesIO(content))

    def _note(self, night: Night) -> dict[str, Any]:
        path = self._path("note", night)
        try:
            signed: dict[str, str] = json.loads(path.read_bytes())
            note = signed["note"].encode()
            if not hmac.compare_digest(self._mac(path.name, note), signed["digest"]):
                raise BudgetError(self._edited(path))
            return json.loads(note)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BudgetError(self._edited(path)) from None

    def _drawn(self, night: Night) -> Integers:
        path = self._path("rows", night)
        try:
            found: Integers = np.load(path)
        except (ValueError, EOFError):
            raise BudgetError(self._edited(path)) from None
        if digest(found) != night.commit.body["drawn_sha256"]:
            raise BudgetError(f"{path} is not what entry {night.commit.seq} committed: edited. Restore the store")
        return found

    def _mac(self, name: str, content: bytes) -> str:
        return hmac.new(self.key, name.encode() + b"\0" + content, "sha256").hexdigest()

    @staticmethod
    def _edited(path: Path) -> str:
        return f"{path} is not what its night wrote: edited or damaged. Restore the store; nothing was read"

    def _gone(self, what: str) -> str:
        return (
            f"{self.folder}: {what} of a counter that has begun is gone: restore the store. Without it nobody knows "
            "who was counted, and nothing starts anew. Nothing was read"
        )


def digest(rows: Integers) -> str:
    """Sha256 of released rows."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()


def _bytes(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _name(kind: str, night: int, attempt: int) -> str:
    return f"{kind}-{night:05d}.{attempt}.{_SUFFIXES[kind]}"


def _night_of(name: str) -> int:
    return int(name.split("-")[1].split(".")[0])
