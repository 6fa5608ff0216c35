"""Releases of logs, and broken twins of them applied on the release path."""

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from unittest.mock import patch

import numpy as np

import pipeline.logs.one_step_sums as sums
import pipeline.statistics.private_sum as private_sum
from pipeline.audits.attack import AuditTarget, Silence
from pipeline.audits.tables import (
    Person,
    counts_target,
    crossing_target,
    draw_answers,
    draw_once,
    gate_target,
    linear_target,
    lq_target,
    rows_target,
    scores_target,
)
from pipeline.declaration.card import Card
from pipeline.logs.parts import evaluates
from pipeline.mdp.features import FeatureMap
from pipeline.mdp.rollout import LqBatch
from pipeline.privacy.continual import continual
from pipeline.privacy.noise import FastOsNoise, NoiseSource
from pipeline.privacy.release import Mechanism, Release
from pipeline.statistics import linear_sums
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.held_out import parts_cost
from pipeline.statistics.layout import GateLayout
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.lq import LqSums, draw_lq, lq_sum
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.one_step_layout import FeatureLayout, FollowLayout
from pipeline.statistics.private_sum import PrivateSum
from tests.audits.broken import FOUR_THIRDS, THREE, Make, Repeating, Thinner, Twin, drawing_sum, releasing
from tests.conftest import card_dict

LQ = lq_sum(LqSums(2, 2, 2, episodes=50), Fraction(1))
EVEN_LQ = lq_sum(LqSums(2, 2, 2, episodes=50, gram_share=Fraction(3, 4)), Fraction(1))
NIGHTS = 8


def card(m: int = 1, recurs: str = "never") -> Card:
    unit = {"user": "user_id", "episodes_per_user": m, "users_public": 100, "recurs": recurs}
    return Card.model_validate(card_dict(unit=unit))


def fast(summed: PrivateSum) -> PrivateSum:
    """With the fast sampler's share of delta, which it must be listed with."""
    return summed.with_slack(FastOsNoise(), 20.0)


def counts(ask: Ask, broken: Callable[[Mechanism], Mechanism] | None = None, m: int = 1) -> AuditTarget:
    shipped = fast(count_sum(card(m), ask))
    return breaking(counts_target(shipped), shipped, broken)


def breaking(target: AuditTarget, shipped: PrivateSum, broken: Callable[[Mechanism], Mechanism] | None) -> AuditTarget:
    if broken is None:
        return target
    return drawing_sum(target, replace(shipped, mechanisms=tuple(broken(x) for x in shipped.mechanisms)))


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


def features() -> FeatureMap:
    f = np.zeros((3, 2, 3), dtype=np.int64)
    f[0, 0], f[0, 1], f[1, 0], f[2, 1] = (4, 0, 0), (0, 4, 0), (-4, 0, 0), (2, 2, 1)
    return FeatureMap(f, 16, Fraction(1, 16))


def linear(drawn=None, gram=linear_sums.GRAM_SHARE, **terms) -> AuditTarget:
    domain = LinearDomain("tiny", "synthetic", 2, 100, can_end=True)
    plan = LinearPlan(domain, LinearTerms(Ask(Fraction(1)), **terms), features())
    with patch.object(linear_sums, "GRAM_SHARE", gram):
        return linear_target(plan) if drawn is None else releasing(linear_target(plan), partial(drawn, plan))


def thin() -> Thinner:
    return Thinner(FastOsNoise(), 0.5)


# most of the budget: the worst pair is then one that Gram matrices tell apart
MOSTLY_GRAM = Fraction(3, 4)


def add_remove(release, gram=linear_sums.GRAM_SHARE):
    """Gram matrices at a share of the budget; their noise hides adding a person: half of what hides replacing one."""

    def drawn(plan, person, noise) -> Release:
        right = private_sum.symmetric_noise
        with (
            patch.object(linear_sums, "GRAM_SHARE", gram),
            patch.object(private_sum, "symmetric_noise", lambda source, *rest: right(Thinner(source, 0.5), *rest)),
        ):
            return release(plan, person, noise)

    return drawn


def long_features(plan: LinearPlan, person: Person, noise: NoiseSource) -> Release:
    """Rows of twice the declared length that nobody clips; scales as declared."""
    twice = FeatureMap(plan.features.integers * 2, plan.features.square * 4, plan.features.unit_squared)
    wide = replace(plan, features=twice)
    loud = draw_answers(wide, person, Thinner(noise, 1 / 16))
    return replace(loud, joint_rho=None)


@cache
def lq_moments(*, even: bool = False) -> AuditTarget:
    return lq_target(EVEN_LQ if even else LQ)


def shipped_lq(summed: PrivateSum, person: LqBatch, noise: NoiseSource) -> Release:
    return draw_lq(summed, [person], noise)


def unclipped_lq(summed: PrivateSum, person: LqBatch, noise: NoiseSource) -> Release:
    with patch.object(LqSums, "rows", _whole_rows):
        return shipped_lq(summed, person, noise)


