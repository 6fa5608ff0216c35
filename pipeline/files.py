"""Files and folders that are there whole or not at all: written beside, forced to disk, then renamed."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


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
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    return folder


def open_private(path: Path) -> BinaryIO:
    """Open a file for writing that only its owner may read (0600).

    Parameters
    ----------
    path
        An existing file is emptied.

    Returns
    -------
    The open binary file; the caller closes it.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def sync(path: Path) -> None:
    """Force one file, or the list of names of one folder, to disk.

    Parameters
    ----------
    path
        An existing file or folder.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_all(folder: Path) -> None:
    """Force a folder and all that is in it to disk.

    Parameters
    ----------
    folder
        An existing folder; symbolic links in it are passed over.
    """
    for path in [*(p for p in folder.rglob("*") if not p.is_symlink()), folder]:
        sync(path)


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
    fresh.unlink(missing_ok=True)
    try:
        os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666))
        yield fresh
        sync(fresh)
        if over:
            fresh.replace(path)
        else:
            # a link is refused where a file stands
            os.link(fresh, path)
        sync(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


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
    shutil.rmtree(partial, ignore_errors=True)
    if private and not partial.parent.exists():
        private_folder(partial.parent)
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.mkdir(mode=0o700 if private else 0o777)
    try:
        yield partial
        if private:
            for path in partial.rglob("*"):
                path.chmod(0o700 if path.is_dir() else 0o600)
        put_in_place(partial, folder, over=over)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
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
        Whether it may take the place of another folder, which then goes.

    Raises
    ------
    OSError
        If a folder that is not empty stands there and ``over`` is not set.
    """
    sync_all(partial)
    old = folder.with_name(f".{folder.name}.old")
    if over:
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
    partial.rename(folder)
    if over:
        shutil.rmtree(old, ignore_errors=True)
    sync(folder.parent)


def share(file: Path, other: Path) -> None:
    """Give a file that is never written again a second name; a copy of it where the disk knows no such names.

    Parameters
    ----------
    file
        An existing file.
    other
        Its second name, which nothing has yet.
    """
    try:
        os.link(file, other)
    except OSError:
        shutil.copy2(file, other)


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
            (partial / name).write_bytes(content.encode() if isinstance(content, str) else content)


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
