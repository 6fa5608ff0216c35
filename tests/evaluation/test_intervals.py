"""From released moments to intervals: by hand, with noise, out of range, look after look, and under another clip."""

from fractions import Fraction

import numpy as np
import pytest

from pipeline.evaluation.intervals import ALPHA, Method, Trait, deviations, evaluated, level_of, moments, per_past
from pipeline.facts.evaluation import Interval
from pipeline.learners.held_out import clip_diagnostics
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.scores import PLACEBOS, SCORES, Clips

CLIPS, METHOD = Clips(0.0, 1.0, 8.0), Method("tabular-dr", 0.0, calibrated=False)
LAYOUT = MomentLayout("tiny", "synthetic", "stationary", len(SCORES), halved=PLACEBOS)


def people(n=4000, gain=0.1, seed=0):
    rng = np.random.default_rng(seed)
    own = (rng.random(n) < 0.6).astype(float)
    return own + gain + rng.normal(0, 1, n), own, rng.normal(0, 0.3, n)


def drawn(scores, rho, seed):
    sums = ExactSums("tiny", "synthetic", "stationary", LAYOUT.add_up(scores))
    return LAYOUT.summed(rho).draw(sums, SeededNoise(seed))


def released(psi, own, lost, rho=None, seed=1, past=None):
    return drawn(CLIPS.scaled(psi, own, lost, np.zeros_like(own) if past is None else past), rho, seed)


def judged(release, method=METHOD, **more):
    return evaluated(release, CLIPS, method, 0.3, 1, **more)


def test_without_noise_the_moments_are_those_of_the_people():
    psi, own, placebo = people()
    found = judged(released(psi, own, placebo))
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
    exact = judged(released(psi, own, placebo)).improvement
    held = 0
    for seed in range(100):
        found = judged(released(psi, own, placebo, Fraction(1, 100), seed))
        assert found.improvement.upper - found.improvement.lower > 1.5 * (exact.upper - exact.lower)
        held += found.improvement.lower <= exact.estimate <= found.improvement.upper
    assert held >= 95


@pytest.mark.parametrize("n", [0, 1])
def test_hardly_anybody_says_nothing(n):
    psi, own, placebo = people(n)
    found = judged(released(psi, own, placebo, Fraction(1)))
    assert (found.value.lower, found.value.upper) == (0.0, 1.0)
    assert (found.improvement.lower, found.improvement.upper) == (-1.0, 1.0)


def test_a_bias_adds_to_every_interval_but_that_of_practice():
    release = released(*people())
    plain, biased = (judged(release, Method("x", b, calibrated=True)) for b in (0.0, 0.01))
    assert biased.improvement.upper - plain.improvement.upper == pytest.approx(0.01)
    assert biased.practice == plain.practice


def test_what_does_not_lie_above_0_is_wider_and_what_lies_above_is_not():
    plain, wider = (Method("x", 0.01, calibrated=True, worse=w) for w in (0.0, 0.3))
    for gain in (-0.2, 0.0, 0.03, 0.1, 0.3):
        release = released(*people(gain=gain))
        a, b = (judged(release, m) for m in (plain, wider))
        assert a.half_width == b.half_width == pytest.approx(a.improvement.upper - a.improvement.estimate)
        # the answer "better" is the same, and so is the interval that it rests on
        assert (a.improvement.lower > 0) == (b.improvement.lower > 0) and a.practice == b.practice
        reach = 0.3 * max(0.0, -a.improvement.lower)
        for x, y in ((a.improvement, b.improvement), (a.value, b.value)):
            assert y.upper - x.upper == pytest.approx(reach) == x.lower - y.lower


# a trait behind the choices would show: gains of one row for each of *past*
SHOWS = Trait(per_past=1.0)


def luck(n, seed=9):
    """A placebo *past* with no mean, and of a spread that lets traits show."""
    x = np.random.default_rng(seed).normal(0, 0.5, n)
    return x - x.mean()


def test_a_gain_is_hidden_unless_either_placebo_had_shown_it():
    psi, own, placebo = people(gain=0.1)
    error = placebo.std() / len(placebo) ** 0.5
    quiet = luck(len(own))
    noise = quiet.std() / len(own) ** 0.5

    def found(lost, past=0.0, gain=0.1, trait=SHOWS):
        release = released(psi + gain - 0.1, own, placebo - placebo.mean() + lost, past=quiet + past)
        return judged(release, trait=trait)

    assert found(0.0).hidden == pytest.approx(22 * 1.645 * error, rel=0.05)
    # what is hidden moves both to the same side; the other side speaks against it
    assert found(0.01).hidden == pytest.approx(22 * (0.01 + 1.645 * error), rel=0.05)
    # a trait that moves rewards alone leaves *lost* as it is
    assert found(-0.05).hidden == pytest.approx(2 * 1.645 * noise, rel=0.05)
    assert found(-0.05, 0.2).hidden == pytest.approx(2 * (0.2 + 1.645 * noise), rel=0.05)
    assert found(-0.05, 0.2, trait=Trait(per_past=3.0)).hidden == pytest.approx(3 * found(-0.05, 0.2).hidden)
    assert found(-0.05, -0.2).hidden == 0 and found(-0.05, gain=-0.1).hidden > 1 > found(0.05, gain=-0.1).hidden
    assert found(0.0, trait=Trait((0.1, 0.0), 1.0)).hidden > 3 and abs(found(0.05, trait=Trait((0.1, 0.0))).placebo) < 1


