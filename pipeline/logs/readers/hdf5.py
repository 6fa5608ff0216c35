"""HDF5: plain arrays of one file, as columns.  Links to other files are refused.

Minari: T actions between T + 1 observations, in HDF5 or in Arrow.

Columns: ``episode``, ``step``, ``observations``, ``next_observations``, ``actions``, ``rewards``, ``terminations``,
``truncations``, ``infos/…``; the parts of a Dict space are ``observations/part``.  The card's vectors are read as lists
of numbers, all else as text: an episode's types do not depend on other episodes.  An episode that cannot be read this
way is malformed, alone.

HDF5: a group for each episode, in the order of their numbers; row n of the file is its n-th transition.

Arrow or Parquet: a folder for each episode, named by its number, with one file; the last row is padding around the last
observation.  All record batches of a file are one episode.
"""

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

from pipeline.arrays import AnyArray, Bools, Integers
from pipeline.declaration.toml import CardError, LogError
from pipeline.logs.decode import NUMBERS
from pipeline.logs.readers import batch as framing
from pipeline.logs.readers.batch import BATCH_ROWS, NUMBERED, Batch, Request, open_ipc, open_parquet

# deepest nesting of groups: a group that holds itself has no end
_DEEPEST = 8
# largest ratio of unfolded to compressed size
_MOST_UNFOLDED = 4096
# most numbers in one entry of an array: an image is no vector
_MOST_NUMBERS = 1024
FAULTS = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)


def library(path: Path) -> Any:
    """Import h5py.

    Raises CardError if it is not installed.
    """
    try:
        import h5py
    except ImportError:
        raise CardError(f"{path.name}: HDF5 files need h5py; pip install 'reticent[formats]'") from None
    return h5py


@contextmanager
def open_hdf5(path: Path) -> Generator[Any]:
    """Open a file.

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

    ``data``: h5py's data set.
    ``dtype``, ``shape``: of all entries, kept because a query of h5py costs as much as reading a short array.
    ``chunk``: shape of its chunks; None if it is stored in one piece.
    ``filters``: HDF5's numbers of the filters by which its chunks were written.
    """

    data: Any
    dtype: Any
    shape: tuple[int, ...]
    chunk: tuple[int, ...] | None
    filters: tuple[int, ...]

    def __len__(self) -> int:
        return self.shape[0]


def arrays(group: Any, path: Path, location: str, depth: int = 0) -> dict[str, Stored]:
    """Data sets of a group by name, ``outer/inner`` of groups inside; nothing is read yet.

    Raises LogError for a link, a data set in another file, endless nesting, or a size that the file cannot hold.
    """
    h5py = library(path)
    if depth > _DEEPEST:
        raise LogError(f"{path.name}: {location}: groups inside groups beyond {_DEEPEST}; write it flat")
    stored: dict[str, Stored] = {}
    for name in group:
        item = member(group, name, path, location)
        if isinstance(item, h5py.Group):
            inner = arrays(item, path, f"{location}/{name}", depth + 1)
            stored |= {f"{name}/{key}": data for key, data in inner.items()}
        elif (data := _stored(item, path, f"{location}/{name}")) is not None:
            stored[name] = data
    return stored


def member(group: Any, name: str, path: Path, location: str) -> Any:
    """Member of a group; None if it is neither a group nor a data set.

    Raises LogError if it is a link, perhaps to another file.
    """
    h5py, key = library(path), name.encode()
    if group.id.links.get_info(key).type != h5py.h5l.TYPE_HARD:
        raise LogError(f"{path.name}: {location}: {name!r} is a link; links are not read, write the data itself")
    # by h5py's low-level interface: `group[name]` takes twice as long as reading a short array
    identifier = h5py.h5o.open(group.id, key)
    if isinstance(identifier, h5py.h5g.GroupID):
        return h5py.Group(identifier)
    return h5py.Dataset(identifier, readonly=True) if isinstance(identifier, h5py.h5d.DatasetID) else None


def array(group: Any, name: str, path: Path, location: str) -> Stored | None:
    """Data set ``outer/inner`` of a group; None if there is none.

    Raises LogError as of :func:`arrays`.
    """
    for part in name.split("/"):
        if not isinstance(group, library(path).Group):
            return None
        try:
            group, location = member(group, part, path, location), f"{location}/{part}"
        except FAULTS:
            # existence is checked only on failure, because the member usually exists
            if group.id.links.exists(part.encode()):
                raise
            return None
    return _stored(group, path, location)


