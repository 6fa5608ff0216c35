"""What a continual release keeps in the operator's store: exact step sums, who was counted, and the noisy rows.

``counters/<key>/`` beside the snapshots, folders 0700, files 0600, and out of reach of ``store purge``:

* ``leaf-<t>.<attempt>.npy``: the exact count tables of step t, cells that are not 0 only.  With them the rows of old
  snapshots are no longer needed.
* ``seen-<t>.<attempt>.npy``: hashes of the people (or episodes) that the step counted, under the random key in ``key``.
* ``rows-<t>.<attempt>.npy``: what was released: every row with its noise, never the noise by itself.
* ``note-<t>.<attempt>.json``: the number of the newest snapshot that is counted (secret: it shows when the log
  changed), that of the newest whose held-out people evaluated, and keyed digests of the leaf and seen files; the
  digest of the rows file is in the ledger.

A step's files are written before its release is renamed into place, and count once the ledger has its COMMIT.  All of
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
from typing import Any, Literal, NotRequired, Protocol, TypedDict

import numpy as np

from pipeline.files import private_folder, remove_file, sync_all, write_file
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.steps import Step
from pipeline.logs.contribution_bounding import Hashes
from pipeline.privacy.factorisation import Row
from pipeline.privacy.noise import Integers

_SUFFIXES = {"leaf": "npy", "seen": "npy", "rows": "npy", "note": "json"}


class _Note(TypedDict):
    """The newest snapshot counted at a step, the newest evaluated, and keyed digests (hex) of two of its files."""

    snapshot: int
    evaluated: NotRequired[int]
    leaf: str
    seen: str


class Drawn(Protocol):
    """Which rows a continual release draws; every factorisation says it."""

    def rows(self, t: int) -> tuple[Row, ...]:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`."""
        ...

    def placed(self, since: int, now: int) -> int:
        """See :class:`~pipeline.privacy.factorisation.Factorisation`."""
        ...