def test_no_z_stands_where_nothing_can_show():
    psi, own, placebo = people(gain=0.1)
    release, silent = released(psi, own, placebo, past=luck(len(own))), Trait(behind=(False, False))
    found = judged(release, trait=silent)
    assert (found.placebo, found.past, found.hidden, found.reach) == (None, None, None, None)
    # of one step, *past* is of earlier episodes, and nothing is lost on the way
    again = judged(release, trait=Trait(per_past=1.0, behind=(False, True)))
    assert again.placebo is None and again.past is not None and again.hidden < 0.2
    # nothing is paid before the end: whatever is hidden, *past* hardly moves
    flat = evaluated(released(psi, own, placebo, past=luck(len(own)) / 50), CLIPS, METHOD, 0.3, 1, trait=SHOWS)
    assert flat.hidden is None and flat.reach < 0.1 < judged(release, trait=SHOWS).reach


def test_noise_never_raises_the_reach():
    """A lower end over an upper one: where no trait can show, noise must not say that it would."""
    psi, own, placebo = people(n=3000)
    past = luck(len(own)) / 20
    told = [judged(released(psi, own, placebo, Fraction(1, 50), s, past), trait=SHOWS).reach for s in range(100)]
    assert np.mean(np.array(told) > 0.1) <= 0.06


def test_a_gain_that_is_all_hidden_passes_in_one_of_twenty_runs():
    """The largest gain a placebo moves by: whatever noise, it is not called the policy's."""
    passed = 0
    for seed in range(300):
        psi, own, placebo = people(n=2000, gain=0.1, seed=seed)
        moved = released(psi, own, placebo + 0.1 / 22, Fraction(1), seed, luck(2000, seed + 1000))
        found = judged(moved, trait=SHOWS)
        passed += found.hidden is not None and found.hidden < 0.1
    assert passed <= 0.05 * 300 + 11


def test_the_gain_for_each_mean_of_past():
    # everybody deviates at p = 1/2 in 4 of 5 rows, of which the first has nothing before it
    assert per_past(5 * 0.5, 5 * 0.25, 5.0, 1.0) == pytest.approx(2 * 5 / 4)
    assert per_past(0.0, 0.0, 5.0, 1.0) == 0 and np.isfinite(per_past(1.0, 0.2, 5.0, 9.0))


def test_how_strong_a_trait_would_have_to_be():
    """Half of the people, twice the odds of the advised action, D an episode, all of it at one step."""
    rng, n, D = np.random.default_rng(3), 400_000, 0.2
    for p in (0.2, 0.5, 0.8):
        odds = p / (1 - p) * np.where(rng.random(n) < 0.5, 2**0.5, 2**-0.5)
        high = odds > p / (1 - p)
        follows = rng.random(n) < odds / (1 + odds)
        own = 0.3 + D * high
        psi = np.where(follows, (own - own.mean()) / follows.mean(), 0) + own.mean()
        found = judged(released(psi, own, 0 * own), trait=Trait(per_past=1.0, apart=1 - p))
        made = (psi - own).mean()
        assert found.strength * made / found.improvement.lower == pytest.approx(D, rel=0.1)
    assert judged(released(own - 0.01, own, 0 * own)).strength is not None
    level = rng.normal(0, 1, n)
    assert judged(released(own + level - level.mean(), own, 0 * own)).strength is None


def test_an_uncertain_behaviour_quiets_the_placebo():
    release = released(*people())
    loud, quiet = (judged(release, trait=Trait((e, 0.0))).placebo for e in (0.0, 1.0))
    assert abs(quiet) < abs(loud)


def test_a_variance_is_never_below_what_noise_may_hide():
    psi, own, placebo = people(600)
    loud = [moments(released(psi, own, placebo, Fraction(1, 200), s)).variance[0] for s in range(60)]
    exact = moments(released(psi, own, placebo)).variance[0]
    assert np.mean(np.array(loud) >= exact) > 0.9


CUT = Clips(0.0, 1.0, spread=4.0)


def told(psi, own, rho=Fraction(1), bias=0.0):
    scores = CUT.scaled(psi, own, np.zeros_like(psi), np.zeros_like(psi))
    answers = drawn(scores, rho, 3)
    found = evaluated(answers, CUT, Method("tabular-dr", bias, calibrated=True), 0.3, 1)
    return found, {d.name: d for d in clip_diagnostics(found, answers)}


@pytest.mark.parametrize("heavy", [0.5, 2.0, 4.0])
def test_bounds_hold_for_the_scores_that_were_cut(heavy):
    rng = np.random.default_rng(5)
    own = (rng.random(20_000) < 0.7).astype(float)
    psi = own + 0.1 + heavy * rng.standard_normal(len(own))
    found, clip = told(psi, own)
    gain, width = psi - own, CUT.widths[2]
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


def test_an_interval_holds_its_estimate():
    assert Interval(0.5, 0.4, 0.6).lower == 0.4
    with pytest.raises(ValueError, match="lower <= estimate <= upper"):
        Interval(0.5, 0.6, 0.7)
