"""Confirmation, features, values and weights of steps, and the placebo's error, against what they ought to be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

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


def test_pooled_shares_are_nearer_to_the_truth_and_centred():
    """Weights 1 / p and the placebos rest on them: no share may be off to one side."""
    off, raw = [], []
    for seed in range(6):
        base, share, rows, sd = shares(seed)
        found = confirm(base, rows, sd)
        kept = found.proposal.action >= 0
        off.append((found.chance - share)[kept])
        raw.append((rows[1] / rows.sum(0) - share)[kept])
    off, raw = np.concatenate(off), np.concatenate(raw)
    assert off.std() < 0.8 * raw.std() and abs(off.mean()) < 0.006


def test_pooled_shares_keep_nothing_rare_and_precise_ones_as_they_are():
    base, share, rows, sd = shares(9, rows=2000.0)
    found = confirm(base, rows, sd)
    kept = found.proposal.action >= 0
    assert (share[kept] > 0.02).all() and (found.chance[kept] >= 0.06).all() and (found.chance[~kept] == 1).all()
    assert kept[share > 0.15].mean() > 0.97
    base, share, rows, sd = shares(10, rows=1e6, sd=1.0)
    # the learning part is off by .05, these rows by nothing
    found = confirm(base, rows, sd)
    kept = found.proposal.action >= 0
    assert np.abs(found.chance - share)[kept].max() < 0.005
    nobody = confirm(replace(base, action=base.action * 0 - 1), rows, sd)
    assert (nobody.proposal.action < 0).all() and (nobody.chance == 1).all()
    silent = confirm(base, rows * 0, sd)
    assert (silent.proposal.action < 0).all()


def test_an_action_that_nobody_tried_is_not_kept_because_others_of_its_group_are():
    """Shrunk shares alone kept most such cells: nobody follows there, so nothing measured what they cost."""
    kept = []
    for seed in range(20):
        base, _, rows, sd = shares(seed, K=100, rows=600.0)
        rng = np.random.default_rng(100 + seed)
        none = np.arange(100) < 30
        assert base.seen is not None
        told = Seen(base.seen.share, np.where(none, rng.normal(0, sd, 100), base.seen.rows), base.seen.visits, sd, sd)
        rows[:, none] = np.array([[600.0], [0.0]]) + rng.normal(0, sd, (2, 30))
        kept.append((confirm(replace(base, seen=told), rows, sd).proposal.action >= 0)[none])
    assert np.mean(kept) < 0.005


@pytest.mark.parametrize(
    "many", [0.05, pytest.param(0.4, marks=pytest.mark.slow), pytest.param(0.8, marks=pytest.mark.slow)]
)
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
        found = confirm(replace(base, seen=seen), rows, sd).proposal.action >= 0
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
    short = length < 1 - 1e-9
    assert 0.05 < weight[short].sum() / weight.sum() < 1
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


def test_with_features_of_every_cell_values_are_those_of_the_policy(constants):
    constants(ridge=0.0)
    P, r, start, phi, H = world()
    found = confirm(proposal(5), np.full((2, 5), 500.0), 0.0)
    model = fit(found, phi, moments(P, r, start, phi, first_values(found.proposal), np.full(5, 100.0)), H)
    V = np.zeros((H + 1, 5))
    for t in reversed(range(H)):
        V[t] = r + P[1] @ V[t + 1]
    assert model.values == pytest.approx(V, abs=1e-9)


def test_weights_of_steps_are_ratios_of_where_policies_are(constants):
    constants(ridge=0.0)
    P, r, start, phi, H = world()
    known = first_values(confirm(proposal(5), np.full((2, 5), 500.0), 0.0).proposal)
    d_mu, d_pi = np.zeros((H, 5)), np.zeros((H, 5))
    d_mu[0] = d_pi[0] = start
    for t in range(1, H):
        d_mu[t], d_pi[t] = d_mu[t - 1] @ P[0], d_pi[t - 1] @ P[1]
    found = confirm(proposal(5), np.full((2, 5), 500.0), 0.0)
    # pooled rows of practice: what stands in for those of a step
    pooled = d_mu.sum(0)
    model = fit(found, phi, moments(P, r, start, phi, known, pooled), H)
    assert (model.weights[0] == 1).all()
    for t in range(1, H):
        share = pooled / pooled.sum() * d_mu[t].sum()
        assert model.weights[t] == pytest.approx(np.clip(1 + (d_pi[t] - d_mu[t]) / share, 0.1, 2.5), abs=1e-9)
    flat = fit(found, phi, moments(P, r, start, phi, known, pooled, practice=False), H)
    assert (flat.weights == 1).all()
    assert (flat.values == model.values).all()


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
    noisy = Moments(G, C, e, (of[0], of[1], of[2]), sd)
    exact = fit(found, phi, replace(there, sd=sd), H)
    model = fit(found, phi, noisy, H)
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
