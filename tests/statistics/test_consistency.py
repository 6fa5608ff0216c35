"""Counts to plan on: closed forms against cvxpy and bisection, wrong levels are caught, drift is found."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pipeline.statistics.consistency as consistency
from pipeline.privacy.noise import SeededNoise
from pipeline.privacy.release import Release
from pipeline.statistics import planning_counts
from pipeline.statistics.ask import Ask
from pipeline.statistics.consistency import (
    CASES,
    certify,
    certify_projection,
    consistency_case,
    consistent_counts,
    consistent_counts_cvxpy,
    project,
    project_cvxpy,
)
from pipeline.statistics.count_layout import CountLayout
from pipeline.statistics.private_sum import PrivateSum
from reticent import Card
from tests.conftest import slow
from tests.statistics.planning_worlds import Setting, river, ward


def by_bisection(total, parts, slack=0.0):
    """Smallest t by bisection on what sums are reachable, then the x that the paper's programme forces."""

    def feasible(t):
        return np.maximum(parts - t, 0).sum() <= total + slack and (parts + t).sum() >= total - slack

    if feasible(0.0):
        return parts
    low, high = 0.0, 1.0
    while not feasible(high):
        high *= 2
    for _ in range(200):
        mid = (low + high) / 2
        low, high = (low, mid) if feasible(mid) else (mid, high)
    return parts + high if parts.sum() < total else np.maximum(parts - high, 0)


def number(most):
    return st.just(0.0) | st.floats(0, most)


@pytest.mark.slow
@given(st.lists(number(1e4), min_size=1, max_size=7).map(np.array), number(2e4), number(500))
@settings(max_examples=100, deadline=None)
def test_closed_form_is_the_bisection_minimiser(parts, total, slack):
    x = consistent_counts(total, parts, slack)
    scale = max(1.0, parts.max(), total)
    np.testing.assert_allclose(x, by_bisection(total, parts, slack), atol=1e-9 * scale)
    assert (x >= 0).all() and abs(x.sum() - total) <= slack + 1e-9 * scale


def cells(n, size, seed):
    rng = np.random.default_rng(seed)
    parts = np.maximum(rng.normal(3, 8, (n, size)).round(), 0)
    return np.maximum(parts.sum(-1) + rng.normal(0, 12, n).round(), 0), parts


@pytest.mark.parametrize(("slack", "size"), [(0.0, 1), slow(5.0, 2), slow(0.0, 5), slow(5.0, 11)])
def test_closed_form_equals_cvxpy_in_every_case(slack, size):
    total, parts = cells(60, size, size)
    x = consistent_counts(total, parts, slack)
    np.testing.assert_allclose(x, consistent_counts_cvxpy(total, parts, slack), atol=1e-7 * 60)
    assert (consistency_case(total, parts, slack) == 2).any()


def test_counts_that_already_agree_are_left_alone_to_the_bit():
    parts = np.random.default_rng(1).poisson(4, (50, 6)).astype(float)
    np.testing.assert_array_equal(consistent_counts(parts.sum(-1), parts, 0.0), parts)


@pytest.mark.parametrize(
    ("total", "parts", "slack"),
    [(-1.0, [1.0], 0.0), (1.0, [np.inf], 0.0), (1.0, [1.0], -1.0), ([1.0, 2.0], [1.0], 0.0)],
)
def test_bad_input_is_a_value_error(total, parts, slack):
    with pytest.raises(ValueError):
        consistent_counts(total, parts, slack)


def test_certificate_draws_every_case_that_occurs():
    total, parts = cells(300, 5, 3)
    proof = certify(total, parts, 3.0, consistent_counts(total, parts, 3.0))
    assert set(proof.cells) == set(CASES) and sum(proof.cells.values()) == 300
    assert all(proof.certified[c] == min(8, proof.cells[c]) for c in CASES)
    assert proof.holds and proof.largest_relative_difference <= 1e-7


