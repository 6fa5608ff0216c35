"""The fast samplers: the right law is accepted; every broken twin and every scale 30 % off is rejected."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from pipeline.privacy import csprng as words
from pipeline.privacy.csprng import Law, Words, by_rejection, draw, exp_trials, fixed_point
from pipeline.privacy.noise import LARGEST_VARIANCE, TV_BOUND, FastOsNoise, OpenDpNoise, OsNoise
from tests.privacy.handles import REAL

THRESHOLD, BINS = 1e-6, 60
HALF, ONE, THREE, TEN, THOUSAND = (Fraction(v) for v in ("0.25", "1", "9", "100", "1000000"))


def gaussian_by_table(source, size, variance):
    return draw(source, size, Law("gaussian", variance))


def laplace_by_table(source, size, scale):
    return draw(source, size, Law("laplace", scale))


def gaussian_by_rejection(source, size, variance):
    return by_rejection(source, size, Law("gaussian", variance))


def laplace_by_rejection(source, size, scale):
    return by_rejection(source, size, Law("laplace", scale))


ROUTES = [gaussian_by_table, gaussian_by_rejection]


def p_value(draws, log_weight, reach):
    """Chi-square of draws against a discrete law on [-reach, reach], in bins of near-equal probability."""
    k = np.arange(-reach, reach + 1)
    w = np.exp(log_weight(k.astype(float)))
    cdf = np.cumsum(w / w.sum())
    edges = np.unique(np.searchsorted(cdf, np.arange(1, BINS) / BINS))
    edges = edges[(cdf[edges] * len(draws) > 10) & ((1 - cdf[edges]) * len(draws) > 10)]
    p = np.diff(np.concatenate([[0.0], cdf[edges], [1.0]]))
    seen = np.bincount(np.searchsorted(k[edges], draws, side="left"), minlength=len(p))
    return stats.chisquare(seen[p > 0], p[p > 0] * len(draws)).pvalue


def gaussian(variance):
    return lambda k: -(k**2) / (2 * float(variance))


def laplace(scale):
    return lambda k: -np.abs(k) / float(scale)


def fits_gaussian(draws, variance, off=1.0):
    sd = math.sqrt(variance) * off
    return p_value(draws, gaussian(sd * sd), math.ceil(20 * sd) + 2) > THRESHOLD


def fits_laplace(draws, scale, off=1.0):
    return p_value(draws, laplace(float(scale) * off), math.ceil(50 * scale * off) + 2) > THRESHOLD


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("variance", "draws"),
    [(HALF, 10**5), (ONE, 10**5), (THREE, 10**5), (TEN, 10**5), pytest.param(THOUSAND, 10**6, marks=pytest.mark.slow)],
)
def test_gaussian_law_is_accepted_and_thirty_percent_off_rejected(route, variance, draws):
    drawn = route(Words(), draws, variance)
    assert drawn.dtype == np.int64 and drawn.shape == (draws,)
    assert fits_gaussian(drawn, variance)
    assert not fits_gaussian(drawn, variance, 0.7) and not fits_gaussian(drawn, variance, 1.3)


@pytest.mark.parametrize("variance", [Fraction(1, 9), Fraction(22, 7), Fraction(10**12), Fraction(2**80)])
def test_rejection_serves_any_rational_variance_without_overflow(variance):
    drawn = gaussian_by_rejection(Words(), 40_000, variance)
    if variance > 10**6:
        sd = math.isqrt(int(variance))
        drawn, variance = drawn // (sd // 1000), Fraction(sd, sd // 1000) ** 2
    assert fits_gaussian(drawn, variance) and not fits_gaussian(drawn, variance, 1.3)


@pytest.mark.parametrize("route", [laplace_by_table, laplace_by_rejection])
@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(3, 2), Fraction(80), Fraction(10**19 + 1, 10**17)])
def test_laplace_law_is_accepted_and_thirty_percent_off_rejected(route, scale):
    drawn = route(Words(), 10**5, scale)
    assert fits_laplace(drawn, scale)
    assert not fits_laplace(drawn, scale, 0.7) and not fits_laplace(drawn, scale, 1.3)


@pytest.mark.parametrize(
    ("law", "scale"),
    [*(("gaussian", v) for v in (1, 100, 10**6, 10**9)), ("laplace", Fraction(3, 2)), ("laplace", 100)],
)
def test_our_source_draws_what_opendp_draws(law, scale):
    fast, slow = (getattr(noise, law)(n, scale, REAL) for noise, n in ((OsNoise(), 40_000), (OpenDpNoise(), 4_000)))
    assert two_sample(fast, slow) > THRESHOLD
    assert two_sample(fast, 2 * slow) < THRESHOLD


def two_sample(one, other):
    edges = np.unique(np.quantile(np.concatenate([one, other]), np.linspace(0.02, 0.98, 25), method="lower"))
    table = np.array([np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (one, other)])
    return stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue


def half_variance(n):
    return gaussian_by_table(Words(), n, TEN / 2)


def laplace_tail(n):
    return laplace_by_rejection(Words(), n, Fraction(7))


def cut_tail(n):
    drawn = gaussian_by_table(Words(), 2 * n, TEN)
    return drawn[np.abs(drawn) <= 25][:n]


@pytest.mark.parametrize("broken", [half_variance, laplace_tail, cut_tail])
def test_a_broken_twin_is_caught(broken):
    assert not fits_gaussian(broken(10**5), TEN)


def test_discarding_unfinished_trials_is_caught():
    """Pitfall (i): drop the trials still alive when a buffer runs out, and short trials are favoured."""

    def trial_lengths(discard):
        g = np.full(40_000, 2**63, dtype=np.uint64)
        source, length, alive = Words(), np.zeros(len(g), dtype=int), np.arange(len(g))
        while alive.size and not (discard and length[alive[0]] == 3):
            length[alive] += 1
            alive = alive[source.take(alive.size) < g[alive] // np.uint64(length[alive[0]])]
        return np.delete(length, alive)

    law = np.array([0.5**k / math.factorial(k) for k in range(8)])
    expected = np.append((law[:-1] - law[1:])[:4], law[4])

    def p(lengths):
        seen = np.bincount(np.minimum(lengths, 5), minlength=6)[1:]
        return stats.chisquare(seen, expected / expected.sum() * len(lengths)).pvalue

    assert p(trial_lengths(discard=False)) > THRESHOLD > p(trial_lengths(discard=True))


def test_words_are_carried_over_never_reused_never_dropped(constants):
    constants(urandom=lambda n: bytes(range(n)))
    whole, pieces = Words().take(200_000), Words()
    cut = [pieces.take(n) for n in (1, 32_767, 5, 65_536, 0, 99_991, 1700)]
    assert (np.concatenate(cut) == whole).all()
    # 200 000 distinct words: a reused block would repeat them all
    assert len(np.unique(whole)) == len(whole)


def test_reused_words_are_caught(monkeypatch, constants):
    constants(urandom=lambda n: b"\0" * n)
    same = FastOsNoise().gaussian(100, 100, REAL), FastOsNoise().gaussian(100, 100, REAL)
    assert (same[0] == same[1]).all()
    monkeypatch.undo()
    fresh = FastOsNoise().gaussian(100, 100, REAL), FastOsNoise().gaussian(100, 100, REAL)
    assert (fresh[0] != fresh[1]).any()
    assert fits_independent(gaussian_by_rejection(Words(), 60_000, TEN))
    assert not fits_independent(np.repeat(gaussian_by_rejection(Words(), 30_000, TEN), 2))


def fits_independent(draws):
    first, second = (draws.reshape(-1, 2) > 0).T
    return stats.chi2_contingency(np.bincount(2 * first + second, minlength=4).reshape(2, 2)).pvalue > THRESHOLD


@pytest.mark.parametrize("law", [Law("gaussian", Fraction(400)), Law("laplace", Fraction(20))])
def test_few_draws_are_made_by_rejection_and_many_by_a_table(law, monkeypatch):
    """The choice depends on numbers that are public: how many, and of what scale."""
    from pipeline.privacy import noise

    chosen = []
    monkeypatch.setattr(noise, "draw", lambda *a: chosen.append("table") or draw(*a))
    ask = OsNoise().gaussian if law.kind == "gaussian" else OsNoise().laplace
    for size in (2 * law.reach(64) - 1, 2 * law.reach(64)):
        assert ask(size, int(law.scale), REAL).shape == (size,)
    assert chosen == ["table"]


def test_what_a_recipe_lists_for_its_table_is_still_listed():
    assert FastOsNoise().tv_bound(LARGEST_VARIANCE) == TV_BOUND and FastOsNoise().tv_bound(LARGEST_VARIANCE + 1) == 0
    assert OsNoise().tv_bound(4) == OpenDpNoise().tv_bound(4) == 0


def test_what_cannot_be_drawn_is_refused():
    noise = OsNoise()
    with pytest.raises(TypeError):
        OsNoise(1)  # pyright: ignore[reportCallIssue]
    for variance in (0, -1):
        with pytest.raises(ValueError, match="positive integer"):
            noise.gaussian(1, variance, REAL)
    with pytest.raises(ValueError, match="positive"):
        noise.laplace(1, Fraction(0), REAL)
    with pytest.raises(OverflowError, match="nothing was released"):
        noise.gaussian(1, 2**100 + 1, REAL)
    with pytest.raises(OverflowError, match="nothing was released"):
        noise.laplace(1, Fraction(10) ** 25, REAL)
    assert noise.gaussian(0, 4, REAL).shape == noise.laplace(0, Fraction(2), REAL).shape == (0,)


@pytest.mark.parametrize("source", [OsNoise(), OpenDpNoise()], ids=["ours", "opendp"])
def test_the_widest_noise_has_its_law(source):
    """An adaptive regression of twenty steps needs more than 2^40 at a budget of 1."""
    n = 4000
    drawn = source.gaussian(n, 2**100, REAL)
    scaled = drawn / 2**50
    # six standard errors, less than a third
    assert abs(scaled.var() - 1) < 6 * math.sqrt(2 / n) < 1 / 3 and abs(scaled.mean()) < 6 / math.sqrt(n)
    assert np.abs(drawn).max() < 2**60 and len(set(drawn & 1)) == 2
    sized = source.laplace(n, Fraction(2**50), REAL)
    assert abs(np.abs(sized).mean() / 2**50 - 1) < 6 / math.sqrt(n)


class Script(Words):
    """Words written down in advance, to reach the ties that chance does not."""

    def __init__(self, *given):
        super().__init__()
        self._given = list(given)

    def take(self, n):
        taken, self._given = self._given[:n], self._given[n:]
        assert len(taken) == n, "more words were taken than expected"
        return np.array(taken, dtype=np.uint64)


def test_ties_of_exponential_trials_are_settled_by_more_bits():
    third = Fraction(1, 3)
    g = fixed_point(np.array([1], dtype=np.uint64), 3)
    assert int(g[0]) == (2**64) // 3
    # the word ties; the next 64 bits of 1/3 are 0101..: below goes on (then k = 2 stops: false), above stops at once
    assert not exp_trials(Script(int(g[0]), 0, 2**64 - 1), g, lambda i: third)[0]
    assert exp_trials(Script(int(g[0]), 2**64 - 1), g, lambda i: third)[0]


def test_ties_of_the_geometric_are_settled_by_more_bits():
    e1 = int(words._powers()[-1])
    assert list(words.geometric(Script(e1, 0), 1)) == [1]
    assert list(words.geometric(Script(e1, 2**64 - 1), 1)) == [0]
    assert list(words.geometric(Script(e1 - 1, e1 + 1), 2)) == [1, 0]
    # 2^40 / 2^192 lies between exp(-106) and exp(-105)
    assert list(words.geometric(Script(0, 0, 2**40), 1)) == [105]


@pytest.mark.parametrize("whole", [1, 3, 1000, 2**42 - 1, 2**42, 2**42 + 5, 2**60, 10**19, 10**30])
def test_the_fixed_point_is_exact(whole):
    rest = words.below(Words(), 300, whole)
    assert all(0 <= int(r) < whole for r in rest)
    assert [int(f) for f in fixed_point(rest, whole)] == [(int(r) << 64) // whole for r in rest]
