"""Parts that readers share: requests and batches, names of parts of cells, and rows of Parquet and of Arrow.

Arrow IPC is read as a file (Feather version 2) or a stream; types come from the schema, rows in batches.

Rows of Parquet and Arrow are framed before anything is converted: one row is one record.  A row that is too long, or
holds text that is not UTF-8, is set aside alone.  Text is not checked on its way from pyarrow to polars, and invalid
text would end the process.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import json
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.arrays import Bools, Integers
from pipeline.declaration.toml import LogError
from pipeline.logs.decode import NUMBERS, holds_numbers


@dataclass(frozen=True)
class Request:
    """Request to a reader of one file: columns, which of them are lists, a prefix of ids, and a separator."""

    columns: list[str]
    lists: frozenset[str] = frozenset()
    mark: str = ""
    separator: str = ","

    def without(self, *names: str) -> list[str]:
        """Requested columns other than ``names``, which the reader makes itself."""
        return [column for column in self.columns if column not in names]


@dataclass(frozen=True)
class Batch:
    """Some consecutive rows of one file.

    ``lines`` ``(n,)``: int64, 1-based line (CSV, where the header is line 1; NDJSON) or row (Parquet, Arrow) of each
    row.
    """

    frame: pl.DataFrame
    lines: Integers
    malformed: pl.DataFrame

    def set_aside(self, odd: pl.Series, why: str) -> "Batch":
        """Move the rows that ``odd`` marks to the malformed ones."""
        if not odd.any():
            return self
        marked = odd.to_numpy()
        lost = pl.DataFrame({"line": self.lines[marked], "text": why}, schema=NO_LINES.schema)
        return Batch(self.frame.filter(~odd), self.lines[~marked], pl.concat([self.malformed, lost]).sort("line"))


def read_facts(path: Path) -> dict[str, Any]:
    """Content of a JSON file beside the data; empty if there is none.

    Raises LogError if it is no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise LogError(f"{path.parent.name}/{path.name}: no JSON object; write or copy it again")
    return content


def lines_from(first: int, rows: int) -> Integers:
    """Numbers of ``rows`` rows from ``first`` on."""
    return np.arange(first, first + rows, dtype=np.int64)


def mark_numbers(mark: str, numbers: pl.Expr) -> pl.Expr:
    """Record numbers as ids that are unique among files."""
    return pl.lit(mark) + numbers.cast(pl.String)


# a record that is longer is set aside before it is parsed
RECORD_BYTES = 1 << 20
NO_LINES = pl.DataFrame(schema={"line": pl.Int64, "text": pl.String})


def cell_type(dtype: pl.DataType, *, lists: bool = False) -> pl.DataType | None:
    """Common type of the cells of a column; None if they are no cells."""
    if lists and holds_numbers(dtype):
        return NUMBERS
    if dtype.is_integer():
        return pl.String() if dtype.base_type() in (pl.UInt64, pl.Int128, pl.UInt128) else pl.Int64()
    if dtype.is_float() or dtype.is_decimal():
        return pl.Float64()
    if dtype == pl.Boolean:
        return pl.Boolean()
    kind = dtype.base_type()
    is_time = dtype.is_temporal() and kind is not pl.Duration
    return pl.String() if is_time or kind in (pl.String, pl.Categorical, pl.Enum, pl.Null) else None


# seconds since 1970 of the years 1 and 9999
_FIRST, _LAST, _DAY = -62_135_596_800, 253_402_300_799, 86_400


def readable_times(column: pl.Series) -> pl.Series:
    """Set dates and times outside the years 1 to 9999 to null: they would end the process."""
    if isinstance(column.dtype, pl.Datetime):
        a_second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[column.dtype.time_unit]
        low, high = _FIRST * a_second, _LAST * a_second
    elif column.dtype == pl.Date:
        low, high = _FIRST // _DAY, _LAST // _DAY
    elif column.dtype == pl.Time:
        low, high = 0, _DAY * 10**9 - 1
    else:
        return column
    largest = 2**63 - 1
    return column.set(~column.to_physical().cast(pl.Int64).is_between(max(low, -largest), min(high, largest)), None)


