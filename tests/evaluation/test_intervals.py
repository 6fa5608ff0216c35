"""From released moments to intervals: by hand, with noise, out of range, and look after look."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pipeline.evaluation.intervals import ALPHA, Method, deviations, evaluated, level_of, moments
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.scores import Clips

CLIPS, METHOD = Clips(0.0, 1.0, 8.0), Method("tabular-dr", 0.0, calibrated=False)
LAYOUT = MomentLayout("tiny", "synthetic", "stationary", 4)


def people(n=4000, gain=0.1, seed=0):
    rng = np.random.default_rng(seed)
    own = (rng.random(n) < 0.6).astype(float)
    return own + gain + rng.normal(0, 1, n), own, rng.normal(0, 0.3, n)


def released(psi, own, placebo, rho=None, seed=1):
    tables = LAYOUT.add_up(CLIPS.scaled(psi, own, placebo))
    return LAYOUT.summed(rho).draw(ExactSums("tiny", "synthetic", "stationary", tables), SeededNoise(seed))


def test_without_noise_the_moments_are_those_of_the_people():
    psi, own, placebo = people()
    found = evaluated(released(psi, own, placebo), CLIPS, METHOD, 0.3, 1)
    z = deviations(0.975)
    for interval, x in ((found.value, psi), (found.practice, own), (found.improvement, psi - own)):
        assert interval.estimate == pytest.approx(x.mean(), abs=2e-4)
        assert interval.upper - interval.estimate == pytest.approx(z * x.std() / len(x) ** 0.5, rel=2e-2)
    assert found.placebo == pytest.approx(placebo.mean() / placebo.std() * len(placebo) ** 0.5, abs=0.05)
    assert found.people == 4000 and found.noise_variance == 0
    assert found.person_variance == pytest.approx((psi - own).var(), rel=1e-2)


def test_the_levels_of_all_looks_leave_alpha():
    assert sum(1 - level_of(k) for k in range(1, 100_000)) == pytest.approx(ALPHA, abs=1e-5)
    assert [round(deviations(level_of(k)), 2) for k in (1, 2, 3)] == [2.24, 2.64, 2.87]


def test_noise_widens_the_interval_and_it_holds():
    psi, own, placebo = people()
    exact = evaluated(released(psi, own, placebo), CLIPS, METHOD, 0.3, 1).improvement
    held = 0
    for seed in range(100):
        found = evaluated(released(psi, own, placebo, Fraction(1, 100), seed), CLIPS, METHOD, 0.3, 1)
        assert found.improvement.upper - found.improvement.lower > 1.5 * (exact.upper - exact.lower)
        held += found.improvement.lower <= exact.estimate <= found.improvement.upper
    assert held >= 95


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_anybody_says_nothing(n):
    psi, own, placebo = people(n)
    found = evaluated(released(psi, own, placebo, Fraction(1)), CLIPS, METHOD, 0.3, 1)
    assert (found.value.lower, found.value.upper) == (0.0, 1.0)
    assert (found.improvement.lower, found.improvement.upper) == (-1.0, 1.0)


def test_a_bias_adds_to_every_interval_but_that_of_practice():
    release = released(*people())
    plain, biased = (evaluated(release, CLIPS, Method("x", b, calibrated=True), 0.3, 1) for b in (0.0, 0.01))
    assert biased.improvement.upper - plain.improvement.upper == pytest.approx(0.01)
    assert biased.practice == plain.practice


def test_an_uncertain_behaviour_quiets_the_placebo():
    release = released(*people())
    loud, quiet = (evaluated(release, CLIPS, METHOD, 0.3, 1, placebo_error=e).placebo for e in (0.0, 1.0))
    assert abs(quiet) < abs(loud)


def test_a_variance_is_never_below_what_noise_may_hide():
    psi, own, placebo = people(600)
    loud = [moments(released(psi, own, placebo, Fraction(1, 200), s)).variance[0] for s in range(60)]
    exact = moments(released(psi, own, placebo)).variance[0]
    assert np.mean(np.array(loud) >= exact) > 0.9
