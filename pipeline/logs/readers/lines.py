"""Text files in blocks of physical lines, framed before anything is parsed: a line is one record, whatever it holds.

A line that is too long or not UTF-8 is set aside alone, so that no person's bytes reach another's line.

CSV is UTF-8 with commas and a header; every column is text, no type is guessed from values.  A newline inside quotes is
not one value but two malformed lines: otherwise one person's stray quote would swallow the lines of the people after
it, and no rule could be 1-stable.

Open Bandit data is a CSV of impressions, each an episode of one step.  Its columns are the file's (``item_id``,
``position``, ``click``, ``propensity_score``, ``user_feature_0``, …), beside ``impression``: the line as an id.  There
are no user ids, so the impression is all that can be protected.

NDJSON is one object a physical line; every scalar is its text, so no row decides how another is read.  Most lines are
flat, free of escapes and have their keys where another line has them: these are cut at the colons and commas outside
quotes, all at once.  The others go through the standard parser, one at a time; both read a line alike.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.arrays import Bools, Integers
from pipeline.declaration.toml import LogError
from pipeline.logs.readers.batch import NO_LINES, RECORD_BYTES, Asked, Batch, lines_from, mark_numbers

BLOCK_BYTES = 1 << 24
_BOM = b"\xef\xbb\xbf"
_NEWLINE, RETURN = b"\n\r"
# of a line that is no text, as much as an operator needs to find it
_SHOWN = 1000


@dataclass(frozen=True)
class Lines:
    """Some consecutive lines, none of them blank.

    ``data``: UTF-8 text; each of the ``n`` lines ends in a newline.
    ``ends`` ``(n,)``: positions of the newlines.
    ``numbers`` ``(n,)``: 1-based numbers in the file.
    """

    data: bytes
    ends: Integers
    numbers: Integers
    lost: pl.DataFrame

    @cached_property
    def raw(self) -> NDArray[np.uint8]:
        """The bytes of ``data``."""
        return np.frombuffer(self.data, dtype=np.uint8)

    @cached_property
    def starts(self) -> Integers:
        """``(n,)`` positions of the first bytes."""
        return np.concatenate([[0], self.ends[:-1] + 1])[: len(self.ends)]

    @cached_property
    def texts(self) -> pl.Series:
        """The lines, newlines included."""
        return cut_text(self.data, np.concatenate([[0], self.ends + 1]))

    def bytes_of(self, kept: Bools) -> bytes:
        """The lines that ``kept`` ``(n,)`` marks."""
        return self.data if kept.all() else self.raw[np.repeat(kept, self.ends + 1 - self.starts)].tobytes()

    def malformed(self, bad: Bools) -> pl.DataFrame:
        """What was lost and the lines that ``bad`` ``(n,)`` marks, in the order of the file."""
        if not bad.any():
            return self.lost
        text = self.texts.filter(pl.Series(bad)).str.strip_chars_end("\r\n")
        return pl.concat([self.lost, pl.DataFrame({"line": self.numbers[bad], "text": text})]).sort("line")


def frame_lines(path: Path, *, header: bool = False) -> Iterator[Lines]:
    """Yield the lines of a file, about ``BLOCK_BYTES`` at a time, without its first one if that is a header."""
    first, rest = 1 + header, b""
    with path.open("rb") as file:
        if header:
            file.readline()
        elif file.read(len(_BOM)) != _BOM:
            file.seek(0)
        while block := file.read(BLOCK_BYTES):
            cut = block.rfind(b"\n") + 1
            if cut:
                whole, rest = rest + block[:cut], block[cut:]
                yield frame_block(whole, first)
                first += whole.count(b"\n")
            else:
                # of a line without an end, as much as shows that it is too long
                rest = (rest + block)[: RECORD_BYTES + 1]
        if rest:
            yield frame_block(rest + b"\n", first)


def frame_block(data: bytes, first: int) -> Lines:
    """The lines of a block that ends in a newline; its first line has the number ``first``."""
    whole = Lines(data, np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE), lines_from(first, 0), NO_LINES)
    starts, ends = whole.starts, whole.ends
    length, numbers = ends - starts, lines_from(first, len(ends))
    blank = (length == 0) | ((length == 1) & (whole.raw[starts] == RETURN))
    bad = length > RECORD_BYTES
    if not is_text(data):
        bad |= [not is_text(data[low:high]) for low, high in zip(starts, ends, strict=True)]
    kept = ~blank & ~bad
    if kept.all():
        return Lines(data, ends, numbers, NO_LINES)
    shown = [data[low : min(high, low + _SHOWN)] for low, high in zip(starts[bad], ends[bad], strict=True)]
    texts = [text.decode("utf-8", "backslashreplace").replace("\0", "\\x00").rstrip("\r\n") for text in shown]
    lost = pl.DataFrame({"line": numbers[bad], "text": texts}, schema=NO_LINES.schema)
    return Lines(whole.bytes_of(kept), np.cumsum(length[kept] + 1) - 1, numbers[kept], lost)


def is_text(data: bytes) -> bool:
    """UTF-8 without a zero byte; text cut at newlines is text in each piece, and only then."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def cut_text(data: bytes, bounds: Integers) -> pl.Series:
    """``(len(bounds) - 1,)`` strings ``data[bounds[i]:bounds[i + 1]]``, without copying; ``data`` is UTF-8."""
    offsets = pa.py_buffer(np.ascontiguousarray(bounds, dtype=np.int64))
    return pl.Series(pl.from_arrow(pa.LargeStringArray.from_buffers(len(bounds) - 1, offsets, pa.py_buffer(data))))


_QUOTE = ord('"')


