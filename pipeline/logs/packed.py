"""Sums on their way between machines: where most cells are zero, only the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True, repr=False)
class Packed:
    """Cells ``at`` and their integers, table by table; ``at`` is None where every cell is there."""

    tables: Mapping[str, tuple[Integers | None, Integers]]

    @staticmethod
    def of(sums: Mapping[str, Integers]) -> Packed:
        """The smaller of both ways."""
        tables: dict[str, tuple[Integers | None, Integers]] = {}
        for name, table in sums.items():
            flat = table.reshape(-1)
            at = np.flatnonzero(flat)
            tables[name] = (at, flat[at]) if 2 * len(at) < len(flat) else (None, flat)
        return Packed(tables)

    def add_to(self, sums: Mapping[str, Integers]) -> None:
        """Add in place."""
        for name, (at, found) in self.tables.items():
            flat = sums[name].reshape(-1)
            # no cell is named twice
            flat[slice(None) if at is None else at] += found
