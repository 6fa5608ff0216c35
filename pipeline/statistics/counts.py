"""Private counts: what a planner may see of people, made consistent; post-processing of a release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import Card
from pipeline.privacy.release import Release
from pipeline.statistics.consistency import consistent_counts
from pipeline.statistics.count_layout import reward_lattice

Array = NDArray[np.float64]
Slack = Literal["zero", "paper"]


@dataclass(frozen=True)
class PrivateCounts:
    """Consistent noisy counts: all a planner may know of the people.

    Attributes
    ----------
    n_sa, n_sas
        ``(G, L, A)`` and ``(G, L, A, S)``, with ``n_sa = sum n_sas`` exactly.
    r_sa
        ``(G, L, A)`` summed reward above ``reward_offset`` a visit, in reward units; None where rewards are declared.
    reward_offset
        Reward at which a summed integer is 0, reward units.
    n_0
        ``(L,)`` first states, >= 0, and the standard deviation of its noise an entry.
    error
        E, a bound on twice the noise of every count together (003 Lemma C.2); 0 without noise.
    slack
        Largest ``|sum n_sas - n'_sa|`` that the consistency programme allowed.
    sd_sas, sd_sa, sd_r, sd_0
        Standard deviations of the noise of one entry of each (``sd_r`` in reward units).
    visits_summed
        Whether n_sa was made by summation (``one_table``), so that its noise is that of n_sas.
    release
        The noisy integers that all this was made of.
    """

    n_sa: Array
    n_sas: Array
    r_sa: Array | None
    reward_offset: float
    n_0: Array
    error: float
    slack: float
    sd_sas: float
    sd_sa: float
    sd_r: float
    sd_0: float
    visits_summed: bool
    release: Release


def noisy_tables(release: Release) -> tuple[Array, Array]:
    """n'_sa ``(G, L, A)`` and n'_sas ``(G, L, A, S)``, clipped at 0: the data of the consistency programme (003 eq. 2).

    With one table, n'_sa is the clipped *sum* of the unclipped noisy entries, which is unbiased before the clip.
    """
    n_sas = release.tables["n_sas"].astype(np.float64)
    n_sa = release.tables["n_sa"].astype(np.float64) if "n_sa" in release.tables else n_sas.sum(-1)
    return np.maximum(n_sa, 0.0), np.maximum(n_sas, 0.0, out=n_sas)


def count_error(release: Release, failure: float) -> float:
    """E: twice a bound on the noise of every visit and transition count together, with probability 1 - ``failure``.

    Source: 003 Lemma C.2 with the scales actually drawn; the union is over the released cells (design §5.4).
    """
    by_table = {m.table: m for m in release.mechanisms}
    cells, ends = 2 * by_table["n_sas"].cells, by_table["n_sas"].shape[-1]
    halves: list[float] = []
    for name in ("n_sas", "n_sa"):
        m = by_table.get(name, by_table["n_sas"])
        # a visit count made by summation carries the noise of all its successors
        summed = name == "n_sa" and "n_sa" not in by_table
        if m.variance is not None:
            halves.append(noise_bound(m.standard_deviation * (ends**0.5 if summed else 1), cells, failure))
        elif m.scale is not None:
            halves.append(laplace_bound(m.scale, cells, failure) * (ends if summed else 1))
    return 2 * max(halves, default=0.0)


def noise_bound(sigma: float, cells: int, failure: float) -> float:
    """Half of E: a bound on ``cells`` Gaussian draws, ``sigma sqrt(2 log(2 cells / failure))`` (003 Lemma C.2).

    With ``cells = 2 H S^2 A`` and ``sigma^2 = 2H/rho``, twice this is E_rho = 4 sqrt(H log(4HS^2A/delta)/rho).

    Parameters
    ----------
    sigma
        Standard deviation of one draw, in counts.
    cells
        How many draws have to stay within it, together.
    failure
        Probability with which one of them may not.
    """
    return sigma * math.sqrt(2 * math.log(2 * cells / failure))


def laplace_bound(scale: Fraction, cells: int, failure: float) -> float:
    """Half of E for ``cells`` Laplace draws together: ``scale log(cells / failure)``.

    Parameters
    ----------
    scale
        Of one draw, in counts.
    cells, failure
        See :func:`noise_bound`.
    """
    return float(scale) * math.log(cells / failure)


def private_counts(release: Release, card: Card, *, slack: Slack = "zero", failure: float = 0.1) -> PrivateCounts:
    """Post-process a release into consistent counts: free, because it reads nothing but noisy integers.

    Parameters
    ----------
    release
        Of the card's count tables.
    card
        Declares the lattice of rewards.
    slack
        ``paper``: |sum - n'_sa| <= E/2 as 003 (3); ``zero``: the sum is exactly n'_sa (findings/offline.md §5.2).
    failure
        Probability with which E may fail.
    """
    sd = {m.table: m.standard_deviation for m in release.mechanisms}
    lattice = reward_lattice(card)
    error = count_error(release, failure)
    n_sa, n_sas = noisy_tables(release)
    width = error / 2 if slack == "paper" and "n_sa" in release.tables else 0.0
    x = consistent_counts(n_sa, n_sas, width)
    summed = "n_sa" not in release.tables
    sd_sa = sd["n_sas"] * n_sas.shape[-1] ** 0.5 if summed else sd["n_sa"]
    if "n_0" in release.tables:
        n_0, sd_0 = np.maximum(release.tables["n_0"].astype(np.float64), 0.0), sd["n_0"]
    else:
        raw = release.tables["n_sas" if summed else "n_sa"][0].astype(np.float64)
        n_0 = np.maximum(raw.reshape(raw.shape[0], -1).sum(-1), 0.0)
        sd_0 = sd_sa * raw.shape[1] ** 0.5
    return PrivateCounts(
        n_sa=x.sum(-1),
        n_sas=x,
        r_sa=release.tables["r_sa"].astype(np.float64) * lattice.unit if "r_sa" in release.tables else None,
        reward_offset=lattice.offset,
        n_0=n_0,
        error=error,
        slack=width,
        sd_sas=sd["n_sas"],
        sd_sa=sd_sa,
        sd_r=sd.get("r_sa", 0.0) * lattice.unit,
        sd_0=sd_0,
        visits_summed=summed,
        release=release,
    )