def _whole_rows(layout: LqSums, batch: LqBatch):
    H, q = layout.horizon, layout.steps
    x, u, y = (np.trunc(v * q) for v in (batch.states[:, :H], batch.controls[:, :H], batch.states[:, 1 : H + 1]))
    x, u, y = (v.reshape(-1, v.shape[2]) for v in (x, u, y))
    return np.hstack([x, u]), y


def nights(kind: str, share: float = 1.0, m: int = 1, made: type[PrivateSum] = PrivateSum) -> AuditTarget:
    chosen = card(m, "never" if m == 1 else "capped")
    shipped = fast(count_sum(chosen, Ask(rho=1.0, counter=continual(kind, NIGHTS))))
    really = tuple(replace(x, variance=math.ceil(x.variance * share)) for x in shipped.mechanisms)
    return drawing_sum(counts_target(shipped), made(shipped.layout, really, shipped.time))


class Redrawn(PrivateSum):
    """Whoever looks three times sees three draws."""

    def draw_rows(self, *asked) -> np.ndarray:
        return np.rint(np.mean([super(Redrawn, self).draw_rows(*asked) for _ in range(3)], axis=0)).astype(np.int64)


class Shared(PrivateSum):
    """One draw for all rows of a night: each has the noise that it lists, and none has noise of its own."""

    def draw_rows(self, rows, leaf, noise, data) -> np.ndarray:
        drawn = [super(Shared, self).draw_rows([row], leaf, noise, data)[0] for row in rows]
        exact = [super(Shared, self).draw_rows([row], leaf, Silence(), data)[0] for row in rows]
        return np.array(exact) + (drawn[0] - exact[0])


def gate(rules: int, broken: Callable[[Mechanism], Mechanism] | None = None, counted: type = GateLayout) -> AuditTarget:
    names = ("gap", "repeat", "unknown_label", "bad_reward", "over_cap")[:rules]
    (table,) = GateLayout("tiny", "real", names).tables
    shipped = fast(PrivateSum(counted("tiny", "real", names), (table.mechanism(2),)))
    return breaking(gate_target(shipped), shipped, broken)


class UnderEachRule(GateLayout):
    """Priced as if a person counted once, and counted under every rule broken."""

    once = False


def moments(count: int) -> PrivateSum:
    return fast(MomentLayout("tiny", "synthetic", "per_step", count).summed(Fraction(1)))


def scores(broken: Callable[[Mechanism], Mechanism] | None = None, really: int = 4) -> AuditTarget:
    shipped = moments(4)
    if broken is not None:
        return breaking(scores_target(shipped), shipped, broken)
    # as many scores as are charged, or more
    pairs = zip(shipped.mechanisms, moments(really).mechanisms, strict=True)
    drawn = tuple(replace(mine, variance=theirs.variance) for mine, theirs in pairs)
    return drawing_sum(scores_target(shipped), replace(shipped, mechanisms=drawn))


def asked(layout: type, share: float = 1.0) -> AuditTarget:
    """A stage that measures a one-step policy, of people with more rows than their weights allow."""
    states = {"column": "state", "labels": list("abcdef"), "ends": ["end"]}
    domain = {"horizon": 12, "dynamics": "stationary", "states": states, "actions": {"column": "action", "labels": 2}}
    shipped = fast(layout(Card.model_validate(card_dict(domain=domain))).summed(Fraction(1)))
    # even, as symmetric tables want it
    less = tuple(replace(m, variance=2 * int(m.variance * share / 2)) for m in shipped.mechanisms)
    return drawing_sum(rows_target(shipped, 12.0), replace(shipped, mechanisms=less))


def all_rows(chooses: str, layout: type) -> AuditTarget:
    """People of whom all rows enter, whatever the function of this name would choose."""
    with patch.object(sums, chooses, lambda user, *_: np.ones(len(user), dtype=bool)):
        return asked(layout)


def crossing(share: Fraction = Fraction(1), cap: float = 1.0) -> AuditTarget:
    """People without whom nobody knows how many there are: joining costs more than half of being replaced."""
    # with a total, whoever joins moves half of what a replaced person does; a few percent more cross
    domain = card_dict()["domain"] | {"dynamics": "stationary", "start": {"x": 0.5, "y": 0.5}}
    declared = Card.model_validate(card_dict(domain=domain, reward={"range": [0.0, 1.0], "steps": 1, "total": 2.0}))
    counts, summed = fast(count_sum(declared, Ask(rho=1.0))), moments(1)
    costs = [(s.rho, s.layout.cost(s.rates, "add_remove")) for s in (counts, summed)]
    claimed = parts_cost(*costs) if cap == 1.0 else costs[0][1]
    less = tuple(replace(m, variance=max(1, int(m.variance * share))) for m in summed.mechanisms)
    return crossing_target(
        counts, replace(summed, mechanisms=less), claimed, lambda user: evaluates([user], Fraction(1, 2), bytes(32))[0]
    )


