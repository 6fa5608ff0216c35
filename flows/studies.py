"""The studies that ``reproduce`` knows: for each NAME its bench (cells to measure) and its reading (rows to a page)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.benches import paper_003
from pipeline.card import CardError
from reports.reproduction import Study
from reports.study_003 import study_003

Row = dict[str, Any]


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
        A module-level function from a cell (a frozen dataclass of plain values) to a row.
    """

    name: str
    cells: Callable[[], Sequence[Any]]
    full_cells: Callable[[], Sequence[Any]]
    measure: Callable[[Any], Row]


@dataclass(frozen=True)
class Entry:
    """A NAME: its bench and what its rows say."""

    bench: Bench
    read: Callable[[str, Sequence[Mapping[str, Any]]], Study]


PAPER_003 = Bench("paper-003", paper_003.grid, paper_003.full_grid, paper_003.measure)
STUDIES: dict[str, Entry] = {
    "003-figure-1a": Entry(PAPER_003, study_003),
    "003-figure-1b": Entry(PAPER_003, study_003),
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
