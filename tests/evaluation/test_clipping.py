"""What another clip could have made of a difference: bounds from released moments, against the scores themselves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pipeline.evaluation.intervals import Method, evaluated
from pipeline.learners.held_out import clip_diagnostics
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.scores import PLACEBOS, SCORES, Clips

CLIPS = Clips(0.0, 1.0, spread=4.0)


def told(psi, own, rho=Fraction(1), bias=0.0):
    scores = CLIPS.scaled(psi, own, np.zeros_like(psi), np.zeros_like(psi))
    layout = MomentLayout("clinic", "synthetic", "stationary", len(SCORES), halved=PLACEBOS)
    answers = layout.summed(rho).draw(
        ExactSums("clinic", "synthetic", "stationary", layout.add_up(scores)), SeededNoise(np.random.SeedSequence(3))
    )
    found = evaluated(answers, CLIPS, Method("tabular-dr", bias, calibrated=True), 0.3, 1)
    return found, {d.name: d for d in clip_diagnostics(found, answers)}


@pytest.mark.parametrize("heavy", [0.5, 2.0, 4.0])
def test_bounds_hold_for_the_scores_that_were_cut(heavy):
    rng = np.random.default_rng(5)
    own = (rng.random(20_000) < 0.7).astype(float)
    psi = own + 0.1 + heavy * rng.standard_normal(len(own))
    found, clip = told(psi, own)
    gain, width = psi - own, CLIPS.widths[2]
    at_most = clip["clip, people cut at it, at most"].value
    assert float(np.mean(np.abs(gain) >= width)) <= at_most <= 1
    worst = clip["clip, half of it: lower end of the difference, at worst"].value
    halved = np.clip(gain, -width / 2, width / 2).mean()
    estimate = found.improvement.estimate
    # what half the clip really makes of it lies within what is said, and noise and people still take their part
    assert worst < halved < 2 * estimate - worst
    assert worst < found.improvement.lower or heavy > 2
    assert all(d.price == 0 for d in clip.values()), "free: made of what is released anyway"


def test_more_noise_widens_twice_the_clip_and_spares_half_of_it():
    rng = np.random.default_rng(6)
    own = (rng.random(5_000) < 0.7).astype(float)
    _, quiet = told(own + 0.1, own, Fraction(3))
    found, loud = told(own + 0.1, own, Fraction(1, 50))
    twice = "clip, twice it: lower end of the difference, had nobody been cut"
    assert loud[twice].value < found.improvement.lower and loud[twice].value < quiet[twice].value


def test_another_clip_makes_an_allowance_for_bias_no_smaller():
    rng = np.random.default_rng(7)
    own = (rng.random(5_000) < 0.7).astype(float)
    (_, plain), (_, biased) = (told(own + 0.1, own, Fraction(1, 50), bias) for bias in (0.0, 0.006))
    for name in list(plain)[1:]:
        assert plain[name].value - biased[name].value == pytest.approx(0.006)
