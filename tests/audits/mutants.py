"""Every mechanism with its attack, and broken twins of it applied on the release path: what audits must tell apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

import pipeline.statistics.lq_moments as lq_moments
from pipeline.audits.attack import Attack
from pipeline.audits.counters import counter_attack
from pipeline.audits.counts import counts_attack
from pipeline.audits.linear import Person, desk_of, linear_attack, one_shot_of
from pipeline.audits.lq import lq_attack
from pipeline.card import Card
from pipeline.mdp.features import FeatureMap
from pipeline.privacy.counters import TreeCounter, levels
from pipeline.privacy.noise import NoiseSource, SeededNoise
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics.calibration import Ask
from pipeline.statistics.linear_plan import LinearAsk, LinearDomain, LinearPlan
from pipeline.statistics.lq_moments import Episodes, SimulatedRows, release_lq_moments
from pipeline.statistics.lq_plan import LqAsk, LqDomain, LqPlan
from pipeline.statistics.mixture_calibration import Ask as MessageAsk
from pipeline.statistics.mixture_calibration import Variances, tight
from pipeline.statistics.mixture_message import LATTICE, Message, Visits
from pipeline.statistics.privatizers import CentralCounts, privatizer
from tests.conftest import card_dict

Make = Callable[[], Attack]

LEAVES = 8
MESSAGE = Message(2, 1, 1.0, (1.0,), 1.0, unit=False)
ASK = MessageAsk(7.0, 1e-5)
LQ = LqPlan(LqDomain("tiny", "synthetic", 2, 2, 2, 50), LqAsk(Fraction(1)))


def card(m: int = 1) -> Card:
    return Card.model_validate(card_dict(unit={"user": "user_id", "episodes_per_user": m, "users_public": 100}))


def counts(ask: Ask, broken: Callable[[Mechanism], Mechanism] | None = None, m: int = 1) -> Attack:
    shipped = privatizer(card(m), ask)
    if broken is None:
        return counts_attack(card(m), shipped)
    return counts_attack(card(m), shipped, CentralCounts(card(m), tuple(broken(x) for x in shipped.mechanisms)))


def halved(m: Mechanism) -> Mechanism:
    if m.variance is None:
        return replace(m, scale=m.scale / 2)
    return replace(m, variance=max(1, m.variance // 2))


def forgotten(m: Mechanism) -> Mechanism:
    """Calibrated as if transitions had the whole budget."""
    return replace(m, variance=math.ceil(m.l2_squared / 2)) if m.table != "n_0" else m


def times_m(m: Mechanism) -> Mechanism:
    """Three episodes a person, charged as three instead of nine."""
    return replace(m, variance=math.ceil(m.variance / 3))


class Repeating:
    """Operating-system noise in name; in truth the same seed at every call."""

    name, sampler = "os", "seeded"

    def admit(self, data_kind: str) -> None: ...

    def gaussian(self, size: int, variance: int, data) -> np.ndarray:
        # the first call's law is right, and every later call repeats it
        return np.resize(SeededNoise(7).gaussian(1, variance, data), size)

    def tv_bound(self, variance: int) -> Fraction:
        return Fraction(0)


def features() -> FeatureMap:
    f = np.zeros((3, 2, 3), dtype=np.int64)
    f[0, 0], f[0, 1], f[1, 0], f[2, 1] = (4, 0, 0), (0, 4, 0), (-4, 0, 0), (2, 2, 1)
    return FeatureMap(f, 16, Fraction(1, 16))


def linear(drawn=None, **ask) -> Attack:
    plan = LinearPlan(
        LinearDomain("tiny", "synthetic", 2, 100, can_end=True), LinearAsk(Fraction(1), **ask), features()
    )
    return linear_attack(plan, drawn)


class Thinner:
    """Draws the Gram's, or all, noise at a share of the variance asked."""

    def __init__(self, source: NoiseSource, share: float) -> None:
        self.source, self.share = source, share
        self.name, self.sampler = source.name, source.sampler

    def admit(self, data_kind: str) -> None:
        self.source.admit(data_kind)

    def gaussian(self, size: int, variance: int, data) -> np.ndarray:
        return self.source.gaussian(size, max(1, int(variance * self.share)), data)

    def tv_bound(self, variance: int) -> Fraction:
        return self.source.tv_bound(variance)


def thin_desk(plan: LinearPlan, person: Person, noise: NoiseSource) -> Release:
    return desk_of(plan, person, Thinner(noise, 0.5))


def thin_one_shot(plan: LinearPlan, person: Person, noise: NoiseSource) -> Release:
    return one_shot_of(plan, person, Thinner(noise, 0.5))


def long_features(plan: LinearPlan, person: Person, noise: NoiseSource) -> Release:
    """Rows of twice the declared length that nobody clips; scales as declared."""
    twice = FeatureMap(plan.features.integers * 2, plan.features.square * 4, plan.features.unit_squared)
    wide = replace(plan, features=twice)
    loud = desk_of(wide, person, Thinner(noise, 1 / 16))
    return replace(loud, joint_rho=None)


