"""SQLite's own writes, told to whoever asks: a shim on the file system layer (VFS) of the library that Python uses.

Of a database's files, and of its journals, every write, truncation, sync and removal is told after it was done.  A
journal's first sync forces its name to disk as well, and a removal may (``synchronous = EXTRA``): these are told apart.
"""

import ctypes
import ctypes.util
from collections.abc import Callable
from pathlib import Path

from tests.disk import Operation

_C = ctypes.c_void_p
_I, _L = ctypes.c_int, ctypes.c_int64
# names as they came: SQLite keeps more behind a name's last byte
_OPEN = ctypes.CFUNCTYPE(_I, _C, _C, _C, _I, _C)
_DELETE = ctypes.CFUNCTYPE(_I, _C, _C, _I)
_WRITE = ctypes.CFUNCTYPE(_I, _C, _C, _I, _L)
_TRUNCATE = ctypes.CFUNCTYPE(_I, _C, _L)
_SYNC = ctypes.CFUNCTYPE(_I, _C, _I)
_JOURNAL = 0x800


class _Vfs(ctypes.Structure):
    _fields_ = (
        [("version", _I), ("size", _I), ("longest", _I), ("next", _C), ("name", ctypes.c_char_p), ("own", _C)]
        + [("open", _OPEN), ("delete", _DELETE)]
        + [(f"more_{i}", _C) for i in range(14)]
    )


class _Methods(ctypes.Structure):
    _fields_ = (
        [("version", _I), ("close", _C), ("read", _C)]
        + [("write", _WRITE), ("truncate", _TRUNCATE), ("sync", _SYNC)]
        + [(f"more_{i}", _C) for i in range(13)]
    )


class SqliteWrites:
    """The shim, from its making until the process ends.

    Parameters
    ----------
    do
        Is given each operation, and the work that does it; answers with what the work answered.
    """

    def __init__(self, do: Callable[[Operation, Callable[[], int]], int]) -> None:
        self._do = do
        self._library = ctypes.CDLL(ctypes.util.find_library("sqlite3"))
        self._library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        real = self._library.sqlite3_vfs_find(None).contents
        self._kept: list[object] = [real]
        # journals whose name no sync has forced to disk yet
        self._fresh: set[str] = set()
        mine = _Vfs.from_buffer_copy(real)
        mine.name, mine.next = b"told", None
        mine.open, mine.delete = _OPEN(self._open(real)), _DELETE(self._delete(real))
        self._kept.append(mine)
        assert self._library.sqlite3_vfs_register(ctypes.byref(mine), 1) == 0

    def _open(self, real: _Vfs) -> Callable[..., int]:
        def opened(vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:
            path = "" if name is None else ctypes.string_at(name).decode()
            there = Path(path).exists()
            code = real.open(vfs, name, file, flags, out)
            if code or not path:
                return code
            at = _C.from_address(file)
            if not there:
                self._do(Operation("create", path, mode=0o600), lambda: 0)
                self._fresh |= {path} if flags & _JOURNAL else set()
            methods = _Methods.from_address(at.value or 0)
            told = _Methods.from_buffer_copy(methods)
            told.write = _WRITE(self._write(path, methods))
            told.truncate = _TRUNCATE(self._truncate(path, methods))
            told.sync = _SYNC(self._sync(path, methods))
            self._kept.append(told)
            at.value = ctypes.addressof(told)
            return code

        return opened

    def _delete(self, real: _Vfs) -> Callable[..., int]:
        def deleted(vfs: int, name: int, forced: int) -> int:
            path = ctypes.string_at(name).decode()
            if not Path(path).exists():
                return real.delete(vfs, name, forced)
            code = self._do(Operation("remove", path), lambda: real.delete(vfs, name, 0))
            folder = str(Path(path).parent)
            return code or (self._do(Operation("sync", folder, to="journal gone"), lambda: 0) if forced else 0)

        return deleted

    def _write(self, path: str, real: _Methods) -> Callable[..., int]:
        def written(file: int, data: int, size: int, offset: int) -> int:
            told = Operation("write", path, data=ctypes.string_at(data, size), at=offset)
            return self._do(told, lambda: real.write(file, data, size, offset))

        return written

    def _truncate(self, path: str, real: _Methods) -> Callable[..., int]:
        def truncated(file: int, size: int) -> int:
            return self._do(Operation("truncate", path, at=size), lambda: real.truncate(file, size))

        return truncated

    def _sync(self, path: str, real: _Methods) -> Callable[..., int]:
        def synced(file: int, flags: int) -> int:
            what = "journal" if path.endswith("-journal") else "database"
            code = self._do(Operation("sync", path, to=what), lambda: real.sync(file, flags))
            if path in self._fresh:
                self._fresh.discard(path)
                self._do(Operation("sync", str(Path(path).parent), to="journal there"), lambda: 0)
            return code

        return synced
