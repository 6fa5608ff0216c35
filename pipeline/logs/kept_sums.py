"""The partial sums of a snapshot as one file in its folder: whole and of the same rows, code and sum, or not used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.code import code_digest
from pipeline.files import whole_file
from pipeline.logs.store import Snapshot

_VERSION = 1


@dataclass
class Partial:
    """Sums so far, the names of the part files in them, and how many rows those hold."""

    sums: Mapping[str, NDArray[np.int64]]
    done: set[str] = field(default_factory=set[str])
    rows: int = 0


class KeptSums:
    """One file a snapshot: a sum of something else takes its place.

    Parameters
    ----------
    of
        Plain values: what is summed (:meth:`~pipeline.logs.summing.Summation.depends_on`).
    """

    def __init__(self, snapshot: Snapshot, of: Any) -> None:
        self._snapshot, self._of = snapshot, of
        self.path = snapshot.folder / ".sums"

    @property
    def paths(self) -> list[Path]:
        """The file, and what a run left that was killed while it wrote."""
        return [self.path, self.path.with_name(".sums.partial")]

    def load(self, zero: Mapping[str, NDArray[np.int64]]) -> Partial | None:
        """What is kept, if it is whole and of this very sum; ``zero`` has its names and shapes."""
        try:
            with self.path.open("rb") as file:
                head: dict[str, Any] = json.loads(file.readline())
                if head["key"] != self._named:
                    return None
                payload = file.read()
        except (OSError, ValueError, KeyError, TypeError):
            return None
        sizes = [table.nbytes for table in zero.values()]
        whole = _begun(head["done"], int(head["rows"]))
        whole.update(payload)
        if len(payload) != sum(sizes) or whole.hexdigest() != head["sha256"]:
            return None
        at, sums = 0, dict[str, NDArray[np.int64]]()
        for (name, table), size in zip(zero.items(), sizes, strict=True):
            sums[name] = np.frombuffer(payload[at : at + size], dtype=np.int64).reshape(table.shape).copy()
            at += size
        return Partial(sums, set(head["done"]), int(head["rows"]))

    def save(self, partial: Partial) -> None:
        """Replace the file at once.  A full disk or a power cut costs the file, never an integer."""
        whole = _begun(sorted(partial.done), partial.rows)
        for table in partial.sums.values():
            whole.update(np.ascontiguousarray(table).data)
        head = {"key": self._named, "done": sorted(partial.done), "rows": partial.rows, "sha256": whole.hexdigest()}
        with suppress(OSError), whole_file(self.path, private=True) as fresh, fresh.open("wb") as file:
            file.write(json.dumps(head).encode() + b"\n")
            for table in partial.sums.values():
                file.write(np.ascontiguousarray(table).data)

    @cached_property
    def _named(self) -> str:
        """Sha256 of all that decides the integers; part files by name, size and time, as they lay there when asked.

        Asked by :meth:`load`, before they are read: what is replaced meanwhile is not vouched for.
        """
        stats = [(part.name, part.stat()) for part in self._snapshot.part_files]
        parts = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
        told = [_VERSION, code_digest(), self._of, self._snapshot.number, self._snapshot.data_digest, parts]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _begun(done: list[str], rows: int) -> Any:
    """A digest that holds which part files are in the sums."""
    return hashlib.sha256(json.dumps([done, rows]).encode())
