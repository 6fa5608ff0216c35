"""Noise: the right law is accepted, a scale 30 % off on either side is rejected, real data is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pipeline.privacy.noise import (
    OpenDpNoise,
    OsNoise,
    RealDataError,
    SeededNoise,
    SimulatedWorld,
    admit_release,
    gaussian_scale,
)
from tests.privacy.handles import REAL, SYNTHETIC
from tests.privacy.test_samplers import fits_gaussian, fits_laplace

DRAWS = 40_000
# a scale 30 % off costs more than 0.05 nats a draw: of so many, it passes with a chance below 1e-100
FEW = 10_000


@pytest.mark.parametrize("noise", [OsNoise(), OpenDpNoise(), SeededNoise(7)], ids=["os", "opendp", "seeded"])
@pytest.mark.parametrize(
    ("law", "scale"), [*(("gaussian", v) for v in (1, 9, 400)), ("laplace", Fraction(3, 2)), ("laplace", Fraction(80))]
)
def test_the_right_law_is_accepted_and_thirty_percent_off_rejected(noise, law, scale):
    draws, fits = getattr(noise, law)(FEW, scale, SYNTHETIC), {"gaussian": fits_gaussian, "laplace": fits_laplace}[law]
    assert draws.dtype == np.int64
    assert [fits(draws, scale, off) for off in (1.0, 0.7, 1.3)] == [True, False, False]


def test_operating_system_noise_is_never_the_same_and_takes_no_seed():
    assert (OsNoise().gaussian(200, 10_000, REAL) != OsNoise().gaussian(200, 10_000, REAL)).any()
    with pytest.raises(TypeError):
        OsNoise(0)  # pyright: ignore[reportCallIssue]


DRAWERS = [lambda n, d: n.gaussian(1, 4, d), lambda n, d: n.laplace(1, Fraction(2), d)]


@pytest.mark.parametrize("draw", DRAWERS)
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
    draws = SeededNoise(3).gaussian(DRAWS, variance, SYNTHETIC)
    assert draws.std() == pytest.approx(variance**0.5, rel=0.02)
    assert SeededNoise(3).laplace(DRAWS, Fraction(variance), SYNTHETIC).std() == pytest.approx(
        2**0.5 * variance, rel=0.03
    )


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
