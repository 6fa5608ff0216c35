"""Rows of record batches (Parquet, Arrow), framed before anything is converted: one row is one record.

A row that is too long, or holds text that is not UTF-8, is set aside alone.  Nothing checks text on its way from
pyarrow to polars, and what is no text there ends the process.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.logs.readers.batch import NO_LINES, RECORD_BYTES, Batch, lines_from

BATCH_ROWS = 1 << 18
_USUAL_COLUMNS = 12
# what stands in one row of a column: bytes, or pieces of text that are none
_Measure = Callable[[Any], NDArray[np.int64]]


def batch_rows(columns: list[str]) -> int:
    """Rows of a batch: fewer where the rows are wide, so that memory does not grow with the horizon."""
    return max(1, BATCH_ROWS * _USUAL_COLUMNS // max(_USUAL_COLUMNS, len(columns)))


def types_of(schema: Any) -> dict[str, pl.DataType]:
    """Column name -> type as the schema declares it (a dictionary is its values); repeated names are left out."""
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
    """Whether polars stops the process where it meets this type or a value of it, instead of raising an error."""
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

    Raises
    ------
    ArrowInvalid
        If the batch is damaged: it would be read beyond its end.
    """
    arrays = [batch.column(name) for name in columns]
    numbers, lost = lines_from(first, batch.num_rows), NO_LINES
    odd, long = find_odd_text(arrays), _too_long(arrays, most)
    if (bad := long | odd).any():
        why = np.where(long, f"longer than {most >> 20} MiB", "text that is not UTF-8")[bad]
        lost = pl.DataFrame({"line": numbers[bad], "text": why}, schema=NO_LINES.schema)
        kept = pa.array(~bad)
        arrays, numbers = [_filter(array, kept) for array in arrays], numbers[~bad]
    plain = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in arrays]
    return Batch(pl.DataFrame(pa.RecordBatch.from_arrays(plain, names=columns)), numbers, lost)


def _filter(array: Any, kept: Any) -> Any:
    if pa.types.is_string_view(array.type):
        # pyarrow filters no views
        return _as_bytes(array).cast(pa.large_binary()).filter(kept).view(pa.large_string())
    return array.filter(kept)


def find_odd_text(arrays: list[Any]) -> NDArray[np.bool_]:
    """``(n,)``: whether a row of these columns holds text that is not UTF-8; ``ArrowInvalid`` if they are damaged."""
    bad = np.zeros(len(arrays[0]), dtype=np.bool_)
    for array in arrays:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            # offsets that lead beyond the batch are damage; text, a time or a number that is none is a person's
            whole = array
            if isinstance(array, pa.DictionaryArray):
                whole = pa.DictionaryArray.from_arrays(array.indices, _as_bytes(array.dictionary))
            _as_bytes(whole).validate(full=True)
            bad |= _measured(array, _odd_texts) > 0
    return bad


def _too_long(arrays: list[Any], most: int) -> NDArray[np.bool_]:
    grown = [array for array in arrays if _grows(array.type)]
    if sum(map(_longest, grown)) <= most:
        return np.zeros(len(arrays[0]), dtype=np.bool_)
    return np.sum([_measured(array, _lengths) for array in grown], axis=0) > most


def _longest(array: Any) -> int:
    """Bytes of the longest cell of a column, or more."""
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _computed("max", _computed("binary_length", array)).as_py() or 0
    return int(_measured(array, _lengths).max(initial=0))


def _computed(name: str, array: Any) -> Any:
    """A function of pyarrow's, whose import costs who reads no file a tenth of a start."""
    from pyarrow import compute

    return compute.call_function(name, [array])


@cache
def _grows(kind: Any) -> bool:
    """Whether a cell of this type may be as long as it likes."""
    return not (pa.types.is_primitive(kind) or pa.types.is_null(kind))


def _measured(array: Any, measure: _Measure) -> NDArray[np.int64]:
    """``(n,)``: the measure of all that stands in each row of a column, lists and structs included."""
    if isinstance(array, pa.DictionaryArray):
        each = np.append(_measured(array.dictionary, measure), 0)
        return each[array.indices.fill_null(len(each) - 1).to_numpy(zero_copy_only=False).astype(np.int64)]
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


def _lengths(array: Any) -> NDArray[np.int64]:
    data = _as_bytes(array)
    if pa.types.is_binary(data.type) or pa.types.is_large_binary(data.type):
        return _computed("binary_length", data).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_binary_view(data.type):
        # a view is sixteen bytes, and begins with its length
        views = np.frombuffer(data.buffers()[1], dtype=np.int32)[::4][data.offset : data.offset + len(data)]
        return np.where(data.is_valid(), views, 0).astype(np.int64)
    return np.full(len(array), 8, dtype=np.int64)


def _odd_texts(array: Any) -> NDArray[np.int64]:
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
    """The same cells, as what they are made of: bytes of text and decimals, integers of times."""
    return array.view(_bytes_type(array.type))


_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


@cache
def _bytes_type(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_bytes_type(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_bytes_type(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return of(kind.value_field.with_type(_bytes_type(kind.value_type)))
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if pa.types.is_time(kind) or pa.types.is_date64(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return _BYTES.get(kind, kind)
