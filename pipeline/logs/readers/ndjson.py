"""NDJSON in blocks: one object a physical line; every scalar is its text, so no row decides how another is read.

Most lines are flat, free of escapes and have their keys where another line has them: these are cut at the colons and
commas outside quotes, all at once.  The others go through the standard parser, one at a time; both read a line alike.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipeline.logs.readers.batch import NO_LINES, Batch
from pipeline.logs.readers.lines import Lines, cut_text, frame_lines

_STRING = r'"[^"\\\x00-\x1f]*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PAIR = rf"[ \t]*{_STRING}[ \t]*:[ \t]*(?:{_STRING}|{_NUMBER}|true|false|null|NaN|-?Infinity)[ \t]*"
_FLAT = rf"^[ \t]*\{{(?:{_PAIR}(?:,{_PAIR})*|[ \t]*)\}}[ \t]*\r?\n$"
_QUOTE, _BRACE = b'"{'
# whether a byte is a cut, a blank, or how null and NaN begin
_CUTS, _BLANK, _NULL = (np.isin(np.arange(256), list(some)) for some in (b"{:,}", b" \t", b"nN"))
# bytes that are compared at once, and that are cut at once
_WORD, _PIECE = 8, 1 << 21
# orders of keys that are looked for in a block; a file that has more of them is parsed line by line
_SHAPES = 8


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
    texts, schema = lines.texts, dict.fromkeys(columns, pl.String)
    flat = texts.str.contains(_FLAT).to_numpy()
    read = [
        (low + which, frame)
        for low, piece in _pieces(lines)
        for which, frame in _alike(piece, flat[low : low + len(piece.ends)], columns)
    ]
    odd = np.arange(len(texts))
    odd = np.delete(odd, np.concatenate([which for which, _ in read])) if read else odd
    parsed = {i: _parsed(line, columns, lists) for i, line in zip(odd, texts.gather(odd), strict=True)}
    rows = {i: row for i, row in parsed.items() if row is not None}
    read.append((np.array(list(rows), dtype=np.int64), pl.DataFrame(list(rows.values()), schema, orient="row")))
    which, frame = np.concatenate([which for which, _ in read]), pl.concat([frame for _, frame in read])
    if (np.diff(which) < 0).any():
        order = np.argsort(which)
        which, frame = which[order], frame[order]
    bad = np.ones(len(texts), dtype=np.bool_)
    bad[which] = False
    return Batch(frame, lines.numbers[which], lines.malformed(bad))


def _pieces(lines: Lines) -> Iterator[tuple[int, Lines]]:
    """Consecutive lines, so few that what is worked out of them stays in the cache; each with its first one's place."""
    bounds = np.searchsorted(lines.ends, np.arange(0, len(lines.data), _PIECE)).tolist()
    for low, high in pairwise(dict.fromkeys([*bounds, len(lines.ends)])):
        start, end = lines.starts[low], lines.ends[high - 1] + 1
        yield low, Lines(lines.data[start:end], lines.ends[low:high] - start, lines.numbers[low:high], NO_LINES)


def _alike(
    lines: Lines, flat: NDArray[np.bool_], columns: list[str]
) -> Iterator[tuple[NDArray[np.int64], pl.DataFrame]]:
    """Positions and cells of those ``flat`` lines that are alike: the same keys in the same order and spacing."""
    data, left = lines.bytes_of(flat), np.flatnonzero(flat)
    raw = np.frombuffer(data, dtype=np.uint8)
    quoted = np.bitwise_xor.accumulate((raw == _QUOTE).view(np.uint8))
    cuts = np.flatnonzero(np.frombuffer(data.translate(_CUTS.tobytes()), dtype=np.uint8) > quoted)
    words = np.ndarray(len(raw) + 1, dtype=f"<u{_WORD}", buffer=data + bytes(_WORD), strides=(1,))
    many = np.diff(np.flatnonzero(raw[cuts] == _BRACE), append=len(cuts))
    for _ in range(_SHAPES):
        if not len(left):
            return
        # of a line {"k":v,"l":w} the cuts are {:,:} and each key stands between an even one and the next
        same = many == many[0]
        at = (cuts if same.all() else cuts[np.repeat(same, many)]).reshape(-1, many[0]).T
        names: list[bytes] = []
        fits = np.ones(at.shape[1], dtype=np.bool_)
        pairs = at[: (many[0] - 1) // 2 * 2]
        for low, high in zip(pairs[::2], pairs[1::2], strict=True):
            names.append(data[low[0] + 1 : high[0]])
            fits &= high - low == high[0] - low[0]
            for i in range(0, len(names[-1]), _WORD):
                word = names[-1][i : i + _WORD]
                read = words[np.minimum(low + 1 + i, len(raw))] & np.uint64(256 ** len(word) - 1)
                fits &= read == np.uint64(int.from_bytes(word, "little"))
        same[same] = fits
        keys = [name.strip(b" \t")[1:-1].decode() for name in names]
        asked = [c for c in columns if c in keys]
        if sum(keys.count(c) for c in asked) == len(asked):
            at = at if fits.all() else at[:, fits]
            cells = {c: _values(data, raw, *at[2 * keys.index(c) + 1 :][:2]) for c in asked}
            frame = pl.DataFrame(cells) if cells else pl.DataFrame(height=int(fits.sum()))
            missing = [pl.lit(None, dtype=pl.String).alias(c) for c in columns if c not in cells]
            yield left[same], frame.with_columns(missing).select(columns)
        left, cuts, many = left[~same], cuts[np.repeat(~same, many)], many[~same]


def _values(data: bytes, raw: NDArray[np.uint8], colon: NDArray[np.int64], cut: NDArray[np.int64]) -> pl.Series:
    """Texts of the scalars between each colon and the next cut."""
    low, high = colon + 1, cut
    while (blank := _BLANK[raw[low]]).any():
        low = low + blank
    while (blank := _BLANK[raw[high - 1]]).any():
        high = high - blank
    first = raw[low]
    quoted, null = first == _QUOTE, _NULL[first]
    bounds = np.stack([low + quoted, high - quoted], axis=1).reshape(-1)
    values = cut_text(data, bounds).gather_every(2)
    return values.set(pl.Series(null), None) if null.any() else values


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
