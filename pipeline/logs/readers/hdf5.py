"""HDF5: plain arrays of one file, as columns.  Whatever leads to another file is refused.

Minari: T actions between T + 1 observations, in HDF5 or in Arrow.

Columns: ``episode``, ``step``, ``observations``, ``next_observations``, ``actions``, ``rewards``, ``terminations``,
``truncations``, ``infos/…``; the parts of a Dict space are ``observations/part``.  What the card calls a vector is read
as a list of numbers, all else as text: the type of one episode's arrays speaks for no other.  An episode that cannot be
read so is malformed, alone.

HDF5: a group an episode.  Episodes come in the order of their numbers; row n of the file is its n-th transition.

Arrow or Parquet: a folder an episode, whose name is its number, one file in it; the last row is padding around the last
observation.  A file is read whole, batch after batch: a record batch is no episode.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.arrays import Bools, Integers
from pipeline.declaration.card import CardError
from pipeline.declaration.toml import LogError
from pipeline.logs.decode import NUMBERS
from pipeline.logs.readers.arrow import open_ipc, open_parquet
from pipeline.logs.readers.batch import (
    BATCH_ROWS,
    NO_LINES,
    NUMBERED,
    PLACE,
    RECORD_BYTES,
    Asked,
    Batch,
    cell_type,
    field,
    lines_from,
    mark_numbers,
    read_facts,
)

# groups inside groups; a group that holds itself has no end
_DEEPEST = 8
# what a compressed file may unfold to, times its size: more is no log
_MOST_UNFOLDED = 4096
# numbers in one entry of an array: an image is no vector
_MOST_NUMBERS = 1024
FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)


def library(path: Path) -> Any:
    """The package h5py.

    Raises CardError if it is not installed.
    """
    try:
        import h5py
    except ImportError:
        raise CardError(f"{path.name}: HDF5 files need h5py; pip install 'reticent[formats]'") from None
    return h5py


@contextmanager
def open_hdf5(path: Path) -> Generator[Any]:
    """The open file.

    Raises LogError if it is no HDF5 file, or damaged.
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

    ``data``: what h5py opened.
    ``dtype``, ``shape``: of all entries.  To ask h5py again costs as much as to read a short array.
    ``chunk``: shape of its chunks; None where it is stored in one piece.
    ``filters``: what its chunks went through when they were written, by HDF5's numbers.
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

    Raises LogError for a link, a data set that lies in another file, groups without end, or one that claims more than
    fits.
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

    Raises LogError if it is a link, perhaps to another file.
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

    Raises LogError as of :func:`arrays`.
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

    Raises LogError if a chunk that was written is not whole.
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


def no_text(values: NDArray[Any]) -> Bools:
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


NEXT = "next_"
_NAME = re.compile(r"episode_(\d{1,18})")
_SEEN = "observations"
# rows of a record batch that pyarrow's dataset writer cuts an episode into
_ONE_BATCH = 2**16


def _asked_types(asked: Asked) -> dict[str, pl.DataType]:
    return NUMBERED | {name: NUMBERS if name in asked.lists else pl.String() for name in asked.but(*NUMBERED)}


def minari_hdf5_types(path: Path, asked: Asked) -> dict[str, pl.DataType]:
    """Columns and types, as they are asked for.

    Raises LogError if the file is damaged, holds no episode, or fewer than ``metadata.json`` beside it tells.
    """
    with open_hdf5(path) as file:
        found = len(_episodes(file))
    if not found:
        raise LogError(f"{path.name}: no episode_0, episode_1, …; is this a Minari file?")
    beside = path.with_name("metadata.json")
    if (total := read_facts(beside).get("total_episodes", found)) != found:
        raise LogError(f"{path.name}: {found} episodes, metadata.json tells of {total}; copy the data set again")
    return _asked_types(asked)


