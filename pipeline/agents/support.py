"""Support of a release: the cells (s, a) that people visited, outside of which a policy keeps practice.

Where no person took an action, no held-out row can contradict a model of it.  An empty cell is released as noise
alone, and of many empty cells some lie some deviations above 0; so a cell is *supported* only where its visits exceed
the largest of all cells, were they all empty.  Post-processing of a release, no paper has it.

| code | shape | meaning |
|---|---|---|
| ``visits`` | (G, L, A) | released, as drawn: neither projected nor cut at 0, so noise is normal about the truth |
| ``usual`` | (G, L, A) | share of each action in practice; NaN where released counts are too few |
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release
from pipeline.statistics.planning_counts import PrivateCounts

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

# rows of people below which a noisy cell counts as empty, however small the noise
_LEAST = 10.0
# chance that any empty cell of a release counts as supported
_FALSELY = 0.01
# deviations of noise where the policy was made of other people
_THEIRS = 2.0


def floor(sd: float, cells: int) -> float:
    """Rows at or below which a cell counts as empty: ``max(10, quantile(1 - .01 / cells) sd)``; 0 without noise.

    Exact counts are empty exactly where no person was.
    """
    return max(_LEAST, NormalDist().inv_cdf(1 - _FALSELY / cells) * sd) if sd else 0.0


def released_visits(release: Release, steps: int) -> tuple[Array, float]:
    """Visits ``(steps, L, A)`` as drawn, and the standard deviation of their noise.

    ``steps``: 1 adds the tables of all steps.
    """
    name = "n_sa" if "n_sa" in release.tables else "n_sas"
    visits, of = release.tables[name].astype(np.float64), release.tables[name].ndim
    sd = next(m for m in release.mechanisms if m.table == name).standard_deviation
    if of == 4:
        visits, sd = visits.sum(-1), sd * visits.shape[-1] ** 0.5
    if steps < len(visits):
        visits, sd = visits.sum(0, keepdims=True), sd * len(visits) ** 0.5
    return visits, sd


def least_visits(release: Release, steps: int) -> float:
    """Visits at or below which a cell of this release counts as empty."""
    visits, sd = released_visits(release, steps)
    return floor(sd, visits.size)


def supported(release: Release, steps: int, *, theirs: bool = False) -> Bools:
    """Supported cells ``(G, L, A)``, of actions that practice takes there: a policy may recommend them.

    ``steps``: number of tables that were planned on: 1 where all steps share one.
    """
    visits, sd = released_visits(release, steps)
    least = max(_LEAST, _THEIRS * sd) if theirs else floor(sd, visits.size)
    return (visits > least) & (practice(release) > 0)


def practice(release: Release) -> Array:
    """Share of each action in the released visits ``(G, L, A)``; NaN where the visits are lost in noise.

    An action whose visits do not exceed the noise (two standard deviations) counts as not taken: the positive parts of
    pure noise would else look like practice.
    """
    n_sas = release.tables["n_sas"]
    noise = next(m for m in release.mechanisms if m.table == "n_sas").standard_deviation * np.sqrt(n_sas.shape[-1])
    visits = np.maximum(n_sas.sum(-1).astype(np.float64), 0.0)
    enough = visits.sum(-1, keepdims=True) > 4 * noise * np.sqrt(n_sas.shape[-2])
    heard = np.where(visits > 2 * noise, visits, 0.0)
    total = heard.sum(-1, keepdims=True)
    return np.where(enough & (total > 0), heard / np.where(total > 0, total, 1.0), np.nan)


def unsupported(counts: PrivateCounts, policy: Policy, there: Array, *, theirs: bool = False) -> float:
    """Frequency with which an episode of the policy leaves practice outside of the support, at most 1.

    Times the range of values it bounds the model's error without any row.  A policy that keeps to :func:`supported`
    cells has 0; one that was made of other rows, or by a plug-in's planner, need not.

    ``policy`` ``(H, L, A)``: as emitted; where it abstains practice goes on.
    ``there`` ``(H, L)``: chance to be in each live state at each step under the policy, in that model.
    """
    heard = np.nan_to_num(practice(counts.release))
    away = np.maximum(policy.probabilities - heard, 0.0) * ~supported(counts.release, len(counts.n_sa), theirs=theirs)
    return min(float((there * away.sum(-1)).sum()), 1.0)