# columns that readers make from the order of rows
NUMBERED: dict[str, pl.DataType] = {"episode": pl.String(), "step": pl.Int64()}
PLACE = re.compile(r"(.+)\[(\d{1,4})\]")

Types = Mapping[str, pl.DataType]


def field(name: str, types: Types) -> tuple[pl.DataType, pl.Expr] | None:
    """Type of a column or of a part of its cells, and an expression that takes it out; None if it does not exist."""
    if name in types:
        return types[name], pl.col(name)
    index = PLACE.fullmatch(name)
    outer, slash, inner = name.rpartition("/")
    container = field(index[1], types) if index is not None else field(outer, types) if slash else None
    if container is None:
        return None
    dtype, cell = container
    if index is not None and isinstance(dtype, pl.List):
        return _type_of(dtype.inner), cell.list.get(int(index[2]), null_on_oob=True)
    if index is not None and isinstance(dtype, pl.Array) and int(index[2]) < dtype.size:
        return _type_of(dtype.inner), cell.arr.get(int(index[2]))
    if index is None and isinstance(dtype, pl.Struct):
        kinds = {part.name: _type_of(part.dtype) for part in dtype.fields}
        return (kinds[inner], cell.struct.field(inner)) if inner in kinds else None
    return None


def field_types(names: list[str], types: Types) -> dict[str, pl.DataType]:
    """Types of the columns, and of those ``names`` that exist."""
    located = {name: field(name, types) for name in names}
    return {**types, **{name: entry[0] for name, entry in located.items() if entry is not None}}


def take_fields(names: list[str], types: Types) -> list[pl.Expr]:
    """Expressions of the ``names``, all of which exist."""
    return [located[1].alias(name) for name in names if (located := field(name, types)) is not None]


def columns_of(names: Iterable[str], types: Types) -> list[str]:
    """Columns that hold the ``names`` which exist, each once."""
    located = (field(name, types) for name in names)
    return list(dict.fromkeys(entry[1].meta.root_names()[0] for entry in located if entry is not None))


def _type_of(dtype: Any) -> pl.DataType:
    return pl.Series(dtype=dtype).dtype


BATCH_ROWS = 1 << 18
_USUAL_COLUMNS = 12


