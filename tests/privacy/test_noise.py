"""Noise: the right law is accepted, broken twins and scales 30 % off are rejected, real data refused, slack charged."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from pipeline.privacy import csprng as words
from pipeline.privacy.budget import epsilon_from_rho
from pipeline.privacy.csprng import Law, Words, by_rejection, draw, exp_trials, fixed_point
from pipeline.privacy.losses import spent_budget
from pipeline.privacy.noise import (
    LARGEST_VARIANCE,
    TV_BOUND,
    FastOsNoise,
    OpenDpNoise,
    OsNoise,
    RealDataError,
    SeededNoise,
    SimulatedWorld,
    admit_release,
    gaussian_scale,
)
from pipeline.privacy.release import Mechanism, Release, check_slack, total_delta_slack, with_sampler_slack
from pipeline.privacy.release_file import describe, describe_mechanism, mechanism_from, read_release, release_files
from tests.conftest import slow
from tests.privacy.handles import REAL, SYNTHETIC

THRESHOLD, BINS = 1e-6, 60
TEN = Fraction(100)


def by_table(source, size, law, scale):
    return draw(source, size, Law(law, scale))


def rejected(source, size, law, scale):
    return by_rejection(source, size, Law(law, scale))


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


def fits_gaussian(draws, variance, off=1.0):
    square = float(variance) * off**2
    return p_value(draws, lambda k: -(k**2) / (2 * square), math.ceil(20 * square**0.5) + 2) > THRESHOLD


def fits_laplace(draws, scale, off=1.0):
    wide = float(scale) * off
    return p_value(draws, lambda k: -np.abs(k) / wide, math.ceil(50 * wide) + 2) > THRESHOLD


FITS = {"gaussian": fits_gaussian, "laplace": fits_laplace}
LAWS = [
    *(("gaussian", Fraction(v), 10**5) for v in ("1/4", "1", "9", "100")),
    slow("gaussian", Fraction(10**6), 10**6),
    *(("laplace", b, 10**5) for b in (Fraction(1, 3), Fraction(3, 2), Fraction(80), Fraction(10**19 + 1, 10**17))),
]


@pytest.mark.parametrize("route", [by_table, rejected])
@pytest.mark.parametrize(("law", "scale", "draws"), LAWS)
def test_the_law_of_each_route_is_accepted_and_thirty_percent_off_rejected(route, law, scale, draws):
    drawn = route(Words(), draws, law, scale)
    assert drawn.dtype == np.int64 and drawn.shape == (draws,)
    assert [FITS[law](drawn, scale, off) for off in (1.0, 0.7, 1.3)] == [True, False, False]


@pytest.mark.parametrize("variance", [Fraction(1, 9), Fraction(22, 7), Fraction(10**12), Fraction(2**80)])
def test_rejection_serves_any_rational_variance_without_overflow(variance):
    drawn = rejected(Words(), 40_000, "gaussian", variance)
    if variance > 10**6:
        sd = math.isqrt(int(variance))
        drawn, variance = drawn // (sd // 1000), Fraction(sd, sd // 1000) ** 2
    assert fits_gaussian(drawn, variance) and not fits_gaussian(drawn, variance, 1.3)


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


def cut_tail(n):
    drawn = by_table(Words(), 2 * n, "gaussian", TEN)
    return drawn[np.abs(drawn) <= 25][:n]


TWINS = {
    "half the variance": lambda n: by_table(Words(), n, "gaussian", TEN / 2),
    "a tail of Laplace": lambda n: rejected(Words(), n, "laplace", Fraction(7)),
    "no tail": cut_tail,
}


@pytest.mark.parametrize("broken", TWINS)
def test_a_broken_twin_is_caught(broken):
    assert not fits_gaussian(TWINS[broken](10**5), TEN)


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
    assert fits_independent(rejected(Words(), 60_000, "gaussian", TEN))
    assert not fits_independent(np.repeat(rejected(Words(), 30_000, "gaussian", TEN), 2))


def fits_independent(draws):
    first, second = (draws.reshape(-1, 2) > 0).T
    return stats.chi2_contingency(np.bincount(2 * first + second, minlength=4).reshape(2, 2)).pvalue > THRESHOLD


@pytest.mark.parametrize("law", [Law("gaussian", Fraction(400)), Law("laplace", Fraction(20))])
def test_few_draws_are_made_by_rejection_and_many_by_a_table(law, monkeypatch):
    """The choice depends on numbers that are public: how many, and of what scale."""
    from pipeline.privacy import noise

    chosen = []
    monkeypatch.setattr(noise, "draw", lambda *a: chosen.append("table") or draw(*a))
    ask = getattr(OsNoise(), law.kind)
    for size in (2 * law.reach(64) - 1, 2 * law.reach(64)):
        assert ask(size, int(law.scale), REAL).shape == (size,)
    assert chosen == ["table"]


def test_what_a_recipe_lists_for_its_table_is_still_listed():
    assert FastOsNoise().tv_bound(LARGEST_VARIANCE) == TV_BOUND and FastOsNoise().tv_bound(LARGEST_VARIANCE + 1) == 0
    assert OsNoise().tv_bound(4) == OpenDpNoise().tv_bound(4) == 0


def test_what_cannot_be_drawn_is_refused():
    noise = OsNoise()
    for variance in (0, -1):
        with pytest.raises(ValueError, match="positive integer"):
            noise.gaussian(1, variance, REAL)
    with pytest.raises(ValueError, match="positive"):
        noise.laplace(1, Fraction(0), REAL)
    for ask, scale in ((noise.gaussian, 2**100 + 1), (noise.laplace, Fraction(10) ** 25)):
        with pytest.raises(OverflowError, match="nothing was released"):
            ask(1, scale, REAL)
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


# a scale 30 % off costs more than 0.05 nats a draw: of so many, it passes with a chance below 1e-100
FEW = 10_000


@pytest.mark.parametrize("noise", [OsNoise(), OpenDpNoise(), SeededNoise(7)], ids=["os", "opendp", "seeded"])
@pytest.mark.parametrize(
    ("law", "scale"), [*(("gaussian", v) for v in (1, 9, 400)), ("laplace", Fraction(3, 2)), ("laplace", Fraction(80))]
)
def test_the_right_law_is_accepted_and_thirty_percent_off_rejected(noise, law, scale):
    draws = getattr(noise, law)(FEW, scale, SYNTHETIC)
    assert draws.dtype == np.int64
    assert [FITS[law](draws, scale, off) for off in (1.0, 0.7, 1.3)] == [True, False, False]


@pytest.mark.parametrize("draw", [lambda n, d: n.gaussian(1, 4, d), lambda n, d: n.laplace(1, Fraction(2), d)])
def test_seeded_noise_draws_for_a_synthetic_handle_and_nothing_else(draw):
    assert draw(SeededNoise(0), SYNTHETIC).shape == draw(SeededNoise(0), SimulatedWorld("riverswim")).shape == (1,)
    # the word a caller types is no manifest
    for refused in (REAL, "synthetic", "real", None):
        with pytest.raises(RealDataError, match="registered as real"):
            draw(SeededNoise(0), refused)


def test_a_simulated_world_cannot_be_called_real():
    with pytest.raises(AttributeError):
        SimulatedWorld("w").data_kind = "real"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        SimulatedWorld("w", data_kind="real")  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("variance", [10**10, 10**12])
def test_wide_seeded_noise_has_the_right_scale(variance):
    draws = SeededNoise(3).gaussian(40_000, variance, SYNTHETIC)
    assert draws.std() == pytest.approx(variance**0.5, rel=0.02)
    wide = SeededNoise(3).laplace(40_000, Fraction(variance), SYNTHETIC)
    assert wide.std() == pytest.approx(2**0.5 * variance, rel=0.03)


def test_the_float_scale_is_never_below_the_exact_one():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    for variance in (1, 2, 3, 40, 83, 10**6 + 1):
        s = gaussian_scale(variance)
        assert Fraction(s) ** 2 >= variance
        m = dp.m.make_gaussian(dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T=float), scale=s)
        assert m.map(1.0) <= 1 / (2 * variance) * (1 + 1e-12)


@pytest.mark.parametrize(("noise", "exact"), [(SeededNoise(1), False), (OsNoise(), True), (SeededNoise(1), True)])
def test_what_would_not_be_private_is_refused_for_real_people_alone(noise, exact):
    with pytest.raises(RealDataError):
        admit_release(noise, "shop", "real", exact)
    admit_release(noise, "shop", "synthetic", exact)
    admit_release(OsNoise(), "shop", "real", False)


GAUSSIAN = Mechanism("n_sa", (2, 3, 4), "user", 4, 4, "2H", variance=40)
LAPLACE = replace(GAUSSIAN, table="n_sas", shape=(2, 3, 4, 5), variance=None, scale=Fraction(8))
WIDE = replace(GAUSSIAN, variance=LARGEST_VARIANCE + 1)


def test_only_draws_of_the_table_add_to_delta():
    exact = with_sampler_slack((GAUSSIAN, LAPLACE, WIDE), OsNoise(), 3.0)
    assert exact == (GAUSSIAN, LAPLACE, WIDE) and total_delta_slack(exact) == 0
    assert with_sampler_slack((GAUSSIAN,), OsNoise(), 2000.0) == (GAUSSIAN,)
    fast = with_sampler_slack((GAUSSIAN, LAPLACE, WIDE), FastOsNoise(), 3.0)
    assert fast[1:] == (LAPLACE, WIDE)
    by_hand = (1 + Fraction(math.exp(3.0))) * 24 * TV_BOUND
    assert by_hand <= total_delta_slack(fast) <= by_hand * (1 + Fraction(1, 10**11))
    with pytest.raises(ValueError, match="finite epsilon"):
        with_sampler_slack((GAUSSIAN,), FastOsNoise(), math.inf)


def test_less_than_twice_the_distance_of_all_draws_is_refused_and_that_is_accepted():
    """At ε = 0 either neighbour's draws may be off: once is half of what delta loses."""
    least = 2 * GAUSSIAN.drawn * TV_BOUND
    check_slack([replace(GAUSSIAN, delta_slack=least)], FastOsNoise())
    check_slack(with_sampler_slack((GAUSSIAN, LAPLACE, WIDE), FastOsNoise(), 0.0), FastOsNoise())
    for short in (Fraction(0), least / 2, least * Fraction(99, 100)):
        with pytest.raises(ValueError, match="share of delta is not counted"):
            check_slack([replace(GAUSSIAN, delta_slack=short)], FastOsNoise())


