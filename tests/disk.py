"""A disk that fails at one operation: it takes the place of :data:`pipeline.files.DISK` and of the ledger's commits.

Every operation is written down in order, with what it wrote, so that a prefix of them can be played again elsewhere,
with what was not forced to disk left out (``tests/power``).
"""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.engine.default import DefaultDialect

from pipeline.files import DISK, Disk

FAULTS = ("EIO", "ENOSPC", "EIO late", "kill before", "kill half", "kill after")
_CODES = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EIO late": errno.EIO}
_SQLITE = {"EIO": "SQLITE_IOERR_WRITE", "ENOSPC": "SQLITE_FULL", "EIO late": "SQLITE_IOERR_FSYNC"}
_BUFFER = 1 << 20
# operations that are done in one go
_PASSED_ON = ("sync", "move", "swap", "link", "point", "make_folder", "protect", "remove")


@dataclass(frozen=True)
class Operation:
    """One change of a file: ``create``, ``write``, ``sync``, ``commit`` and so on.

    Parameters
    ----------
    kind, path, to
        What is done to which file, and its other name, or what a link leads to.
    data, at, mode
        What is written, where (-1: at the end), and the rights of what is made.
    by
        Which place of the code asked for a sync.
    """

    kind: str
    path: str
    to: str = ""
    data: bytes = b""
    mode: int = 0
    at: int = -1
    by: str = ""


def _of(kind: str) -> Callable[..., Any]:
    """An operation of :class:`~pipeline.files.Disk` on a path, with another name or rights where it has them."""

    def do(self: FaultyDisk, path: Path, *more: Any) -> Any:
        said = {"mode" if isinstance(x, int) else "to": x if isinstance(x, int) else str(x) for x in more}
        return self._do(Operation(kind, str(path), **said), lambda: getattr(self._real, kind)(path, *more))

    return do


class FaultyDisk:
    """Does what the disk does, writes it down, and fails once.

    Parameters
    ----------
    at, fault
        Number of the operation that fails, counted from 0, and how (one of :data:`FAULTS`); None: no fault.
    note
        Told of every operation before it is done.
    """

    def __init__(self, at: int | None = None, fault: str = "", note: Callable[[Operation], None] = lambda _: None):
        self.at, self.fault, self._note = at, fault, note
        self.operations: list[Operation] = []
        # those that succeeded
        self.done: list[Operation] = []
        self._real = Disk()

    sync, move, swap, link, point, make_folder, protect, remove = map(_of, _PASSED_ON)

    def install(self) -> None:
        """Take the disk's place in this process."""
        for name in ("create", "remove_tree", *_PASSED_ON):
            setattr(DISK, name, getattr(self, name))
        commit = DefaultDialect.do_commit
        DefaultDialect.do_commit = lambda dialect, connection: self._do(  # pyright: ignore
            Operation("commit", "ledger"), lambda: commit(dialect, connection)
        )

    def _do(self, operation: Operation, work: Callable[[], Any], half: Callable[[], object] | None = None) -> Any:
        number = len(self.operations)
        self.operations.append(operation)
        self._note(operation)
        if number != self.at:
            found = work()
            if not (operation.kind == "swap" and found is False):
                self.done.append(operation)
            return found
        if self.fault == "kill before":
            self._die()
        if half is not None and self.fault in ("EIO", "ENOSPC", "kill half"):
            half()
        if self.fault in ("EIO late", "kill half", "kill after"):
            if half is None or self.fault != "kill half":
                work()
            if self.fault.startswith("kill"):
                self._die()
        raise self._error(operation)

    def _error(self, operation: Operation) -> Exception:
        if operation.kind != "commit":
            return OSError(_CODES[self.fault], os.strerror(_CODES[self.fault]), operation.path)
        error = sqlite3.OperationalError("injected")
        error.sqlite_errorname = _SQLITE[self.fault]
        return error

    @staticmethod
    def _die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def create(self, path: Path, mode: int, *, over: bool = True) -> Any:
        """See :class:`~pipeline.files.Disk`; the file tells of what is written."""
        file = self._do(Operation("create", str(path), mode=mode), lambda: self._real.create(path, mode, over=over))
        return _Written(file, lambda data: self._write(path, file, data))

    def _write(self, path: Path, file: Any, data: bytes) -> None:
        def put(piece: bytes) -> None:
            file.write(piece)
            file.flush()

        self._do(Operation("write", str(path), data=data), lambda: put(data), lambda: put(data[: len(data) // 2]))

    def remove_tree(self, path: Path) -> None:
        """File by file, so that it can fail in the middle."""
        for where, folders, files in os.walk(path, topdown=False):
            for name in sorted(files):
                self.remove(Path(where, name))
            for name in folders:
                self._do(Operation("remove_folder", str(Path(where, name))), Path(where, name).rmdir)
        self._do(Operation("remove_folder", str(path)), path.rmdir)


class _Written:
    """A file that is written at its end, in pieces of a MiB, and has no number: no library passes the disk by."""

    def __init__(self, file: Any, put: Callable[[bytes], None]) -> None:
        self._file, self._put, self._held, self._size, self.closed = file, put, bytearray(), 0, False

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    seekable = readable

    def write(self, data: Any, /) -> int:
        """Hold the piece, and pass on what is held once it is enough."""
        piece = bytes(data)
        self._held += piece
        self._size += len(piece)
        if len(self._held) >= _BUFFER:
            self._pass_on()
        return len(piece)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Nothing: what is held goes in pieces, and the rest on closing."""

    def _pass_on(self) -> None:
        held, self._held = bytes(self._held), bytearray()
        if held:
            self._put(held)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            self._pass_on()
        finally:
            self._file.close()
