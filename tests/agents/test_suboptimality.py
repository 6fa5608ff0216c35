"""What the best policy is worth that a release speaks about: it holds, is near, and is exact without noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.agents.suboptimality import best_supported, rows_of
from pipeline.declaration.card import task_of
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import optimal_values
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.planning_counts import prepare, private_counts
from tests.agents.test_apvi import sample, world
from tests.campaigns.one_step_worlds import MadeUp
from tests.campaigns.suboptimality import once

# of no figure: a world whose outcome comes at the end, one that pays at each step, and one with tables by step
WORLDS = {
    "end": MadeUp(91, 30, 4, 8, told=False),
    "dense": MadeUp(92, 12, 3, 6, dense=True, told=False),
    "by step": MadeUp(93, 8, 3, 5, told=False, drift=0.5, turns=True, per_step=True),
}


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_said_holds_and_is_near(name):
    logged = WORLDS[name](20_000)
    found = [once(logged, seed, 1.0) for seed in range(2)]
    assert all(f.end_holds and f.holds for f in found)
    assert max(f.said.upper for f in found if f.said) <= 0.15 * found[0].span
    assert all(f.said is not None and f.said.over == "supported_actions" for f in found)


def test_without_judges_the_models_lower_end_stands_and_nothing_is_guaranteed():
    found = once(WORLDS["end"](20_000), 1, 1.0, judged=False)
    assert found.said is not None and found.said.status == "estimate"
    assert found.holds and found.said.upper >= found.upper - found.value.lower


@pytest.mark.parametrize("tables", ["one_table", pytest.param("two_tables", marks=pytest.mark.slow)])
def test_the_end_holds_where_nothing_is_to_be_chosen_and_not_where_noise_is_ignored(tables):
    """Of fresh counts with fresh noise; *deaf*: as if there were no noise."""
    # one action: no choice lifts the end, which must hold by its deviation alone, in 39 of 40
    runs, (mdp, card) = 100, world(5, A=1)
    summed, best = count_sum(card, Ask(rho=1e-5, tables=tables)), float(mdp.start @ optimal_values(mdp)[1][0])
    held = deaf = 0
    for seed in range(runs):
        counts = sample(mdp, card, 300_000, np.random.default_rng(seed))
        drawn = private_counts(summed.draw(counts, SeededNoise(np.random.SeedSequence(seed))), card)
        planned = prepare(drawn, card, "practical").counts
        rows = rows_of(planned, None)
        held += best_supported(rows, planned, task_of(card)) >= best
        deaf += best_supported(replace(rows, sd=0.0, paid_sd=0.0), planned, task_of(card)) >= best
    assert held >= 0.95 * runs
    assert deaf < 0.85 * runs


def test_exact_counts_give_the_best_value_of_what_was_counted(constants):
    constants(deviations=0.0)
    mdp, card = world(6)
    counts = sample(mdp, card, 3_000, np.random.default_rng(1))
    planned = private_counts(count_sum(card, Ask()).draw(counts, SeededNoise(np.random.SeedSequence(1))), card)
    n = counts.tables["n_sas"].astype(float)
    H, L, A, S = n.shape
    P, r = np.zeros((H, S, A, S)), np.zeros((H, S, A))
    P[:, L:] = np.eye(S)[L:, None]
    P[:, :L] = n / n.sum(-1, keepdims=True)
    # rewards of the lattice stand as their distance from its middle, in half units
    r[:, :L] = 0.5 + counts.tables["r_sa"] / 2 / n.sum(-1)
    start = n[0].sum((1, 2)) / n[0].sum()
    best = optimal_values(TabularMDP(P, r, np.append(start, np.zeros(S - L))))[1][0]
    found = best_supported(rows_of(planned, None), planned, task_of(card))
    assert found == pytest.approx(float(start @ best[:L]), abs=1e-9)
