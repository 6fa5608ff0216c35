"""The declared domain: states, actions, horizon, and features of them.  Public, and fixed before any row is read.

Features are integers over states and actions, the same for planner and noise.  Public numbers of every live state come
from a table beside the card: they may shape an estimate, never a sum.

Of a linear-quadratic log: vectors in declared balls, noise, first state, cost.  Ball, cost and covariances are of
logged numbers divided by their ``scale``; so metres and metres a second can share one ball.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownParameterType=false, reportUnknownVariableType=false
from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, cast

import numpy as np
from pydantic import Field, InstanceOf, PlainSerializer, ValidationInfo, model_validator

from pipeline.arrays import Array, Bools, Integers
from pipeline.declaration.numbers import check_shown
from pipeline.declaration.toml import Positive, Strict, short, table_in
from pipeline.mdp.features import KINDS, FeatureMap, Kind, ObservedMap, balance
from pipeline.mdp.riccati import QuadraticCost

if TYPE_CHECKING:
    import pyarrow as pa

LINEAR_QUADRATIC = "linear_quadratic"

Real = Annotated[float, Field(allow_inf_nan=False)]
Matrix = list[Real] | list[list[Real]]
"""A diagonal, or the rows of a symmetric matrix."""

# nobody declares a plant of more coordinates by hand
MOST_COORDINATES = 50


class Vector(Strict):
    """A vector of numbers: one list column, or one column a coordinate.

    ``dimension``: number of coordinates, declared and never counted.
    ``radius``: declared bound on its length, after ``scale``; longer ones are shortened before anything is summed.
    ``scale``: a logged number is divided by its coordinate's scale; 1 where left out.
    ``center``: taken from a logged number before it is divided; 0 where left out.
    """

    column: str | None = None
    columns: list[str] | None = None
    dimension: Annotated[int, Field(ge=1, le=MOST_COORDINATES)] | None = None
    radius: Positive
    scale: list[Positive] | None = None
    center: list[Real] | None = None
    names: list[str] | None = None
    later: ClassVar = {"center": None}

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.column is None) == (self.columns is None):
            raise ValueError("give exactly one of 'column' (a list of numbers) and 'columns' (one a coordinate)")
        if self.column is not None and self.dimension is None:
            raise ValueError("'dimension' is missing: how many numbers does the list hold? It is never counted")
        listed = len(self.columns or [])
        if self.columns is not None and (not 1 <= listed <= MOST_COORDINATES or len(set(self.columns)) != listed):
            raise ValueError(f"'columns' must be 1 to {MOST_COORDINATES} different columns; got {listed}")
        if self.columns is not None and self.dimension not in (None, listed):
            raise ValueError(f"dimension = {self.dimension}, but 'columns' names {listed}; leave one of them out")
        for key, entries in (("scale", self.scale), ("center", self.center), ("names", self.names)):
            if entries is not None and len(entries) != self.size:
                raise ValueError(f"'{key}' has {len(entries)} entries, the dimension is {self.size}; one a coordinate")
        if len(set(self.labels)) != self.size:
            raise ValueError(f"names must be distinct; got {self.labels}")
        check_shown(self.labels)
        return self

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.columns) if self.columns is not None else self.dimension or 0

    @property
    def labels(self) -> list[str]:
        """Name of each coordinate."""
        if self.names is not None:
            return list(self.names)
        column = self.column or ""
        return list(self.columns or ([column] if self.size == 1 else [f"{column}[{i}]" for i in range(self.size)]))

    @property
    def scales(self) -> list[float]:
        """Scale of each coordinate."""
        return list(self.scale or [1.0] * self.size)

    @property
    def centers(self) -> list[float]:
        """Center of each coordinate."""
        return list(self.center or [0.0] * self.size)

    def check_next(self, columns: str | list[str] | None) -> None:
        """Refuse columns of the next observation that are written otherwise than this one; ValueError in words."""
        key = "source.columns.next_observation"
        if isinstance(columns, str) and self.columns is not None:
            raise ValueError(f"{key}: name {self.size} columns, one a coordinate, as domain.observation.columns does")
        if isinstance(columns, list) and (self.columns is None or len(columns) != self.size):
            raise ValueError(f"{key}: write it as domain.observation: {self.size} columns, or one column of lists")


class Start(Strict):
    """First state: its mean, and its covariance where it is not always the same."""

    mean: list[Real]
    covariance: Matrix | None = None


class LinearQuadratic(Strict):
    """x' = A x + B u + w with A and B unknown; everything else is declared.

    ``parameter_norm``: declared bound on the Frobenius norm of [A, B]; estimates are cut to it.  Paper 004 assumes 1.
    """

    dynamics: Literal["linear_quadratic"]
    horizon: Annotated[int, Field(ge=1, le=1000)]
    observation: Vector
    action: Vector
    start: Start
    noise_covariance: Matrix
    parameter_norm: Positive | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        n = self.observation.size
        if self.observation.center or self.action.center:
            raise ValueError("'center' is for observations beside labelled actions: a linear plant rests at 0")
        if len(self.start.mean) != n:
            raise ValueError(f"start.mean must have {n} numbers, one a coordinate of the observation")
        covariance("start.covariance", self.start.covariance or [0.0] * n, n)
        covariance("noise_covariance", self.noise_covariance, n)
        return self

    def first_moment(self) -> Array:
        """E[x x'] of the first state ``(n, n)``."""
        n, mean = self.observation.size, np.array(self.start.mean)
        return np.outer(mean, mean) + matrix(self.start.covariance or [0.0] * n)

    def noise(self) -> Array:
        """``(n, n)`` covariance of w."""
        return matrix(self.noise_covariance)


class Cost(Strict):
    """Cost x'Qx + u'Ru of each step, of scaled observation and control."""

    Q: Matrix
    R: Matrix

    def quadratic(self, n: int, d: int, horizon: int) -> QuadraticCost:
        """The cost of a plant of these sizes; ValueError where it does not fit."""
        for name, given, size in (("cost.Q", self.Q, n), ("cost.R", self.R, d)):
            if len(given) != size:
                raise ValueError(f"{name} must be {size} numbers (a diagonal) or {size} rows; got {len(given)}")
        Q, R = _square("cost.Q", self.Q, n), _square("cost.R", self.R, d)
        try:
            return QuadraticCost(Q, R, horizon)
        except ValueError as e:
            raise ValueError(f"[cost]: {e}") from None


def matrix(given: Matrix) -> Array:
    """``(n, n)`` of a diagonal or of rows."""
    values = np.array(given, dtype=np.float64)
    return np.diag(values) if values.ndim == 1 else values


def covariance(name: str, given: Matrix, n: int) -> Array:
    """``(n, n)`` symmetric and positive semidefinite; ValueError naming the key elsewhere."""
    values = _square(name, given, n)
    if not np.array_equal(values, values.T) or np.linalg.eigvalsh(values)[0] < -1e-12:
        raise ValueError(f"{name} must be symmetric and positive semidefinite")
    return values


def _square(name: str, given: Matrix, n: int) -> Array:
    rows = [row for row in given if isinstance(row, list)]
    if len(given) != n or any(len(row) != n for row in rows):
        raise ValueError(f"{name} must be {n} numbers (a diagonal), or {n} rows of {n}")
    return matrix(given)


OTHER = "OTHER"
END = "END"
# a table of more cells than this is no domain of declared labels
MOST_LABELS, MOST_PAIRS = 100_000, 10_000_000
# the one live state of a domain whose states are observations alone
ANYWHERE = "anywhere"
# the meaning of practice = "recorded"
RECORDED = (
    "the operator declares that one program or rule, the same for everybody and on all days, made every choice for "
    "each person alone, from the row's declared state and step as they stood before it, that each action is recorded "
    "as it was chosen, and each outcome alike, whatever was done, that the same comes of a choice on all days, that no"
    " person, outcome or step is missing or comes after the last declared step, that nobody has two ids, or more "
    "episodes than count, that what is done for one person changes nothing for another, and that states, actions, "
    "score and vetoes were not chosen by what came of choices in this log; nothing on the log proves it"
)


class Bins(Strict):
    """State bins ``(-inf, e0), [e0, e1), …, [ek, inf)`` of one numeric column."""

    by: str | list[str]
    edges: Annotated[list[float], Field(min_length=1)]
    names: list[str] | None = None

    @model_validator(mode="after")
    def _increasing(self) -> Self:
        if any(not math.isfinite(e) for e in self.edges) or any(a >= b for a, b in itertools.pairwise(self.edges)):
            raise ValueError(f"edges must be finite and strictly increasing; got {self.edges}")
        if self.names is not None and len(self.names) != len(self.edges) + 1:
            raise ValueError(f"names must have {len(self.edges) + 1} entries, one a bin; got {len(self.names)}")
        if self.names is not None and (len(set(self.names)) != len(self.names) or OTHER in self.names):
            raise ValueError(f"names must be distinct and not {OTHER}; got {self.names}")
        if self.names is None and isinstance(self.by, list):
            raise ValueError(f"names: 'by' is a list of columns; name the {len(self.edges) + 1} bins")
        return self

    def labels(self) -> list[str]:
        """Names of the ``len(edges) + 1`` bins."""
        if self.names is not None:
            return list(self.names)
        # a pattern of a wide source is named without its step
        by = str(self.by).replace("{step}", "").strip("_-. ") if "{step}" in self.by else self.by
        e = [f"{x:g}" for x in self.edges]
        middle = [f"{a} ≤ {by} < {b}" for a, b in itertools.pairwise(e)]
        return [f"{by} < {e[0]}", *middle, f"{by} ≥ {e[-1]}"]


class StatePart(Strict):
    """One column of a state of several: ``edges`` of bins and their ``names``, or the ``labels`` that it may hold."""

    edges: list[float] | None = None
    names: list[str] | None = None
    labels: Annotated[list[str], Field(min_length=2)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _by_kind(cls, values: Any) -> Any:
        if not isinstance(values, list):
            return cast("object", values)
        given = cast("list[object]", values)
        return {"labels" if any(isinstance(x, str) for x in given) else "edges": given}

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.edges is None) == (self.labels is None) or (self.names is not None and self.edges is None):
            raise ValueError("give numbers, the edges of bins (with names or without), or two labels or more")
        if self.labels is not None and len(set(self.labels)) != len(self.labels):
            raise ValueError(f"labels must be distinct; got {self.labels}")
        return self


class Product(Strict):
    """A state of several columns: one state for each combination of their declared bins or labels.

    ``columns``: the last one changes fastest in the order of the states.
    """

    columns: Annotated[list[str], Field(min_length=2)]
    bins: dict[str, StatePart]

    @model_validator(mode="after")
    def _each(self) -> Self:
        if len(set(self.columns)) != len(self.columns) or set(self.columns) != set(self.bins):
            raise ValueError(f"from = {self.columns} needs bins of each of its columns, once; got {list(self.bins)}")
        if math.prod(self.sizes) > MOST_LABELS:
            raise ValueError(
                f"from: {math.prod(self.sizes):,} states are more than {MOST_LABELS:,}; declare fewer bins"
            )
        self.labels()
        return self

    @property
    def sizes(self) -> list[int]:
        """Number of bins or labels of each column."""
        parts = (self.bins[name] for name in self.columns)
        return [len(part.edges or []) + 1 if part.labels is None else len(part.labels) for part in parts]

    def labels(self) -> list[str]:
        """Names of all combinations."""
        by_column = [
            [f"{name} {x}" for x in part.labels]
            if part.labels is not None
            else Bins(by=name, edges=part.edges or [], names=part.names).labels()
            for name, part in ((name, self.bins[name]) for name in self.columns)
        ]
        return [" · ".join(combined) for combined in itertools.product(*by_column)]


Labels = Annotated[int, Field(ge=1)] | list[str | int] | dict[str, list[str | int]]


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


FeatureTable = Annotated[InstanceOf[StateFeatures], PlainSerializer(StateFeatures.written, when_used="json")]


def _label_map(labels: Labels, same_as: Mapping[str, str] | None = None) -> dict[str, list[str]]:
    """Name of each label -> the raw values (as text) that stand for it."""
    if isinstance(labels, int):
        values_of = {str(i): [str(i)] for i in range(labels)}
    elif isinstance(labels, list):
        values_of = {str(x): [str(x)] for x in labels}
    else:
        values_of = {name: [str(x) for x in raw] for name, raw in labels.items()}
    for spelling, label in (same_as or {}).items():
        if label not in values_of:
            raise ValueError(
                f"same_as: {spelling!r} stands for {label!r}, which is no label; declared: {list(values_of)}"
            )
        values_of[label].append(spelling)
    return values_of


def _check_labels(labels: Labels | None, reserved: list[str], same_as: Mapping[str, str] | None) -> None:
    if labels is None:
        if same_as:
            raise ValueError("same_as belongs to labels; there are none")
        return
    if (size := labels if isinstance(labels, int) else len(labels)) > MOST_LABELS:
        raise ValueError(
            f"labels: {short(size)} are more than {MOST_LABELS:,}; declare bins, groups of values, or other = true"
        )
    names = _label_map(labels, same_as)
    raw = [x for group in names.values() for x in group]
    if isinstance(labels, list) and len(labels) != len(names):
        raise ValueError("labels must be distinct")
    if len(raw) != len(set(raw)):
        raise ValueError("a raw value stands for two labels")
    if clash := set(raw + list(names)) & set(reserved):
        raise ValueError(f"{sorted(clash)} is reserved or also in 'ends'")
    if not names:
        raise ValueError("labels must not be empty")


class States(Strict):
    """The state column: bins of a number or a list of labels; ``ends`` are absorbing and have value 0.

    ``column``: the column of labels; in a wide source a pattern with ``{step}``, or a list of H names.  None beside
    ``domain.observation``: then there is one live state.
    ``labels``: a number S of integers 0 … S - 1, a list of values, or name -> the raw values that stand for it; where
    there are neither bins nor labels, those of the table of features.
    ``same_as``: another spelling in the log -> the label it stands for.
    ``product``: written ``from = [columns]`` with ``bins`` of each of them.
    """

    later: ClassVar = {"features": None, "product": None, "same_as": None}
    column: str | list[str] = ""
    bins: Bins | None = None
    product: Product | None = None
    labels: Labels | None = None
    same_as: dict[str, str] | None = None
    ends: list[str] = Field(default_factory=list)
    other: bool = False
    features: FeatureTable | None = None

    @model_validator(mode="before")
    @classmethod
    def _as_declared(cls, values: Any, info: ValidationInfo) -> Any:
        """Make a product of ``from = [columns]`` with ``bins`` of each, and read the table of features that is named.

        ``context`` of the validation has the card's ``folder``.
        """
        if (declared := table_in(values)) is None:
            return values
        given = dict(declared)
        if "from" in given:
            given["product"] = {"columns": given.pop("from"), "bins": given.pop("bins", {})}
        if isinstance(file := given.get("features"), str):
            folder = (table_in(info.context) or {}).get("folder")
            if not isinstance(folder, Path):
                raise ValueError("features: are read from beside the card's file; load the card from its file")
            table = given["features"] = read_state_features(file, folder)
            if "bins" not in given:
                given.setdefault("labels", list(table.labels))
        return given

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if [self.bins, self.labels, self.product].count(None) != 2 and not self.undivided:
            raise ValueError("give exactly one of 'bins', 'labels', and 'from' with the bins of several columns")
        if self.labels is not None and self.column == "":
            raise ValueError("column is missing: which one holds the labels?")
        if self.undivided and self.other:
            raise ValueError("other = true belongs to labels or bins; there are none")
        _check_labels(self.labels, [OTHER, *self.ends], self.same_as)
        if clash := set(self.ends) & set(self.live()):
            raise ValueError(f"{sorted(clash)} names a live state and an end")
        if len(set(self.ends)) != len(self.ends) or OTHER in self.ends:
            raise ValueError(f"ends must be distinct and not {OTHER}; got {self.ends}")
        check_shown([*self.live(), *self.ends])
        if self.features is not None:
            self.features.check(self.live())
        return self

    @property
    def undivided(self) -> bool:
        """Whether nothing but ``ends`` is declared: the state of a row is its observation alone."""
        return self.bins is None and self.labels is None and self.product is None and self.column == ""

    @cached_property
    def _own(self) -> tuple[str, ...]:
        bins = self.bins or self.product
        return tuple(bins.labels() if bins is not None else _label_map(self.labels or 1))

    def live(self) -> list[str]:
        """Labels of the states in which a decision is taken, OTHER last."""
        return [ANYWHERE] if self.undivided else [*self._own, *([OTHER] if self.other else [])]

    @property
    def read(self) -> list[str]:
        """The columns that the state is read from."""
        columns = (
            self.product.columns if self.product is not None else self.bins.by if self.bins is not None else self.column
        )
        return [columns] if isinstance(columns, str) else list(columns)

    @property
    def first_terminal(self) -> int:
        """Index of the first end among the state labels: every state from here on is terminal."""
        return len(self.live())

    @property
    def default_terminal(self) -> int | None:
        """Index of the end meant when none is logged: the one named ``END`` (any case), else the last; None if none."""
        if not self.ends:
            return None
        named = [i for i, end in enumerate(self.ends) if end.upper() == END]
        return self.first_terminal + (named[0] if named else len(self.ends) - 1)

    @property
    def other_index(self) -> int | None:
        """Index of the state OTHER, or None where it is not declared."""
        return len(self.live()) - 1 if self.other else None

    def raw_labels(self) -> dict[str, int]:
        """Raw value (text) -> index among :meth:`live`; empty for bins."""
        if self.labels is None:
            return {}
        return {raw: i for i, group in enumerate(_label_map(self.labels, self.same_as).values()) for raw in group}


class Actions(Strict):
    """The action column; OTHER, where declared, counts all other actions and is never recommended."""

    later: ClassVar = {"same_as": None}
    column: str | list[str]
    labels: Labels
    same_as: dict[str, str] | None = None
    other: bool = False

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        _check_labels(self.labels, [OTHER], self.same_as)
        check_shown(self.names())
        return self

    def names(self) -> list[str]:
        """Labels in index order, OTHER last where declared."""
        return list(_label_map(self.labels)) + ([OTHER] if self.other else [])

    @property
    def other_index(self) -> int | None:
        """Index of the action OTHER, or None where it is not declared."""
        return len(self.names()) - 1 if self.other else None

    def raw_labels(self) -> dict[str, int]:
        """Raw value (text) -> action index."""
        return {raw: i for i, group in enumerate(_label_map(self.labels, self.same_as).values()) for raw in group}


class Domain(Strict):
    """The declared decision process of the log: finite, or with an observation beside the state.

    ``discount``: factor of a reward one step later; values are of discounted rewards.
    """

    later: ClassVar = {"observation": None, "first_observations": None, "practice": None, "discount": 1.0}
    horizon: Annotated[int, Field(ge=1, le=1000)]
    discount: Annotated[float, Field(gt=0, le=1)] = 1.0
    states: States = Field(default_factory=States)
    observation: Vector | None = None
    first_observations: Annotated[list[list[float]], Field(min_length=1)] | None = None
    actions: Actions
    dynamics: Literal["per_step", "stationary"] = "per_step"
    cell_cap: Annotated[int, Field(ge=1)] | None = None
    markov: Literal["declared", "aggregated"] = "declared"
    practice: Literal["recorded"] | None = None
    start: Literal["released"] | dict[str, float] = "released"
    vetoes: list[Annotated[tuple[str | int, str | int], Field(strict=False)]] = Field(
        default_factory=list[tuple[str | int, str | int]]
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.observation is None and (self.states.undivided or self.first_observations is not None):
            raise ValueError("states needs a column with 'bins' or 'labels', or declare domain.observation")
        size = 0 if self.observation is None else self.observation.size
        if any(len(x) != size or not all(map(math.isfinite, x)) for x in self.first_observations or []):
            raise ValueError(f"first_observations must be lists of {size} finite numbers, as the log has them")
        if self.practice is not None and self.markov == "aggregated":
            raise ValueError(
                "practice = 'recorded' says that the declared state decided every choice, markov = 'aggregated' that "
                "the declared states hide something; take one of them out"
            )
        live, actions = self.states.live(), self.actions.names()
        if (pairs := len(live) * len(actions)) > MOST_PAIRS:
            raise ValueError(
                f"states and actions: {pairs:,} pairs of labels are more than {MOST_PAIRS:,}; declare fewer of either"
            )
        for state, action in self.vetoes:
            if str(state) not in live or str(action) not in actions:
                raise ValueError(f"veto ({state!r}, {action!r}) names no declared state and action")
        if isinstance(self.start, dict):
            if unknown := set(self.start) - set(live):
                raise ValueError(f"start names unknown states {sorted(unknown)}; declared: {live}")
            if abs(sum(self.start.values()) - 1) > 1e-9 or min(self.start.values()) < 0:
                raise ValueError(f"start must be probabilities summing to 1; got sum {sum(self.start.values()):g}")
        if self.cell_cap is not None and self.dynamics == "per_step":
            raise ValueError("cell_cap belongs to dynamics = 'stationary'; per_step tables do not use it")
        for s, row in zip(live, self.allowed, strict=True):
            if not row.any():
                raise ValueError(f"every action is vetoed in state {s!r}; leave at least one")
        return self

    @property
    def live_states(self) -> list[str]:
        """Labels of the states in which a decision is taken."""
        return self.states.live()

    @property
    def state_labels(self) -> list[str]:
        """All S labels: live states first, then the ends."""
        return self.live_states + list(self.states.ends)

    @property
    def action_labels(self) -> list[str]:
        """All A labels."""
        return self.actions.names()

    @property
    def allowed(self) -> Bools:
        """``(L, A)``: actions that a policy may take in each live state: neither vetoed nor OTHER."""
        live, actions = self.live_states, self.action_labels
        allowed = np.tile(np.array(actions) != OTHER, (len(live), 1))
        for state, action in self.vetoes:
            allowed[live.index(str(state)), actions.index(str(action))] = False
        return allowed

    @property
    def state_features(self) -> Array | None:
        """Public numbers ``(L, d)`` of the live states, read-only; None where the card declares none."""
        table = self.states.features
        return None if table is None else table.of(self.live_states)

    @property
    def table_steps(self) -> int:
        """Leading axis of a count table: H, or 1 where the dynamics are declared stationary."""
        return 1 if self.dynamics == "stationary" else self.horizon


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
        if self.kind in KINDS and (self.balanced or self.square is not None):
            raise ValueError(f"kind = '{self.kind}' lies in the unit ball: leave 'balanced' and 'square' out")
        given = {key for key in ("table", "states", "actions") if getattr(self, key) is not None}
        wanted = {"table": {"table"}, "product": {"states", "actions"}}.get(self.kind, set[str]())
        if given != wanted and not (self.kind in KINDS and given == {"actions"}):
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
        if (self.kind in KINDS) != (observation is not None):
            raise ValueError(
                f"kind = '{self.kind}' and domain.observation: {', '.join(KINDS)} are features of an observation"
            )
        if self.kind in KINDS and self.actions is not None and not any(any(row) for row in self.actions):
            raise ValueError("features.actions: every row is zero; at least one action needs a feature")
        if self.kind not in ("one_hot", *KINDS):
            self._plain(live, actions)

    def observed(self, live: int, actions: int, observation: Vector) -> ObservedMap:
        """The feature map of an observation.

        Raises ValueError if the features are not of an observation.
        """
        kind: Kind | None = next((k for k in KINDS if k == self.kind), None)
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