def _stored(data: Any, path: Path, location: str) -> Stored | None:
    h5py = library(path)
    if not isinstance(data, h5py.Dataset) or not data.shape:
        return None
    properties = data.id.get_create_plist()
    chunk = properties.get_chunk() if properties.get_layout() == h5py.h5d.CHUNKED else None
    filters = tuple(properties.get_filter(i)[0] for i in range(properties.get_nfilters()))
    stored = Stored(data, data.dtype, data.shape, chunk, filters)
    if properties.get_layout() == h5py.h5d.VIRTUAL or properties.get_external_count():
        raise LogError(f"{path.name}: {location} lies in another file; write the data itself")
    size = math.prod(stored.shape) * stored.dtype.itemsize
    # a query of the file's size would take longer than reading so few bytes
    if size > _MOST_UNFOLDED and size > _MOST_UNFOLDED * h5py.h5i.get_file_id(data.id).get_filesize():
        raise LogError(f"{path.name}: {location} claims to hold far more than the file; write or copy it again")
    return stored


def type_of(data: Stored) -> pl.DataType:
    """Type of an array as a column; ``Object`` if its entries are no cells."""
    if library(Path()).check_string_dtype(data.dtype) is not None:
        return pl.String() if len(data.shape) == 1 else pl.Object()
    return _numbers(data.dtype, data.shape[1:]) if data.dtype.kind in "biuf" else pl.Object()


@cache
def _numbers(dtype: Any, shape: tuple[int, ...]) -> pl.DataType:
    size = int(np.prod(shape))
    if dtype.itemsize > 8 or not 1 <= size <= _MOST_NUMBERS:
        return pl.Object()
    return pl.Series(_plain(np.zeros((0, size), dtype=dtype))).dtype


def values(data: Stored, low: int, high: int) -> AnyArray:
    """Entries ``low … high - 1`` as ``(n, size)`` numbers, or ``(n,)`` texts (objects).

    Raises LogError if a chunk that was written is not whole.
    """
    h5py = library(Path())
    if data.chunk is not None:
        _check_chunks(data, data.chunk, low, high)
    if h5py.check_string_dtype(data.dtype) is not None:
        return np.array(data.data.asstr(errors="surrogateescape")[low:high].tolist(), dtype=object)
    if low > 0 or high < len(data):
        entries: AnyArray = data.data[low:high]
    else:
        # by the low-level interface, as in :func:`member`; chunks that were never written leave the zeros
        entries = np.zeros(data.shape, data.dtype)
        data.data.id.read(h5py.h5s.ALL, h5py.h5s.ALL, entries)
    return entries.reshape(len(entries), -1)


def _check_chunks(data: Stored, chunk: tuple[int, ...], low: int, high: int) -> None:
    """Refuse a chunk that unfolds to less than its size: HDF5 would return the memory behind it as numbers."""
    dataset, chunks = data.data.id, list[Any]()
    dataset.chunk_iter(chunks.append)
    size = math.prod(chunk) * _bytes_of(data)
    for info in chunks:
        if not low - chunk[0] < info.chunk_offset[0] < high:
            continue
        filters = [kind for i, kind in enumerate(data.filters) if not info.filter_mask >> i & 1]
        unfolded = _unfolded(dataset.read_direct_chunk(info.chunk_offset)[1], filters, size) if filters else info.size
        if unfolded != size:
            chunk_name = f"{Path(data.data.file.filename).name}: {data.data.name}: a chunk"
            filters_read = "or passed another filter than gzip, lzf, shuffle and fletcher32"
            raise LogError(f"{chunk_name} is not of its size, {filters_read}; write or copy it again")


def _bytes_of(data: Stored) -> int:
    """Bytes of an entry in the file: for text of any length, its length, its address and its index there."""
    text = library(Path()).check_string_dtype(data.dtype)
    if text is None or text.length is not None:
        return int(data.data.id.get_type().get_size())
    return 4 + int(data.data.file.id.get_create_plist().get_sizes()[0]) + 4


def _unfolded(content: bytes, filters: Sequence[int], size: int) -> int:
    """Bytes of a chunk before ``filters`` (more than ``size`` if it is larger); -1 if that cannot be determined."""
    h5z, checksum = library(Path()).h5z, 4
    for kind in reversed(filters):
        if kind == h5z.FILTER_DEFLATE:
            try:
                content = zlib.decompressobj().decompress(content, size + checksum + 1)
            except zlib.error:
                return -1
        elif kind == h5z.FILTER_LZF:
            content = bytes(_unfolded_lzf(content, size + checksum + 1))
        elif kind == h5z.FILTER_FLETCHER32:
            content = content[:-checksum]
        elif kind != h5z.FILTER_SHUFFLE:
            return -1
    return len(content)


