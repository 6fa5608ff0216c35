"""HDF5: plain arrays of one file, as columns.  Whatever leads to another file is refused."""

from __future__ import annotations

import math
import zlib
from collections.abc import Generator, Sequence
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
    chunk
        Shape of its chunks; None where it is stored in one piece.
    filters
        What its chunks went through when they were written, by HDF5's numbers.
    """

    data: Any
    dtype: Any
    shape: tuple[int, ...]
    chunk: tuple[int, ...] | None
    filters: tuple[int, ...]

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
        if not isinstance(group, library(path).Group):
            return None
        try:
            group, where = member(group, part, path, where), f"{where}/{part}"
        except FAULTS:
            # whether there is such a member is asked only now, because mostly there is one
            if group.id.links.exists(part.encode()):
                raise
            return None
    return _stored(group, path, where)


def _stored(data: Any, path: Path, where: str) -> Stored | None:
    h5py = library(path)
    if not isinstance(data, h5py.Dataset) or not data.shape:
        return None
    made = data.id.get_create_plist()
    chunk = made.get_chunk() if made.get_layout() == h5py.h5d.CHUNKED else None
    filters = tuple(made.get_filter(i)[0] for i in range(made.get_nfilters()))
    found = Stored(data, data.dtype, data.shape, chunk, filters)
    if made.get_layout() == h5py.h5d.VIRTUAL or made.get_external_count():
        raise LogError(f"{path.name}: {where} lies in another file; write the data itself")
    size = math.prod(found.shape) * found.dtype.itemsize
    # so few bytes any file can hold; asking for the size of the file would take longer than reading them
    if size > _MOST_UNFOLDED and size > _MOST_UNFOLDED * h5py.h5i.get_file_id(data.id).get_filesize():
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
    """Entries ``low … high - 1`` as ``(n, size)`` numbers, or ``(n,)`` texts (objects).

    Raises
    ------
    LogError
        If a chunk that was written is not whole.
    """
    h5py = library(Path())
    if data.chunk is not None:
        _check_chunks(data, data.chunk, low, high)
    if h5py.check_string_dtype(data.dtype) is not None:
        return np.array(data.data.asstr(errors="surrogateescape")[low:high].tolist(), dtype=object)
    if low > 0 or high < len(data):
        found: NDArray[Any] = data.data[low:high]
    else:
        # by the lower layer, as in :func:`member`; a chunk that was never written leaves what lies there: zeros here
        found = np.zeros(data.shape, data.dtype)
        data.data.id.read(h5py.h5s.ALL, h5py.h5s.ALL, found)
    return found.reshape(len(found), -1)


def _check_chunks(data: Stored, chunk: tuple[int, ...], low: int, high: int) -> None:
    """Refuse a chunk that unfolds to less than its size: HDF5 would give what lies behind it in memory as numbers."""
    own, stored = data.data.id, list[Any]()
    own.chunk_iter(stored.append)
    size = math.prod(chunk) * _bytes_of(data)
    for told in stored:
        if not low - chunk[0] < told.chunk_offset[0] < high:
            continue
        filters = [kind for i, kind in enumerate(data.filters) if not told.filter_mask >> i & 1]
        held = _unfolded(own.read_direct_chunk(told.chunk_offset)[1], filters, size) if filters else told.size
        if held != size:
            where = f"{Path(data.data.file.filename).name}: {data.data.name}: a chunk"
            filters_read = "or passed another filter than gzip, lzf, shuffle and fletcher32"
            raise LogError(f"{where} is not of its size, {filters_read}; write or copy it again")


def _bytes_of(data: Stored) -> int:
    """Bytes of an entry in the file: of text of any length its length, where it lies, and which piece it is there."""
    text = library(Path()).check_string_dtype(data.dtype)
    if text is None or text.length is not None:
        return int(data.data.id.get_type().get_size())
    return 4 + int(data.data.file.id.get_create_plist().get_sizes()[0]) + 4


def _unfolded(content: bytes, filters: Sequence[int], size: int) -> int:
    """Bytes of a chunk before it passed ``filters``, if not more than ``size``; -1 if nobody can tell."""
    h5z, a_sum = library(Path()).h5z, 4
    for kind in reversed(filters):
        if kind == h5z.FILTER_DEFLATE:
            try:
                content = zlib.decompressobj().decompress(content, size + a_sum + 1)
            except zlib.error:
                return -1
        elif kind == h5z.FILTER_LZF:
            content = bytes(_unfolded_lzf(content, size + a_sum + 1))
        elif kind == h5z.FILTER_FLETCHER32:
            content = content[:-a_sum]
        elif kind != h5z.FILTER_SHUFFLE:
            return -1
    return len(content)


def _unfolded_lzf(content: bytes, most: int) -> int:
    """Bytes that LZF unfolds to: runs of up to 32 bytes as they are, and runs of 3 and more that stood before."""
    at = held = 0
    while at < len(content) and held < most:
        told = content[at]
        if told < 32:
            at, held = at + told + 2, held + told + 1
        else:
            long = told >> 5 == 7
            held += (told >> 5) + 2 + (content[at + 1] if long and at + 1 < len(content) else 0)
            at += 2 + long
    return min(held, most) if at <= len(content) else 0


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
