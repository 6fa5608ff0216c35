"""Groups of states, pooled shares and gains, against worlds whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.agents.one_step import Answer, Constants, one_step, shrink
from pipeline.agents.one_step_pooling import group_states, pooled_shares, pooled_step


def world(seed, sd, L=120, A=5, groups=12, people=60_000):
    """A log in which actions gain by group, and a little by state; noisy answers by state and by group, and truth."""
    rng = np.random.default_rng(seed)
    group = np.arange(L) % groups
    share = rng.dirichlet(np.full(A, 2.0), groups)[group]
    gain = rng.normal(0, 0.06, (groups, A))[group] + rng.normal(0, 0.01, (L, A))
    gain -= (share * gain).sum(1, keepdims=True)
    visits = rng.dirichlet(np.full(L, 5.0)) * people
    rows = visits[:, None] * share

    def noisy(x):
        return x + rng.normal(0, sd, x.shape)

    fine = Answer(noisy(rows)[None], noisy(rows * gain)[None], sd)
    whole = np.zeros((2, groups, A))
    np.add.at(whole, (slice(None), group), np.stack([rows, rows * gain]))
    coarse = Answer(noisy(whole[0]), noisy(whole[1]), sd)
    return fine, coarse, group, noisy(visits), visits, share, gain


def worth(policy, visits, gain):
    return float(visits @ (policy.probabilities[0] * gain).sum(1)) / visits.sum()


def test_groups_recover_what_states_alone_lose_in_noise():
    pooled, alone, best = [], [], []
    for seed in range(8):
        fine, coarse, group, noisy, visits, _, gain = world(seed, 60.0)
        allowed = np.ones(gain.shape, dtype=bool)
        plan = pooled_step(fine, coarse, group, noisy, 1.0, 2, allowed, Constants(1.0, 1.0, 0.1))
        pooled.append(worth(plan.policy, visits, gain))
        alone.append(worth(one_step(fine, 1.0, 2, allowed, None, Constants(0.5, 3.0, 0.1)).policy, visits, gain))
        best.append(float(visits @ gain.max(1)) / visits.sum())
    assert np.mean(pooled) > 1.5 * np.mean(alone)
    assert np.mean(pooled) > 0.5 * np.mean(best)


def test_noise_alone_recommends_next_to_nothing():
    rng, (L, A, groups) = np.random.default_rng(5), (100, 4, 10)
    fine, coarse = (Answer(rng.normal(200, 40, s), rng.normal(0, 40, s), 40.0) for s in ((1, L, A), (groups, A)))
    coarse = Answer(coarse.rows + 1800, coarse.targets, 40.0)
    visits = np.full(L, 800.0)
    plan = pooled_step(fine, coarse, np.arange(L) % groups, visits, 1.0, 3, np.ones((L, A), dtype=bool), Constants(1.0))
    # a raw mean is off by .2
    assert np.nanmax(plan.advantage) < 0.03


def test_vetoes_floor_and_support_hold_for_pooled_states_too():
    fine, coarse, group, noisy, _, _, gain = world(3, 5.0)
    allowed = np.ones(gain.shape, dtype=bool)
    allowed[:, 0] = False
    plan = pooled_step(fine, coarse, group, noisy, 1.0, 1, allowed, Constants(1.0, 0.5, 0.3))
    p, n = pooled_shares(fine, noisy, group, 12)
    states, actions = np.nonzero(plan.policy.probabilities[0])
    assert len(states) and (actions != 0).all() and (p[states, actions] >= 0.3).all()
    assert np.isnan(plan.advantage[0][(p < 0.3) | (n <= 10)]).all()
    hidden = pooled_step(fine, coarse, group, noisy, 1.0, 1, allowed, Constants(1.0, 1e6, 0.1))
    assert hidden.policy.abstains.all()


def test_pooled_shares_are_nearer_than_raw_ones_and_precise_ones_stay():
    for sd, nearer in ((60.0, 0.6), (0.5, 1.05)):
        fine, _, group, noisy, visits, share, _ = world(4, sd)
        p, n = pooled_shares(fine, noisy, group, 12)
        raw = fine.rows[0] / np.maximum(noisy, 10.0)[:, None]
        weight = visits[:, None] * np.ones_like(share)

        def off(x, weight=weight, share=share):
            return float(np.sqrt(np.average((x - share) ** 2, weights=weight)))

        assert off(p) < nearer * off(raw) + 1e-3
        assert n.shape == share.shape and (n >= 0).all()


@pytest.mark.parametrize("told", [True, False])
def test_every_state_is_in_a_group_and_groups_are_alike(told):
    rng, L = np.random.default_rng(6), 90
    kind = np.arange(L) % 3
    values = (1000 * kind + rng.integers(0, 50, L)).astype(np.int64)
    features = (10.0 * np.eye(3)[kind] + rng.normal(0, 0.1, (L, 3))) if told else None
    found = group_states(features, values, np.full(L, 100.0), 3)
    assert found.dtype == np.int64 and found.shape == (L,)
    assert len({(a, b) for a, b in zip(found.tolist(), kind.tolist(), strict=True)}) == 3
    again = group_states(features, values, np.full(L, 100.0), 3)
    assert (again == found).all()
    # noise may leave no state any row, and states may be alike
    assert group_states(None, values * 0, np.full(L, -50.0), 4).max() == 3
    assert group_states(np.zeros((L, 2)), values, np.full(L, 1.0), 4).max() <= 3


def test_a_measurement_that_is_alone_in_its_group_says_what_its_group_is():
    """Four shares, one of them of another action: once it was shrunk away though it stood 20 deviations out."""
    x, group = np.array([0.03, 0.016, 0.06, 0.116]), np.array([0, 0, 0, 1])
    noise, f = np.full(4, 2.5e-5), np.zeros((4, 0))
    assert np.abs(shrink(x, noise * 0, noise, group, f, own=True).mean - x).max() < 0.01