def _unfolded_lzf(content: bytes, most: int) -> int:
    """Bytes that LZF unfolds to: literal runs of up to 32 bytes, and copies of 3 or more earlier bytes."""
    position = size = 0
    while position < len(content) and size < most:
        control = content[position]
        if control < 32:
            position, size = position + control + 2, size + control + 1
        else:
            long = control >> 5 == 7
            size += (control >> 5) + 2 + (content[position + 1] if long and position + 1 < len(content) else 0)
            position += 2 + long
    return min(size, most) if position <= len(content) else 0


NO_TEXT = "text that is not UTF-8, or longer than 1 MiB"


def no_text(values: AnyArray) -> Bools:
    """``(n,)``: whether an entry is invalid text, or longer than a record may be."""
    if values.dtype != object:
        return np.zeros(len(values), dtype=np.bool_)
    return np.array([len(x) > framing.RECORD_BYTES or not _encodable(x) for x in values.tolist()], dtype=np.bool_)


def _encodable(text: str) -> bool:
    try:
        return len(text.encode("utf-8")) <= framing.RECORD_BYTES
    except UnicodeEncodeError:
        return False


def series(values: AnyArray) -> pl.Series:
    """Convert the result of :func:`values` to a column; invalid text is null."""
    if values.dtype == object:
        values[no_text(values)] = None
        return pl.Series(values.tolist(), dtype=pl.String)
    return pl.Series(_plain(values))


def _plain(values: AnyArray) -> AnyArray:
    """Convert ``(n, size)`` to this machine's byte order; ``(n,)`` if an entry is one number."""
    kind = np.dtype(np.float32) if values.dtype == np.float16 else values.dtype.newbyteorder("=")
    native = np.ascontiguousarray(values, dtype=kind)
    return native[:, 0] if native.shape[1] == 1 else native


NEXT = "next_"
_NAME = re.compile(r"episode_(\d{1,18})")
_OBSERVATIONS = "observations"
# rows of the record batches into which pyarrow's dataset writer cuts an episode
_ONE_BATCH = 2**16


def _column_types(request: Request) -> dict[str, pl.DataType]:
    return NUMBERED | {name: NUMBERS if name in request.lists else pl.String() for name in request.without(*NUMBERED)}


def minari_hdf5_types(path: Path, request: Request) -> dict[str, pl.DataType]:
    """Requested columns and their types.

    Raises LogError if the file is damaged, holds no episode, or another number than ``metadata.json`` beside it states.
    """
    with open_hdf5(path) as file:
        episodes = len(_episodes(file))
    if not episodes:
        raise LogError(f"{path.name}: no episode_0, episode_1, …; is this a Minari file?")
    facts_file = path.with_name("metadata.json")
    if (total := framing.read_facts(facts_file).get("total_episodes", episodes)) != episodes:
        raise LogError(f"{path.name}: {episodes} episodes, metadata.json tells of {total}; copy the data set again")
    return _column_types(request)


def read_minari_hdf5(path: Path, request: Request) -> Iterator[Batch]:
    """Yield transitions; an episode whose arrays cannot be read or do not fit together is malformed.

    Raises LogError if the file is damaged.
    """
    row = 1
    with open_hdf5(path) as file:
        builder = _BatchBuilder(request)
        for number, name in _episodes(file):
            fault: str | None = None
            try:
                for columns, steps in _pieces(member(file, name, path, "/"), request, path, name):
                    builder.add(columns, number, steps)
                    if builder.rows >= BATCH_ROWS:
                        yield builder.batch(row, framing.NO_LINES)
                        row, builder = row + builder.rows, _BatchBuilder(request)
            except (LogError, *FAULTS) as e:
                fault = str(e) if isinstance(e, LogError) else f"cannot be read ({type(e).__name__})"
            if fault is not None:
                lost = pl.DataFrame({"line": [row + builder.rows], "text": [f"{name}: {fault}"]})
                yield builder.batch(row, lost)
                row, builder = row + builder.rows + 1, _BatchBuilder(request)
        if builder.rows:
            yield builder.batch(row, framing.NO_LINES)


@dataclass(frozen=True)
class _Place:
    """Place of a column in an episode: its array, a shift by one entry (0 or 1), and an index within each entry."""

    base: str
    later: int
    entry: int | None

    def take(self, values: AnyArray, rows: int) -> AnyArray:
        """Take the column's entries of the first ``rows`` rows."""
        cut = values[self.later : rows + self.later]
        return cut if self.entry is None else cut[:, [self.entry]]


