"""Measures the cells of a study: in parallel processes, each row kept, so that a broken run goes on where it was."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.declaration.code import closure_digest
from pipeline.files import whole_file, write_file
from pipeline.studies.study import Kept, Study

# a worker's linear algebra must not fight with the other workers for the cores
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


def measure_cells(
    study: Study,
    cells: Sequence[Any],
    kept: Path,
    progress: Callable[[int, int | None], None] | None = None,
    each: Callable[[Any, Kept], None] | None = None,
) -> list[Any]:
    """What is measured of all cells, in their order; each is kept at once.

    Parameters
    ----------
    study
        Says how a cell is measured, and on which code that depends.
    cells
        The cells asked for.
    kept
        A folder, where a row is found again while the code that it depends on stays the same.
    progress
        Hears how many cells of how many are there.
    each
        Hears of every cell that is measured now, with its row.
    """
    kept.mkdir(parents=True, exist_ok=True)
    at = _places(study, cells, kept)
    rows = {cell: json.loads(path.read_text(encoding="utf-8")) for cell, path in at.items() if path.is_file()}
    missing = [cell for cell in at if cell not in rows]
    for cell, row in _each(study, missing):
        rows[cell] = row
        with whole_file(at[cell], alone=False) as fresh:
            write_file(fresh, json.dumps(row, allow_nan=False))
        if progress is not None:
            progress(len(rows), len(at))
        if each is not None:
            each(cell, row)
    return [rows[cell] for cell in cells]


def kept_of(study: Study, cells: Sequence[Any], kept: Path) -> int:
    """How many of the cells are found there, measured by the same code."""
    return sum(path.is_file() for path in _places(study, cells, kept).values())


def _places(study: Study, cells: Sequence[Any], kept: Path) -> dict[Any, Path]:
    digests: dict[tuple[str, ...], str] = {}
    found: dict[Any, Path] = {}
    for cell in cells:
        modules = study.depends(cell)
        if modules not in digests:
            digests[modules] = closure_digest(modules)
        found[cell] = kept / f"{key_of(study, cell, digests[modules])}.json"
    return found


def _each(study: Study, cells: Sequence[Any]) -> Iterator[tuple[Any, Kept]]:
    """Cells as they are finished, in whatever order."""
    workers = min(len(os.sched_getaffinity(0)), len(cells) // study.cells_a_process)
    if workers < 2:
        yield from ((cell, study.measure(cell)) for cell in cells)
        return
    # spawned: forking a process that runs threads (polars, a progress bar) may hang
    with _one_thread_each(), ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        asked = {pool.submit(study.measure, cell): cell for cell in cells}
        try:
            for done in as_completed(asked):
                yield asked[done], done.result()
        finally:
            # after an error or an interrupt nobody waits for the rest of the grid
            pool.shutdown(cancel_futures=True)


@contextmanager
def _one_thread_each() -> Generator[None]:
    """Spawned processes read these when they start."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def key_of(study: Study, cell: Any, digest: str) -> str:
    """Name of a cell's row: what is measured, by which code."""
    return hashlib.sha256(f"{study.name} {cell!r} {digest}".encode()).hexdigest()[:32]
