"""Files and folders that are there whole or not at all: written beside, forced to disk, then renamed."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.disk import CANNOT, DISK


def private_folder(folder: Path) -> Path:
    """Make a folder that only its owner may enter, missing parents alike.

    Parameters
    ----------
    folder
        Its rights become 0700 where it exists already.

    Returns
    -------
    The same path.
    """
    if not folder.parent.exists():
        private_folder(folder.parent)
    make_folder(folder, 0o700)
    DISK.protect(folder, 0o700)
    return folder


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder and its missing parents, and force their names to disk; nothing where it is there.

    Parameters
    ----------
    folder, mode
        What is made, and with which rights.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent, mode)
    with suppress(FileExistsError):
        DISK.make_folder(folder, mode)
    DISK.sync(folder.parent)


def open_private(path: Path) -> BinaryIO:
    """Open a file for writing that only its owner may read (0600).

    Returns
    -------
    The open binary file; the caller closes it.
    """
    return DISK.create(path, 0o600)


def write_file(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a small file, not yet forced to disk: for a file or folder of :func:`whole_file`, :func:`whole_folder`.

    Parameters
    ----------
    path
        An existing file is emptied and keeps its rights.
    content
        A text is written as UTF-8.
    private
        Whether a new file is for its owner alone (0600).
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
    """Remove a folder and all that is in it, if there is one.

    Parameters
    ----------
    folder
        A symbolic link is removed itself, never what it leads to.
    """
    if folder.is_symlink():
        DISK.remove(folder)
    elif folder.exists():
        DISK.remove_tree(folder)


def sync_all(folder: Path, names: Iterable[str] | None = None) -> None:
    """Force a folder and what is in it to disk.

    Parameters
    ----------
    folder
        An existing folder; symbolic links in it are passed over.
    names
        Of the files that were written; None: all that is in it.
    """
    written = folder.rglob("*") if names is None else (folder / name for name in names)
    for path in [*(p for p in written if not p.is_symlink()), folder]:
        DISK.sync(path)


@contextmanager
def whole_file(path: Path, *, private: bool = False, over: bool = True, alone: bool = True) -> Generator[Path]:
    """Write a file beside, and put it in place when the block is left without an error.

    Parameters
    ----------
    path
        Where the file shall be; its folder exists.
    private
        Whether only its owner may read it (0600).
    over
        Whether it may take the place of another file.
    alone
        Whether the caller holds a lock; otherwise the file beside gets a name of its own, and several may write at
        once: the last one stays, or with ``over`` not set the first.

    Yields
    ------
    The empty file beside, to be written.

    Raises
    ------
    FileExistsError
        If a file stands there, also one that came this very moment, and ``over`` is not set.
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
            # a link is refused where a file stands
            DISK.link(fresh, path)
        DISK.sync(path.parent)
    finally:
        remove_file(fresh)


@contextmanager
def whole_folder(
    folder: Path, *, private: bool = False, over: bool = False, beside: str | None = None
) -> Generator[Path]:
    """Fill a folder beside, and put it in place when the block is left without an error; otherwise it is removed.

    Parameters
    ----------
    folder
        Where the folder shall be; missing parents are made.
    private
        Whether only its owner may enter (0700) and read its files (0600).
    over
        Whether it may take the place of another folder.
    beside
        Name of the folder while it is filled; an older one of that name is removed first.

    Yields
    ------
    The empty folder beside, to be filled.

    Raises
    ------
    OSError
        If a folder that is not empty stands there and ``over`` is not set.
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

    Parameters
    ----------
    partial
        The finished folder, on the same disk.
    folder
        Its final name.
    over
        Whether it may take the place of another folder, which then goes.  The two change names in one step, so there is
        a folder of that name at any time; where the file system cannot, its files are replaced one by one.

    Raises
    ------
    OSError
        If a folder that is not empty stands there and ``over`` is not set.
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
    """Move what is in a folder into another, each file in one step; what only the other has goes."""
    names = {path.name for path in partial.iterdir()}
    for path in folder.iterdir():
        if path.is_dir():
            remove_tree(path)
        elif path.name not in names:
            DISK.remove(path)
    for name in sorted(names):
        DISK.move(partial / name, folder / name)


def share(file: Path, other: Path) -> None:
    """Give a private file that is never written again a second name; a copy of it where the disk knows no such names.

    Parameters
    ----------
    file
        An existing file.
    other
        Its second name, which nothing has yet.
    """
    try:
        DISK.link(file, other)
    except OSError as e:
        # of any other error it is not known whether the name came: a copy over it would empty the file itself
        if e.errno not in CANNOT:
            raise
        copy_file(file, other)
        DISK.protect(other, 0o600)


def write_folder(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write a folder of small files at once, in place of an older one.

    Parameters
    ----------
    folder
        Where the folder shall be; missing parents are made.
    files
        Content by file name; texts are written as UTF-8.
    """
    with whole_folder(folder, over=True) as partial:
        for name, content in files.items():
            write_file(partial / name, content)


def json_text(value: Mapping[str, Any]) -> str:
    """Indented JSON with a final newline.

    Parameters
    ----------
    value
        Plain values; a number that is no number is an error, not a ``NaN``.

    Raises
    ------
    ValueError
        If a number is not finite.
    """
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
