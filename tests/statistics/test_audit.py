"""A distinguishing attack on the shipped release path (privacy.md §12.5): right noise passes, half of it is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pipeline.declaration.card import Card
from pipeline.privacy.noise import OsNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.private_sum import PrivateSum
from tests.conftest import card_dict

RUNS, LEVEL = 3000, 1e-4


def worst_pair(card: Card) -> tuple[ExactSums, ExactSums]:
    """A person in one cell at every step with the largest reward, or in another with the largest too."""
    H, L, A, S = card.domain.horizon, 2, 2, 3
    shapes = {"n_0": (L,), "n_sa": (H, L, A), "n_sas": (H, L, A, S), "r_sa": (H, L, A)}
    sides = []
    for a, sign in ((0, 1), (0, -1)):
        t = {name: np.zeros(shape, np.int64) for name, shape in shapes.items()}
        state = 0 if sign > 0 else 1
        t["n_0"][state] = 1
        t["n_sa"][:, state, a] = 1
        t["n_sas"][:, state, a, 0] = 1
        t["r_sa"][:, 0, 0] = sign
        sides.append(ExactSums(card.name, card.kind, "per_step", t))
    return sides[0], sides[1]


def lower_bound(shipped: PrivateSum, calibrated: PrivateSum, pair: tuple[ExactSums, ExactSums]) -> float:
    """Lower bound on rho at confidence 1 - 2 LEVEL: Clopper-Pearson on both error rates, Gaussian shape."""
    sigma = {m.table: m.standard_deviation for m in calibrated.mechanisms}
    shift = {t: (pair[0].tables[t] - pair[1].tables[t]) / s**2 for t, s in sigma.items()}
    middle = sum(float((shift[t] * (pair[0].tables[t] + pair[1].tables[t])).sum()) / 2 for t in sigma)

    def positives(counts: ExactSums) -> int:
        drawn = (shipped.draw(counts, OsNoise()).tables for _ in range(RUNS))
        return sum(sum(float((shift[t] * d[t]).sum()) for t in sigma) > middle for d in drawn)

    hit, slip = positives(pair[0]), positives(pair[1])
    tpr = stats.beta.ppf(LEVEL, hit, RUNS - hit + 1)
    fpr = stats.beta.ppf(1 - LEVEL, slip + 1, RUNS - slip)
    return max(0.0, float(stats.norm.ppf(tpr) - stats.norm.ppf(fpr))) ** 2 / 2


def setting(tables: str) -> tuple[PrivateSum, tuple[ExactSums, ExactSums]]:
    card = Card.model_validate(card_dict())
    return count_sum(card, Ask(rho=1.0, tables=tables)), worst_pair(card)


@pytest.mark.slow
@pytest.mark.parametrize("tables", ["one_table", "two_tables"])
def test_the_shipped_release_loses_no_more_than_it_claims_and_the_attack_is_not_blind(tables):
    right, pair = setting(tables)
    bound = lower_bound(right, right, pair)
    claimed = float(sum(m.rho for m in right.mechanisms))
    assert 0.6 * claimed < bound <= claimed


MUTANTS = {
    "half the variance": lambda m: replace(m, variance=max(1, m.variance // 2)),
    "one family without enough noise": lambda m: replace(m, variance=1) if m.table == "r_sa" else m,
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_release_with_too_little_noise_is_caught(mutant):
    right, pair = setting("one_table")
    broken = PrivateSum(right.layout, tuple(MUTANTS[mutant](m) for m in right.mechanisms))
    assert lower_bound(broken, broken, pair) > float(sum(m.rho for m in right.mechanisms))
