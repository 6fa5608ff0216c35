"""Attacks on the shipped mechanisms: none loses more than it claims, and every broken twin is caught."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from flows.canaries import one_run
from flows.cli import app
from flows.setting import setting
from flows.shelf import Home
from pipeline.audits.attack import (
    attacked,
    black_box_epsilon,
    gaussian_rho,
    laplace_epsilon,
    laplace_success,
    lower_rate,
    trade_off,
    upper_rate,
)
from pipeline.audits.one_run import lower_epsilon
from pipeline.privacy.fast_noise import FastOsNoise
from pipeline.privacy.noise import NoiseSource, OsNoise
from pipeline.privacy.release import Release
from pipeline.statistics.privatizers import CentralCounts
from tests.audits.mutants import MECHANISMS, Repeating


def noise_for(name: str) -> NoiseSource:
    """OpenDP's where a table's list must count the fast sampler's share of delta, else the fast one."""
    return OsNoise() if name.startswith("counts") else FastOsNoise()


NAMES = list(MECHANISMS)
TWINS = [(name, twin) for name, (_, twins) in MECHANISMS.items() for twin in twins]


@pytest.mark.parametrize("name", NAMES)
def test_the_pair_is_as_far_apart_as_claimed_and_no_further(name):
    """Without drawing: the exact loss of the attacked pair; counts and rewards in two tables exclude each other."""
    a = MECHANISMS[name][0]()
    if a.scale is not None:
        moved = sum(float(np.abs(x - y).sum()) / s for x, y, s in zip(*a.means, a.scale, strict=True))
        assert moved == pytest.approx(float(a.claimed_epsilon), rel=1e-9)
        return
    loss = sum((((x - y) ** 2) / v).sum() for x, y, v in zip(*a.means, a.variances, strict=True)) / 2
    least = {"counts, Gaussian, two tables": 0.8, "bottom-up counter": 0.78, "desk, centred": 0.95}.get(name, 0.99)
    assert least * float(a.claimed_rho) < loss <= float(a.claimed_rho) * (1 + 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_mechanism_is_not_flagged_and_the_attack_is_not_blind(name):
    v = attacked(MECHANISMS[name][0](), noise_for(name), 4000 if "Laplace" in name else 1500)
    assert not v.violates and v.ratio > 0.3, v


@pytest.mark.slow
@pytest.mark.parametrize(("name", "twin"), TWINS)
def test_a_broken_twin_is_caught(name, twin):
    # a factor of two shows at a few thousand releases a side, a lost level of four does not
    v = attacked(MECHANISMS[name][1][twin](), noise_for(name), 20_000 if twin == "natural-log levels" else 3000)
    assert v.violates, v


def test_noise_that_repeats_is_caught():
    v = attacked(MECHANISMS["counts, Gaussian, one table"][0](), Repeating(), 1500)
    assert v.violates and v.lower_bound_rho > 5


def test_bounds_of_known_laws():
    mu = math.sqrt(2)
    assert gaussian_rho(stats.norm.sf(-mu / 2), stats.norm.sf(mu / 2)) == pytest.approx(1.0)
    assert gaussian_rho(0.4, 0.5) == 0 and gaussian_rho(1.0, 0.0) == 0
    assert black_box_epsilon(0.5, 0.5 * math.exp(-1)) == pytest.approx(1.0)
    assert lower_rate(0, 100, 1e-4) == 0 and upper_rate(100, 100, 1e-4) == 1
    assert lower_rate(50, 100, 1e-4) < 0.5 < upper_rate(50, 100, 1e-4)


@pytest.mark.parametrize(("n", "epsilon"), [(1, 1.0), (2, 0.5), (40, 4.0)])
def test_the_law_of_a_laplace_likelihood_ratio(n, epsilon):
    """Against draws; its inverse gives the loss back."""
    steps, rng = np.full(n, epsilon / n), np.random.default_rng(5)
    x = rng.laplace(size=(100_000, n))
    ratio = (np.abs(x + steps) - np.abs(x)).sum(1)
    success = laplace_success(steps)
    # cells of opposite signs cancel to rounding: a tie
    right = (ratio > 1e-9).mean() + (np.abs(ratio) <= 1e-9).mean() / 2
    assert success == pytest.approx(right, abs=4 * 0.5 / math.sqrt(100_000) + 0.002)
    assert laplace_epsilon(success, 1 - success, steps) == pytest.approx(epsilon, rel=1e-3)


def test_a_trade_off_of_nothing_is_the_diagonal_and_of_everything_the_corner():
    same = np.random.default_rng(1).normal(size=20_000)
    assert all(abs(x - y) < 0.02 for x, y in trade_off(same, same))
    assert all(y == 1 for _, y in trade_off(same + 100, same))


def test_the_verb_reads_no_rows_and_says_what_was_proved(tmp_path):
    done = CliRunner().invoke(app, ["--home", str(tmp_path), "audit", "two_step_chance", "--draws", "400", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {"mechanism", "claimed_rho", "lower_bound_rho", "confidence", "draws", "violates"} <= set(found)
    assert found["violates"] is False and found["draws"] == 400 and found["confidence"] == pytest.approx(0.9998)
    page = (tmp_path / "audits" / found["name"] / "page.html").read_text()
    assert "no row was read" in page and "<svg" in page
    assert not (tmp_path / "store").exists() and not (tmp_path / "ledger.db").exists()


def test_a_recipe_without_noise_has_no_claim_to_attack(tmp_path):
    done = CliRunner().invoke(app, ["--home", str(tmp_path), "audit", "icu_sepsis_baseline"])
    assert "no noise, no claim" in str(done.exception)


def test_as_many_right_guesses_as_a_law_allows_prove_its_loss_and_no_more():
    for epsilon in (0.5, 2.0, 5.0):
        fair = stats.binom.isf(1e-3, 2000, 1 / (1 + math.exp(-epsilon)))
        assert lower_epsilon(10_000, 2000, int(fair), 0.0, 1e-3) <= epsilon
        assert lower_epsilon(10_000, 2000, int(fair) + 10, 0.0, 1e-3) > epsilon - 0.05
    assert lower_epsilon(10_000, 2000, 1000, 1e-6, 1e-3) == 0
    assert lower_epsilon(10_000, 2000, 1990, 1e-3, 1e-3) < lower_epsilon(10_000, 2000, 1990, 0.0, 1e-3)


@pytest.mark.slow
def test_canaries_find_raw_counts_in_a_release_and_pass_what_is_shipped(tmp_path, monkeypatch):
    s = setting("demo", Home(tmp_path))
    right = one_run(s, 2000)
    assert not right["violates"] and right["lower_bound_epsilon"] > 0.3
    monkeypatch.setattr(CentralCounts, "draw", raw_counts)
    broken = one_run(s, 2000)
    assert broken["violates"] and broken["right"] == broken["guesses"]


def raw_counts(privatizer, counts, noise):
    """A release that forgets its noise."""
    kept = {m.table: counts.tables[m.table] for m in privatizer.mechanisms}
    return Release("canaries", "synthetic", counts.dynamics, privatizer.mechanisms, kept, "os", "forgotten")
