"""Two programmes that make noisy counts consistent: each in closed form, and stated once in cvxpy.

*Cell by cell*, paper 003, (3)-(4):

    minimise t  over x in R^S', t
    subject to  |x_s' - n_sas[s']| <= t,  x >= 0,  |sum_s' x_s' - n_sa| <= slack

For ``n_sas >= 0`` the minimiser is unique (findings: each coordinate is forced to the same end of its interval):
*inside* (the sum is within the slack): x = n_sas; *short* (sum too small): add the same t to every entry; *excess*
(sum too large): x = [n_sas - t]+ with the t at which the sum meets ``n_sa + slack`` (water-filling, one sort).

*Table by table*, least squares: the nearest table with entries >= 0 and a given total,

    minimise ||x - n||^2  subject to  x >= 0,  sum x = total

whose minimiser is a soft threshold, [n - t]+ for one t a table.  Entries that noise alone made positive fall to 0.
"""

# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
CASES = ("inside", "short", "excess")
# one table is solved again by cvxpy only while it is small: the closed form costs one sort at any size
CERTIFIED_CELLS = 4096
_PIECE = 1 << 16


def _checked(n_sa: ArrayLike, n_sas: ArrayLike, slack: float) -> tuple[Array, Array]:
    total, parts = np.asarray(n_sa, dtype=np.float64), np.asarray(n_sas, dtype=np.float64)
    if parts.ndim < 1 or parts.shape[-1] < 1 or total.shape != parts.shape[:-1]:
        raise ValueError(f"n_sas must be n_sa's shape with one more axis; got {total.shape} and {parts.shape}")
    if not (np.isfinite(total).all() and np.isfinite(parts).all()) or (total < 0).any() or (parts < 0).any():
        raise ValueError("counts must be finite and >= 0: clip the noisy counts first")
    if not (np.isfinite(slack) and slack >= 0):
        raise ValueError(f"slack must be finite and >= 0; got {slack}")
    return total, parts


def consistency_case(n_sa: ArrayLike, n_sas: ArrayLike, slack: float) -> NDArray[np.int64]:
    """Index into :data:`CASES` of each cell, shape of ``n_sa``."""
    total, parts = _checked(n_sa, n_sas, slack)
    s = parts.sum(-1)
    return np.where(s < total - slack, 1, np.where(s > total + slack, 2, 0)).astype(np.int64)


