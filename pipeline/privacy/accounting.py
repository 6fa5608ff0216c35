"""Sharper conversions under names of their own: Gaussian DP and privacy-loss distributions (privacy.md §1.1).

The official conversion is :func:`pipeline.privacy.budget.epsilon_from_rho`; it holds for every rho-zCDP mechanism.
The ones here hold for what they name only, and only for parameters declared before any data is read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

from pipeline.privacy.brent import root


def gdp_delta(rho: float, epsilon: float) -> float:
    """Delta at ``epsilon`` when *every* component is a continuous Gaussian: mu-GDP with ``mu = sqrt(2 rho)``.

    Not for discrete noise: use :func:`pld_epsilon` there.
    """
    _at_least_zero(rho=rho, epsilon=epsilon)
    from scipy.special import log_ndtr

    if rho == 0:
        return 0.0
    mu = math.sqrt(2 * rho)
    first, second = float(log_ndtr(-epsilon / mu + mu / 2)), epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return -math.exp(first) * math.expm1(second - first)


def gdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at ``delta`` when *every* component is a continuous Gaussian; the inverse of :func:`gdp_delta`.

    Parameters
    ----------
    rho, delta
        zCDP cost of all components together, at least 0; and the delta, in (0, 1), at which epsilon is wanted.

    Returns
    -------
    In nats.
    """
    _at_least_zero(rho=rho)
    _in_unit_interval(delta)
    if gdp_delta(rho, 0.0) <= delta:
        return 0.0
    # the zCDP textbook form bounds it from above
    upper = rho + 2 * math.sqrt(rho * -math.log(delta)) + 1e-9

    def excess(epsilon: float) -> float:
        return gdp_delta(rho, epsilon) - delta

    return root(excess, 0.0, upper, 1e-13)


@dataclass(frozen=True)
class DiscreteGaussian:
    """One integer shifted by at most ``shift``, with discrete Gaussian noise; ``times`` such integers.

    A vector enters by its coordinates, one entry a distinct shift: its law is not a function of its length alone.
    """

    variance: int
    shift: int = 1
    times: int = 1


@dataclass(frozen=True)
class DiscreteLaplace:
    """One integer shifted by at most ``shift``, with discrete Laplace noise of ``scale``; ``times`` such integers."""

    scale: float
    shift: int = 1
    times: int = 1


@dataclass(frozen=True)
class TwoLaws:
    """A mechanism on its worst pair: outcome -> log probability with one record, and with the other."""

    one: Mapping[Any, float]
    other: Mapping[Any, float]
    times: int = 1


@dataclass(frozen=True)
class Given:
    """A mechanism of which only ``(epsilon, delta)`` is known."""

    epsilon: float
    delta: float
    times: int = 1


Part = DiscreteGaussian | DiscreteLaplace | TwoLaws | Given


def pld_epsilon(parts: Sequence[Part], delta: float, interval: float = 1e-4) -> float:
    """Epsilon at ``delta`` of a pre-declared list, by composing privacy-loss distributions; errs upwards only.

    Two neighbours may meet one asymmetric part in one order and the next in the other, so every way to orient the
    :class:`TwoLaws` of the list is composed (``times + 1`` ways a part) and the largest epsilon is taken.

    Parameters
    ----------
    interval
        Nats to which losses are rounded up; smaller is tighter and slower.

    Raises
    ------
    ValueError
        If the list is empty or ``delta`` is not in (0, 1).
    """
    _in_unit_interval(delta)
    if not parts:
        raise ValueError("give at least one mechanism")
    ways = [_orientations(part, interval) for part in parts]
    return max(float(reduce(_compose, way).get_epsilon_for_delta(delta)) for way in product(*ways))


def _compose(one: Any, other: Any) -> Any:
    return one.compose(other)


def _orientations(part: Part, interval: float) -> list[Any]:
    """The loss distribution of a part in each orientation: one, unless its two laws can be swapped."""
    if not isinstance(part, TwoLaws):
        return [_distribution(part, interval).self_compose(part.times)]
    there = _distribution(part, interval)
    back = _distribution(TwoLaws(part.other, part.one), interval)
    mixed = [there.self_compose(part.times - n).compose(back.self_compose(n)) for n in range(1, part.times)]
    return [there.self_compose(part.times), *mixed, back.self_compose(part.times)]


def _distribution(part: Part, interval: float) -> Any:
    # dp_accounting takes two seconds to import: only who asks pays
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    if isinstance(part, Given):
        given = common.DifferentialPrivacyParameters(part.epsilon, part.delta)
        return pld.from_privacy_parameters(given, value_discretization_interval=interval)
    settings: Any = {"pessimistic_estimate": True, "value_discretization_interval": interval}
    if isinstance(part, DiscreteGaussian):
        # rounded down, the scale can only overstate the loss
        scale = math.nextafter(math.sqrt(part.variance), 0.0)
        return pld.from_discrete_gaussian_mechanism(scale, sensitivity=part.shift, **settings)
    if isinstance(part, DiscreteLaplace):
        return pld.from_discrete_laplace_mechanism(1 / part.scale, sensitivity=part.shift, **settings)
    # symmetric here means: this order only
    return pld.from_two_probability_mass_functions(part.one, part.other, symmetric=True, **settings)


def _at_least_zero(**named: float) -> None:
    for name, value in named.items():
        if not value >= 0:
            raise ValueError(f"{name} must be >= 0; got {value}")


def _in_unit_interval(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1); got {delta}")
