"""Public numbers of every live state, from a table beside the card: they may shape an estimate, never a sum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

# the column that says whose row it is
LABEL = "state"


@dataclass(frozen=True)
class StateFeatures:
    """A table of public numbers, one row a live state.

    Parameters
    ----------
    file
        Its name beside the card.
    labels
        The live state of each row.
    columns
        Names of the d numbers.
    sha256
        Of names, labels and numbers, whatever bytes the file has.
    values
        ``(rows, d)``, finite, read-only.
    """

    file: str
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    sha256: str
    values: NDArray[np.float64] = field(compare=False, repr=False)

    def check(self, live: Sequence[str]) -> None:
        """Refuse a table that lacks a state, or has a row of none.

        Raises
        ------
        ValueError
            Naming the file, and the row or the states.
        """
        for i, label in enumerate(self.labels):
            if label not in live:
                raise ValueError(f"{self.file}: row {i + 1}: {label!r} is no declared live state")
        if missing := sorted(set(live) - set(self.labels)):
            raise ValueError(f"{self.file}: no row for the states {missing[:5]}; one row a live state")

    def of(self, live: Sequence[str]) -> NDArray[np.float64]:
        """The numbers ``(L, d)`` in the order of the live states, read-only."""
        at = {label: i for i, label in enumerate(self.labels)}
        found = self.values[[at[label] for label in live]]
        found.flags.writeable = False
        return found

    def write(self, folder: Path) -> Path:
        """Write it as Parquet, the same bytes for the same table and library version; its path."""
        import pyarrow as pa
        from pyarrow import parquet

        exact = (self.values.astype(np.float32) == self.values).all()
        kind, path = pa.float32() if exact else pa.float64(), folder / self.file
        columns = {name: pa.array(self.values[:, i], kind) for i, name in enumerate(self.columns)}
        table = pa.table({LABEL: pa.array(self.labels, pa.string()), **columns})
        # neighbouring bytes of real numbers are not alike, the bytes of one rank are
        parquet.write_table(
            table,
            path,
            compression="zstd",
            compression_level=19,
            use_dictionary=[LABEL],  # pyright: ignore[reportArgumentType]
            column_encoding=dict.fromkeys(self.columns, "BYTE_STREAM_SPLIT"),
            write_statistics=False,
        )
        return path

    def written(self) -> dict[str, object]:
        """What a domain hash holds of it."""
        return {"columns": list(self.columns), "sha256": self.sha256}


def read_state_features(file: str, folder: Path) -> StateFeatures:
    """Read and check a table of features.

    Raises
    ------
    ValueError
        Naming the file, and the row and column that are wrong.
    """
    path = (folder / file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ValueError(f"features: {file!r} must stay below the card's folder")
    if not path.is_file():
        raise ValueError(f"features: {file}: no such file below {folder}")
    table = _read(path, file)
    columns = tuple(name for name in table.column_names if name != LABEL)
    if LABEL not in table.column_names or not columns:
        raise ValueError(f"features: {file}: needs a column {LABEL!r} and a numeric one; found {table.column_names}")
    labels = tuple("" if x is None else str(x) for x in table.column(LABEL).to_pylist())
    first = {label: i for i, label in reversed(list(enumerate(labels)))}
    for i, label in enumerate(labels):
        if not label or first[label] < i:
            raise ValueError(f"features: {file}: row {i + 1}: {label!r} is " + ("there twice" if label else "no label"))
    values = np.stack([_numbers(table.column(name), file, name) for name in columns], axis=1)
    return table_of_features(file, labels, columns, values)


def table_of_features(
    file: str, labels: Sequence[str], columns: Sequence[str], values: NDArray[np.float64]
) -> StateFeatures:
    """A table of features with the digest of what it says."""
    told = json.dumps([list(columns), list(labels)], ensure_ascii=False).encode() + values.astype("<f8").tobytes()
    held = values.astype(np.float64)
    held.flags.writeable = False
    return StateFeatures(file, tuple(labels), tuple(columns), hashlib.sha256(told).hexdigest(), held)


def _read(path: Path, file: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        return csv.read_csv(path) if path.suffix == ".csv" else parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as e:
        raise ValueError(f"features: {file}: not readable as {path.suffix or 'Parquet'}: {e}") from None


def _numbers(column: pa.ChunkedArray, file: str, name: str) -> NDArray[np.float64]:
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"features: {file}: column {name!r} holds {kind}; features are numbers")
    found = column.cast(pa.float64()).fill_null(np.nan).to_numpy()
    wrong = np.flatnonzero(~np.isfinite(found))
    if len(wrong):
        raise ValueError(f"features: {file}: row {wrong[0] + 1}: column {name!r} holds no finite number")
    return found