def batch_rows(columns: list[str]) -> int:
    """Number of rows of a batch: fewer if they are wide, so that memory does not grow with the horizon."""
    return max(1, BATCH_ROWS * _USUAL_COLUMNS // max(_USUAL_COLUMNS, len(columns)))


def types_of(schema: Any) -> dict[str, pl.DataType]:
    """Column name -> type in the schema (of a dictionary, that of its values); repeated names are left out."""
    times = Counter(schema.names)
    kinds = zip(schema.names, schema.types, strict=True)
    return {name: _polars_type(kind) for name, kind in kinds if times[name] == 1}


@cache
def _polars_type(arrow: Any) -> pl.DataType:
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if _unknown(arrow):
        return pl.Object()
    try:
        return pl.DataFrame(pl.from_arrow(pa.table({"x": pa.array([], type=arrow)})))["x"].dtype
    except (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError):
        return pl.Object()


def _unknown(arrow: Any) -> bool:
    """Whether this type or its values would make polars end the process instead of raising an error."""
    if pa.types.is_timestamp(arrow) and arrow.tz is not None:
        try:
            pl.Series([], dtype=pl.Int64).cast(pl.Datetime("us", arrow.tz))
        except pl.exceptions.PolarsError:
            return True
    if pa.types.is_decimal256(arrow) or pa.types.is_interval(arrow):
        return True
    return pa.types.is_nested(arrow) and any(_unknown(arrow.field(i).type) for i in range(arrow.num_fields))


def frame_rows(batch: Any, columns: list[str], first: int, most: int = RECORD_BYTES) -> Batch:
    """Rows of a record batch, dictionaries decoded; the first one is row ``first`` of the file.

    Raises ArrowException if the batch is damaged: it would be read beyond its end.
    """
    arrays = [_without_inner_dictionaries(batch.column(name)) for name in columns]
    numbers, lost = lines_from(first, batch.num_rows), NO_LINES
    odd, long = find_odd_text(arrays), _too_long(arrays, most)
    if (bad := long | odd).any():
        why = np.where(long, f"longer than {most >> 20} MiB", "text that is not UTF-8")[bad]
        lost = pl.DataFrame({"line": numbers[bad], "text": why}, schema=NO_LINES.schema)
        sound = pa.array(~bad)
        arrays, numbers = [_filter(array, sound) for array in arrays], numbers[~bad]
    plain = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
    return Batch(pl.DataFrame(pa.RecordBatch.from_arrays(plain, names=columns)), numbers, lost)


@cache
def _holds_dictionary(kind: Any) -> bool:
    """Whether lists or structs of this type hold dictionaries."""
    inner = [kind.field(i).type for i in range(kind.num_fields)] if pa.types.is_nested(kind) else []
    return any(pa.types.is_dictionary(part) or _holds_dictionary(part) for part in inner)


def _without_inner_dictionaries(array: Any) -> Any:
    """Decode dictionaries inside lists and structs: one text that is not UTF-8 would be in the dictionary of all rows.

    Raises ArrowException if the array is damaged.
    """
    if not _holds_dictionary(array.type):
        return array
    array.validate()
    if isinstance(array, pa.StructArray):
        parts = [_decoded(array.field(i)) for i in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(parts, [part.name for part in array.type], mask=array.is_null())
    values, nulls = _decoded(array.values), array.is_null()
    if isinstance(array, pa.FixedSizeListArray):
        size = array.type.list_size
        return pa.FixedSizeListArray.from_arrays(values.slice(array.offset * size, len(array) * size), size, mask=nulls)
    # offsets of a slice take no mask
    return type(array).from_arrays(pa.array(array.offsets.to_numpy()), values, mask=nulls)


def _decoded(array: Any) -> Any:
    if not isinstance(array, pa.DictionaryArray):
        return _without_inner_dictionaries(array)
    # checks that every index is in the dictionary
    return pa.DictionaryArray.from_arrays(array.indices, array.dictionary).dictionary_decode()


def _filter(array: Any, mask: Any) -> Any:
    if pa.types.is_string_view(array.type):
        # pyarrow filters no views
        return _as_bytes(array).cast(pa.large_binary()).filter(mask).view(pa.large_string())
    return array.filter(mask)


def find_odd_text(arrays: list[Any]) -> Bools:
    """``(n,)``: whether a row of these columns holds text that is not UTF-8; ``ArrowInvalid`` if they are damaged."""
    bad = np.zeros(len(arrays[0]), dtype=np.bool_)
    for array in arrays:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            # offsets beyond the batch are damage of the file; invalid text, times or numbers are faults of single rows
            as_bytes = array
            if isinstance(array, pa.DictionaryArray):
                as_bytes = pa.DictionaryArray.from_arrays(array.indices, _as_bytes(array.dictionary))
            _as_bytes(as_bytes).validate(full=True)
            bad |= _measured(array, _odd_texts) > 0
    return bad


def _too_long(arrays: list[Any], most: int) -> Bools:
    grown = [array for array in arrays if _grows(array.type)]
    if sum(map(_longest, grown)) <= most:
        return np.zeros(len(arrays[0]), dtype=np.bool_)
    return np.sum([_measured(array, _lengths) for array in grown], axis=0) > most


def _longest(array: Any) -> int:
    """Bytes of the longest cell of a column, or more."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return int(_spans(array).max(initial=0))
    return int(_measured(array, _lengths).max(initial=0))


def _spans(array: Any) -> Integers:
    """``(n,)``: bytes between the offsets of text or bytes; a missing cell may have some.

    Without ``pyarrow.compute``, whose import is a tenth of a start.
    """
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    if not len(array):
        return np.zeros(0, dtype=np.int64)
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64 if wide else np.int32)
    return np.diff(offsets[array.offset : array.offset + len(array) + 1]).astype(np.int64)


@cache
def _grows(kind: Any) -> bool:
    """Whether cells of this type have no fixed length."""
    return not (pa.types.is_primitive(kind) or pa.types.is_null(kind))


def _measured(array: Any, measure: Callable[[Any], Integers]) -> Integers:
    """``(n,)``: the measure summed over each row of a column, parts of lists and structs included."""
    if isinstance(array, pa.DictionaryArray):
        measures = np.append(_measured(array.dictionary, measure), 0)
        return measures[array.indices.fill_null(len(measures) - 1).to_numpy(zero_copy_only=False).astype(np.int64)]
    if isinstance(array, pa.StructArray):
        parts = (_measured(array.field(i), measure) for i in range(array.type.num_fields))
        return sum(parts, start=np.zeros(len(array), dtype=np.int64))
    if isinstance(array, pa.FixedSizeListArray):
        bounds = (array.offset + np.arange(len(array) + 1)) * array.type.list_size
    elif isinstance(array, pa.ListArray | pa.LargeListArray):
        bounds = array.offsets.to_numpy()
    else:
        return measure(array)
    summed = np.concatenate([[0], np.cumsum(_measured(array.values, measure))])
    return summed[bounds[1:]] - summed[bounds[:-1]]


def _lengths(array: Any) -> Integers:
    data = _as_bytes(array)
    if pa.types.is_binary(data.type) or pa.types.is_large_binary(data.type):
        return np.where(data.is_valid(), _spans(data), 0)
    if pa.types.is_binary_view(data.type):
        # a view is sixteen bytes, and begins with its length
        views = np.frombuffer(data.buffers()[1], dtype=np.int32)[::4][data.offset : data.offset + len(data)]
        return np.where(data.is_valid(), views, 0).astype(np.int64)
    return np.full(len(array), 8, dtype=np.int64)


def _odd_texts(array: Any) -> Integers:
    data = _as_bytes(array)
    if array.type not in _BYTES:
        return np.zeros(len(array), dtype=np.int64)
    return np.fromiter((not _is_text(cell) for cell in data.to_pylist()), dtype=np.int64, count=len(array))


def _is_text(cell: bytes | None) -> bool:
    try:
        return cell is None or bool(cell.decode("utf-8") or True)
    except UnicodeDecodeError:
        return False


def _as_bytes(array: Any) -> Any:
    """View the cells as bytes (text, decimals) or integers (times)."""
    return array.view(_bytes_type(array.type))


_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


@cache
def _bytes_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_bytes_type(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_bytes_type(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        list_type = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return list_type(kind.value_field.with_type(_bytes_type(kind.value_type)))
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if pa.types.is_time(kind) or pa.types.is_date64(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return _BYTES.get(kind, kind)


_FAULTS = (
    pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, EOFError,
)  # fmt: skip


def _damaged(path: Path, kind: str, rows: int | None = None) -> LogError:
    place = "" if rows is None else f" after row {rows}"
    return LogError(f"{path.name}: not a whole {kind} file{place}; write or copy it again")


@dataclass(frozen=True)
class ArrowFile:
    """An open file: its types, and a function that reads columns."""

    types: dict[str, pl.DataType]
    read: Callable[[list[str]], Iterator[Batch]]


@contextmanager
def open_parquet(path: Path, most: int = RECORD_BYTES) -> Generator[ArrowFile]:
    """Open a Parquet file; a row of more than ``most`` bytes is malformed.
    Raises LogError if the file is no readable Parquet file.
    """
    with _open_parquet(path) as file:
        yield ArrowFile(types_of(file.schema_arrow), partial(_parquet_rows, path, file, most))


def parquet_types(path: Path) -> dict[str, pl.DataType]:
    """Types of a file; errors as of :func:`open_parquet`."""
    with open_parquet(path) as file:
        return file.types


def row_count(path: Path) -> int:
    """Read the number of rows from the footer."""
    with _open_parquet(path) as file:
        return int(file.metadata.num_rows)


def read_parquet(path: Path, columns: list[str], most: int = RECORD_BYTES) -> Iterator[Batch]:
    """Yield the rows of ``columns``; see :func:`open_parquet`."""
    with open_parquet(path, most) as file:
        yield from file.read(columns)


def _parquet_rows(path: Path, file: Any, most: int, columns: list[str]) -> Iterator[Batch]:
    first = 1
    try:
        for batch in file.iter_batches(batch_size=batch_rows(columns), columns=columns):
            yield frame_rows(batch, columns, first, most)
            first += batch.num_rows
    except _FAULTS:
        raise _damaged(path, "Parquet", first - 1) from None


def _open_parquet(path: Path) -> Any:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise _damaged(path, "Parquet") from None


_FILE, _FEATHER_1 = b"ARROW1", b"FEA1"
_SMALL = 1 << 16


@contextmanager
def open_ipc(path: Path) -> Generator[ArrowFile]:
    """Open an Arrow file or stream.
    Raises LogError if the file is no readable Arrow file.
    """
    try:
        source = pa.OSFile(str(path), "rb")
    except _FAULTS:
        raise _damaged(path, "Arrow") from None
    with source:
        try:
            if source.size() <= _SMALL:
                # pyarrow reads a file in a thread of its own, which costs more than a short file's bytes
                source = pa.BufferReader(source.read_buffer())
            magic = source.read(len(_FILE))
            source.seek(0)
            opening = pa.ipc.open_file if magic == _FILE else pa.ipc.open_stream
            reader = None if magic.startswith(_FEATHER_1) else opening(source)
        except _FAULTS:
            raise _damaged(path, "Arrow") from None
        if reader is None:
            raise LogError(f"{path.name}: Feather version 1; write it as version 2, which is the Arrow file format")
        yield ArrowFile(types_of(reader.schema), partial(_ipc_rows, path, source, opening, reader))


def ipc_types(path: Path) -> dict[str, pl.DataType]:
    """Types of a file; errors as of :func:`open_ipc`."""
    with open_ipc(path) as file:
        return file.types


def read_ipc(path: Path, columns: list[str]) -> Iterator[Batch]:
    """Yield the rows of ``columns``, one record batch at a time in slices of bounded size; see :func:`open_ipc`."""
    with open_ipc(path) as file:
        yield from file.read(columns)


def _ipc_rows(path: Path, source: Any, opening: Callable[..., Any], reader: Any, columns: list[str]) -> Iterator[Batch]:
    first, most = 1, batch_rows(columns)
    try:
        if sorted(columns) != sorted(reader.schema.names):
            # other columns are not read, even if damaged; a column that is missing by now is damage
            wanted = pa.ipc.IpcReadOptions(included_fields=[reader.schema.get_field_index(c) for c in columns])
            source.seek(0)
            reader = opening(source, options=wanted)
    except _FAULTS:
        raise _damaged(path, "Arrow") from None
    in_file = opening is pa.ipc.open_file
    batches = map(reader.get_batch, range(reader.num_record_batches)) if in_file else _stream_batches(reader, source)
    while True:
        try:
            batch = next(batches, None)
            if batch is None:
                return
            framed = [frame_rows(batch.slice(i, most), columns, first + i) for i in range(0, batch.num_rows, most)]
        except _FAULTS:
            raise _damaged(path, "Arrow", first - 1) from None
        yield from framed
        first += batch.num_rows


def _stream_batches(reader: Any, source: Any) -> Iterator[Any]:
    """Yield batches up to the end-of-stream mark, which must be there and must be the end of the file."""
    while True:
        before = source.tell()
        try:
            yield reader.read_next_batch()
        except StopIteration:
            if source.tell() == before or source.tell() != source.size():
                raise EOFError from None
            return