OFFLINE: dict[str, tuple[Make, dict[str, Twin]]] = {
    "counts, Gaussian, one table": (
        lambda: counts(Ask(rho=1.0)),
        {
            "half the variance": Twin(lambda: counts(Ask(rho=1.0), halved)),
            "one family forgotten": Twin(lambda: counts(Ask(rho=1.0), forgotten)),
            "seeded noise": Twin(lambda: counts(Ask(rho=1.0)), noise=Repeating),
        },
    ),
    "counts, Gaussian, two tables": (
        lambda: counts(Ask(rho=1.0, tables="two_tables")),
        {"half the variance": Twin(lambda: counts(Ask(rho=1.0, tables="two_tables"), halved))},
    ),
    "counts, Gaussian, three episodes a person": (
        lambda: counts(Ask(rho=1.0), m=3),
        {"m instead of m²": Twin(lambda: counts(Ask(rho=1.0), times_m, m=3))},
    ),
    "gate, two rules": (lambda: gate(2), {"half the variance": Twin(lambda: gate(2, halved))}),
    "gate, five rules": (lambda: gate(5), {"a person under each rule": Twin(lambda: gate(5, counted=UnderEachRule))}),
    "scores of people": (
        scores,
        {
            "half the variance": Twin(lambda: scores(halved)),
            "one score charged, four summed": Twin(lambda: scores(really=1)),
            "seeded noise": Twin(scores, noise=Repeating),
        },
    ),
    "rows that follow": (
        lambda: asked(FollowLayout),
        {
            "half the variance": Twin(lambda: asked(FollowLayout, 0.5)),
            "every row of a cell": Twin(lambda: all_rows("first_rows", FollowLayout)),
        },
    ),
    "moments of features": (
        lambda: asked(FeatureLayout),
        {
            # the worst pair spends .74 of what is claimed: of 3000 draws one run in 1,600 would miss it
            "half the variance": Twin(lambda: asked(FeatureLayout, 0.5), 6000),
            "weights not capped": Twin(lambda: all_rows("enough_left", FeatureLayout)),
        },
    ),
    "people across the parts": (
        crossing,
        {
            "half the variance": Twin(lambda: crossing(Fraction(1, 4))),
            "only one part is charged": Twin(lambda: crossing(cap=0.5)),
        },
    ),
    "counts, Laplace": (
        lambda: counts(Ask(epsilon=1.0)),
        {"half the scale": Twin(lambda: counts(Ask(epsilon=1.0), halved))},
    ),
    "interactive, centred": (
        linear,
        {
            "half the variance": Twin(linear, 20, thin),
            "add/remove Gram": Twin(lambda: linear(add_remove(draw_answers, MOSTLY_GRAM), MOSTLY_GRAM), 2000),
            "features not clipped": Twin(lambda: linear(long_features), 150),
        },
    ),
    "interactive, halves": (
        lambda: linear(halves=True),
        {"half the variance": Twin(lambda: linear(halves=True), 20, thin)},
    ),
    "interactive, the paper's targets": (
        lambda: linear(variant="paper"),
        {"half the variance": Twin(lambda: linear(variant="paper"), 20, thin)},
    ),
    "one-shot": (
        lambda: linear(variant="one_shot"),
        {
            "half the variance": Twin(lambda: linear(variant="one_shot"), 20, thin),
            "add/remove Gram": Twin(
                lambda: linear(add_remove(draw_once, MOSTLY_GRAM), MOSTLY_GRAM, variant="one_shot"), 2000
            ),
        },
    ),
    "lq moments": (
        lq_moments,
        {
            "half the variance": Twin(lq_moments, 20, thin),
            "add/remove Gram": Twin(
                lambda: releasing(lq_moments(even=True), partial(add_remove(shipped_lq), EVEN_LQ)), 2000
            ),
            "states not clipped": Twin(lambda: releasing(lq_moments(), partial(unclipped_lq, LQ)), 500),
            "seeded noise": Twin(lq_moments, 20, Repeating),
        },
    ),
    "nightly tree": (
        lambda: nights("tree"),
        {
            "half the variance": Twin(lambda: nights("tree", 0.5)),
            "a level too few": Twin(lambda: nights("tree", 0.75), FOUR_THIRDS),
            "redrawn row noise": Twin(lambda: nights("tree", made=Redrawn), THREE),
            "one draw shared by all rows of a night": Twin(lambda: nights("tree", made=Shared)),
            "seeded noise": Twin(lambda: nights("tree"), noise=Repeating),
        },
    ),
    "nightly Toeplitz": (
        lambda: nights("toeplitz"),
        {
            "half the variance": Twin(lambda: nights("toeplitz", 0.5)),
            "redrawn row noise": Twin(lambda: nights("toeplitz", made=Redrawn), THREE),
        },
    ),
    "nightly tree, three episodes a person": (
        lambda: nights("tree", m=3),
        {"m instead of m²": Twin(lambda: nights("tree", 1 / 3, m=3))},
    ),
}


# the same releases made whole, one at a time
WHOLE: dict[str, Make] = {
    "one-shot": lambda: linear(draw_once, variant="one_shot"),
    "lq moments": lambda: releasing(lq_moments(), partial(shipped_lq, LQ)),
}
