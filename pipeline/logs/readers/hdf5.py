"""HDF5: plain arrays of one file, as columns.  Whatever leads to another file is refused."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.declaration.card import CardError
from pipeline.declaration.toml import LogError
from pipeline.logs.readers.batch import RECORD_BYTES

# groups inside groups; a group that holds itself has no end
_DEEPEST = 8
# what a compressed file may unfold to, times its size: more is no log
_MOST_UNFOLDED = 4096
# numbers in one entry of an array: an image is no vector
_MOST_NUMBERS = 1024
FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)


def library(path: Path) -> Any:
    """The package h5py.

    Parameters
    ----------
    path
        Of the file that needs it, for the message.

    Raises
    ------
    CardError
        If it is not installed.
    """
    try:
        import h5py
    except ImportError:
        raise CardError(f"{path.name}: HDF5 files need h5py; pip install 'reticent[formats]'") from None
    return h5py


@contextmanager
def open_hdf5(path: Path) -> Generator[Any]:
    """The open file.

    Raises
    ------
    LogError
        If it is no HDF5 file, or damaged.
    """
    h5py = library(path)
    try:
        file = h5py.File(path, "r")
    except FAULTS:
        raise LogError(f"{path.name}: not a whole HDF5 file; write or copy it again") from None
    try:
        with file:
            yield file
    except FAULTS:
        raise LogError(f"{path.name}: a damaged HDF5 file; write or copy it again") from None


@dataclass(frozen=True)
class Stored:
    """An array of a file; nothing of it is read yet.

    Parameters
    ----------
    data
        What h5py opened.
    dtype, shape
        Of all entries.  To ask h5py again costs as much as to read a short array.
    """

    data: Any
    dtype: Any
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]


def arrays(group: Any, path: Path, where: str, depth: int = 0) -> dict[str, Stored]:
    """Data sets of a group by name, ``outer/inner`` of groups inside; nothing is read yet.

    Raises
    ------
    LogError
        For a link, a data set that lies in another file, groups without end, or one that claims more than fits.
    """
    h5py = library(path)
    if depth > _DEEPEST:
        raise LogError(f"{path.name}: {where}: groups inside groups beyond {_DEEPEST}; write it flat")
    found: dict[str, Stored] = {}
    for name in group:
        item = member(group, name, path, where)
        if isinstance(item, h5py.Group):
            inner = arrays(item, path, f"{where}/{name}", depth + 1)
            found |= {f"{name}/{key}": data for key, data in inner.items()}
        elif (data := _stored(item, path, f"{where}/{name}")) is not None:
            found[name] = data
    return found


def member(group: Any, name: str, path: Path, where: str) -> Any:
    """What stands in a group under a name.

    Raises
    ------
    LogError
        If it is a link, perhaps to another file.
    """
    h5py, key = library(path), name.encode()
    if group.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
        raise LogError(f"{path.name}: {where}: {name!r} is a link; links are not read, write the data itself")
    # by the library's lower layer: `group[name]` asks twice as much of the file as reading a short array does
    found = h5py.h5o.open(group.id, key)
    if isinstance(found, h5py.h5g.GroupID):
        return h5py.Group(found)
    return h5py.Dataset(found, readonly=True) if isinstance(found, h5py.h5d.DatasetID) else None


def array(group: Any, name: str, path: Path, where: str) -> Stored | None:
    """The data set ``outer/inner`` of a group; None if there is none.

    Raises
    ------
    LogError
        As of :func:`arrays`.
    """
    for part in name.split("/"):
        if not isinstance(group, library(path).Group) or not group.id.links.exists(part.encode()):
            return None
        group, where = member(group, part, path, where), f"{where}/{part}"
    return _stored(group, path, where)


def _stored(data: Any, path: Path, where: str) -> Stored | None:
    h5py = library(path)
    if not isinstance(data, h5py.Dataset) or not data.shape:
        return None
    found, made = Stored(data, data.dtype, data.shape), data.id.get_create_plist()
    if made.get_layout() == h5py.h5d.VIRTUAL or made.get_external_count():
        raise LogError(f"{path.name}: {where} lies in another file; write the data itself")
    if math.prod(found.shape) * found.dtype.itemsize > _MOST_UNFOLDED * h5py.h5i.get_file_id(data.id).get_filesize():
        raise LogError(f"{path.name}: {where} claims to hold far more than the file; write or copy it again")
    return found


def type_of(data: Stored) -> pl.DataType:
    """Type of an array as a column; ``Object`` of what is no cell."""
    if library(Path()).check_string_dtype(data.dtype) is not None:
        return pl.String() if len(data.shape) == 1 else pl.Object()
    return _numbers(data.dtype, data.shape[1:]) if data.dtype.kind in "biuf" else pl.Object()


@cache
def _numbers(dtype: Any, shape: tuple[int, ...]) -> pl.DataType:
    size = int(np.prod(shape))
    if dtype.itemsize > 8 or not 1 <= size <= _MOST_NUMBERS:
        return pl.Object()
    return pl.Series(_plain(np.zeros((0, size), dtype=dtype))).dtype


def values(data: Stored, low: int, high: int) -> NDArray[Any]:
    """Entries ``low … high - 1`` as ``(n, size)`` numbers, or ``(n,)`` texts (objects)."""
    if library(Path()).check_string_dtype(data.dtype) is not None:
        return np.array(data.data.asstr(errors="surrogateescape")[low:high].tolist(), dtype=object)
    found: NDArray[Any] = data.data[low:high]
    return found.reshape(len(found), -1)


NO_TEXT = "text that is not UTF-8, or longer than 1 MiB"


def no_text(values: NDArray[Any]) -> NDArray[np.bool_]:
    """``(n,)``: whether an entry is a text that is none, or longer than a record may be."""
    if values.dtype != object:
        return np.zeros(len(values), dtype=np.bool_)
    return np.array([len(x) > RECORD_BYTES or not _encodable(x) for x in values.tolist()], dtype=np.bool_)


def _encodable(text: str) -> bool:
    try:
        return len(text.encode("utf-8")) <= RECORD_BYTES
    except UnicodeEncodeError:
        return False


def series(values: NDArray[Any]) -> pl.Series:
    """What :func:`values` gave, as a column; a text that is none is null."""
    if values.dtype == object:
        values[no_text(values)] = None
        return pl.Series(values.tolist(), dtype=pl.String)
    return pl.Series(_plain(values))


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """``(n, size)`` in this machine's byte order; ``(n,)`` where an entry is one number."""
    kind = np.dtype(np.float32) if values.dtype == np.float16 else values.dtype.newbyteorder("=")
    native = np.ascontiguousarray(values, dtype=kind)
    return native[:, 0] if native.shape[1] == 1 else native
