"""D4RL and its kin: one HDF5 file of long arrays, rows in the order they were logged.

Columns are the arrays (``observations``, ``actions``, ``rewards``, ``terminals``, ``timeouts``, perhaps
``next_observations``, ``infos/…``), beside ``episode`` and ``step`` which the reader makes.  Two terminals in a row are
an episode of one step, not an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from pipeline.declaration.card import CardError
from pipeline.logs.errors import LogError
from pipeline.logs.readers import hdf5
from pipeline.logs.readers.arrow import BATCH_ROWS
from pipeline.logs.readers.batch import NO_LINES, Asked, Batch, lines_from
from pipeline.logs.readers.cut import MADE, Cut, Cutter
from pipeline.logs.readers.fields import column_of, fields, taken

_TIMEOUTS = "timeouts"


def column_types(path: Path, asked: Asked, cut: Cut) -> dict[str, pl.DataType]:
    """Columns and their types.

    Raises
    ------
    LogError
        If the file is damaged, or its arrays have different lengths.
    CardError
        If the file tells of timeouts and the card does not: episodes would run into each other.
    """
    with hdf5.opened(path) as file:
        data = hdf5.arrays(file, path, "/")
        if _TIMEOUTS in data and _TIMEOUTS not in cut.flags:
            raise CardError(f"{path.name}: the file has {_TIMEOUTS!r}; map truncated = 'timeouts' in source.columns")
        types = fields(asked.columns, {name: hdf5.type_of(x) for name, x in data.items()})
        _length(path, data, types, asked)
        return types | {"episode": pl.String(), "step": pl.Int64()}


def read(path: Path, asked: Asked, cut: Cut) -> Iterator[Batch]:
    """Yield the rows, a bounded number at a time.

    Raises
    ------
    LogError
        If the file is damaged, or a flag cannot be read.
    """
    cutter = Cutter(cut, path, asked.mark)
    with hdf5.opened(path) as file:
        data = hdf5.arrays(file, path, "/")
        types = {name: hdf5.type_of(x) for name, x in data.items()}
        bases = dict.fromkeys(base for name in asked.but(*MADE) if (base := column_of(name, types)) is not None)
        rows = _length(path, data, types, asked)
        for low in range(0, rows, BATCH_ROWS):
            high = min(rows, low + BATCH_ROWS)
            frame = pl.DataFrame({base: hdf5.column(data[base], low, high) for base in bases})
            frame = frame.select(taken(asked.but(*MADE), frame.schema))
            batch = Batch(frame, lines_from(low + 1, high - low), NO_LINES)
            yield Batch(cutter.numbered(batch).select(asked.columns), batch.lines, NO_LINES)


def _length(path: Path, data: dict[str, Any], types: dict[str, pl.DataType], asked: Asked) -> int:
    bases = sorted({base for name in asked.but(*MADE) if (base := column_of(name, types)) in data})
    lengths = {base: len(data[base]) for base in bases}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{base} {length}" for base, length in lengths.items())
        raise LogError(f"{path.name}: arrays of different lengths ({told}); write the file again")
    return next(iter(lengths.values()), 0)
