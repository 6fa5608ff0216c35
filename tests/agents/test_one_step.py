"""One step of improvement: shrinkage, pooling, confirmation, values and weights, against what they ought to be."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pipeline.agents import one_step
from pipeline.agents.one_step import Answer, Constants, practice_values, shrink
from pipeline.agents.one_step_pooling import group_states, pooled_shares, pooled_step
from pipeline.agents.one_step_value import (
    Moments,
    Proposal,
    Seen,
    confirm,
    features,
    first_values,
    fit,
    placebo_error,
    spread,
)
from tests.conftest import slow


def measured(seed=0, n=60, d=2, groups=3):
    rng = np.random.default_rng(seed)
    features, group = rng.normal(size=(n, d)), rng.integers(0, groups, n)
    truth = rng.normal(0, 0.3, groups)[group] + features @ rng.normal(0, 0.2, d) + rng.normal(0, 0.1, n)
    variance = rng.uniform(0.01, 0.1, n)
    x = truth + rng.normal(size=n) * np.sqrt(variance)
    unseen = rng.random(n) < 0.2
    return np.where(unseen, 0.0, x), np.where(unseen, np.inf, variance), group, features, truth


def dense(levels, x, variance, group, features):
    """Covariance of all measured x, written out entry by entry."""
    seen = np.flatnonzero(np.isfinite(variance))
    square = np.average(x[seen] ** 2, weights=1 / variance[seen])
    a, b, t2 = 4.0 * square * 0.25 ** np.array(levels[:3]) / np.array([1, features.shape[1], 1])
    variance = (variance - 0.005) * 0.25 ** levels[3] + 0.005
    prior = np.array(
        [[(group[i] == group[j]) * (a + b * (features[i] @ features[j])) for j in range(len(x))] for i in range(len(x))]
    )
    return seen, prior, prior[np.ix_(seen, seen)] + np.diag(variance[seen] + t2), t2


def test_likelihood_and_expectations_are_those_of_dense_normal_laws():
    x, variance, group, features, _ = measured()
    F = np.column_stack([np.ones(len(x)), features])
    square = float(np.average(x[np.isfinite(variance)] ** 2, weights=1 / variance[np.isfinite(variance)]))
    groups = one_step._grouped(x, F, group)
    tried, told = [(2, 4, 2, 0), (0, 1, 5, 1), (6, 3, 0, 0)], []
    model = one_step._Normal(variance - 0.005, np.full(len(x), 0.005), groups, 3, square)
    found = model.likelihood(np.array(tried))
    for levels in tried:
        seen, prior, covariance, _ = dense(levels, x, variance, group, features)
        told.append(multivariate_normal(np.zeros(len(seen)), covariance).logpdf(x[seen]))
        mean, doubt = model.expected(np.array([levels]))
        for i in range(len(x)):
            others = np.array([k for k, s in enumerate(seen) if s != i])
            gain = np.linalg.solve(covariance[np.ix_(others, others)], prior[seen[others], i])
            assert mean[i] == pytest.approx(gain @ x[seen[others]], abs=1e-10)
            assert doubt[i] == pytest.approx(prior[i, i] - gain @ prior[seen[others], i], abs=1e-10)
    # up to one constant
    assert np.diff(found) == pytest.approx(np.diff(told), abs=1e-8)


def test_the_posterior_is_closer_than_the_measurements_and_knows_how_close():
    errors, raw, covered = [], [], []
    for seed in range(20):
        x, variance, group, features, truth = measured(seed, n=200)
        seen, found = np.isfinite(variance), shrink(x, variance, np.zeros(len(x)), group, features)
        errors.append(np.mean((found.mean - truth)[seen] ** 2))
        raw.append(np.mean((x - truth)[seen] ** 2))
        covered.append(np.mean(np.abs(found.mean - truth)[seen] < 2 * found.sd[seen]))
    assert np.mean(errors) < 0.35 * np.mean(raw)
    assert 0.8 < np.mean(covered) < 0.99


def test_noise_alone_is_shrunk_to_nothing_and_precise_measurements_stay():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=300)
    alone = np.zeros(300, dtype=np.int64), np.zeros((300, 0))
    still = shrink(noise, np.zeros(300), np.ones(300), *alone)
    # a few of 300 stay outliers to a mixture that was fitted to the same noise: at most .22 in 300 other seeds
    assert np.sqrt((still.mean**2).mean()) < 0.3 < 0.9 < noise.std()
    sharp = shrink(noise, np.full(300, 1e-8), np.zeros(300), *alone)
    assert np.abs(sharp.mean - noise).max() < 0.01
    nothing = shrink(noise, np.full(300, np.inf), np.zeros(300), *alone)
    assert not nothing.mean.any() and np.isinf(nothing.sd).all()


def test_values_of_practice_follow_returns_and_stay_in_their_range():
    rng = np.random.default_rng(2)
    features = rng.normal(size=(40, 2))
    value = 1 / (1 + np.exp(-features @ [0.8, -0.5]))
    rows = rng.integers(50, 5000, 40).astype(float)
    targets = 2 * rng.binomial(rows.astype(int), value) - rows
    found = practice_values(Answer(rows[None], targets[None], 0.0), np.array([[0.0, 3.0]]), features)
    assert np.abs(found[0] / 3 - value).max() < 0.08
    # a state that nobody saw is told by its features
    rows[0] = targets[0] = 0
    found = practice_values(Answer(rows[None], targets[None], 0.0), np.array([[0.0, 3.0]]), features)
    assert abs(found[0, 0] / 3 - value[0]) < 0.15
    silent = practice_values(Answer(np.zeros((1, 4)), np.zeros((1, 4)), 5.0), np.array([[0.0, 3.0]]), None)
    assert (silent == 1.5).all()


def policy_of(rows, mean, constants=None, allowed=None, sd=0.0):
    rows = np.array(rows, dtype=float)[None]
    allowed = np.ones(rows.shape[1:], dtype=bool) if allowed is None else allowed
    told = Answer(rows, rows * np.array(mean)[None], sd)
    return one_step.one_step(told, 1.0, 3, allowed, None, constants or Constants())


def test_what_gains_is_recommended_and_practice_goes_on_elsewhere():
    rows = [[9000, 9000, 9000], [9000, 9000, 9000], [9000, 0, 0], [2, 1, 3]]
    gain = [[-0.2, 0.0, 0.2], [0.3, -0.2, -0.1], [0.0, 0.0, 0.0], [0.9, -0.9, 0.9]]
    plan = policy_of(rows, gain)
    assert plan.policy.abstains[0].tolist() == [False, False, True, True]
    assert plan.policy.probabilities[2, :2].argmax(-1).tolist() == [2, 0]
    assert plan.advantage[0, 0, 2] == pytest.approx(0.2, abs=0.02)
    assert np.isnan(plan.advantage[0, 3]).all()


def test_vetoes_rare_actions_and_rows_within_the_noise_are_never_recommended():
    rows, gain = [[9000, 400, 9000]] * 3, [[-0.1, 0.5, 0.1]] * 3
    assert policy_of(rows, gain).policy.probabilities[0, 0].argmax() == 2
    assert policy_of(rows, gain, Constants(floor=0.0)).policy.probabilities[0, 0].argmax() == 1
    allowed = np.array([[True, False, False]] * 3)
    assert policy_of(rows, gain, Constants(floor=0.0), allowed).policy.abstains.all()
    assert policy_of(rows, gain, sd=4000.0).policy.abstains.all()


def test_a_pessimist_asks_for_more():
    rng = np.random.default_rng(3)
    rows = rng.integers(20, 200, (30, 4)).astype(float)
    mean = rng.normal(0, 0.05, (30, 4))
    calm, shy = (policy_of(rows, mean, Constants(pessimism=k), sd=3.0) for k in (0.0, 5.0))
    assert (calm.policy.probabilities != shy.policy.probabilities).any()
    assert np.nanmin(calm.sd) > 0


def grouped_world(seed, sd, L=120, A=5, groups=12, people=60_000):
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
        fine, coarse, group, noisy, visits, _, gain = grouped_world(seed, 60.0)
        allowed = np.ones(gain.shape, dtype=bool)
        plan = pooled_step(fine, coarse, group, noisy, 1.0, 2, allowed, Constants(1.0, 1.0, 0.1))
        pooled.append(worth(plan.policy, visits, gain))
        single = one_step.one_step(fine, 1.0, 2, allowed, None, Constants(0.5, 3.0, 0.1))
        alone.append(worth(single.policy, visits, gain))
        best.append(float(visits @ gain.max(1)) / visits.sum())
    assert np.mean(pooled) > max(1.5 * np.mean(alone), 0.5 * np.mean(best))


def test_noise_alone_recommends_next_to_nothing():
    rng, (L, A, groups) = np.random.default_rng(5), (100, 4, 10)
    fine, coarse = (Answer(rng.normal(200, 40, s), rng.normal(0, 40, s), 40.0) for s in ((1, L, A), (groups, A)))
    coarse = Answer(coarse.rows + 1800, coarse.targets, 40.0)
    visits = np.full(L, 800.0)
    plan = pooled_step(fine, coarse, np.arange(L) % groups, visits, 1.0, 3, np.ones((L, A), dtype=bool), Constants(1.0))
    # a raw mean is off by .2
    assert np.nanmax(plan.advantage) < 0.03


def test_vetoes_floor_and_support_hold_for_pooled_states_too():
    fine, coarse, group, noisy, _, _, gain = grouped_world(3, 5.0)
    allowed = np.ones(gain.shape, dtype=bool)
    allowed[:, 0] = False
    plan, hidden = (
        pooled_step(fine, coarse, group, noisy, 1.0, 1, allowed, Constants(1.0, *c)) for c in ((0.5, 0.3), (1e6, 0.1))
    )
    p, n = pooled_shares(fine, noisy, group, 12)
    states, actions = np.nonzero(plan.policy.probabilities[0])
    assert len(states) and (actions != 0).all() and (p[states, actions] >= 0.3).all()
    assert np.isnan(plan.advantage[0][(p < 0.3) | (n <= 10)]).all()
    assert hidden.policy.abstains.all()


def test_pooled_shares_are_nearer_than_raw_ones_and_precise_ones_stay():
    for sd, nearer in ((60.0, 0.6), (0.5, 1.05)):
        fine, _, group, noisy, visits, share, _ = grouped_world(4, sd)
        p, n = pooled_shares(fine, noisy, group, 12)
        raw = fine.rows[0] / np.maximum(noisy, 10.0)[:, None]
        off, of_raw = (np.sqrt(np.average(((x - share) ** 2).mean(1), weights=visits)) for x in (p, raw))
        assert off < nearer * of_raw + 1e-3
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
    assert (group_states(features, values, np.full(L, 100.0), 3) == found).all()
    # noise may leave no state any row, and states may be alike
    assert group_states(None, values * 0, np.full(L, -50.0), 4).max() == 3
    assert group_states(np.zeros((L, 2)), values, np.full(L, 1.0), 4).max() <= 3


def test_a_measurement_that_is_alone_in_its_group_says_what_its_group_is():
    """Four shares, one of them of another action: once it was shrunk away though it stood 20 deviations out."""
    x, group = np.array([0.03, 0.016, 0.06, 0.116]), np.array([0, 0, 0, 1])
    noise, f = np.full(4, 2.5e-5), np.zeros((4, 0))
    assert np.abs(shrink(x, noise * 0, noise, group, f, own=True).mean - x).max() < 0.01


def proposal(K=6, seed=0):
    rng = np.random.default_rng(seed)
    value, rows = rng.uniform(0.3, 0.8, K), rng.integers(100, 5000, K).astype(float)
    return Proposal(np.arange(K) % 2, value, rng.uniform(0.0, 0.2, K), rows, 0.0, 1.0)


def test_only_what_is_seen_often_enough_is_kept():
    rows = np.array([[900, 900, 30, 0, 9000, 50.0], [100, 70, 24, 12, 600, 26.0]])
    found = confirm(proposal(), rows, 10.0)
    # the second is too rare an action, the third and fourth are within the noise, the fifth is below the floor
    assert found.proposal.action.tolist() == [0, -1, -1, -1, -1, 1]
    assert found.proposal.gain[1:5].tolist() == [0, 0, 0, 0]
    assert found.chance[[0, 5]] == pytest.approx([0.1, 26 / 76])
    assert (found.chance[1:5] == 1).all()
    # noise may make the others fewer than none
    assert confirm(proposal(), np.array([[-50.0] * 6, [400.0] * 6]), 10.0).chance.max() == 1


def shares(seed, K=400, rows=800.0, sd=40.0):
    """Cells whose true shares are near what the learning part has, and noisy rows of the other part."""
    rng = np.random.default_rng(seed)
    share = np.clip(rng.normal(0.35, 0.15, K), 0.0, 1.0)
    told = np.clip(share + rng.normal(0, 0.05, K), 0, 1)
    # the learning part has twice the people
    seen = Seen(told, 2 * rows * share + rng.normal(0, sd, K), np.full(K, 2 * rows), sd, sd)
    base = replace(proposal(K, seed), action=rng.integers(0, 3, K), seen=seen)
    true = rows * np.vstack([1 - share, share])
    return base, share, true + rng.normal(0, sd, (2, K)), sd


def confirmed(base, rows, sd):
    """What is confirmed, and where something is."""
    found = confirm(base, rows, sd)
    return found, found.proposal.action >= 0


def test_pooled_shares_are_nearer_to_the_truth_and_centred():
    """Weights 1 / p and the placebos rest on them: no share may be off to one side."""
    off, raw = [], []
    for seed in range(6):
        base, share, rows, sd = shares(seed)
        found, kept = confirmed(base, rows, sd)
        off.append((found.chance - share)[kept])
        raw.append((rows[1] / rows.sum(0) - share)[kept])
    off, raw = np.concatenate(off), np.concatenate(raw)
    assert off.std() < 0.8 * raw.std() and abs(off.mean()) < 0.006


def test_pooled_shares_keep_nothing_rare_and_precise_ones_as_they_are():
    base, share, rows, sd = shares(9, rows=2000.0)
    found, kept = confirmed(base, rows, sd)
    assert (share[kept] > 0.02).all() and (found.chance[kept] >= 0.06).all() and (found.chance[~kept] == 1).all()
    assert kept[share > 0.15].mean() > 0.97
    base, share, rows, sd = shares(10, rows=1e6, sd=1.0)
    # the learning part is off by .05, these rows by nothing
    found, kept = confirmed(base, rows, sd)
    assert np.abs(found.chance - share)[kept].max() < 0.005
    nobody, kept = confirmed(replace(base, action=base.action * 0 - 1), rows, sd)
    assert not kept.any() and (nobody.chance == 1).all() and not confirmed(base, rows * 0, sd)[1].any()


def test_an_action_that_nobody_tried_is_not_kept_because_others_of_its_group_are():
    """Shrunk shares alone kept most such cells: nobody follows there, so nothing measured what they cost."""
    kept = []
    for seed in range(20):
        base, _, rows, sd = shares(seed, K=100, rows=600.0)
        rng, none = np.random.default_rng(100 + seed), np.arange(100) < 30
        told = Seen(base.seen.share, np.where(none, rng.normal(0, sd, 100), base.seen.rows), base.seen.visits, sd, sd)
        rows[:, none] = np.array([[600.0], [0.0]]) + rng.normal(0, sd, (2, 30))
        kept.append(confirmed(replace(base, seen=told), rows, sd)[1][none])
    assert np.mean(kept) < 0.005


@pytest.mark.parametrize("many", [0.05, slow(0.4), slow(0.8)])
def test_few_that_nobody_tried_are_among_what_is_kept_however_many_are_proposed(many):
    """Rows hardly stand out of their noise: whoever proposes by one deviation of it proposes what nobody does, too."""
    kept, wrong, done = 0, 0, 0
    for seed in range(12):
        rng, K, sd = np.random.default_rng(seed), 2000, 40.0
        none = rng.random(K) < many
        share = np.where(none, 0.0, rng.uniform(0.1, 0.5, K))
        taught = 600 * share + rng.normal(0, sd, K)
        asked = taught > sd
        base = replace(proposal(K, seed), action=np.where(asked, rng.integers(0, 3, K), -1))
        seen = Seen(np.full(K, 0.3), taught, np.full(K, 600.0), sd, sd)
        rows = 300 * np.vstack([1 - share, share]) + rng.normal(0, sd, (2, K))
        found = confirmed(replace(base, seen=seen), rows, sd)[1]
        kept, wrong, done = kept + found.sum(), wrong + (found & none).sum(), done + (asked & ~none).sum()
    assert wrong <= 0.1 * kept and kept - wrong > 0.5 * done


def test_a_clip_takes_a_hundredth_of_the_weight_of_those_who_follow():
    rows = np.array([90.0, 9.0, 1.0])
    assert spread(rows, np.array([1.0, 4.0, 9.0]), 40) == 4
    # few rows widen nothing
    assert spread(np.array([999.0, 1.0]), np.array([2.0, 60.0]), 40) == 2
    assert spread(rows, np.full(3, 8.0), 40) == 8
    # noise bounds it, and the mean weight is never cut
    assert spread(rows, np.array([1.0, 4.0, 9.0]), 2.5) == 3
    assert spread(rows, np.full(3, 8.0), 2.5) == 8
    assert spread(np.zeros(0), np.zeros(0), 40) == 1


def test_features_are_orthonormal_over_rows_short_and_finite_where_nothing_changes():
    found = confirm(proposal(60, 3), np.full((2, 60), 500.0), 5.0)
    phi = features(found)
    length = np.sqrt((phi**2).sum(1))
    assert length.max() <= 1 + 1e-12
    weight = found.proposal.rows + 1
    assert 0.05 < weight[length < 1 - 1e-9].sum() / weight.sum() < 1
    nothing = confirm(proposal(60, 3), np.zeros((2, 60)), 5.0)
    assert (nothing.proposal.action < 0).all() and np.isfinite(features(nothing)).all()


def world(seed=1, K=5, H=4):
    """Live cells under two policies; features span all cells, so that linear models are exact."""
    rng = np.random.default_rng(seed)
    P = [rng.dirichlet(np.ones(K + 1), K)[:, :K] for _ in range(2)]
    r = rng.uniform(0, 0.3, K)
    start, phi = rng.dirichlet(np.ones(K)), np.linalg.qr(rng.normal(size=(K, K)))[0]
    return P, r, start, phi, H


def moments(P, r, start, phi, known, weight, practice=True):
    """Exact moments of rows whose cells are weighed by ``weight``, of the policy and of practice."""
    (mu, pi), W = P, np.diag(weight)
    error = r + pi @ known - known
    of = (phi.T @ W @ phi, phi.T @ W @ mu @ phi, phi.T @ start) if practice else None
    return Moments(phi.T @ W @ phi, phi.T @ W @ pi @ phi, phi.T @ W @ error, of, 0.0)


def test_with_features_of_every_cell_values_are_the_policys_and_weights_of_steps_ratios_of_where_policies_are(
    constants,
):
    constants(ridge=0.0)
    P, r, start, phi, H = world()
    found = confirm(proposal(5), np.full((2, 5), 500.0), 0.0)
    known = first_values(found.proposal)
    V = np.zeros((H + 1, 5))
    for t in reversed(range(H)):
        V[t] = r + P[1] @ V[t + 1]
    even = fit(found, phi, moments(P, r, start, phi, known, np.full(5, 100.0)), H)
    assert even.values == pytest.approx(V, abs=1e-9)
    d_mu, d_pi = np.zeros((H, 5)), np.zeros((H, 5))
    d_mu[0] = d_pi[0] = start
    for t in range(1, H):
        d_mu[t], d_pi[t] = d_mu[t - 1] @ P[0], d_pi[t - 1] @ P[1]
    # pooled rows of practice: what stands in for those of a step
    pooled = d_mu.sum(0)
    model = fit(found, phi, moments(P, r, start, phi, known, pooled), H)
    assert (model.weights[0] == 1).all()
    for t in range(1, H):
        share = pooled / pooled.sum() * d_mu[t].sum()
        assert model.weights[t] == pytest.approx(np.clip(1 + (d_pi[t] - d_mu[t]) / share, 0.1, 2.5), abs=1e-9)
    flat = fit(found, phi, moments(P, r, start, phi, known, pooled, practice=False), H)
    assert (flat.weights == 1).all() and (flat.values == model.values).all()


def test_features_that_are_nowhere_teach_nothing_but_noise():
    """Four cells have four features: the noise of a fifth, near the pole of the ridge, once made all values."""
    P, r, start, _, H = world(K=4)
    found = confirm(proposal(4), np.array([[500.0] * 4, [300.0, 500.0, 900.0, 400.0]]), 0.0)
    # as they are asked about
    phi = np.trunc(features(found) * 64) / 64
    assert phi[:, :4].any(axis=0).all() and not phi[:, 4].any()
    there = moments(P, r, 1000 * start, phi, first_values(found.proposal), np.full(4, 1000.0))
    rng, sd = np.random.default_rng(0), 5.0
    G, C, e, of = there.gram, there.after, there.error, there.practice
    G, C, e, *of = (x + rng.normal(0, sd, x.shape) for x in (G, C, e, *of))
    # as the noise may have it: what the ridge adds is all but taken away
    G[4, 4] = 0.1 - 2 * sd - 0.002 * np.trace(G) / 5
    model, exact = (fit(found, phi, m, H) for m in (Moments(G, C, e, tuple(of), sd), replace(there, sd=sd)))
    assert np.abs(model.values - exact.values).max() < 0.05
    assert np.abs(model.weights - exact.weights).max() < 0.2


def test_the_placebos_error_is_that_of_noisy_chances():
    rng, K, n, sd = np.random.default_rng(7), 8, 5000, 30.0
    p, rows = rng.uniform(0.2, 0.8, K), rng.integers(1500, 4000, K).astype(float)
    base = proposal(K, 2)
    truth = np.vstack([rows * (1 - p), rows * p])
    apart = base.value - np.average(base.value, weights=base.rows + 1)
    off = []
    for _ in range(4000):
        noisy = confirm(base, truth + rng.normal(0, sd, (2, K)), sd)
        off.append(((p - noisy.chance) * rows * apart).sum() / n)
    told = placebo_error(confirm(base, truth, sd), n)
    assert told == pytest.approx(np.std(off), rel=0.1)
    assert placebo_error(confirm(base, truth, 0.0), n) == 0
