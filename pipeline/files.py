"""Files and folders that exist complete or not at all: written beside, forced to disk, then renamed.

Files that must survive a crash are written through :data:`DISK`.  Tests replace its methods by ones that fail, forget
or kill the process, and record every operation (``tests/disk``).
"""

import errno
import json
import os
import secrets
import shutil
import sys
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

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


def private_folder(folder: Path) -> Path:
    """Make a folder and its missing parents, which only the owner may enter; an existing folder's rights become 0700.

    Returns the same path.
    """
    if not folder.parent.exists():
        private_folder(folder.parent)
    make_folder(folder, 0o700)
    DISK.protect(folder, 0o700)
    return folder


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, unless it exists, and force their names to disk."""
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    with suppress(FileExistsError):
        DISK.make_folder(folder, mode)
    DISK.sync(folder.parent)


def open_private(path: Path) -> BinaryIO:
    """Open a file for writing that only its owner may read (0600).

    Returns the open binary file; the caller closes it.
    """
    return DISK.create(path, 0o600)


def write_file(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a small file, not yet forced to disk: for a file or folder of :func:`whole_file`, :func:`whole_folder`.

    ``content``: a text is written as UTF-8.
    ``private``: whether only the owner may read a new file (0600).
    """
    with DISK.create(path, 0o600 if private else 0o666) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def copy_file(path: Path, to: Path) -> None:
    """Copy a file's content ``to`` another, not yet forced to disk."""
    with path.open("rb") as source, DISK.create(to, 0o666) as copy:
        shutil.copyfileobj(source, copy)


def remove_file(path: Path) -> None:
    """Remove a file or link, if there is one."""
    with suppress(FileNotFoundError):
        DISK.remove(path)


def remove_tree(folder: Path) -> None:
    """Remove a folder and its content, if it exists; a symbolic link is removed itself, never its target."""
    if folder.is_symlink():
        DISK.remove(folder)
    elif folder.exists():
        DISK.remove_tree(folder)


def sync_all(folder: Path, names: Iterable[str] | None = None) -> None:
    """Force a folder and its content to disk.

    ``names``: files that were written; None: all.
    """
    written = folder.rglob("*") if names is None else (folder / name for name in names)
    for path in [*(p for p in written if not p.is_symlink()), folder]:
        DISK.sync(path)


@contextmanager
def whole_file(path: Path, *, private: bool = False, over: bool = True, alone: bool = True) -> Generator[Path]:
    """Write a file beside, and put it in place when the context ends without an error.

    ``private``: whether only its owner may read it (0600).
    ``alone``: whether no other process writes the same file.
    Yields the empty file beside, to be written.
    Raises FileExistsError if the file exists, even if it was made in the meantime, and ``over`` is not set.
    """
    mark = "" if alone else f".{secrets.token_hex(8)}"
    fresh = path.with_name(f".{path.name.lstrip('.')}{mark}.partial")
    remove_file(fresh)
    try:
        DISK.create(fresh, 0o600 if private else 0o666, over=False).close()
        yield fresh
        DISK.sync(fresh)
        if over:
            DISK.move(fresh, path)
        else:
            # a link is refused if the file exists
            DISK.link(fresh, path)
        DISK.sync(path.parent)
    finally:
        remove_file(fresh)


@contextmanager
def whole_folder(
    folder: Path, *, private: bool = False, over: bool = False, beside: str | None = None
) -> Generator[Path]:
    """Fill a folder beside, and put it in place when the context ends without an error; otherwise it is removed.

    ``private``: whether only its owner may enter (0700) and read its files (0600).
    Yields the empty folder beside, to be filled.
    Raises OSError if the folder exists and is not empty, and ``over`` is not set.
    """
    partial = folder.with_name(beside or f".{folder.name}.partial")
    remove_tree(partial)
    if private and not partial.parent.exists():
        private_folder(partial.parent)
    make_folder(partial.parent)
    DISK.make_folder(partial, 0o700 if private else 0o777)
    try:
        yield partial
        if private:
            for path in partial.rglob("*"):
                DISK.protect(path, 0o700 if path.is_dir() else 0o600)
        put_in_place(partial, folder, over=over)
    except BaseException:
        with suppress(OSError):
            remove_tree(partial)
        raise


def put_in_place(partial: Path, folder: Path, *, over: bool = False) -> None:
    """Force a finished folder to disk and rename it.

    Raises OSError if the folder exists and is not empty, and ``over`` is not set.
    """
    sync_all(partial)
    if not (over and folder.is_dir()):
        DISK.move(partial, folder)
    elif not DISK.swap(partial, folder):
        _replace_files(partial, folder)
        sync_all(folder)
    DISK.sync(folder.parent)
    remove_tree(partial)


def _replace_files(partial: Path, folder: Path) -> None:
    """Move the files of a folder into another, each in one step; other content of the latter is removed."""
    names = {path.name for path in partial.iterdir()}
    for path in folder.iterdir():
        if path.is_dir():
            remove_tree(path)
        elif path.name not in names:
            DISK.remove(path)
    for name in sorted(names):
        DISK.move(partial / name, folder / name)


def share(file: Path, second: Path) -> None:
    """Give a private file that is never written again a ``second`` name, or copy it if the disk has no hard links."""
    try:
        DISK.link(file, second)
    except OSError as e:
        # after any other error the link may exist: a copy over it would empty the file itself
        if e.errno not in CANNOT:
            raise
        copy_file(file, second)
        DISK.protect(second, 0o600)


def write_folder(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write a folder of small files at once, in place of an older one.

    ``files``: content by file name; texts are written as UTF-8.
    """
    with whole_folder(folder, over=True) as partial:
        for name, content in files.items():
            write_file(partial / name, content)


def json_text(value: Mapping[str, Any]) -> str:
    """Format plain values as indented JSON with a final newline.

    Raises ValueError if a number is not finite.
    """
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
