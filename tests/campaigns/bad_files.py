"""Damaged log files, drawn by hypothesis from a fixed seed."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.campaigns.bad_bytes import Damage, bent, beside, glued, inserted, lines, linked, replaced, truncated
from tests.campaigns.bad_cells import arrays, bombs, cells, columns, rows
from tests.campaigns.bad_layouts import Case, layouts

DAMAGES: dict[str, Damage] = {
    f.__name__: f
    for f in (truncated, bent, inserted, glued, replaced, linked, beside, columns, rows, cells, lines, bombs, arrays)
}


def apply(case: Case, folder: Path) -> frozenset[int]:
    """Write the log and damage it; the episodes that it may touch."""
    path = layouts()[case.layout].write(folder)
    return DAMAGES[case.damage](path, case)


_BYTES = ("truncated", "bent", "inserted", "glued", "replaced", "linked")


def damages_of(layout: str) -> tuple[str, ...]:
    """What makes sense for a layout; every one at least has its bytes damaged."""
    if layout in ("minari-hdf5", "d4rl"):
        return (*_BYTES, "beside", "arrays", "arrays", "arrays", "arrays")
    tables = (*_BYTES, "columns", "columns", "rows", "cells", "cells", "bombs")
    if layout in ("csv", "ndjson", "wide", "obp", "flat"):
        return (*tables, "lines", "lines")
    return (*tables, "beside") if layout in ("minari-arrow", "lerobot") else tables


def drawn(count: int, start: int = 0) -> list[Case]:
    """Different cases, the same ones for the same arguments.

    Drawn from coins: hypothesis draws numbers near the constants of whatever modules happen to be loaded.
    """
    found: dict[str, Case] = {}
    names = sorted(layouts())
    number = st.tuples(*[st.booleans()] * 10).map(lambda bits: sum(bit << i for i, bit in enumerate(bits)))

    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(number, number, number, number))
    def draw(numbers: tuple[int, int, int, int]) -> None:
        layout = names[numbers[0] % len(names)]
        damages = damages_of(layout)
        case = Case(layout, damages[numbers[1] % len(damages)], numbers[2] / 1024, numbers[3])
        found.setdefault(case.told(), case)

    draw()
    return list(found.values())