def test_slacks_of_all_tables_add_and_all_are_taken_from_delta():
    """One sampler's share may hide beside another's: the sum counts, not the largest."""
    both = tuple(replace(GAUSSIAN, delta_slack=Fraction(1, 10**n)) for n in (7, 6))
    assert total_delta_slack(both) == Fraction(11, 10**7)
    left = float(Fraction(1, 10**5) - Fraction(11, 10**7))
    epsilon = epsilon_from_rho(2 * float(GAUSSIAN.rho), left)
    assert spent_budget(both, 1e-5)["epsilon"] == pytest.approx(epsilon, rel=1e-9)


def test_a_description_without_slack_is_what_it_was_and_with_it_survives_the_file(tmp_path):
    assert "delta_slack" not in describe_mechanism(GAUSSIAN)
    assert list(describe_mechanism(GAUSSIAN)) == [
        *("name", "table", "shape", "cells", "unit", "l2_squared", "l1", "sensitivity", "sensitivity_rule"),
        *("variance", "laplace_scale", "scale", "rho", "rho_exact", "epsilon"),
    ]
    (slack,) = with_sampler_slack((GAUSSIAN,), FastOsNoise(), 1.0)
    for one in (slack, GAUSSIAN):
        assert mechanism_from(describe_mechanism(one)) == one
    noise = FastOsNoise()
    drawn = {"n_sa": noise.gaussian(24, 40, REAL).reshape(2, 3, 4)}
    release = Release("d", "real", "per_step", (slack,), drawn, noise.name, noise.sampler)
    for name, content in release_files(release).items():
        (tmp_path / name).write_bytes(content)
    assert read_release(tmp_path).delta_slack == release.delta_slack == slack.delta_slack > 0
    assert "inversion with lazy bits" in describe(release)["sampler"] and describe(release)["noise"] == "os"


def test_a_row_of_the_file_names_the_place_of_its_integer(tmp_path):
    drawn = np.arange(24).reshape(2, 3, 4)
    release = Release("d", "real", "per_step", (GAUSSIAN,), {"n_sa": drawn}, "os", "exact")
    (tmp_path / "release.parquet").write_bytes(release_files(release)["release.parquet"])
    rows = pq.read_table(tmp_path / "release.parquet").to_pylist()
    assert len(rows) == 24 and all(row["value"] == drawn[row["step"], row["state"], row["action"]] for row in rows)
