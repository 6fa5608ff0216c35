"""NDJSON in blocks: one object a physical line; every scalar is its text, so no row decides how another is read.

Most lines are flat and free of escapes: these are cut at the colons and commas outside quotes, all at once.  The
others go through the standard parser, one at a time; both read a line alike.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.logs.readers.batch import Batch
from pipeline.logs.readers.lines import Lines, cut_text, frame_lines

_STRING = r'"[^"\\\x00-\x1f]*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PAIR = rf"[ \t]*{_STRING}[ \t]*:[ \t]*(?:{_STRING}|{_NUMBER}|true|false|null|NaN|-?Infinity)[ \t]*"
_FLAT = rf"^[ \t]*\{{(?:{_PAIR}(?:,{_PAIR})*|[ \t]*)\}}[ \t]*\r?\n$"
_NEWLINE, _QUOTE, _COLON = b'\n":'
_CUTS = np.isin(np.arange(256), list(b"{:,}"))


class _Pairs(tuple[tuple[str, Any], ...]):
    """An object as it was written, repeated keys included."""

    __slots__ = ()


# a NaN is a missing number, as in the other formats
_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=lambda x: None if x == "NaN" else x
)


def read_ndjson(path: Path, columns: list[str], lists: frozenset[str] = frozenset()) -> Iterator[Batch]:
    """Yield the values of the keys ``columns`` as text; a key that is missing is null.

    A line that is no object, repeats one of these keys, or holds a list or an object under one of them, is malformed;
    under a key of ``lists`` a flat list is its text, such as ``[0.5, 1]``.
    """
    for lines in frame_lines(path):
        yield _batch(lines, columns, lists)


def _batch(lines: Lines, columns: list[str], lists: frozenset[str] = frozenset()) -> Batch:
    text = lines.texts
    flat = text.str.contains(_FLAT).to_numpy()
    cells: dict[str, pl.Series] = {}
    good = flat.copy()
    if flat.any():
        found, twice = _flat_cells(lines.bytes_of(flat), columns)
        good[flat] = ~twice
        # positions of the flat lines among all; the others are null until they are parsed
        at = pl.Series(np.where(flat, np.cumsum(flat) - 1, -1)).replace(-1, None)
        cells = {c: found[c].gather(at) for c in columns}
    odd = np.flatnonzero(~flat)
    if odd.size:
        rows = [_parsed(line, columns, lists) for line in text.gather(odd)]
        good[odd] = [row is not None for row in rows]
        empty = pl.Series([None], dtype=pl.String).new_from_index(0, len(text))
        for j, c in enumerate(columns):
            values = pl.Series([row[j] if row else None for row in rows], dtype=pl.String)
            cells[c] = cells.get(c, empty).clone().scatter(odd, values)
    frame = pl.DataFrame(cells, schema=dict.fromkeys(columns, pl.String))
    return Batch(frame.filter(pl.Series(good)) if cells else frame, lines.numbers[good], lines.malformed(~good))


def _flat_cells(data: bytes, columns: list[str]) -> tuple[dict[str, pl.Series], NDArray[np.bool_]]:
    """Values of ``(n,)`` flat lines by key, and the mark ``(n,)`` of lines that repeat one of the keys."""
    raw = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(raw == _NEWLINE)
    outside = np.cumsum(raw == _QUOTE, dtype=np.int32) % 2 == 0
    cuts = np.flatnonzero(_CUTS[raw] & outside)
    colon = np.flatnonzero(raw[cuts] == _COLON)
    # a key stands between the cut before its colon and the colon, its value between the colon and the next cut
    tokens = cut_text(data, np.concatenate([cuts, [len(data)]])).str.slice(1).str.strip_chars(" \t")
    asked = {f'"{c}"': j for j, c in enumerate(columns)}
    # short integers are sorted by their digits
    short = pl.Int16() if len(columns) < 1 << 15 else pl.Int32()
    which = tokens.gather(colon - 1).replace_strict(asked, default=-1, return_dtype=short).to_numpy()
    told = np.argsort(which, kind="stable")[np.count_nonzero(which < 0) :]
    bounds = np.searchsorted(which[told], np.arange(len(columns) + 1))
    values, row = tokens.gather(colon[told]), np.searchsorted(ends, cuts[colon[told]])
    values = pl.select(
        pl.when(values.str.starts_with('"'))
        .then(values.str.slice(1).str.strip_suffix('"'))
        .when(~values.is_in(["null", "NaN"]))
        .then(values)
    ).to_series()
    twice = np.zeros(len(ends), dtype=np.bool_)
    found: dict[str, pl.Series] = {}
    for column, low, high in zip(columns, bounds[:-1], bounds[1:], strict=True):
        where = np.full(len(ends), -1)
        where[row[low:high]] = np.arange(low, high)
        twice |= np.bincount(row[low:high], minlength=len(ends)) > 1
        found[column] = values.gather(pl.Series(where).replace(-1, None))
    return found, twice


def _parsed(line: str, columns: list[str], lists: frozenset[str] = frozenset()) -> list[str | None] | None:
    """Text of each cell of a line, or None if the line is malformed."""
    try:
        pairs = _DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, _Pairs):
        return None
    cells = dict.fromkeys(columns)
    told = [(key, value) for key, value in pairs if key in cells]
    if len(told) > len({key for key, _ in told}):
        return None
    for key, value in told:
        cell = _flat_list(value) if key in lists else value
        if not _scalar(cell):
            return None
        cells[key] = _as_text(cell)
    return list(cells.values())


def _flat_list(value: Any) -> Any:
    """A flat list as one text; anything else as it is."""
    if not isinstance(value, list) or isinstance(value, _Pairs) or not all(map(_scalar, value)):
        return value
    return f"[{', '.join('null' if x is None else _as_text(x) or '' for x in value)}]"


def _scalar(value: Any) -> bool:
    if isinstance(value, str):
        # an escaped half of a surrogate pair is no text
        return not any("\ud800" <= c <= "\udfff" for c in value)
    return value is None or isinstance(value, bool)


def _as_text(value: str | bool | None) -> str | None:
    return str(value).lower() if isinstance(value, bool) else value