def thin_lq(plan: LqPlan, person: Episodes, noise: NoiseSource) -> Release:
    return release_lq_moments(plan, SimulatedRows((person,)), Thinner(noise, 0.5)).release


def unclipped_lq(plan: LqPlan, person: Episodes, noise: NoiseSource) -> Release:
    kept, lq_moments.cut = lq_moments.cut, lambda *rows: rows
    lattice, lq_moments.lattice_rows = lq_moments.lattice_rows, _whole_rows
    try:
        return release_lq_moments(plan, SimulatedRows((person,)), noise).release
    finally:
        lq_moments.cut, lq_moments.lattice_rows = kept, lattice


def _whole_rows(plan: LqPlan, batch: Episodes):
    H, q = plan.domain.horizon, plan.ask.steps
    x, u, y = (np.trunc(v * q) for v in (batch.states[:, :H], batch.controls[:, :H], batch.states[:, 1 : H + 1]))
    x, u, y = (v.reshape(-1, v.shape[2]) for v in (x, u, y))
    return np.hstack([x, u]), y


def counter(kind, **broken) -> Attack:
    return counter_attack(MESSAGE, ASK, kind, leaves=LEAVES, **broken)


def natural_levels() -> Variances:
    return tight(MESSAGE, ASK, math.ceil(math.log(LEAVES)))


def half(kind) -> Variances:
    v = tight(MESSAGE, ASK, 1 if kind == "local" else levels(LEAVES))
    return Variances(*(tuple(x // 2 for x in lane) for lane in (v.diagonal, v.above, v.target)))


class Redrawn(TreeCounter):
    """Node noise drawn anew whenever somebody looks."""

    def total(self) -> np.ndarray:
        exact = self._sums[[j for j in range(len(self._nodes)) if self.seen >> j & 1]]
        return (exact + self.lanes.draw(len(exact))).sum(0).astype(float)


def uncut(visits: Visits) -> np.ndarray:
    """Rows of one coordinate, as long as they come."""
    cells = np.zeros((2, MESSAGE.blocks))
    cells[0, visits.block] = visits.phi[:, 0] ** 2
    cells[1, visits.block] = visits.phi[:, 0] * visits.response
    parts = [cells[0], cells[1]]
    return (np.concatenate(parts) * LATTICE).astype(np.int64)


# mechanism -> (right, {mutant: broken}); ratio: least share of the claim proved at 20 000 releases a side
MECHANISMS: dict[str, tuple[Make, dict[str, Make]]] = {
    "counts, Gaussian, one table": (
        lambda: counts(Ask(rho=1.0)),
        {
            "half the variance": lambda: counts(Ask(rho=1.0), halved),
            "one family forgotten": lambda: counts(Ask(rho=1.0), forgotten),
        },
    ),
    "counts, Gaussian, two tables": (
        lambda: counts(Ask(rho=1.0, tables="two_tables")),
        {"half the variance": lambda: counts(Ask(rho=1.0, tables="two_tables"), halved)},
    ),
    "counts, Gaussian, three episodes a person": (
        lambda: counts(Ask(rho=1.0), m=3),
        {"m instead of m²": lambda: counts(Ask(rho=1.0), times_m, m=3)},
    ),
    "counts, Laplace": (
        lambda: counts(Ask(epsilon=1.0)),
        {"half the scale": lambda: counts(Ask(epsilon=1.0), halved)},
    ),
    "desk, centred": (
        linear,
        {
            "half the variance": lambda: linear(thin_desk),
            "features not clipped": lambda: linear(long_features),
        },
    ),
    "desk, halves": (lambda: linear(split=True), {"half the variance": lambda: linear(thin_desk, split=True)}),
    "desk, the paper's targets": (
        lambda: linear(variant="paper"),
        {"half the variance": lambda: linear(thin_desk, variant="paper")},
    ),
    "one-shot": (
        lambda: linear(variant="one_shot"),
        {"half the variance": lambda: linear(thin_one_shot, variant="one_shot")},
    ),
    "lq moments": (
        lambda: lq_attack(LQ),
        {
            "half the variance": lambda: lq_attack(LQ, thin_lq),
            "states not clipped": lambda: lq_attack(LQ, unclipped_lq),
        },
    ),
    "tree counter": (
        lambda: counter("plain"),
        {
            "half the variance": lambda: counter("plain", variances=half("plain")),
            "natural-log levels": lambda: counter("plain", variances=natural_levels()),
            "redrawn node noise": lambda: counter("plain", build=lambda n, lanes: Redrawn(n, lanes, "plain")),
            "messages not clipped": lambda: counter("plain", integers=uncut),
        },
    ),
    "bottom-up counter": (
        lambda: counter("bottom-up"),
        {"a quarter of the variance": lambda: counter("bottom-up", variances=_quarter("bottom-up"))},
    ),
    "local messages": (
        lambda: counter("local"),
        {
            "half the variance": lambda: counter("local", variances=half("local")),
            "messages not clipped": lambda: counter("local", integers=uncut),
        },
    ),
}


def _quarter(kind) -> Variances:
    v = half(kind)
    return Variances(*(tuple(x // 2 for x in lane) for lane in (v.diagonal, v.above, v.target)))
