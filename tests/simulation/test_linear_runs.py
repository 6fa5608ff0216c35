"""Simulated runs share their logs, and say what their noise truly costs."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from pipeline.agents.linear_backup import LinearConstants
from pipeline.environments.linear_003 import linear_003, split_halves
from pipeline.statistics.ask import Ask
from pipeline.statistics.linear_plan import LinearTerms
from tests.campaigns.linear_runs import run_linear

WORLD, C = linear_003(0), LinearConstants()


def test_vapvi_and_pevi_at_its_multiplier_are_one_run():
    one, two = (run_linear(WORLD, LinearTerms(Ask(None)), 300, (4, 2), C, agent) for agent in ("vapvi", "pevi"))
    np.testing.assert_array_equal(one.result.V, two.result.V)
    assert one.true_rho is None and 0 <= one.tied <= 1


def test_baseline_and_private_run_see_one_log():
    """At a budget that drowns nothing the two agree; another seed moves both."""
    none, much, other = (
        run_linear(WORLD, LinearTerms(Ask(rho)), 300, seed, C).result.V
        for rho, seed in ((None, (4, 2)), (Fraction(10**9), (4, 2)), (None, (4, 3)))
    )
    assert np.abs(none - much).max() < 0.02 < np.abs(none - other).max()


@pytest.mark.parametrize("variant", ["paper", "centred"])
def test_every_adaptive_variant_runs_in_halves_and_whole(variant):
    for split in (False, True):
        run = run_linear(WORLD, LinearTerms(Ask(Fraction(1)), variant, halves=split), 200, (1, 1), C)
        assert 0 < run.suboptimality < 15 and run.true_rho == 1


def test_the_papers_noise_reports_what_it_truly_costs():
    ask = LinearTerms(Ask(Fraction(1), calibration="paper"), "paper")
    literal = run_linear(linear_003(0, "literal"), ask, 200, (1, 1), replace(C, shift="paper"))
    assert literal.true_rho is not None and 22 < literal.true_rho < 23


def test_halves_hold_each_person_once():
    both = WORLD.counts(1000, np.random.default_rng(0))
    parts = split_halves(both, np.random.default_rng(1))
    np.testing.assert_array_equal(parts["D"] + parts["D'"], both)
    assert abs(int(parts["D"][0].sum()) - 500) < 100