def consistent_counts(n_sa: ArrayLike, n_sas: ArrayLike, slack: float) -> Array:
    """The unique minimiser x, in closed form for all cells at once.

    Parameters
    ----------
    n_sa
        ``(...)`` noisy visits, >= 0.
    n_sas
        ``(..., S')`` noisy transitions, >= 0.
    slack
        Largest allowed ``|sum x - n_sa|``; paper 003 passes E/2, paper 002 E/4.

    Returns
    -------
    x ``(..., S')``, float64.

    Examples
    --------
    >>> consistent_counts([10.0], [[3.0, 4.0, 2.0]], 0.0).round(3)
    array([[3.333, 4.333, 2.333]])

    Raises
    ------
    ValueError
        On negative, non-finite or mis-shaped input.
    """
    total, parts = _checked(n_sa, n_sas, slack)
    case = consistency_case(total, parts, slack)
    x = parts.copy()
    short, excess = case == 1, case == 2
    x[short] += ((total[short] - slack - parts[short].sum(-1)) / parts.shape[-1])[:, None]
    flat, goals, over = x.reshape(-1, x.shape[-1]), total.reshape(-1) + slack, np.flatnonzero(excess)
    # pieces that stay in cache: no second table of the size of all cells
    for at in np.array_split(over, 1 + len(over) * x.shape[-1] // _PIECE):
        flat[at] = np.maximum(flat[at] - water_level(flat[at], goals[at])[:, None], 0.0)
    return x


def water_level(parts: Array, target: Array) -> Array:
    """The t ``(n,)`` at which ``sum [parts (n, S') - t]+`` equals ``target (n,)``, which is below ``sum parts``."""
    falling, carry = np.sort(parts, axis=-1)[:, ::-1], np.zeros(len(parts))
    level = falling[:, 0].copy()
    for first in range(0, falling.shape[1], _PIECE):
        # t if exactly the k largest entries stay above the water
        levels = falling[:, first : first + _PIECE].copy()
        levels[:, 0] += carry
        np.cumsum(levels, axis=-1, out=levels)
        carry = levels[:, -1].copy()
        levels -= target[:, None]
        levels /= np.arange(first + 1, first + levels.shape[1] + 1)
        above = np.count_nonzero(falling[:, first : first + _PIECE] > levels, axis=-1)
        last = np.take_along_axis(levels, np.maximum(above - 1, 0)[:, None], -1)[:, 0]
        level = np.where(above > 0, last, level)
        if not above.any():
            break
    return level


def project(tables: Array, totals: Array) -> Array:
    """The nearest tables with entries >= 0 and given totals, in closed form.

    Parameters
    ----------
    tables
        ``(G, ...)`` noisy counts of any sign, one table for each of G steps.
    totals
        ``(G,)`` sum that each table shall have, > 0.

    Returns
    -------
    x, of the shape of ``tables``.

    Examples
    --------
    >>> project(np.array([[5.0, 4.0, -3.0, 1.0]]), np.array([7.0])).round(3)
    array([[4., 3., 0., 0.]])
    """
    flat = tables.reshape(len(tables), -1)
    # where the sum is too small t is negative: every entry above it rises
    level = water_level(flat, totals)
    x = flat - level[:, None]
    return np.maximum(x, 0.0, out=x).reshape(tables.shape)


def project_cvxpy(table: Array, total: float) -> Array:
    """The same minimiser for one table ``(...)`` by cvxpy (Clarabel).

    Raises RuntimeError if the solver reports anything but an optimum.
    """
    unit = max(1.0, total, float(np.abs(table).max()))
    problem, x, drawn, sum_of = _projection(table.size)
    # runs in threads of one process share the problem
    with _SOLVING:
        drawn.value, sum_of.value = table.ravel() / unit, total / unit
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        if problem.status != "optimal":
            raise RuntimeError(f"cvxpy ended {problem.status!r} on a projection")
        return np.asarray(x.value).reshape(table.shape) * unit


_SOLVING = Lock()


@cache
def _projection(size: int) -> tuple[Any, Any, Any, Any]:
    """The projection of one table as a DPP-parametrised cvxpy problem, compiled once per ``size``."""
    import cvxpy as cp

    x, drawn, total = cp.Variable(size, nonneg=True), cp.Parameter(size), cp.Parameter()
    constraints: list[Any] = [cp.sum(x) == total]
    return cp.Problem(cp.Minimize(cp.sum_squares(x - drawn)), constraints), x, drawn, total


@cache
def _problem(size: int) -> tuple[Any, Any, Any, Any, Any]:
    """The programme (4) for one cell as a DPP-parametrised cvxpy problem, compiled once per ``size``."""
    import cvxpy as cp

    x, t = cp.Variable(size, nonneg=True), cp.Variable()
    parts = cp.Parameter(size, nonneg=True)
    total, slack = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True)
    constraints: list[Any] = [cp.abs(x - parts) <= t, cp.abs(cp.sum(x) - total) <= slack]
    return cp.Problem(cp.Minimize(t), constraints), x, parts, total, slack


def consistent_counts_cvxpy(n_sa: ArrayLike, n_sas: ArrayLike, slack: float) -> Array:
    """The same minimiser by cvxpy (HiGHS), one cell at a time through one reused problem.

    Raises ValueError on bad input, as :func:`consistent_counts`.
    Raises RuntimeError if the solver reports anything but an optimum.
    """
    total, parts = _checked(n_sa, n_sas, slack)
    flat, sums = parts.reshape(-1, parts.shape[-1]), total.reshape(-1)
    problem, x, p, t, s = _problem(parts.shape[-1])
    out = np.empty_like(flat)
    for i, (row, goal) in enumerate(zip(flat, sums, strict=True)):
        # solver tolerances are absolute: solve in units of the cell
        unit = max(1.0, float(row.max()), float(goal))
        p.value, t.value, s.value = row / unit, goal / unit, slack / unit
        problem.solve(solver="HIGHS")
        if problem.status != "optimal":
            raise RuntimeError(f"cvxpy ended {problem.status!r} on a consistency cell")
        out[i] = np.asarray(x.value) * unit
    return out.reshape(parts.shape)


