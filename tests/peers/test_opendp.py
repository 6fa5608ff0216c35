"""OpenDP prices our mechanisms and draws beside our samplers: its privacy maps and its samplers are the judge.

Cases are of the kind of ``python/test/test_meas.py`` of opendp/opendp (MIT): integers and vectors, scales from small to
large, distances up to the one that is claimed.  OpenDP's package ships no tests; none of its code is here.
"""

from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from scipy import stats

from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.noise import FastOsNoise, OpenDpNoise, OsNoise, SimulatedWorld, gaussian_scale
from pipeline.privacy.release import Mechanism
from tests.conftest import slow

WORLD, DRAWS = SimulatedWorld("peers"), 4000
SOURCES = {"exact": OsNoise, "table": FastOsNoise, "opendp": OpenDpNoise}


@pytest.fixture(autouse=True)
def contrib():
    dp.enable_features("contrib")


def gaussian(variance):
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=gaussian_scale(variance))


def laplace(scale):
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return dp.m.make_laplace(*space, scale=float(scale))


def mechanism(**of):
    given = {"table": "t", "shape": (1,), "unit": "1", "rule": "peers"} | of
    return Mechanism(**given)


@pytest.mark.parametrize("moved", [1, 2, 12])
@pytest.mark.parametrize("variance", [1, 5, 144, 10**6 + 3])
def test_a_gaussian_costs_what_opendp_says(variance, moved):
    m = gaussian(variance)
    ours = mechanism(l2_squared=moved**2, l1=moved**2, variance=variance)
    assert float(ours.rho) == pytest.approx(m.map(float(moved)), rel=1e-12)
    # never below: OpenDP's float scale is rounded, and its map is rounded up
    assert float(ours.rho) <= m.map(float(moved)) * (1 + 1e-12)


@pytest.mark.parametrize("moved", [1, 2, 12])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(7), Fraction(1000)])
def test_a_laplace_costs_what_opendp_says(scale, moved):
    ours = mechanism(l2_squared=moved**2, l1=moved, scale=scale)
    assert float(ours.epsilon) == pytest.approx(laplace(scale).map(moved), rel=1e-12)


@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("variance", [2, 30, 500])
def test_the_official_conversion_is_opendps(variance, delta):
    theirs = dp.c.make_zCDP_to_approxDP(gaussian(variance)).map(1.0).epsilon(delta)
    assert epsilon_from_rho(1 / (2 * variance), delta) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("variance", [1, slow(30), slow(2500)])
def test_our_gaussian_draws_are_told_from_opendps_by_chance_alone(name, variance):
    ours = SOURCES[name]().gaussian(DRAWS, variance, WORLD)
    assert alike(ours, np.array(gaussian(variance)([0] * DRAWS)))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("scale", [Fraction(1, 2), slow(Fraction(7)), slow(Fraction(400, 3))])
def test_our_laplace_draws_are_told_from_opendps_by_chance_alone(name, scale):
    ours = SOURCES[name]().laplace(DRAWS, scale, WORLD)
    assert alike(ours, np.array(laplace(scale)([0] * DRAWS)))


def test_a_sampler_of_another_variance_is_told_apart():
    assert not alike(OsNoise().gaussian(DRAWS, 60, WORLD), np.array(gaussian(30)([0] * DRAWS)))


def alike(one, other):
    """Chi-square of homogeneity over about twenty cells; wrongly false once in 10^7."""
    edges = np.unique(np.quantile(np.concatenate([one, other]), np.linspace(0, 1, 21)[1:-1]))
    counts = [np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (one, other)]
    table = np.array(counts)[:, np.sum(counts, 0) > 0]
    return stats.chi2_contingency(table).pvalue > 1e-7