def _line(separator: str) -> str:
    """What a record of a CSV looks like."""
    mark = re.escape(separator)
    one = rf'(?:"(?:[^"\r\n]|"")*"|[^"{mark}\r\n]*)'
    return rf"^{one}(?:{mark}{one})*\r?\n$"


def guess_separator(path: Path) -> str:
    """What a header is separated by: of the usual marks the one that it has most of."""
    with path.open("rb") as file:
        line = file.readline(BLOCK_BYTES)
    return max(",;\t|", key=lambda mark: line.count(mark.encode()))


def header(path: Path, separator: str = ",") -> list[str]:
    """Column names on line 1.

    Raises LogError if the file is empty, or its first line is not UTF-8 text or no line of a CSV.
    """
    with path.open("rb") as file:
        line = file.readline(BLOCK_BYTES).removeprefix(_BOM)
    try:
        names = next(csv.reader([line.decode("utf-8").rstrip("\r\n")], delimiter=separator), [])
    except UnicodeDecodeError:
        raise LogError(f"{path.name}: line 1: not UTF-8 text; save the file as UTF-8") from None
    except csv.Error:
        raise LogError(f"{path.name}: line 1: not a line of a CSV; write the column names on the first line") from None
    if not names:
        raise LogError(f"{path.name}: line 1: empty, no header; write the column names on the first line")
    return names


def csv_types(path: Path, separator: str = ",") -> dict[str, pl.DataType]:
    """The columns that the header names once; all are text."""
    return {column: pl.String() for column, times in Counter(header(path, separator)).items() if times == 1}


def read_csv(path: Path, columns: list[str], separator: str = ",") -> Iterator[Batch]:
    """Yield the rows of ``columns`` (each once in the header) as text; a line that is no row is malformed."""
    names = header(path, separator)
    for lines in frame_lines(path, header=True):
        good = _well_formed(lines, len(names), separator)
        frame = _parsed(lines.bytes_of(good), names, columns, separator)
        yield Batch(frame, lines.numbers[good], lines.malformed(~good))


def _parsed(data: bytes, names: list[str], columns: list[str], separator: str) -> pl.DataFrame:
    if not data:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    at = {name: i for i, name in enumerate(names)}
    wanted = sorted(at[c] for c in columns)
    frame = pl.read_csv(io.BytesIO(data), has_header=False, infer_schema=False, columns=wanted, separator=separator)
    frame = frame.rename(dict(zip(frame.columns, sorted(columns, key=at.__getitem__), strict=True)))
    # an empty cell is null, quoted or not
    return frame.select(pl.when(pl.col(c) != "").then(pl.col(c)).alias(c) for c in columns)


def _well_formed(lines: Lines, fields: int, separator: str) -> Bools:
    """``(n,)``: as many fields as the header, quotes balanced, no carriage return inside."""
    raw, starts, ends = lines.raw, lines.starts, lines.ends
    commas = np.flatnonzero(raw == ord(separator))
    each = np.searchsorted(commas, ends) - np.searchsorted(commas, starts)
    good = each == fields - 1
    if b'"' in lines.data:
        quotes = np.cumsum(raw == _QUOTE, dtype=np.int32)
        quoted = np.flatnonzero(quotes[ends] > quotes[starts] - (raw[starts] == _QUOTE))
        # a comma separates where an even number of quotes stands before it in its line
        line = np.repeat(np.arange(len(ends)), each)
        apart = (quotes[commas] - quotes[starts[line]] + (raw[starts[line]] == _QUOTE)) % 2 == 0
        good = np.bincount(line[apart], minlength=len(ends)) == fields - 1
        good[quoted] &= lines.texts.gather(quoted).str.contains(_line(separator)).to_numpy()
    if b"\r" in lines.data:
        lone = np.flatnonzero(raw == RETURN)
        lone = lone[raw[lone + 1] != _NEWLINE]
        good[np.searchsorted(ends, lone)] = False
    return good


IMPRESSION = "impression"


def obp_types(path: Path) -> dict[str, pl.DataType]:
    """The header's columns and ``impression``; all are text."""
    return {**csv_types(path), IMPRESSION: pl.String()}


def read_obp(path: Path, asked: Asked) -> Iterator[Batch]:
    """Yield the rows; errors as of :func:`~pipeline.logs.readers.lines.read_csv`."""
    for batch in read_csv(path, asked.but(IMPRESSION)):
        numbers = pl.Series(IMPRESSION, batch.lines)
        frame = batch.frame.with_columns(numbers).with_columns(
            mark_numbers(asked.mark, pl.col(IMPRESSION)).alias(IMPRESSION)
        )
        yield Batch(frame.select(asked.columns), batch.lines, batch.malformed)


_STRING = r'"[^"\\\x00-\x1f]*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PAIR = rf"[ \t]*{_STRING}[ \t]*:[ \t]*(?:{_STRING}|{_NUMBER}|true|false|null|NaN|-?Infinity)[ \t]*"
_FLAT = rf"^[ \t]*\{{(?:{_PAIR}(?:,{_PAIR})*|[ \t]*)\}}[ \t]*\r?\n$"
_BRACE = ord("{")
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
    parsed = {i: _object(line, columns, lists) for i, line in zip(odd, texts.gather(odd), strict=True)}
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


def _alike(lines: Lines, flat: Bools, columns: list[str]) -> Iterator[tuple[Integers, pl.DataFrame]]:
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


def _values(data: bytes, raw: NDArray[np.uint8], colon: Integers, cut: Integers) -> pl.Series:
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


def _object(line: str, columns: list[str], lists: frozenset[str] = frozenset()) -> list[str | None] | None:
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
