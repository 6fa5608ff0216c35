"""The operations that change files, one place for all of them.

Whatever must survive a crash is written through :data:`DISK`.  Tests put methods in its place that fail, forget or kill
the process, and write down every operation (``tests/disk``).
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import BinaryIO

# what a file system says that has no such operation
CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EPERM, errno.EMLINK)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Disk:
    """The operations that change files, as the operating system has them."""

    def create(self, path: Path, mode: int, *, over: bool = True) -> BinaryIO:
        """Open a file for writing, emptied or made with the rights ``mode``; FileExistsError unless ``over``."""
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if over else os.O_EXCL)
        return os.fdopen(os.open(path, flags, mode), "wb")

    def sync(self, path: Path) -> None:
        """Force one file, or the list of names of one folder, to disk."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def move(self, path: Path, to: Path) -> None:
        """Rename in one step; a file, a link or an empty folder that stands there goes."""
        path.replace(to)

    def swap(self, path: Path, to: Path) -> bool:
        """Exchange two names in one step; False where the file system cannot."""
        import ctypes

        libc, mac = ctypes.CDLL(None, use_errno=True), sys.platform == "darwin"
        exchange, here = getattr(libc, "renameatx_np" if mac else "renameat2", None), -2 if mac else -100
        if exchange is None:
            return False
        if exchange(here, os.fsencode(path), here, os.fsencode(to), 2) != 0:
            code = ctypes.get_errno()
            if code in CANNOT:
                return False
            raise OSError(code, os.strerror(code), str(path))
        return True

    def link(self, path: Path, to: Path) -> None:
        """Give a file a second name; FileExistsError where something stands there."""
        os.link(path, to)

    def point(self, path: Path, target: str) -> None:
        """Make a symbolic link."""
        path.symlink_to(target)

    def make_folder(self, path: Path, mode: int) -> None:
        """Make one folder; FileExistsError where something stands there."""
        path.mkdir(mode)

    def protect(self, path: Path, mode: int) -> None:
        """Set rights."""
        path.chmod(mode)

    def remove(self, path: Path) -> None:
        """Remove a file or a link."""
        path.unlink()

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and all that is in it; links are not followed."""
        shutil.rmtree(path)


DISK = Disk()


def is_full(error: BaseException) -> bool:
    """Whether an operation failed for want of room."""
    code = error.errno if isinstance(error, OSError) else None
    return code in _FULL or (code is None and any(f"(os error {n})" in str(error) for n in _FULL))