class _BatchBuilder:
    """Collects rows of episodes for one batch."""

    def __init__(self, request: Request) -> None:
        self._request, self.rows = request, 0
        self._pieces: dict[str, list[AnyArray]] = {name: [] for name in request.without(*NUMBERED)}
        self._numbers: list[Integers] = []
        self._steps: list[Integers] = []

    def add(self, columns: dict[str, AnyArray], number: int, steps: range) -> None:
        """Add some transitions of an episode."""
        for name, pieces in self._pieces.items():
            pieces.append(columns[name])
        self._numbers.append(np.full(len(steps), number))
        self._steps.append(np.arange(steps.start, steps.stop))
        self.rows += len(steps)

    def batch(self, first: int, lost: pl.DataFrame) -> Batch:
        """Batch of the collected rows, with the requested columns."""
        if not self.rows:
            return Batch(pl.DataFrame(schema={c: _column_types(self._request)[c] for c in self._request.columns}),
                         framing.lines_from(first, 0), lost)  # fmt: skip
        numbers = pl.DataFrame({"_n": np.concatenate(self._numbers), "step": np.concatenate(self._steps)})
        frame = numbers.with_columns(
            pl.concat(
                # converted type by type: one common type would make an episode depend on others
                _cells(np.concatenate(list(alike)), lists=name in self._request.lists)
                for _, alike in groupby(pieces, key=lambda values: (values.dtype, values.shape[1:]))
            ).alias(name)
            for name, pieces in self._pieces.items()
        )
        frame = frame.with_columns(framing.mark_numbers(self._request.mark, pl.col("_n")).alias("episode"))
        return Batch(frame.select(self._request.columns), framing.lines_from(first, self.rows), lost)


def _pieces(group: Any, request: Request, path: Path, location: str) -> Iterator[tuple[dict[str, AnyArray], range]]:
    """Yield columns and step numbers of an episode, a bounded number of rows at a time."""
    places = {name: _place(group, name, path, location) for name in request.without(*NUMBERED)}
    bases = dict.fromkeys(["rewards", *(place.base for place in places.values())])
    data = {base: _array(group, base, path, location) for base in bases}
    _check_fit(group, data)
    for name, place in places.items():
        _check_type(name, place, type_of(data[place.base]), lists=name in request.lists)
    read, steps = {place.base for place in places.values()}, len(data["rewards"])
    for low in range(0, steps, BATCH_ROWS):
        high = min(low + BATCH_ROWS, steps)
        entries = {base: values(data[base], low, high + 1) for base in read}
        if odd := [base for base, values in entries.items() if no_text(values).any()]:
            raise LogError(f"{odd[0]}: {NO_TEXT}")
        yield {name: place.take(entries[place.base], high - low) for name, place in places.items()}, range(low, high)


def _array(group: Any, name: str, path: Path, location: str) -> Stored:
    stored = array(group, name, path, location)
    if stored is None:
        raise LogError(f"no {name}")
    return stored


def _place(group: Any, name: str, path: Path, location: str) -> _Place:
    base, later = _base(name)
    entry = framing.PLACE.fullmatch(base)
    if entry is None or array(group, base, path, location) is not None:
        return _Place(base, later, None)
    return _Place(entry[1], later, int(entry[2]))


def _check_fit(group: Any, data: dict[str, Stored]) -> None:
    steps = len(data["rewards"])
    if str(group.attrs.get("total_steps", steps)) != str(steps):
        raise LogError(f"rewards holds {steps} entries, total_steps is another number")
    for base, x in data.items():
        allowed = {_OBSERVATIONS: (steps + 1,), "infos": (steps, steps + 1)}.get(base.split("/")[0], (steps,))
        if len(x) not in allowed:
            raise LogError(f"{base} holds {len(x)} entries, rewards {steps}")


def _check_type(name: str, place: _Place, dtype: pl.DataType, *, lists: bool) -> None:
    numbers = dtype.is_numeric() or dtype == pl.Boolean
    size = dtype.size if isinstance(dtype, pl.Array) else 0
    if place.entry is not None:
        fits = place.entry < size
    else:
        fits = (numbers or size > 0) if lists else (numbers or dtype == pl.String)
    if not fits:
        raise LogError(f"{name}: entries are {dtype}, and cannot be read as {'a vector' if lists else 'one cell'}")


def _cells(values: AnyArray, *, lists: bool) -> pl.Series:
    """Convert entries of one type to lists of numbers, or to text."""
    if lists:
        return pl.Series(values.astype(np.float64)).cast(NUMBERS)
    cells = series(values)
    return cells.cast(pl.Float64).fill_nan(None).cast(pl.String) if cells.dtype.is_float() else cells.cast(pl.String)


