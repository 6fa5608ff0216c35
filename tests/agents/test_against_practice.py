"""Where a policy differs from practice: a naive reference, and widths that do and do not tell the two apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pipeline.agents.against_behaviour import against_practice, as_practised
from pipeline.agents.apvi import apvi, model, policy_bounds
from pipeline.agents.pessimism import Preset, constants
from pipeline.declaration.card import task_of
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.planning_counts import private_counts
from tests.agents.test_apvi import sample, world


def released(n: int, seed: int = 0, preset: Preset = "practical"):
    """Model and policy of an exact log of ``n`` episodes, and what its practice (uniform choice) looks like."""
    mdp, card = world(seed)
    counts = sample(mdp, card, n, np.random.default_rng(seed))
    found, task = private_counts(count_sum(card, Ask()).draw(counts, SeededNoise(seed)), card), task_of(card)
    chosen = constants(preset, 36)
    plan = apvi(found, task, chosen, np.random.default_rng(0))
    return model(found, task, chosen), plan.policy


def naive(m, policy, usual):
    """Loops over every state, action and successor."""
    H, L, A = policy.probabilities.shape
    V = np.zeros((H + 1, m.P.shape[-1]))
    gain = np.zeros((H, L))
    for h in reversed(range(H)):
        for s in range(L):
            Q = [m.r[h, s, a] + sum(m.P[h, s, a, t] * V[h + 1, t] for t in range(V.shape[1])) for a in range(A)]
            V[h, s] = sum(policy.probabilities[h, s, a] * Q[a] for a in range(A))
            gain[h, s] = V[h, s] - sum(usual[h, s, a] * Q[a] for a in range(A))
    return gain


def test_gain_is_the_policy_less_one_step_of_practice():
    m, policy = released(4000)
    usual = np.random.default_rng(1).dirichlet(np.ones(3), size=(4, 3))
    found = against_practice(m, policy, usual, policy_bounds(m, policy))
    expected = np.where(policy.abstains, np.nan, naive(m, policy, usual))
    assert found.gain == pytest.approx(expected, nan_ok=True, abs=1e-12)
    chosen = np.take_along_axis(usual, policy.probabilities.argmax(-1)[..., None], -1)[..., 0]
    agreed = np.where(policy.abstains, np.nan, chosen)
    assert found.followed == pytest.approx(agreed, nan_ok=True)


def test_a_policy_is_never_told_apart_from_itself():
    m, policy = released(10**6)
    found = against_practice(m, policy, policy.probabilities, policy_bounds(m, policy))
    known = ~policy.abstains
    assert found.gain[known] == pytest.approx(0.0, abs=1e-12)
    assert found.followed[known] == pytest.approx(1.0)
    assert not found.apart.any()


def test_many_people_tell_good_from_bad_and_few_do_not():
    shares = []
    for n in (300, 10**7):
        # the bounds that recipes ship; what 300 visits never saw, `practical` holds for impossible
        m, policy = released(n, preset="tail")
        # the worst a practice could be: never what the policy says
        others = (1 - policy.probabilities) / 2
        shares.append(against_practice(m, policy, others, policy_bounds(m, policy)).apart.mean())
    # in 60 worlds and logs 0 and 1 each time
    assert shares[0] == 0 and shares[1] > 0.5


def test_apart_means_that_the_intervals_of_both_first_steps_do_not_touch():
    m, policy = released(30_000)
    usual = np.full((4, 3, 3), 1 / 3)
    lower, upper, _ = policy_bounds(m, policy)
    found = against_practice(m, policy, usual, policy_bounds(m, policy))
    for h in range(4):
        of_practice = (usual[h] * m.backup(h, upper[h + 1], sign=+1)[1]).sum(-1)
        assert (found.apart[h] == ((lower[h, :3] > of_practice) & ~policy.abstains[h])).all()
    assert found.apart.any() and not found.apart.all()


def test_where_either_is_silent_nothing_is_compared():
    m, policy = released(4000)
    usual = np.full((1, 3, 3), 1 / 3)
    usual[0, 1] = np.nan
    silent = Policy(policy.probabilities, np.arange(12).reshape(4, 3) % 3 == 2)
    found = against_practice(m, silent, usual, policy_bounds(m, silent))
    for table in (found.gain, found.followed):
        assert np.isnan(table[:, 1:]).all() and not np.isnan(table[:, 0]).any()
    assert not found.apart[:, 1:].any()


def test_practice_as_a_policy_keeps_shares_and_fills_gaps_with_allowed_actions():
    allowed = np.array([[True, True, False], [True, True, True]])
    usual = np.array([[[np.nan] * 3, [0.2, 0.3, 0.5]]])
    found = as_practised(usual, allowed, 2)
    assert found.probabilities[1].tolist() == [[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]
    assert math.isclose(found.probabilities.sum(), 4.0) and not found.abstains.any()