@pytest.mark.parametrize("wrong", [0.99, 1.01, None])
def test_a_wrong_water_level_or_lift_of_short_cells_is_caught(monkeypatch, wrong):
    total, parts = cells(300, 5, 3)
    if wrong is None:
        x = consistent_counts(total, parts, 3.0)
        short = consistency_case(total, parts, 3.0) == 1
        x[short] = parts[short] * (x[short].sum(-1) / np.maximum(parts[short].sum(-1), 1e-9))[:, None]
    else:
        right = consistency.water_level
        monkeypatch.setattr(consistency, "water_level", lambda p, t: wrong * right(p, t))
        x = consistent_counts(total, parts, 3.0)
    assert not certify(total, parts, 3.0, x).holds


def released(made: Setting, people: int, seed: int, ask: Ask | None = None):
    log = made.counts(people, np.random.default_rng([seed, people]))
    mechanisms = made.mechanisms(ask or Ask(rho=1.0))
    return log, PrivateSum(CountLayout(made.card), mechanisms).draw(log, SeededNoise(seed))


def prepared(release: Release, card: Card, preset: str, *, share: bool = True) -> planning_counts.Prepared:
    return planning_counts.prepare(
        planning_counts.private_counts(release, card, slack=planning_counts.slack_of(preset)), card, preset, share=share
    )