def _episodes(file: Any) -> list[tuple[int, str]]:
    """Numbers and names of the groups, in order."""
    return sorted((int(name[1]), name[0]) for key in file if (name := _NAME.fullmatch(key)) is not None)


def minari_arrow_types(path: Path, request: Request) -> dict[str, pl.DataType]:
    """Requested columns and their types.

    Raises LogError if the file's folder is no episode's, or the episode before or after it is missing.
    """
    number, data = _number(path), path.parent.parent
    total = framing.read_facts(data / "metadata.json").get("total_episodes", number + 1)
    if not isinstance(total, int):
        raise LogError(f"{data.name}/metadata.json: total_episodes is no whole number; copy the data set again")
    missing = [n for n in (number - 1, number + 1) if 0 <= n < total and not (data / str(n)).is_dir()]
    if missing:
        raise LogError(f"{data.name}: episode {missing[0]} is missing; copy the data set again")
    return _column_types(request)


def read_minari_arrow(path: Path, request: Request) -> Iterator[Batch]:
    """Yield the transitions of one episode.

    It is malformed if the file is damaged, ``metadata.json`` beside it states another number of steps, or it is longer
    than one record batch: pyarrow writes batches as they are done, and the file does not hold their order.
    """
    try:
        cells = _arrow_cells(path, request)
    except LogError as e:
        lost = pl.DataFrame({"line": [1], "text": [f"{path.parent.name}: {e}"]})
        yield _BatchBuilder(request).batch(1, lost)
        return
    rows = len(next(iter(cells.values())))
    cells["step"] = pl.Series(np.arange(rows))
    cells["episode"] = pl.Series([f"{request.mark}{_number(path)}"]).new_from_index(0, rows)
    frame = pl.DataFrame([cells[name].alias(name) for name in request.columns])
    yield Batch(frame, framing.lines_from(1, rows), framing.NO_LINES)


def _arrow_cells(path: Path, request: Request) -> dict[str, pl.Series]:
    """Columns of the T transitions of an episode."""
    with (open_parquet if path.suffix == ".parquet" else open_ipc)(path) as file:
        bases, cells = _columns_in(tuple(file.types.items()), tuple(request.without(*NUMBERED)), request.lists)
        batches = list(file.read(bases))
    if odd := [batch.malformed["text"][0] for batch in batches if len(batch.malformed)]:
        raise LogError(odd[0])
    rows = sum(len(batch.frame) for batch in batches)
    steps = max(0, rows - 1)
    if rows > _ONE_BATCH:
        raise LogError(f"{rows} rows: Minari's Arrow writer does not keep the order of so many")
    if framing.read_facts(path.with_name("metadata.json")).get("total_steps", steps) != steps:
        raise LogError(f"{rows} rows, metadata.json tells of another number of steps and one more observation")
    stored = pl.concat([b.frame for b in batches] or [pl.DataFrame(schema={base: file.types[base] for base in bases})])
    columns = {n: stored[c] if isinstance(c, str) else stored.select(c).to_series() for n, c in cells.items()}
    return {name: cell.slice(_base(name)[1], steps) for name, cell in columns.items()}


@lru_cache
def _columns_in(
    types: tuple[tuple[str, pl.DataType], ...], names: tuple[str, ...], lists: frozenset[str]
) -> tuple[list[str], dict[str, str | pl.Expr]]:
    """Columns of a file that hold ``names``; and each name's column, or an expression that takes it out of one."""
    stored, bases, cells = dict(types), list[str](), dict[str, str | pl.Expr]()
    for name in names:
        located = framing.field(base := _base(name)[0], stored)
        dtype = None if located is None else framing.cell_type(located[0], lists=name in lists)
        if located is None or dtype is None or (name in lists and dtype == pl.String):
            raise LogError(f"{name}: {'not there' if located is None else f'is {located[0]}'}")
        bases += located[1].meta.root_names()
        cells[name] = base if base in stored else located[1]
        if name in lists and dtype != NUMBERS:
            cells[name] = pl.concat_list(located[1].cast(pl.Float64))
    return list(dict.fromkeys(bases)), cells


def _base(name: str) -> tuple[str, int]:
    """Array of a column, and its shift by one entry (0 or 1)."""
    return (name.removeprefix(NEXT), 1) if name.startswith(NEXT + _OBSERVATIONS) else (name, 0)


def _number(path: Path) -> int:
    name = path.parent.name
    if not (name.isascii() and name.isdecimal() and len(name) <= 18):
        raise LogError(f"{name}/{path.name}: not in a folder with an episode's number; Minari writes data/0, data/1, …")
    return int(name)
