"""Privacy-loss distributions by dp-accounting: what tests compare exact losses with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any


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
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1); got {delta}")
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