@dataclass(frozen=True)
class ConsistencyCertificate:
    """Numbers of cells solved in closed form, and the distance to cvxpy on the drawn cells.

    ``largest_relative_difference`` is max |x - x_cvxpy| / max(1, largest count of the cell) over the drawn cells; of
    ``tables`` it is the largest violation of the optimality conditions, or of the least squares beside cvxpy's.

    ``tolerance``: largest relative difference that is accepted.
    ``programme``: ``cells`` of paper 003, or ``tables`` by least squares.
    """

    cells: dict[str, int]
    certified: dict[str, int]
    largest_relative_difference: float
    tolerance: float = 1e-7
    solver: str = "cvxpy/HIGHS"
    programme: Literal["cells", "tables"] = "cells"

    @property
    def holds(self) -> bool:
        """True where closed form and cvxpy agree within the tolerance."""
        return self.largest_relative_difference <= self.tolerance


def certify(n_sa: ArrayLike, n_sas: ArrayLike, slack: float, x: Array, per_case: int = 8) -> ConsistencyCertificate:
    """Solve up to ``per_case`` cells of each case again by cvxpy, drawn by the operating system's randomness.

    ``x`` ``(..., S')``: the solution to certify.
    """
    from secrets import SystemRandom

    total, parts = _checked(n_sa, n_sas, slack)
    flat, sums, solved = parts.reshape(-1, parts.shape[-1]), total.reshape(-1), x.reshape(-1, parts.shape[-1])
    case = consistency_case(sums, flat, slack)
    drawn: list[int] = []
    cells, certified = {}, {}
    for i, name in enumerate(CASES):
        members = np.flatnonzero(case == i)
        picked = SystemRandom().sample(list(map(int, members)), min(per_case, len(members)))
        cells[name], certified[name] = len(members), len(picked)
        drawn += picked
    reference = consistent_counts_cvxpy(sums[drawn], flat[drawn], slack) if drawn else np.empty((0, flat.shape[1]))
    scale = np.maximum(1.0, np.maximum(flat[drawn].max(-1, initial=0.0), sums[drawn]))
    gap = np.abs(solved[drawn] - reference).max(-1, initial=0.0) / scale
    return ConsistencyCertificate(cells, certified, float(gap.max(initial=0.0)))


def certify_projection(tables: Array, totals: Array, x: Array, most: int = 3) -> ConsistencyCertificate:
    """Check the optimality conditions of every table, and solve up to ``most`` small ones again by cvxpy."""
    flat, solved = tables.reshape(len(tables), -1), x.reshape(len(tables), -1)
    scale = np.maximum(1.0, np.maximum(totals, np.maximum(flat.max(1), -flat.min(1))))
    # x = [n - t]+ with one t a table: t is read where x > 0, and no other entry may exceed it
    pieces = [slice(at, at + _PIECE) for at in range(0, flat.shape[1], _PIECE)]
    level = np.full(len(flat), -np.inf)
    for at in pieces:
        level = np.maximum(level, np.where(solved[:, at] > 0, flat[:, at] - solved[:, at], -np.inf).max(1))
    uneven, above = np.zeros(len(flat)), np.zeros(len(flat))
    for at in pieces:
        inside, t = solved[:, at] > 0, level[:, None]
        uneven = np.maximum(uneven, np.abs(np.where(inside, flat[:, at] - solved[:, at] - t, 0.0)).max(1))
        above = np.maximum(above, np.where(inside, 0.0, np.maximum(flat[:, at] - t, 0.0)).max(1))
    gaps = [float((gap / scale).max()) for gap in (uneven, above, np.abs(solved.sum(1) - totals))]
    # evenly spaced, not drawn: the same release gives the same certificate
    small = min(most, len(tables)) if flat.shape[1] <= CERTIFIED_CELLS else 0
    drawn = [round(i * (len(tables) - 1) / max(small - 1, 1)) for i in range(small)]
    # a solver promises its objective: of a distance of 1e-6 from x it need not know, since ||x - x*||^2 <= its gap
    for g in drawn:
        theirs, ours = project_cvxpy(flat[g], float(totals[g])), solved[g]
        costs = [float((((x - flat[g]) / scale[g]) ** 2).sum()) for x in (theirs, ours)]
        gaps.append(abs(costs[0] - costs[1]) / max(1.0, costs[1]))
    return ConsistencyCertificate(
        {"projection": len(tables)}, {"projection": len(drawn)}, max(gaps), 1e-9, "cvxpy/CLARABEL", "tables"
    )
