"""What every noise source must do: a :class:`~pipeline.privacy.noise.NoiseSource` draws the law it names."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pipeline.audits.contract_broken import promised
from pipeline.privacy.noise import NoiseSource, RealDataError, SimulatedWorld

Make = Callable[[], NoiseSource]

_NOWHERE = SimulatedWorld("contract")
_DRAWS = 20_000
# one false alarm in 10^8; a scale 10 % off is far beyond it at this many draws
_DOUBT = 1e-8
_LARGEST_SLACK = Fraction(1, 2**60)


def gaussian_draws_have_their_law(make: Make) -> None:
    """Chi-square of 20 000 draws at variances 2 and 30 against the discrete Gaussian."""
    for variance in (2, 30):
        drawn = make().gaussian(_DRAWS, variance, _NOWHERE)
        _law(drawn, f"gaussian, variance {variance}", lambda x, v=variance: np.exp(-(x**2) / (2 * v)))


def laplace_draws_have_their_law(make: Make) -> None:
    """The same of the discrete Laplace at scales 3/2 and 7."""
    for scale in (Fraction(3, 2), Fraction(7)):
        drawn = make().laplace(_DRAWS, scale, _NOWHERE)
        _law(drawn, f"laplace, scale {scale}", lambda x, b=float(scale): np.exp(-np.abs(x) / b))


def neighbouring_draws_do_not_follow_each_other(make: Make) -> None:
    """No correlation between one draw and the next, nor between two calls."""
    noise = make()
    one, other = (noise.gaussian(_DRAWS, 100, _NOWHERE).astype(np.float64) for _ in range(2))
    for name, x, y in (("draws", one[:-1], one[1:]), ("calls", one, other)):
        r = float(np.corrcoef(x, y)[0, 1])
        promised(abs(r) < 6.5 / np.sqrt(_DRAWS), f"neighbouring {name} correlate by {r:.3f}")


def what_can_be_repeated_refuses_real_people(make: Make) -> None:
    """A source that draws the same twice is known to whoever knows the seed."""
    one, other = (make().gaussian(64, 10**6, _NOWHERE) for _ in range(2))
    if not np.array_equal(one, other):
        return
    try:
        make().admit("real")
    except RealDataError:
        return
    promised(False, "draws the same numbers twice, and serves data registered as real")


def the_distance_from_the_law_is_small(make: Make) -> None:
    """``tv_bound`` is what a draw may be off; it is counted in delta, so it must be tiny."""
    bound = make().tv_bound(10**6)
    promised(0 <= bound <= _LARGEST_SLACK, f"tv_bound is {float(bound):.3g} a draw")


NOISE_CHECKS: tuple[Callable[[Make], None], ...] = (
    gaussian_draws_have_their_law,
    laplace_draws_have_their_law,
    neighbouring_draws_do_not_follow_each_other,
    what_can_be_repeated_refuses_real_people,
    the_distance_from_the_law_is_small,
)


def _law(drawn: NDArray[np.int64], name: str, weight: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> None:
    promised(drawn.shape == (_DRAWS,) and drawn.dtype == np.int64, f"{name}: {drawn.shape} of {drawn.dtype}, not int64")
    support = np.arange(-400, 401)
    mass = weight(support) / weight(support).sum()
    # tails are pooled so that every cell expects at least 20
    inner = support[mass * _DRAWS >= 20]
    low, high = int(inner[0]), int(inner[-1])
    seen = np.bincount(np.clip(drawn, low, high) - low, minlength=high - low + 1)
    expected = mass[(support >= low) & (support <= high)].copy()
    expected[0] += mass[support < low].sum()
    expected[-1] += mass[support > high].sum()
    p = float(stats.chisquare(seen, expected * _DRAWS).pvalue)
    promised(p > _DOUBT, f"{name}: not the law it names (p = {p:.1g}); spread {drawn.std():.3f}")
