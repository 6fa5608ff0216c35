"""Features that a card declares: integers over states and actions, the same for planner and noise.

Public numbers of every live state come from a table beside the card: they may shape an estimate, never a sum.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from pipeline.arrays import Array, Integers
from pipeline.declaration.toml import Positive, Strict
from pipeline.mdp.features import KINDS, FeatureMap, Kind, ObservedMap, balance

if TYPE_CHECKING:
    import pyarrow as pa

    from pipeline.declaration.domain import Vector


# kinds that are functions of domain.observation
OBSERVED = KINDS

Row = Annotated[list[Annotated[int, Field(ge=-32_767, le=32_767)]], Field(min_length=1)]


class Features(Strict):
    """Features of every (live state, action), by position as the labels are declared, OTHER last.

    ``kind``: ``one_hot``: one feature a pair; ``table``: as written, a row of integers a pair; ``product``: a state's
    row times an action's row, entry by entry; ``affine``, ``quadratic``, ``fourier``: of ``domain.observation``, a
    block of features a live state (:mod:`pipeline.mdp.features`).
    ``table``, ``states``, ``actions`` ``(L, A, d)``: for ``table``; ``(L, p)`` and ``(A, q)`` for ``product``, d = p q.
    ``actions`` may be given for those of an observation, else actions are one-hot.
    ``waves``, ``bandwidth``, ``seed``: of ``fourier``: number of waves, the scaled length over which they turn by a
    radian, and the declared seed.
    ``square``: declared bound on every squared norm; the largest of the map where it is left out.  Features in the unit
    ball are integers over its root.
    """

    later: ClassVar = dict.fromkeys(("waves", "bandwidth", "seed"))
    kind: Literal["one_hot", "table", "product", "affine", "quadratic", "fourier"]
    table: list[list[Row]] | None = None
    states: list[Row] | None = None
    actions: list[Row] | None = None
    square: Annotated[int, Field(ge=1, lt=2**30)] | None = None
    balanced: bool = False
    waves: Annotated[int, Field(ge=1, le=500)] | None = None
    bandwidth: Positive | None = None
    seed: Annotated[int, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _fits_kind(self) -> Self:
        waves = {self.waves, self.bandwidth, self.seed}
        if (self.kind == "fourier" and None in waves) or (self.kind != "fourier" and waves != {None}):
            raise ValueError("'waves', 'bandwidth' and 'seed' belong to kind = 'fourier', which needs all three")
        if self.kind in OBSERVED and (self.balanced or self.square is not None):
            raise ValueError(f"kind = '{self.kind}' lies in the unit ball: leave 'balanced' and 'square' out")
        given = {key for key in ("table", "states", "actions") if getattr(self, key) is not None}
        wanted = {"table": {"table"}, "product": {"states", "actions"}}.get(self.kind, set[str]())
        if given != wanted and not (self.kind in OBSERVED and given == {"actions"}):
            names = " and ".join(f"'{key}'" for key in sorted(wanted)) or "no rows of its own"
            raise ValueError(f"kind = '{self.kind}' goes with {names}; found {sorted(given) or 'none'}")
        rows = {"table": [r for s in self.table or [] for r in s], "states": self.states, "actions": self.actions}
        for key, entries in rows.items():
            if len({len(r) for r in entries or []}) > 1:
                raise ValueError(f"every row of '{key}' must have the same number of integers")
        return self

    def check(self, live: int, actions: int, observation: Vector | None = None) -> None:
        """Refuse a map that does not fit the declared labels, or is longer than it declares.

        Raises ValueError naming the key, and what it must be.
        """
        if self.table is not None and (len(self.table) != live or any(len(s) != actions for s in self.table)):
            raise ValueError(f"features.table must be {live} lists (live states) of {actions} rows (actions)")
        for key, rows, size in (("states", self.states, live), ("actions", self.actions, actions)):
            if rows is not None and len(rows) != size:
                raise ValueError(f"features.{key} must be {size} rows, one a label; got {len(rows)}")
        if (self.kind in OBSERVED) != (observation is not None):
            raise ValueError(
                f"kind = '{self.kind}' and domain.observation: {', '.join(OBSERVED)} are features of an observation"
            )
        if self.kind in OBSERVED and self.actions is not None and not any(any(row) for row in self.actions):
            raise ValueError("features.actions: every row is zero; at least one action needs a feature")
        if self.kind not in ("one_hot", *OBSERVED):
            self._plain(live, actions)

    def observed(self, live: int, actions: int, observation: Vector) -> ObservedMap:
        """The feature map of an observation.

        Raises ValueError if the features are not of an observation.
        """
        kind: Kind | None = next((k for k in OBSERVED if k == self.kind), None)
        if kind is None:
            raise ValueError(f"features.kind = '{self.kind}' is of declared states, not of an observation")
        rows = self.actions or np.eye(actions, dtype=np.int64).tolist()
        action_rows = tuple(tuple(row) for row in rows)
        waves, bandwidth, seed = self.waves or 0, float(self.bandwidth or 1.0), self.seed or 0
        return ObservedMap(kind, observation.size, observation.radius, live, action_rows, waves, bandwidth, seed)

    def feature_map(self, live: int, actions: int) -> FeatureMap:
        """The map ``(L, A, d)``, norms checked in integers, balanced where declared."""
        plain = self._plain(live, actions)
        return balance(plain) if self.balanced else plain

    def _plain(self, live: int, actions: int) -> FeatureMap:
        f = self._integers(live, actions)
        longest = int((f * f).sum(-1).max())
        if longest == 0:
            raise ValueError("features: every row is zero; at least one pair needs a feature")
        square = longest if self.square is None else self.square
        if longest > square:
            raise ValueError(f"features.square = {square}, but a row has squared norm {longest}; declare the largest")
        return FeatureMap(f, square, Fraction(1, square))

    def _integers(self, live: int, actions: int) -> Integers:
        if self.kind == "one_hot":
            return np.eye(live * actions, dtype=np.int64).reshape(live, actions, -1)
        if self.kind == "table":
            return np.array(self.table, dtype=np.int64)
        states, acts = np.array(self.states, dtype=np.int64), np.array(self.actions, dtype=np.int64)
        return (states[:, None, :, None] * acts[None, :, None, :]).reshape(live, actions, -1)


# the column of the state's label
LABEL = "state"


@dataclass(frozen=True)
class StateFeatures:
    """A table of public numbers, one row a live state.

    ``sha256``: of names, labels and numbers, whatever bytes the file has.
    ``values`` ``(rows, d)``: finite, read-only.
    """

    file: str
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    sha256: str
    values: Array = field(compare=False, repr=False)

    def check(self, live: Sequence[str]) -> None:
        """Refuse a table that lacks a live state, or has a row of another.

        Raises ValueError naming the file, and the row or the states.
        """
        for i, label in enumerate(self.labels):
            if label not in live:
                raise ValueError(f"{self.file}: row {i + 1}: {label!r} is no declared live state")
        if missing := sorted(set(live) - set(self.labels)):
            raise ValueError(f"{self.file}: no row for the states {missing[:5]}; one row a live state")

    def of(self, live: Sequence[str]) -> Array:
        """The numbers ``(L, d)`` in the order of the live states, read-only."""
        row_of = {label: i for i, label in enumerate(self.labels)}
        values = self.values[[row_of[label] for label in live]]
        values.flags.writeable = False
        return values

    def write(self, folder: Path) -> Path:
        """Write it as Parquet, the same bytes for the same table and library version; return its path."""
        import pyarrow as pa
        from pyarrow import parquet

        exact = (self.values.astype(np.float32) == self.values).all()
        kind, path = pa.float32() if exact else pa.float64(), folder / self.file
        columns = {name: pa.array(self.values[:, i], kind) for i, name in enumerate(self.columns)}
        table = pa.table({LABEL: pa.array(self.labels, pa.string()), **columns})
        # smaller: bytes of the same significance resemble each other, neighbouring bytes of a number do not
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
        """The part of a domain hash that stands for the table."""
        return {"columns": list(self.columns), "sha256": self.sha256}


def read_state_features(file: str, folder: Path) -> StateFeatures:
    """Read and check a table of features.

    Raises ValueError naming the file, and the row and column that are wrong.
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


def table_of_features(file: str, labels: Sequence[str], columns: Sequence[str], values: Array) -> StateFeatures:
    """A table of features with the digest of its contents."""
    content = json.dumps([list(columns), list(labels)], ensure_ascii=False).encode() + values.astype("<f8").tobytes()
    numbers = values.astype(np.float64)
    numbers.flags.writeable = False
    return StateFeatures(file, tuple(labels), tuple(columns), hashlib.sha256(content).hexdigest(), numbers)


def _read(path: Path, file: str) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        return csv.read_csv(path) if path.suffix == ".csv" else parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as e:
        raise ValueError(f"features: {file}: not readable as {path.suffix or 'Parquet'}: {e}") from None


def _numbers(column: pa.ChunkedArray, file: str, name: str) -> Array:
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"features: {file}: column {name!r} holds {kind}; features are numbers")
    numbers = column.cast(pa.float64()).fill_null(np.nan).to_numpy()
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise ValueError(f"features: {file}: row {wrong[0] + 1}: column {name!r} holds no finite number")
    return numbers