@dataclass(frozen=True)
class KeptSteps:
    """The folder of one continual release and the steps that the ledger has committed.

    Parameters
    ----------
    folder
        ``counters/<key>`` in the lineage's folder of the store.
    counter
        Which rows it releases.
    steps
        Committed steps, oldest first.
    size
        Cells of all tables together.
    """

    folder: Path
    counter: Drawn
    steps: Sequence[Step]
    size: int

    @cached_property
    def _at(self) -> dict[int, Step]:
        return {t: s for s in self.steps for t in range(s.since, s.t + 1)}

    def settle(self) -> None:
        """Make the folder where there is none, delete files of overtaken attempts, check that all others are there.

        Raises
        ------
        BudgetError
            If a committed step's file, or the key of the hashes, is gone, or is not what was written.
        """
        fresh = not self.steps
        if fresh:
            private_folder(private_folder(self.folder.parent) / self.folder.name)
        elif not self.folder.is_dir():
            raise BudgetError(self._gone("its folder"))
        needed = {_name(kind, s.t, s.attempt) for s in self.steps for kind in _SUFFIXES}
        there = {p.name for suffix in ("npy", "json") for p in self.folder.glob(f"*-*.{suffix}")}
        last = self.steps[-1].t if self.steps else 0
        for name in there - needed:
            # a draw of a later step may be alive elsewhere, or wait for recovery
            if _step_of(name) <= last:
                remove_file(self.folder / name)
        if lost := sorted(needed - there):
            raise BudgetError(self._gone(lost[0]))
        if fresh:
            self._write({"key": secrets.token_bytes(32)})
        elif not (self.folder / "key").is_file():
            raise BudgetError(self._gone("key"))
        for step in self.steps:
            self._kept(step, "leaf")
            self._kept(step, "seen")
            self._drawn(step)

    @property
    def key(self) -> bytes:
        """The random key of the hashes."""
        return (self.folder / "key").read_bytes()

    @property
    def snapshot(self) -> int:
        """Number of the newest snapshot that is counted; 0 before the first step."""
        return int(self._note(self.steps[-1])["snapshot"]) if self.steps else 0

    @property
    def evaluated(self) -> int:
        """Number of the newest snapshot whose held-out people evaluated; 0 before the first did."""
        return int(self._note(self.steps[-1]).get("evaluated", 0)) if self.steps else 0

    def seen(self, width: int) -> Hashes:
        """Hashes of all that was counted so far.

        Returns
        -------
        ``(n, width)`` uint64.
        """
        found = [self._kept(s, "seen") for s in self.steps]
        return np.concatenate([np.empty((0, width), dtype=np.uint64), *found])

    def exact(self, t: int) -> Integers | None:
        """Exact sums ``(size,)`` of step ``t``; None where nobody was counted in it."""
        step = self._at.get(t)
        if step is None or self.counter.placed(step.since, step.t) != t:
            return None
        cells, counts = self._kept(step, "leaf")
        x = np.zeros(self.size, dtype=np.int64)
        x[cells] = counts
        return x

    def rows(self, t: int) -> Integers:
        """Noisy rows that were released for step ``t``.

        Returns
        -------
        ``(number of rows of t, size)`` int64.

        Raises
        ------
        BudgetError
            If they are not those that were committed.
        """
        step = self._at[t]
        found = self._drawn(step)
        before = sum(len(self.counter.rows(k)) for k in range(step.since, t))
        return found[before : before + len(self.counter.rows(t))]

    def write(
        self,
        t: int,
        attempt: int,
        exact: Integers,
        seen: Hashes,
        rows: Integers,
        snapshot: int | None = None,
        evaluated: int | None = None,
    ) -> None:
        """Put a step's files on the disk; they count once the step is committed.

        Parameters
        ----------
        t, attempt
            Which step, and which draw of it.
        exact, seen, rows
            See :meth:`exact`, :meth:`seen` (of this step alone) and :meth:`rows` (of ``since .. t``).
        snapshot
            Number of the newest snapshot that is counted; None where nothing came in since the step before.
        evaluated
            That of the newest whose held-out people evaluated; None where none ever did.
        """
        cells = np.flatnonzero(exact)
        files = {kind: _bytes(a) for kind, a in (("leaf", np.stack([cells, exact[cells]])), ("seen", seen))}
        digests = {kind: self._mac(_name(kind, t, attempt), content) for kind, content in files.items()}
        told = {"snapshot": self.snapshot if snapshot is None else snapshot}
        asked = evaluated or self.evaluated
        note = json.dumps({**told, **({"evaluated": asked} if asked else {}), **digests})
        signed = {"note": note, "digest": self._mac(_name("note", t, attempt), note.encode())}
        files |= {"rows": _bytes(rows), "note": json.dumps(signed).encode()}
        self._write({_name(kind, t, attempt): content for kind, content in files.items()})

    def _write(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            write_file(self.folder / name, content, private=True)
        sync_all(self.folder, files)

    def _kept(self, step: Step, kind: Literal["leaf", "seen"]) -> Any:
        """The array of a file, checked against the digest in the note of its step."""
        path, digest = self.folder / _name(kind, step.t, step.attempt), self._note(step)[kind]
        content = path.read_bytes()
        if not hmac.compare_digest(self._mac(path.name, content), str(digest)):
            raise BudgetError(self._edited(path))
        return np.load(io.BytesIO(content))

    def _note(self, step: Step) -> _Note:
        path = self.folder / _name("note", step.t, step.attempt)
        try:
            signed: dict[str, str] = json.loads(path.read_bytes())
            note = signed["note"].encode()
            if not hmac.compare_digest(self._mac(path.name, note), signed["digest"]):
                raise BudgetError(self._edited(path))
            return json.loads(note)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BudgetError(self._edited(path)) from None

    def _drawn(self, step: Step) -> Integers:
        path = self.folder / _name("rows", step.t, step.attempt)
        try:
            found: Integers = np.load(path)
        except (ValueError, EOFError):
            raise BudgetError(self._edited(path)) from None
        if digest(found) != step.commit.body["drawn_sha256"]:
            raise BudgetError(f"{path} is not what entry {step.commit.seq} committed: edited. Restore the store")
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
    """Sha256 of released rows: what COMMIT and release.json name.

    Parameters
    ----------
    rows
        ``(number of rows, cells)`` int64.
    """
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<i8").tobytes()).hexdigest()


def _bytes(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _name(kind: str, t: int, attempt: int) -> str:
    return f"{kind}-{t:05d}.{attempt}.{_SUFFIXES[kind]}"


def _step_of(name: str) -> int:
    return int(name.split("-")[1].split(".")[0])
