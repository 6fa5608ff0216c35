"""Text files in blocks of physical lines, framed before anything is parsed: a line is one record.

A line that is too long or not UTF-8 is set aside alone, so that no person's bytes reach another's line.

CSV is UTF-8 with commas and a header; every column is text, no type is guessed from values.  A newline inside quotes
makes two malformed lines, not one value: otherwise one person's stray quote would swallow the lines of the people after
it, and no rule could be 1-stable.

Open Bandit data is a CSV of impressions, each an episode of one step.  Its columns are the file's (``item_id``,
``position``, ``click``, ``propensity_score``, ``user_feature_0``, …), beside ``impression``: the line as an id.  There
are no user ids, so the unit of privacy is the impression.

NDJSON has one object on each physical line; every scalar becomes text, so that rows are read independently.  Most lines
are flat, free of escapes and have the same keys at the same places as another line: these are cut at the colons and
commas outside quotes, all at once.  The others go through the standard parser one by one, with the same results.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownVariableType=false
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
from pipeline.logs.readers.batch import NO_LINES, RECORD_BYTES, Batch, Request, lines_from, mark_numbers

BLOCK_BYTES = 1 << 24
_BOM = b"\xef\xbb\xbf"
_MARKS = re.compile(rb"^(?:\xef\xbb\xbf)+", re.MULTILINE)
_NEWLINE, RETURN = b"\n\r"
# bytes of an invalid line that the quarantine shows
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
        """Bytes of ``data`` as numbers."""
        return np.frombuffer(self.data, dtype=np.uint8)

    @cached_property
    def starts(self) -> Integers:
        """Positions ``(n,)`` of the first bytes."""
        return np.concatenate([[0], self.ends[:-1] + 1])[: len(self.ends)]

    @cached_property
    def texts(self) -> pl.Series:
        """The lines, newlines included."""
        return cut_text(self.data, np.concatenate([[0], self.ends + 1]))

    def bytes_of(self, mask: Bools) -> bytes:
        """Bytes of the lines that ``mask`` ``(n,)`` marks."""
        return self.data if mask.all() else self.raw[np.repeat(mask, self.ends + 1 - self.starts)].tobytes()

    def malformed(self, bad: Bools) -> pl.DataFrame:
        """Lost lines and those that ``bad`` ``(n,)`` marks, in the order of the file."""
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
                complete, rest = rest + block[:cut], block[cut:]
                yield frame_block(complete, first)
                first += complete.count(b"\n")
            else:
                # enough of a line without an end to find it too long
                rest = (rest + block)[: RECORD_BYTES + 1]
        if rest:
            yield frame_block(rest + b"\n", first)


def frame_block(data: bytes, first: int) -> Lines:
    """Split a block that ends in a newline into lines; the first one has the number ``first``."""
    ends = _newlines(data)
    # with its marks: of a line that is too long only the beginning may be here
    bad = np.diff(ends, prepend=-1) > RECORD_BYTES + 1
    if _BOM in data:
        # the parser would remove that of the first line, and which line is the first depends on other people's
        data = _MARKS.sub(b"", data)
        ends = _newlines(data)
    block = Lines(data, ends, lines_from(first, 0), NO_LINES)
    starts = block.starts
    length, numbers = ends - starts, lines_from(first, len(ends))
    blank = ~bad & ((length == 0) | ((length == 1) & (block.raw[starts] == RETURN)))
    if not is_text(data):
        bad |= [not is_text(data[low:high]) for low, high in zip(starts, ends, strict=True)]
    good = ~blank & ~bad
    if good.all():
        return Lines(data, ends, numbers, NO_LINES)
    shown = [data[low : min(high, low + _SHOWN)] for low, high in zip(starts[bad], ends[bad], strict=True)]
    texts = [text.decode("utf-8", "backslashreplace").replace("\0", "\\x00").rstrip("\r\n") for text in shown]
    lost = pl.DataFrame({"line": numbers[bad], "text": texts}, schema=NO_LINES.schema)
    return Lines(block.bytes_of(good), np.cumsum(length[good] + 1) - 1, numbers[good], lost)


def _newlines(data: bytes) -> Integers:
    return np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == _NEWLINE)


def is_text(data: bytes) -> bool:
    """Whether bytes are UTF-8 without a zero byte; this holds exactly if it holds for each line of them."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def cut_text(data: bytes, bounds: Integers) -> pl.Series:
    """Strings ``data[bounds[i]:bounds[i + 1]]``, shape ``(len(bounds) - 1,)``, not copied; ``data`` is UTF-8."""
    offsets = pa.py_buffer(np.ascontiguousarray(bounds, dtype=np.int64))
    return pl.Series(pl.from_arrow(pa.LargeStringArray.from_buffers(len(bounds) - 1, offsets, pa.py_buffer(data))))