def noisy(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    tables = rng.poisson(rng.exponential(5, (4, 3, 2, 3))) + rng.normal(0, 6, (4, 3, 2, 3))
    return tables, np.maximum(tables.reshape(4, -1).sum(1), 1.0)


@pytest.mark.parametrize("seed", range(6))
def test_projection_is_what_cvxpy_finds(seed):
    tables, totals = noisy(seed)
    x = project(tables, totals)
    assert (x >= 0).all() and x.reshape(4, -1).sum(1) == pytest.approx(totals)
    for g in range(4):
        assert x[g] == pytest.approx(project_cvxpy(tables[g], totals[g]), abs=1e-5)
    proof = certify_projection(tables, totals, x)
    assert proof.holds and proof.certified == {"projection": 3}


def test_a_solver_that_stops_at_its_own_tolerance_withholds_nothing():
    # four almost empty tables of 36 to 250 cells in 400 ended 1e-6 from x, and a night was not published
    rng = np.random.default_rng(0)
    for _ in range(30):
        size, people, scale = int(rng.choice([36, 250])), 10 ** rng.uniform(0, 2), 10 ** rng.uniform(0, 4)
        counts = rng.multinomial(int(people), rng.dirichlet(np.full(size, 0.2)), size=3)
        tables, totals = counts + rng.normal(0, scale, (3, size)).round(), np.full(3, max(1.0, float(int(people))))
        assert certify_projection(tables, totals, project(tables, totals)).holds


@pytest.mark.parametrize("wrong", [0.95, 1.05])
def test_a_wrong_level_is_caught_by_the_optimality_conditions(monkeypatch, wrong):
    right = consistency.water_level
    monkeypatch.setattr(consistency, "water_level", lambda p, t: wrong * right(p, t))
    tables, totals = noisy(7)
    assert not certify_projection(tables, totals, project(tables, totals), most=0).holds


def test_tables_that_are_consistent_already_stay_to_the_bit():
    made = ward(1)
    log, release = released(made, 5000, 1, Ask())
    found = prepared(release, made.card, "practical", share=False)
    assert (found.counts.n_sas == log.tables["n_sas"]).all()
    assert (found.counts.n_sa == log.tables["n_sas"].sum(-1)).all()


def test_totals_fall_and_are_never_nothing():
    totals = planning_counts.step_totals(np.array([100.0, 80.0, 90.0, -20.0])[:, None])
    assert totals.tolist() == [100.0, 85.0, 85.0, 1.0]


@pytest.mark.parametrize(("world", "people"), [(lambda _: river(), 3000), (ward, 20000)], ids=["river", "ward"])
def test_drift_is_nothing_where_there_is_none(world, people):
    found = []
    for seed in range(12):
        made = world(70 + seed % 2)
        raw = released(made, people, seed)[1].tables["n_sas"].astype(float)
        found.append(planning_counts.step_drift(raw, made.mechanisms(Ask(rho=1.0))[0].standard_deviation ** 2))
    # two kernels drawn apart are 0.2 away from each other
    assert max(abs(d.square) for d in found) < 0.005
    assert sum(d.unseen for d in found) >= 11


def test_steps_are_shared_only_where_they_agree():
    still, moving = ward(3), ward(3, drifting=True)
    shared = prepared(released(still, 20000, 3)[1], still.card, "practical")
    apart = prepared(released(moving, 20000, 3)[1], moving.card, "practical")
    assert shared.shared and shared.counts.n_sas.shape[0] == 1
    sd = {m.table: m.standard_deviation for m in shared.counts.release.mechanisms}["n_sas"]
    assert shared.counts.sd_sas == pytest.approx(math.sqrt(10) * sd)
    assert not apart.shared and apart.counts.n_sas.shape[0] == 10
    assert apart.drift is not None and apart.drift.square == pytest.approx(0.2, rel=0.2)


def test_rewards_that_drift_keep_the_steps_apart():
    # the reward comes at the last step only, and is estimated
    made = ward(3, estimate=True)
    found = prepared(released(made, 20000, 3)[1], made.card, "practical")
    assert found.drift is not None and found.drift.unseen and not found.shared


def test_no_evidence_is_no_agreement():
    made = ward(3)
    for seed in range(3, 8):
        # in one run of 60 the noise of some cell passes for visits
        found = prepared(released(made, 100, seed)[1], made.card, "practical")
        assert found.drift is not None and not found.shared
    assert math.isinf(planning_counts.step_drift(np.zeros((10, 50, 5, 50)), 1.0).error)
    assert not planning_counts._sharing_pays(np.zeros((3, 2, 2, 3)), 1.0, planning_counts.StepDifference(0.0, 0.1))


def test_a_second_table_of_visits_is_fitted_in_by_least_squares():
    made = ward(3)
    log, release = released(made, 20000, 3, Ask(rho=1.0, tables="two_tables", split={"n_sa": 0.1, "n_sas": 0.9}))
    truth = log.tables["n_sas"].sum(-1)
    fitted = planning_counts.fit_visits(planning_counts.private_counts(release, made.card)).sum(-1)
    summed = release.tables["n_sas"].sum(-1) - truth
    own = release.tables["n_sa"] - truth
    best = 1 / (1 / summed.var() + 1 / own.var())
    assert (fitted - truth).var() == pytest.approx(best, rel=0.05)


@pytest.mark.parametrize("preset", ["paper", "tail"])
def test_other_presets_keep_the_papers_programme(preset):
    made = ward(3)
    found = prepared(released(made, 20000, 3)[1], made.card, preset)
    assert found.drift is None and not found.shared and found.certify().programme == "cells"


def test_the_papers_bound_is_the_printed_one():
    """003 Lemma C.2: E = 4 sqrt(H log(4 H S^2 A / delta) / rho) is twice the bound on 2 H S^2 A draws."""
    H, S, A, rho, delta = 3, 4, 2, 0.7, 0.05
    E = 2 * planning_counts.noise_bound(math.sqrt(2 * H / rho), 2 * H * S**2 * A, delta)
    assert math.exp((E / 4) ** 2 * rho / H) == pytest.approx(4 * H * S**2 * A / delta)


def test_a_visit_carries_the_noise_of_the_successors_that_are_left():
    made = ward(1)
    _, release = released(made, 5000, 1)
    counts = prepared(release, made.card, "practical", share=False).counts
    left = float(np.count_nonzero(counts.n_sas, axis=-1).mean())
    assert 1 < left < counts.n_sas.shape[-1]
    assert (counts.sd_sa / counts.sd_sas) ** 2 == pytest.approx(left)
