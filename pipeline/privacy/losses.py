"""Privacy losses as values: zCDP, pure and approximate, each with its relation, and a mixed ledger of all three.

Amounts are exact fractions.  Only losses of one kind and one relation add up (privacy.md §1); :func:`mixed` is the one
place where kinds meet, and it says at what price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from pipeline.privacy.budget import delta_from_rho, down, epsilon_from_rho, rho_of_pure, up

Relation = Literal["replace", "zero_out", "add_remove"]


class RelationError(ValueError):
    """Losses of two neighbouring relations, or of two kinds, were about to be added."""


@dataclass(frozen=True)
class ZCDP:
    """Renyi divergence of order a at most ``rho * a`` for every a > 1.  ``rho`` add up, also adaptively.

    Parameters
    ----------
    rho
        Exact, at least 0.
    relation
        Which data sets are neighbours.

    Raises
    ------
    ValueError
        If ``rho`` is negative.
    """

    rho: Fraction
    relation: Relation = "replace"

    def __post_init__(self) -> None:
        _check(rho=self.rho)

    def __add__(self, other: ZCDP) -> ZCDP:
        _same(self, other)
        return ZCDP(self.rho + other.rho, self.relation)


@dataclass(frozen=True)
class Pure:
    """Every probability changes by at most the factor ``exp(epsilon)``.  ``epsilon`` add up.

    Parameters
    ----------
    epsilon
        Exact, in nats, at least 0.
    relation
        Which data sets are neighbours.

    Raises
    ------
    ValueError
        If ``epsilon`` is negative.
    """

    epsilon: Fraction
    relation: Relation = "replace"

    def __post_init__(self) -> None:
        _check(epsilon=self.epsilon)

    def __add__(self, other: Pure) -> Pure:
        _same(self, other)
        return Pure(self.epsilon + other.epsilon, self.relation)


@dataclass(frozen=True)
class Approximate:
    """``(epsilon, delta)``: the factor ``exp(epsilon)`` up to a probability ``delta``.  Both add up."""

    epsilon: Fraction
    delta: Fraction
    relation: Relation = "replace"

    def __post_init__(self) -> None:
        _check(epsilon=self.epsilon, delta=self.delta)

    def __add__(self, other: Approximate) -> Approximate:
        _same(self, other)
        return Approximate(self.epsilon + other.epsilon, self.delta + other.delta, self.relation)


@dataclass(frozen=True)
class ApproximateZCDP:
    """A mixed ledger: rho-zCDP up to a probability ``delta_slack`` (Bun and Steinke).  Both add up.

    Parameters
    ----------
    rho, delta_slack
        Exact, at least 0: the zCDP cost, and the probability with which it need not hold.
    relation
        Which data sets are neighbours.

    Raises
    ------
    ValueError
        If one of them is negative.
    """

    rho: Fraction
    delta_slack: Fraction = Fraction(0)
    relation: Relation = "replace"

    def __post_init__(self) -> None:
        _check(rho=self.rho, delta_slack=self.delta_slack)

    def __add__(self, other: ApproximateZCDP) -> ApproximateZCDP:
        _same(self, other)
        return ApproximateZCDP(self.rho + other.rho, self.delta_slack + other.delta_slack, self.relation)

    def at(self, delta: Fraction) -> Approximate:
        """The ``(epsilon, delta)`` this gives: ``delta_slack + (1 - delta_slack) d'`` is what ``delta`` pays for.

        Raises
        ------
        ValueError
            If ``delta`` is not in (0, 1), or the slack alone reaches it.
        """
        if not self.delta_slack < delta < 1:
            raise ValueError(f"delta must be in (delta_slack, 1) = ({up(self.delta_slack):g}, 1); got {float(delta):g}")
        rest = down((delta - self.delta_slack) / (1 - self.delta_slack))
        return Approximate(Fraction(safe_epsilon(up(self.rho), rest)), delta, self.relation)


Loss = ZCDP | Pure | Approximate | ApproximateZCDP


def safe_epsilon(rho: float, delta: float) -> float:
    """:func:`~pipeline.privacy.budget.epsilon_from_rho`, moved up until it holds with a part in 10^12 to spare.

    Parameters
    ----------
    rho
        zCDP cost, at least 0.
    delta
        In (0, 1).

    Returns
    -------
    In nats.
    """
    epsilon = epsilon_from_rho(rho, delta) * (1 + 1e-12)
    while delta_from_rho(rho, epsilon) > delta * (1 - 1e-12):
        epsilon = epsilon * (1 + 1e-12) + 1e-15
    return epsilon


def membership_advantage(rho: float | None, epsilon: float | None, delta: float | None) -> float:
    """Most by which the best test of "this record or that one" beats a coin: true less false positives.

    Of zCDP by Pinsker's and by Bretagnolle and Huber's inequality (the Kullback-Leibler divergence is at most rho); of
    ``(epsilon, delta)`` the exact value for all that satisfies it.

    Parameters
    ----------
    rho
        zCDP cost; None where only the other two are promised.
    epsilon, delta
        In nats, and the probability of a slip; None where they are not promised.

    Returns
    -------
    At most 1, which is no promise.
    """
    bounds, slip = [1.0], delta or 0.0
    if rho is not None:
        # what a sampler adds is below delta
        bounds += [math.sqrt(rho / 2) + slip, math.sqrt(-math.expm1(-rho)) + slip]
    if epsilon is not None:
        bounds.append(math.tanh(epsilon / 2) + slip * (1 - math.tanh(epsilon / 2)))
    return min(bounds)


def mixed(losses: Iterable[Loss]) -> ApproximateZCDP:
    """All losses in one ledger: an ``(e, d)``-DP mechanism enters as ``rho = e^2 / 2`` and ``delta_slack = d``.

    Pure losses are added as epsilons only among themselves; converting them is for mixing (privacy.md §1.1).

    Raises
    ------
    RelationError
        If two of them have different relations.
    ValueError
        If there are none.
    """
    entries = [_entered(loss) for loss in losses]
    if not entries:
        raise ValueError("a ledger without losses has no relation; give at least one")
    total = entries[0]
    for entry in entries[1:]:
        total = total + entry
    return total


def _entered(loss: Loss) -> ApproximateZCDP:
    if isinstance(loss, ApproximateZCDP):
        return loss
    if isinstance(loss, ZCDP):
        return ApproximateZCDP(loss.rho, Fraction(0), loss.relation)
    slack = loss.delta if isinstance(loss, Approximate) else Fraction(0)
    return ApproximateZCDP(rho_of_pure(loss.epsilon), slack, loss.relation)


def _same(one: Loss, other: Loss) -> None:
    if type(one) is not type(other):
        raise RelationError(f"{type(one).__name__} and {type(other).__name__} do not add; use mixed([...])")
    if one.relation != other.relation:
        raise RelationError(f"losses under {one.relation!r} and {other.relation!r} do not add")


def _check(**named: Fraction) -> None:
    for name, value in named.items():
        if not value >= 0:
            raise ValueError(f"{name} must be >= 0; got {value}")
