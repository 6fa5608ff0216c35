"""The declared domain of a linear-quadratic log: vectors in declared balls, noise, first state, cost.

Ball, cost and covariances are of logged numbers divided by their ``scale``; so metres and metres a second can share one
ball.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from pipeline.arrays import Array
from pipeline.declaration.numbers import check_shown
from pipeline.declaration.toml import Strict
from pipeline.mdp.riccati import QuadraticCost

LINEAR_QUADRATIC = "linear_quadratic"

Real = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
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

    def check_alike(self, key: str, columns: str | list[str] | None) -> None:
        """Refuse another way of writing the same vector; ValueError naming ``key``."""
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
