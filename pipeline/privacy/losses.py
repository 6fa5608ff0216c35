"""Privacy losses: trust models, guarantees, an epsilon that is safe to state, and an attacker's gain.

The one conversion is :func:`pipeline.privacy.budget.epsilon_from_rho`; it holds for every rho-zCDP mechanism.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypedDict

from pipeline.privacy.budget import delta_from_rho, down, epsilon_from_rho, up
from pipeline.privacy.release import Mechanism, total_delta_slack, total_epsilon, total_rho


def safe_epsilon(rho: float, delta: float) -> float:
    """:func:`~pipeline.privacy.budget.epsilon_from_rho`, moved up until it holds with a part in 10^12 to spare.

    ``rho``: zCDP cost, at least 0.
    ``delta``: in (0, 1).
    Returns nats.
    """
    epsilon = epsilon_from_rho(rho, delta) * (1 + 1e-12)
    while delta_from_rho(rho, epsilon) > delta * (1 - 1e-12):
        epsilon = epsilon * (1 + 1e-12) + 1e-15
    return epsilon


def membership_advantage(rho: float | None, epsilon: float | None, delta: float | None) -> float:
    """Largest advantage of a test of "this record or that one": true less false positives.

    Of zCDP by Pinsker's and by Bretagnolle and Huber's inequality (the Kullback-Leibler divergence is at most rho); of
    ``(epsilon, delta)`` the exact value for all that satisfies it.

    ``rho``: zCDP cost; None where only the other two are promised.
    ``epsilon``, ``delta``: in nats, and the probability of a failure; None where they are not promised.
    Returns at most 1, which is no promise.
    """
    bounds, slip = [1.0], delta or 0.0
    if rho is not None:
        # the sampler's share is below delta
        bounds += [math.sqrt(rho / 2) + slip, math.sqrt(-math.expm1(-rho)) + slip]
    if epsilon is not None:
        bounds.append(math.tanh(epsilon / 2) + slip * (1 - math.tanh(epsilon / 2)))
    return min(bounds)


class Trust(StrEnum):
    """The trust model of a release: the party that adds the noise.

    ``NONE``: there is no noise (simulation only).  ``CENTRAL``: a curator adds it to the sums.  ``JOINT``: a curator
    too, and every user gets results that are computed from the sums of all others.  ``LOCAL``: every user adds it to
    their message.  ``SHUFFLE``: every user too, and a shuffler hides the senders of the messages.  On logs the trust
    model is always central (privacy.md §0.1-3).
    """

    NONE = "none"
    CENTRAL = "central"
    JOINT = "joint"
    LOCAL = "local"
    SHUFFLE = "shuffle"


@dataclass(frozen=True)
class GaussianGuarantee:
    """The guarantee of Gaussian noise for one user, replace-one.

    ``rho``: exact zCDP cost of all that is ever released; None without noise.
    """

    trust: Trust
    rho: Fraction | None

    def epsilon(self, delta: float) -> float | None:
        """Epsilon at ``delta``: recomputed from what is drawn, whatever was asked; None without noise."""
        return None if self.rho is None else safe_epsilon(up(self.rho), delta)

    def beside(self, other: "GaussianGuarantee") -> "GaussianGuarantee":
        """Both released from the same users: costs add up."""
        both = None if self.rho is None or other.rho is None else self.rho + other.rho
        return GaussianGuarantee(self.trust, both)


class SpentBudget(TypedDict):
    """Total cost of mechanisms: zCDP rho and (epsilon, delta), rounded up; None where there is no noise.

    ``pure`` says whether the loss is pure: then ``delta`` is 0.
    """

    rho: float | None
    epsilon: float | None
    delta: float | None
    pure: bool


def spent_budget(mechanisms: Sequence[Mechanism], delta: float, joint: Fraction | None = None) -> SpentBudget:
    """Total cost of a list of mechanisms.

    The samplers' share of delta is taken from the ``delta`` of the conversion, so that ``delta`` holds in all.

    ``delta``: at which rho is converted to epsilon (privacy.md §1.1); above the samplers' share of it.
    ``joint``: the exact rho of all tables together, where they were bounded jointly; None: their losses add.
    """
    if batches := {m.shuffled for m in mechanisms if m.shuffled is not None}:
        from pipeline.privacy.shuffle import NoiseBits, delivered_epsilon

        # by an exact accountant: an episode is in one batch, so the costliest counts
        bits = ((NoiseBits(b.users, b.each, b.chance), b) for b in batches)
        epsilon = max(delivered_epsilon(x, b.changes, delta, b.honest, b.episodes) for x, b in bits)
        return {"rho": None, "epsilon": epsilon, "delta": delta, "pure": False}
    rho, pure = total_rho(tuple(mechanisms)), total_epsilon(tuple(mechanisms))
    if joint is not None:
        rho, pure = joint, None
    if rho is None:
        return {"rho": None, "epsilon": None, "delta": None, "pure": False}
    if pure is not None:
        return {"rho": up(rho), "epsilon": up(pure), "delta": 0.0, "pure": True}
    left = down(Fraction(delta) - total_delta_slack(tuple(mechanisms)))
    return {"rho": up(rho), "epsilon": safe_epsilon(up(rho), left), "delta": delta, "pure": False}
