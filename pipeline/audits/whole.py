"""Whole releases beside noise drawn for many copies at once: does the shipped code draw what its mechanisms list?

An interactive mechanism answers once, so an attack on it draws the listed noise by itself.  A few hundred releases of
the shipped code are held against that list: what they publish, less what they publish without noise, has to have the
listed variances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
# of each side
RELEASES = 200
# that anything is said of a release which draws what it lists
FALSE_ALARM = 1e-9


@dataclass(frozen=True)
class Drawn:
    """What a few whole releases say of their noise: whether any of it is provably less, or more, than listed."""

    less: bool
    more: bool


def noise_drawn(noise: list[Array], variances: list[Array]) -> Drawn:
    """Hold ``noise``, tables ``(copies, *shape)``, against the ``variances`` of its entries.

    Squares over their variance are chi-squared with ``copies`` degrees of freedom, entry by entry and summed over a
    table.  The chance of a false alarm is shared by all these tests.

    Parameters
    ----------
    variances
        ``(*shape)`` each; what is infinite is not read.
    """
    found: list[tuple[Array, int]] = []
    for x, v in zip(noise, variances, strict=True):
        read = np.isfinite(v)
        squares = (x[:, read] ** 2 / v[read]).sum(0)
        found += [(squares, len(x)), (np.array([squares.sum()]), squares.size * len(x))]
    doubt = FALSE_ALARM / (2 * sum(squares.size for squares, _ in found))
    return Drawn(
        less=any(bool((squares < stats.chi2.ppf(doubt, n)).any()) for squares, n in found),
        more=any(bool((squares > stats.chi2.isf(doubt, n)).any()) for squares, n in found),
    )
