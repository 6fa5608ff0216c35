"""The operations that change files, in one place.

Files that must survive a crash are written through :data:`DISK`.  Tests replace its methods by ones that fail, forget
or kill the process, and record every operation (``tests/disk``).
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from pathlib import Path
from typing import BinaryIO

# errors of a file system without such an operation
CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EPERM, errno.EMLINK)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Disk:
    """The operating system's operations that change files."""

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
        """Rename in one step; replaces a file, a link or an empty folder."""
        path.replace(to)

    def swap(self, path: Path, to: Path) -> bool:
        """Exchange two names in one step; False if the file system cannot."""
        import ctypes

        libc, mac = ctypes.CDLL(None, use_errno=True), sys.platform == "darwin"
        exchange, current_folder = getattr(libc, "renameatx_np" if mac else "renameat2", None), -2 if mac else -100
        if exchange is None:
            return False
        if exchange(current_folder, os.fsencode(path), current_folder, os.fsencode(to), 2) != 0:
            code = ctypes.get_errno()
            if code in CANNOT:
                return False
            raise OSError(code, os.strerror(code), str(path))
        return True

    def link(self, path: Path, to: Path) -> None:
        """Give a file a second name; FileExistsError if that exists."""
        os.link(path, to)

    def point(self, path: Path, target: str) -> None:
        """Make a symbolic link."""
        path.symlink_to(target)

    def make_folder(self, path: Path, mode: int) -> None:
        """Make one folder; FileExistsError if it exists."""
        path.mkdir(mode)

    def protect(self, path: Path, mode: int) -> None:
        """Set rights."""
        path.chmod(mode)

    def remove(self, path: Path) -> None:
        """Remove a file or a link."""
        path.unlink()

    def remove_tree(self, path: Path) -> None:
        """Remove a folder and its content; links are not followed."""
        shutil.rmtree(path)


DISK = Disk()


def is_full(error: BaseException) -> bool:
    """Whether an operation failed because the disk is full."""
    code = error.errno if isinstance(error, OSError) else None
    return code in _FULL or (code is None and any(f"(os error {n})" in str(error) for n in _FULL))
