"""Attack on released LQ moments: two people who repeat one row, as long as their balls allow and longer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pipeline.audits.attack import Array, Attack, ReleasePath, Side
from pipeline.audits.laws import Gaussian
from pipeline.audits.linear import EPSILON, tiled
from pipeline.audits.sampling import Pooled, Silence
from pipeline.declaration.card import CardError
from pipeline.privacy.guarantee import Trust
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.layout import Tables
from pipeline.statistics.lq_layout import LqPlan
from pipeline.statistics.lq_moments import draw_lq
from pipeline.statistics.lq_rows import Episodes, SimulatedRows

Drawn = Callable[[LqPlan, Episodes, NoiseSource], Release]


def lq_attack(plan: LqPlan, drawn: Drawn | None = None) -> Attack:
    """The worst angle of a family of pairs against a plan.

    Parameters
    ----------
    drawn
        A whole release of a person's rows, one copy at a time; None: see :func:`~pipeline.audits.linear.linear_attack`.

    Raises
    ------
    CardError
        If the plan draws no noise.
    """
    if plan.summed.rho is None:
        raise CardError(f"{plan.domain.name}: no noise, no claim to attack")
    made_up = replace(plan, domain=replace(plan.domain, kind="synthetic"))
    gram, cross = made_up.variances
    d, n = made_up.domain.dimension, made_up.domain.state
    upper = np.where(np.eye(d, dtype=bool), float(gram), gram / 2)
    upper[np.tril_indices(d, -1)] = math.inf
    variances = [upper, np.full((d, n), float(cross))]

    def sums(person: Episodes) -> Tables:
        return _shipped(made_up, person, Silence()).tables

    pair = made_up.summed.worst_pair(sums)
    path: ReleasePath = tiled(*(_shipped(made_up, person, Silence()) for person in pair))
    if drawn is not None:
        path = _Path(made_up, pair, drawn)
    return Attack(
        mechanism="lq moments, discrete gaussian, gram and target",
        trust=Trust.CENTRAL,
        path=path,
        means=(_once(made_up, pair[0]), _once(made_up, pair[1])),
        law=Gaussian(variances),
        claimed_rho=plan.summed.rho,
        whole=_Path(made_up, pair, _shipped) if drawn is None else None,
    )


@dataclass(frozen=True)
class _Path:
    plan: LqPlan
    pair: tuple[Episodes, Episodes]
    release: Drawn

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        source = noise if isinstance(noise, Silence | Pooled) else Pooled(noise)
        found = [self.release(self.plan, self.pair[side], source) for _ in range(copies)]
        return [np.stack([r.tables[t] for r in found]).astype(np.float64) for t in ("gram", "target")]


def _shipped(plan: LqPlan, person: Episodes, noise: NoiseSource) -> Release:
    return draw_lq(plan, SimulatedRows((person,)), noise, epsilon=EPSILON)


def _once(plan: LqPlan, person: Episodes) -> list[Array]:
    r = _shipped(plan, person, Silence())
    return [r.tables["gram"].astype(np.float64), r.tables["target"].astype(np.float64)]
