"""A study as data: what is swept, what is measured of each cell, and which claims the rows are held against.

A paper's figure, a comparison and a simulation are studies; one runner measures any of
them: in parallel processes, each row kept, so that a broken run goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

from pipeline.declaration.code import closure_digest
from pipeline.files import whole_file, write_file
from pipeline.simulation import registry
from pipeline.simulation.trial import Calibration, Measured, Plain, Row, Trial
from pipeline.studies.study_rows import gathered_rows

# plain values as they are kept: of a cell, and of a study
Kept = dict[str, Any]
Options = tuple[tuple[str, Plain], ...]
# a world's name and its sorted parameters
Place = tuple[str, Options]
# whether a claim holds, and what was found: where it holds, or how far from it the rows are
Verdict = tuple[bool, str]
Evidence = TypeVar("Evidence")


class RegimeVerdict(TypedDict):
    """The verdict on a claim in one regime, called its variant, and in words where or how far it holds."""

    variant: str
    holds: bool
    regime: str


class Judged(TypedDict):
    """A claim as a result carries it: sentence, verdict, where it holds in words, rule, and each regime's verdict."""

    claim: str
    holds: bool
    regime: str
    rule: str
    variants: NotRequired[list[RegimeVerdict]]


class Budget(NamedTuple):
    """The loss of one user that is asked for, and whose noise: :data:`NONE` without privacy."""

    epsilon: float | None = None
    delta: float | None = None
    calibration: Calibration | None = None


NONE = Budget()


def sweep(
    places: Iterable[Place],
    episodes: Iterable[int],
    agents: Iterable[str | tuple[str, Options]],
    budgets: Iterable[Budget] = (NONE,),
    seeds: int | range = 1,
) -> list[Trial]:
    """Worlds × episodes × agents × budgets × seeds, the last innermost.

    Parameters
    ----------
    places
        Worlds by name and sorted parameters.
    episodes
        Every K.
    agents
        Names, or names with options.
    budgets
        What every one of these agents is asked.
    seeds
        How many, from 0 on; or which.
    """
    told = [(a, ()) if isinstance(a, str) else a for a in agents]
    runs = range(seeds) if isinstance(seeds, int) else seeds
    return [
        Trial(agent, world, params, K, *budget, tuple(sorted(options)), seed)
        for world, params in places
        for K in episodes
        for agent, options in told
        for budget in budgets
        for seed in runs
    ]


@dataclass(frozen=True)
class Claim(Generic[Evidence]):
    """A sentence, and the rule by which rows decide it.

    Parameters
    ----------
    statement
        The sentence, as a paper says it or nearly.
    rule
        When it holds, in words: no verdict is given by hand.
    judge
        From the evidence and a regime (a variant or a world) to the verdict by that rule: the quantity is computed
        there, compared, and said.
    """

    statement: str
    rule: str
    judge: Callable[[Evidence, str], Verdict]

    def verdict(self, evidence: Evidence, regimes: Sequence[str], judged: str | None) -> Judged:
        """The claim as a result carries it: ``claim, holds, regime, rule``, and the verdict of each regime.

        Parameters
        ----------
        regimes
            Where the rule is applied; none: once, to all rows.
        judged
            The regime whose verdict counts; None: it must hold in every one.
        """
        each = {regime: self.judge(evidence, regime) for regime in regimes}
        if not regimes:
            holds, said = self.judge(evidence, "")
        elif judged is None:
            holds, said = all(h for h, _ in each.values()), "; ".join(f"{r}: {words}" for r, (_, words) in each.items())
        else:
            holds, said = each[judged]
        told: list[RegimeVerdict] = [{"variant": r, "holds": h, "regime": words} for r, (h, words) in each.items()]
        return {"claim": self.statement, "holds": holds, "regime": said, "rule": self.rule, "variants": told}


@dataclass(frozen=True)
class Study:
    """What is measured: cells, and how one is measured, in a process of its own.

    Parameters
    ----------
    name
        Names the kept cells.
    cells
        The default grid: minutes on two cores.  A cell is a frozen dataclass of plain values.
    full_cells
        What ``--full`` measures.
    measure
        A module-level function from a cell to plain values.
    depends
        The modules whose code decides what a cell measures.
    gather
        Rows of the table from all cells and what was measured of each.
    cells_a_process
        Below this many cells a process takes longer to start than to measure.
    """

    name: str
    cells: Callable[[], Sequence[Any]]
    full_cells: Callable[[], Sequence[Any]]
    measure: Callable[[Any], Any]
    depends: Callable[[Any], tuple[str, ...]]
    gather: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]] = lambda _, measured: list(measured)
    cells_a_process: int = 16


def online(
    name: str,
    grid: Callable[[], Sequence[Trial]],
    full_grid: Callable[[], Sequence[Trial]] | None = None,
    gather: Callable[[Sequence[Trial], Sequence[Measured]], Sequence[Row]] = gathered_rows,
) -> Study:
    """A study whose cells are trials of online agents, and whose rows are over the seeds.

    Parameters
    ----------
    name
        Names the kept cells.
    grid, full_grid
        The trials; the same for both where there is one grid.
    gather
        Rows of the table from all trials and their outcomes.
    """
    return Study(name, grid, full_grid or grid, registry.measure, registry.modules_of, gather, cells_a_process=1)


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
    at = kept_places(study, cells, kept)
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
    return sum(path.is_file() for path in kept_places(study, cells, kept).values())


def kept_places(study: Study, cells: Sequence[Any], kept: Path) -> dict[Any, Path]:
    """Where the row of each cell is kept, or will be."""
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