def read_minari_hdf5(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield transitions; an episode whose arrays cannot be read or do not fit together is malformed.

    Raises LogError if the file is damaged.
    """
    row = 1
    with open_hdf5(path) as file:
        held = _Held(asked)
        for number, name in _episodes(file):
            fault: str | None = None
            try:
                for columns, steps in _pieces(member(file, name, path, "/"), asked, path, name):
                    held.add(columns, number, steps)
                    if held.rows >= BATCH_ROWS:
                        yield held.batch(row, NO_LINES)
                        row, held = row + held.rows, _Held(asked)
            except (LogError, *FAULTS) as e:
                fault = str(e) if isinstance(e, LogError) else f"cannot be read ({type(e).__name__})"
            if fault is not None:
                lost = pl.DataFrame({"line": [row + held.rows], "text": [f"{name}: {fault}"]})
                yield held.batch(row, lost)
                row, held = row + held.rows + 1, _Held(asked)
        if held.rows:
            yield held.batch(row, NO_LINES)


@dataclass(frozen=True)
class _Place:
    """Where a column is found in an episode: array, whether one entry later, which number of each entry."""

    base: str
    later: int
    entry: int | None

    def of(self, values: NDArray[Any], rows: int) -> NDArray[Any]:
        """Its entries of so many rows."""
        cut = values[self.later : rows + self.later]
        return cut if self.entry is None else cut[:, [self.entry]]


class _Held:
    """Rows of some episodes, to be made into one batch."""

    def __init__(self, asked: Asked) -> None:
        self._asked, self.rows = asked, 0
        self._pieces: dict[str, list[NDArray[Any]]] = {name: [] for name in asked.but(*NUMBERED)}
        self._numbers: list[Integers] = []
        self._steps: list[Integers] = []

    def add(self, columns: dict[str, NDArray[Any]], number: int, steps: range) -> None:
        """Some transitions of an episode."""
        for name, pieces in self._pieces.items():
            pieces.append(columns[name])
        self._numbers.append(np.full(len(steps), number))
        self._steps.append(np.arange(steps.start, steps.stop))
        self.rows += len(steps)

    def batch(self, first: int, lost: pl.DataFrame) -> Batch:
        """The columns that were asked for."""
        if not self.rows:
            return Batch(pl.DataFrame(schema={c: _asked_types(self._asked)[c] for c in self._asked.columns}),
                         lines_from(first, 0), lost)  # fmt: skip
        made = pl.DataFrame({"_n": np.concatenate(self._numbers), "step": np.concatenate(self._steps)})
        frame = made.with_columns(
            pl.concat(
                # one type for all entries would read one episode by another's
                _cells(np.concatenate(list(alike)), lists=name in self._asked.lists)
                for _, alike in groupby(pieces, key=lambda values: (values.dtype, values.shape[1:]))
            ).alias(name)
            for name, pieces in self._pieces.items()
        )
        frame = frame.with_columns(mark_numbers(self._asked.mark, pl.col("_n")).alias("episode"))
        return Batch(frame.select(self._asked.columns), lines_from(first, self.rows), lost)


def _pieces(group: Any, asked: Asked, path: Path, where: str) -> Iterator[tuple[dict[str, NDArray[Any]], range]]:
    """Columns and numbers of the steps of an episode, a bounded number of them at a time."""
    places = {name: _place(group, name, path, where) for name in asked.but(*NUMBERED)}
    bases = dict.fromkeys(["rewards", *(place.base for place in places.values())])
    data = {base: _array(group, base, path, where) for base in bases}
    _check_fit(group, data)
    for name, place in places.items():
        _check_type(name, place, type_of(data[place.base]), lists=name in asked.lists)
    read, steps = {place.base for place in places.values()}, len(data["rewards"])
    for low in range(0, steps, BATCH_ROWS):
        high = min(low + BATCH_ROWS, steps)
        found = {base: values(data[base], low, high + 1) for base in read}
        if odd := [base for base, values in found.items() if no_text(values).any()]:
            raise LogError(f"{odd[0]}: {NO_TEXT}")
        yield {name: at.of(found[at.base], high - low) for name, at in places.items()}, range(low, high)


def _array(group: Any, name: str, path: Path, where: str) -> Stored:
    found = array(group, name, path, where)
    if found is None:
        raise LogError(f"no {name}")
    return found


def _place(group: Any, name: str, path: Path, where: str) -> _Place:
    base, later = _base(name)
    entry = PLACE.fullmatch(base)
    if entry is None or array(group, base, path, where) is not None:
        return _Place(base, later, None)
    return _Place(entry[1], later, int(entry[2]))


def _check_fit(group: Any, data: dict[str, Stored]) -> None:
    steps = len(data["rewards"])
    if str(group.attrs.get("total_steps", steps)) != str(steps):
        raise LogError(f"rewards holds {steps} entries, total_steps is another number")
    for base, x in data.items():
        allowed = {_SEEN: (steps + 1,), "infos": (steps, steps + 1)}.get(base.split("/")[0], (steps,))
        if len(x) not in allowed:
            raise LogError(f"{base} holds {len(x)} entries, rewards {steps}")


def _check_type(name: str, at: _Place, dtype: pl.DataType, *, lists: bool) -> None:
    numbers = dtype.is_numeric() or dtype == pl.Boolean
    several = dtype.size if isinstance(dtype, pl.Array) else 0
    if at.entry is not None:
        fits = at.entry < several
    else:
        fits = (numbers or several > 0) if lists else (numbers or dtype == pl.String)
    if not fits:
        raise LogError(f"{name}: entries are {dtype}, and cannot be read as {'a vector' if lists else 'one cell'}")


def _cells(values: NDArray[Any], *, lists: bool) -> pl.Series:
    """Entries of one type: lists of numbers, or the text that this type gives."""
    if lists:
        return pl.Series(values.astype(np.float64)).cast(NUMBERS)
    cells = series(values)
    return cells.cast(pl.Float64).fill_nan(None).cast(pl.String) if cells.dtype.is_float() else cells.cast(pl.String)


def _episodes(file: Any) -> list[tuple[int, str]]:
    """Numbers and names of the groups, in order."""
    return sorted((int(name[1]), name[0]) for key in file if (name := _NAME.fullmatch(key)) is not None)


def minari_arrow_types(path: Path, asked: Asked) -> dict[str, pl.DataType]:
    """Columns and types, as they are asked for.

    Raises LogError if the file's folder is no episode's, or the episode before or after it is missing.
    """
    number, data = _number(path), path.parent.parent
    total = read_facts(data / "metadata.json").get("total_episodes", number + 1)
    if not isinstance(total, int):
        raise LogError(f"{data.name}/metadata.json: total_episodes is no whole number; copy the data set again")
    beside = [n for n in (number - 1, number + 1) if 0 <= n < total and not (data / str(n)).is_dir()]
    if beside:
        raise LogError(f"{data.name}: episode {beside[0]} is missing; copy the data set again")
    return _asked_types(asked)


def read_minari_arrow(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield the transitions of one episode.

    It is malformed if the file is damaged, ``metadata.json`` beside tells of another number, or it is longer than one
    record batch: pyarrow writes batches as they are done, and nothing in the file tells their order.
    """
    try:
        cells = _arrow_cells(path, asked)
    except LogError as e:
        lost = pl.DataFrame({"line": [1], "text": [f"{path.parent.name}: {e}"]})
        yield _Held(asked).batch(1, lost)
        return
    rows = len(next(iter(cells.values())))
    cells["step"] = pl.Series(np.arange(rows))
    cells["episode"] = pl.Series([f"{asked.mark}{_number(path)}"]).new_from_index(0, rows)
    yield Batch(pl.DataFrame([cells[name].alias(name) for name in asked.columns]), lines_from(1, rows), NO_LINES)


def _arrow_cells(path: Path, asked: Asked) -> dict[str, pl.Series]:
    """Columns of the T transitions of an episode."""
    with (open_parquet if path.suffix == ".parquet" else open_ipc)(path) as file:
        bases, cells = _found(tuple(file.types.items()), tuple(asked.but(*NUMBERED)), asked.lists)
        batches = list(file.read(bases))
    if odd := [batch.malformed["text"][0] for batch in batches if len(batch.malformed)]:
        raise LogError(odd[0])
    rows = sum(len(batch.frame) for batch in batches)
    steps = max(0, rows - 1)
    if rows > _ONE_BATCH:
        raise LogError(f"{rows} rows: Minari's Arrow writer does not keep the order of so many")
    if read_facts(path.with_name("metadata.json")).get("total_steps", steps) != steps:
        raise LogError(f"{rows} rows, metadata.json tells of another number of steps and one more observation")
    stored = pl.concat([b.frame for b in batches] or [pl.DataFrame(schema={base: file.types[base] for base in bases})])
    found = {n: stored[c] if isinstance(c, str) else stored.select(c).to_series() for n, c in cells.items()}
    return {name: cell.slice(_base(name)[1], steps) for name, cell in found.items()}


@lru_cache
def _found(
    types: tuple[tuple[str, pl.DataType], ...], names: tuple[str, ...], lists: frozenset[str]
) -> tuple[list[str], dict[str, str | pl.Expr]]:
    """The columns of a file that ``names`` stand in; and of each name, its column or how it is taken out of one."""
    stored, bases, cells = dict(types), list[str](), dict[str, str | pl.Expr]()
    for name in names:
        it = field(base := _base(name)[0], stored)
        dtype = None if it is None else cell_type(it[0], lists=name in lists)
        if it is None or dtype is None or (name in lists and dtype == pl.String):
            raise LogError(f"{name}: {'not there' if it is None else f'is {it[0]}'}")
        bases += it[1].meta.root_names()
        cells[name] = base if base in stored else it[1]
        if name in lists and dtype != NUMBERS:
            cells[name] = pl.concat_list(it[1].cast(pl.Float64))
    return list(dict.fromkeys(bases)), cells


def _base(name: str) -> tuple[str, int]:
    """Where a column is found: array, whether one entry later."""
    return (name.removeprefix(NEXT), 1) if name.startswith(NEXT + _SEEN) else (name, 0)


def _number(path: Path) -> int:
    name = path.parent.name
    if not (name.isascii() and name.isdecimal() and len(name) <= 18):
        raise LogError(f"{name}/{path.name}: not in a folder with an episode's number; Minari writes data/0, data/1, …")
    return int(name)
