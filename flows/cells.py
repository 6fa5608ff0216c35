"""Measuring the cells of a bench: in parallel processes, each row kept, so that a broken run goes on where it was."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from flows.studies import Bench, Row

# below this many cells a process takes longer to start than to measure
_WORTH_A_PROCESS = 16


def measured(
    bench: Bench, cells: Sequence[Any], kept: Path, progress: Callable[[int, int | None], None] | None = None
) -> list[Row]:
    """Rows of all cells, in their order; measured rows are found again in ``kept`` while the code stays the same."""
    kept.mkdir(parents=True, exist_ok=True)
    at = {cell: kept / f"{key_of(bench, cell)}.json" for cell in cells}
    rows = {cell: json.loads(path.read_text(encoding="utf-8")) for cell, path in at.items() if path.is_file()}
    missing = [cell for cell in cells if cell not in rows]
    for cell, row in zip(missing, _each(bench.measure, missing), strict=True):
        rows[cell] = row
        beside = at[cell].with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(row, allow_nan=False), encoding="utf-8")
        beside.replace(at[cell])
        if progress is not None:
            progress(len(rows), len(at))
    return [rows[cell] for cell in cells]


def _each(measure: Callable[[Any], Row], cells: Sequence[Any]) -> Iterator[Row]:
    workers = min(len(os.sched_getaffinity(0)), len(cells) // _WORTH_A_PROCESS)
    if workers < 2:
        yield from map(measure, cells)
        return
    # spawned: forking a process that runs threads (polars, a progress bar) may hang
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(measure, cells, chunksize=2)


def key_of(bench: Bench, cell: Any) -> str:
    """Name of a cell's row: what is measured, by which code."""
    return hashlib.sha256(f"{bench.name} {cell!r} {code_version()}".encode()).hexdigest()[:32]


@cache
def code_version() -> str:
    """Digest of the mathematics: every file of ``pipeline`` and numpy's version."""
    import pipeline

    root = Path(pipeline.__path__[0])
    digest = hashlib.sha256(np.__version__.encode())
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()
