"""Attack on released LQ moments: two people who repeat one row, as long as their balls allow and longer."""

# ruff: noqa: N806  (the letters of the paper)

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pipeline.audits.attack import Array, Attack, ReleasePath, Side
from pipeline.audits.laws import Gaussian
from pipeline.audits.linear import tiled
from pipeline.audits.sampling import Pooled, Silence
from pipeline.declaration.card import CardError
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import Release
from pipeline.statistics.lq_moments import Episodes, SimulatedRows, drawn_lq
from pipeline.statistics.lq_plan import LqPlan

Drawn = Callable[[LqPlan, Episodes, NoiseSource], Release]
# angles tried between the two states, and between the two controls
ANGLES = 25
# what is cut anyway: an unclipped twin gives itself away
_TOO_LONG = 3.0


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
    if plan.joint_rho is None:
        raise CardError(f"{plan.domain.name}: no noise, no claim to attack")
    made_up = LqPlan(replace(plan.domain, kind="synthetic"), plan.ask)
    gram, cross = made_up.variances
    d, n = made_up.domain.dimension, made_up.domain.state
    upper = np.where(np.eye(d, dtype=bool), float(gram), gram / 2)
    upper[np.tril_indices(d, -1)] = math.inf
    variances = [upper, np.full((d, n), float(cross))]
    turns = itertools.product(np.linspace(0, math.pi, ANGLES), repeat=2)
    pair = max((_pair(made_up, a) for a in turns), key=lambda p: _apart(made_up, p, variances))
    path: ReleasePath = tiled(*(_shipped(made_up, person, Silence()) for person in pair))
    if drawn is not None:
        path = _Path(made_up, pair, drawn)
    return Attack(
        mechanism="lq moments, discrete gaussian, gram and target",
        trust="central",
        path=path,
        means=(_once(made_up, pair[0]), _once(made_up, pair[1])),
        law=Gaussian(variances),
        claimed_rho=plan.joint_rho,
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
    return drawn_lq(plan, SimulatedRows((person,)), noise)


def _once(plan: LqPlan, person: Episodes) -> list[Array]:
    r = _shipped(plan, person, Silence())
    return [r.tables["gram"].astype(np.float64), r.tables["target"].astype(np.float64)]


def _apart(plan: LqPlan, pair: tuple[Episodes, Episodes], variances: list[Array]) -> float:
    sides = [_once(plan, person) for person in pair]
    return float(sum((((a - b) ** 2) / v).sum() for a, b, v in zip(*sides, variances, strict=True)))


def _pair(plan: LqPlan, angles: tuple[float, float]) -> tuple[Episodes, Episodes]:
    """One person stands still, the other flips its sign at every step, turned by two angles."""
    return _person(plan, (0.0, 0.0), 1.0), _person(plan, angles, -1.0)


def _person(plan: LqPlan, angles: tuple[float, float], flip: float) -> Episodes:
    D = plan.domain
    # each state just so much longer than the one before that, cut as rows are, both reach their balls
    growth = max(1.0, D.successor_bound / D.state_bound)
    bounds = D.state_bound, D.control_bound
    states, controls = stretched(D.horizon, (D.state, D.control), bounds, angles, flip * growth)
    m = D.episodes_each
    return Episodes(np.tile(states, (m, 1, 1)), np.tile(controls, (m, 1, 1)), np.full(m, D.horizon))


def stretched(
    horizon: int, sizes: tuple[int, int], bounds: tuple[float, float], angles: tuple[float, float], ratio: float
) -> tuple[Array, Array]:
    """States ``(H+1, n)`` and controls ``(H, d)`` of one direction each, too long, ``ratio`` longer at each step."""
    sign = ratio ** np.arange(horizon + 1)[:, None] * _TOO_LONG
    state, control = (_turned(n, angle) for n, angle in zip(sizes, angles, strict=True))
    return sign * state * bounds[0], sign[:-1] * control * bounds[1]


def _turned(dimension: int, angle: float) -> Array:
    """Unit vector turned away from the first axis; on a line there is nowhere to turn."""
    v = np.zeros(dimension)
    v[0] = 1.0
    if dimension > 1:
        v[:2] = math.cos(angle), math.sin(angle)
    return v
