"""The studies that ``reproduce`` knows: for each NAME its bench (cells to measure) and its reading (rows to a page)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.declaration.card import CardError
from pipeline.simulation import registry as agents
from pipeline.simulation.trial import Trial
from pipeline.studies import paper_000, paper_001, paper_002, paper_003, paper_004
from pipeline.studies.gather import gathered_rows
from reports.reproduction import Study
from reports.study_000 import study_000
from reports.study_001 import study_001
from reports.study_002 import study_002
from reports.study_003 import study_003
from reports.study_004 import study_004

Row = dict[str, Any]


def as_measured(cells: Sequence[Any], rows: Sequence[Row]) -> list[Row]:
    """Where a cell is a row of the table already."""
    return list(rows)


@dataclass(frozen=True)
class Bench:
    """Cells and how one is measured, in a process of its own; studies on one bench share its rows.

    Parameters
    ----------
    cells
        The default grid: minutes on two cores.
    full_cells
        What ``--full`` measures.
    measure
        A module-level function from a cell (a frozen dataclass of plain values) to plain values.
    gather
        Rows of the table from all cells and what was measured of each.
    depends
        The modules whose code decides what a cell measures.
    cells_a_process
        Below this many cells a process takes longer to start than to measure.
    """

    name: str
    cells: Callable[[], Sequence[Any]]
    full_cells: Callable[[], Sequence[Any]]
    measure: Callable[[Any], Row]
    depends: Callable[[Any], tuple[str, ...]]
    gather: Callable[[Sequence[Any], Sequence[Row]], list[Row]] = as_measured
    cells_a_process: int = 16


def online(
    name: str, grid: Callable[[], Sequence[Trial]], full_grid: Callable[[], Sequence[Trial]] | None = None
) -> Bench:
    """A bench whose cells are trials of online agents: its rows are over the seeds."""
    return Bench(name, grid, full_grid or grid, agents.measure, agents.modules_of, gathered_rows, cells_a_process=1)


@dataclass(frozen=True)
class Entry:
    """A NAME: its bench and what its rows say."""

    bench: Bench
    read: Callable[[str, Sequence[Mapping[str, Any]]], Study]


PAPER_003 = Bench("paper-003", paper_003.grid, paper_003.full_grid, paper_003.measure, lambda _: (paper_003.__name__,))
STUDIES: dict[str, Entry] = {
    "003-figure-1a": Entry(PAPER_003, study_003),
    "003-figure-1b": Entry(PAPER_003, study_003),
    "002-table-1": Entry(online("paper-002", paper_002.grid, paper_002.full_grid), study_002),
    "001-figure-2": Entry(online("paper-001", paper_001.grid, paper_001.full_grid), study_001),
    "000-joint": Entry(online("paper-000", paper_000.grid, paper_000.full_grid), study_000),
    "004-regret": Entry(online("paper-004", paper_004.grid, paper_004.full_grid), study_004),
}


def find(name: str) -> dict[str, Entry]:
    """The study of that name, or every one for ``all``.

    Raises
    ------
    CardError
        If there is none of that name; the message lists those there are.
    """
    if name == "all":
        return STUDIES
    if name not in STUDIES:
        raise CardError(f"reproduce: no study {name!r}; there are: {', '.join(STUDIES)}, all")
    return {name: STUDIES[name]}