_QUOTE = ord('"')


def _record_pattern(separator: str) -> str:
    """Regular expression of a record of a CSV."""
    mark = re.escape(separator)
    field = rf'(?:"(?:[^"\r\n]|"")*"|[^"{mark}\r\n]*)'
    return rf"^{field}(?:{mark}{field})*\r?\n$"


def guess_separator(path: Path) -> str:
    """Separator of a header: the most frequent of the usual ones."""
    with path.open("rb") as file:
        line = file.readline(BLOCK_BYTES)
    return max(",;\t|", key=lambda mark: line.count(mark.encode()))


def _separator(path: Path, request: Request) -> str:
    return guess_separator(path) if request.separator == "auto" else request.separator


def header(path: Path, separator: str) -> list[str]:
    """Read the column names on line 1.

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


def csv_types(path: Path, request: Request) -> dict[str, pl.DataType]:
    """Columns that the header names once; all are text."""
    names = header(path, _separator(path, request))
    return {column: pl.String() for column, times in Counter(names).items() if times == 1}


def read_csv(path: Path, request: Request) -> Iterator[Batch]:
    """Yield the cells of the columns (each once in the header) as text; a line that is no row is malformed."""
    separator = _separator(path, request)
    names = header(path, separator)
    for lines in frame_lines(path, header=True):
        good = _well_formed(lines, len(names), separator)
        frame = _parsed(lines.bytes_of(good), names, request.columns, separator)
        yield Batch(frame, lines.numbers[good], lines.malformed(~good))


def _parsed(data: bytes, names: list[str], columns: list[str], separator: str) -> pl.DataFrame:
    if not data:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    position = {name: i for i, name in enumerate(names)}
    wanted = sorted(position[c] for c in columns)
    frame = pl.read_csv(io.BytesIO(data), has_header=False, infer_schema=False, columns=wanted, separator=separator)
    frame = frame.rename(dict(zip(frame.columns, sorted(columns, key=position.__getitem__), strict=True)))
    # an empty cell is null, quoted or not
    return frame.select(pl.when(pl.col(c) != "").then(pl.col(c)).alias(c) for c in columns)


def _well_formed(lines: Lines, fields: int, separator: str) -> Bools:
    """Mark ``(n,)`` of lines with as many fields as the header, balanced quotes and no carriage return inside."""
    raw, starts, ends = lines.raw, lines.starts, lines.ends
    commas = np.flatnonzero(raw == ord(separator))
    counts = np.searchsorted(commas, ends) - np.searchsorted(commas, starts)
    good = counts == fields - 1
    if b'"' in lines.data:
        quotes = np.cumsum(raw == _QUOTE, dtype=np.int32)
        quoted = np.flatnonzero(quotes[ends] > quotes[starts] - (raw[starts] == _QUOTE))
        # a comma separates where an even number of quotes stands before it in its line
        line = np.repeat(np.arange(len(ends)), counts)
        separating = (quotes[commas] - quotes[starts[line]] + (raw[starts[line]] == _QUOTE)) % 2 == 0
        good = np.bincount(line[separating], minlength=len(ends)) == fields - 1
        good[quoted] &= lines.texts.gather(quoted).str.contains(_record_pattern(separator)).to_numpy()
    if b"\r" in lines.data:
        lone = np.flatnonzero(raw == RETURN)
        lone = lone[raw[lone + 1] != _NEWLINE]
        good[np.searchsorted(ends, lone)] = False
    return good


IMPRESSION = "impression"


def obp_types(path: Path, _: Request) -> dict[str, pl.DataType]:
    """Columns of the header and ``impression``; all are text."""
    return {**csv_types(path, Request([])), IMPRESSION: pl.String()}


def read_obp(path: Path, request: Request) -> Iterator[Batch]:
    """Yield the rows; errors as of :func:`~pipeline.logs.readers.lines.read_csv`."""
    for batch in read_csv(path, Request(request.without(IMPRESSION))):
        numbers = mark_numbers(request.mark, pl.lit(pl.Series(batch.lines))).alias(IMPRESSION)
        yield Batch(batch.frame.with_columns(numbers).select(request.columns), batch.lines, batch.malformed)


_STRING = r'"[^"\\\x00-\x1f]*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_PAIR = rf"[ \t]*{_STRING}[ \t]*:[ \t]*(?:{_STRING}|{_NUMBER}|true|false|null|NaN|-?Infinity)[ \t]*"
_FLAT = rf"^[ \t]*\{{(?:{_PAIR}(?:,{_PAIR})*|[ \t]*)\}}[ \t]*\r?\n$"
_BRACE = ord("{")
# whether a byte is a cut, a blank, or how null and NaN begin
_CUTS, _BLANK, _NULL = (np.isin(np.arange(256), list(some)) for some in (b"{:,}", b" \t", b"nN"))
# bytes that are compared at once; bytes of the lines that are cut at once
_WORD, _PIECE = 8, 1 << 21
# most arrangements of keys for which a block is searched; the lines of others are parsed one by one
_SHAPES = 8


class _Pairs(tuple[tuple[str, Any], ...]):
    """Keys and values of an object, with repeated keys."""

    __slots__ = ()


# a NaN is a missing number, as in the other formats
_DECODER = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_int=str, parse_float=str, parse_constant=lambda x: None if x == "NaN" else x
)


def read_ndjson(path: Path, request: Request) -> Iterator[Batch]:
    """Yield the values of the requested keys as text; a key that is missing is null.

    A line that is no object, repeats one of these keys, or holds a list or an object under one of them, is malformed;
    under a key of ``lists`` a flat list is its text, such as ``[0.5, 1]``.
    """
    for lines in frame_lines(path):
        yield _batch(lines, request.columns, request.lists)


def _batch(lines: Lines, columns: list[str], lists: frozenset[str] = frozenset()) -> Batch:
    texts, schema = lines.texts, dict.fromkeys(columns, pl.String)
    flat = texts.str.contains(_FLAT).to_numpy()
    parts = [
        (low + positions, frame)
        for low, piece in _pieces(lines)
        for positions, frame in _alike(piece, flat[low : low + len(piece.ends)], columns)
    ]
    odd = np.arange(len(texts))
    odd = np.delete(odd, np.concatenate([positions for positions, _ in parts])) if parts else odd
    parsed = {i: _object(line, columns, lists) for i, line in zip(odd, texts.gather(odd), strict=True)}
    rows = {i: row for i, row in parsed.items() if row is not None}
    parts.append((np.array(list(rows), dtype=np.int64), pl.DataFrame(list(rows.values()), schema, orient="row")))
    positions, frame = np.concatenate([positions for positions, _ in parts]), pl.concat([frame for _, frame in parts])
    if (np.diff(positions) < 0).any():
        order = np.argsort(positions)
        positions, frame = positions[order], frame[order]
    bad = np.ones(len(texts), dtype=np.bool_)
    bad[positions] = False
    return Batch(frame, lines.numbers[positions], lines.malformed(bad))


def _pieces(lines: Lines) -> Iterator[tuple[int, Lines]]:
    """Yield consecutive lines, so few that intermediate arrays fit the cache, with the position of the first."""
    bounds = np.searchsorted(lines.ends, np.arange(0, len(lines.data), _PIECE)).tolist()
    for low, high in pairwise(dict.fromkeys([*bounds, len(lines.ends)])):
        start, end = lines.starts[low], lines.ends[high - 1] + 1
        yield low, Lines(lines.data[start:end], lines.ends[low:high] - start, lines.numbers[low:high], NO_LINES)


def _alike(lines: Lines, flat: Bools, columns: list[str]) -> Iterator[tuple[Integers, pl.DataFrame]]:
    """Yield positions and cells of ``flat`` lines that have the same keys in the same order and spacing."""
    data, remaining = lines.bytes_of(flat), np.flatnonzero(flat)
    raw = np.frombuffer(data, dtype=np.uint8)
    quoted = np.bitwise_xor.accumulate((raw == _QUOTE).view(np.uint8))
    cuts = np.flatnonzero(np.frombuffer(data.translate(_CUTS.tobytes()), dtype=np.uint8) > quoted)
    words = np.ndarray(len(raw) + 1, dtype=f"<u{_WORD}", buffer=data + bytes(_WORD), strides=(1,))
    counts = np.diff(np.flatnonzero(raw[cuts] == _BRACE), append=len(cuts))
    for _ in range(_SHAPES):
        if not len(remaining):
            return
        # the cuts of a line {"k":v,"l":w} are {:,:}, and each key stands between an even one and the next
        same = counts == counts[0]
        positions = (cuts if same.all() else cuts[np.repeat(same, counts)]).reshape(-1, counts[0]).T
        names: list[bytes] = []
        fits = np.ones(positions.shape[1], dtype=np.bool_)
        pairs = positions[: (counts[0] - 1) // 2 * 2]
        for low, high in zip(pairs[::2], pairs[1::2], strict=True):
            names.append(data[low[0] + 1 : high[0]])
            fits &= high - low == high[0] - low[0]
            for i in range(0, len(names[-1]), _WORD):
                word = names[-1][i : i + _WORD]
                read = words[np.minimum(low + 1 + i, len(raw))] & np.uint64(256 ** len(word) - 1)
                fits &= read == np.uint64(int.from_bytes(word, "little"))
        same[same] = fits
        keys = [name.strip(b" \t")[1:-1].decode() for name in names]
        wanted = [c for c in columns if c in keys]
        if sum(keys.count(c) for c in wanted) == len(wanted):
            positions = positions if fits.all() else positions[:, fits]
            cells = {c: _values(data, raw, *positions[2 * keys.index(c) + 1 :][:2]) for c in wanted}
            frame = pl.DataFrame(cells) if cells else pl.DataFrame(height=int(fits.sum()))
            missing = [pl.lit(None, dtype=pl.String).alias(c) for c in columns if c not in cells]
            yield remaining[same], frame.with_columns(missing).select(columns)
        remaining, cuts, counts = remaining[~same], cuts[np.repeat(~same, counts)], counts[~same]


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


def _object(line: str, columns: list[str], lists: frozenset[str]) -> list[str | None] | None:
    """Parse a line to the text of each cell; None if it is malformed."""
    try:
        pairs = _DECODER.decode(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(pairs, _Pairs):
        return None
    cells = dict.fromkeys(columns)
    wanted = [(key, value) for key, value in pairs if key in cells]
    if len(wanted) > len({key for key, _ in wanted}):
        return None
    for key, value in wanted:
        cell = _flat_list(value) if key in lists else value
        if not _scalar(cell):
            return None
        cells[key] = _as_text(cell)
    return list(cells.values())


def _flat_list(value: Any) -> Any:
    """Convert a flat list to one text; leave anything else."""
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
