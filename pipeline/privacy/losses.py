"""What a loss means: an epsilon that is safe to state, a sharper one of Gaussians alone, and what an attacker gains.

The official conversion is :func:`pipeline.privacy.budget.epsilon_from_rho`; it holds for every rho-zCDP mechanism.
``gdp_epsilon`` holds for what it names only (privacy.md §1.1).
"""

from __future__ import annotations

import math

from pipeline.privacy.brent import root
from pipeline.privacy.budget import check_cost, check_share, delta_from_rho, epsilon_from_rho


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


def gdp_delta(rho: float, epsilon: float) -> float:
    """Delta at ``epsilon`` when *every* component is a continuous Gaussian: mu-GDP with ``mu = sqrt(2 rho)``.

    Not for discrete noise: a privacy-loss distribution is sharper there (``dp_accounting.pld``).
    """
    check_cost(rho=rho, epsilon=epsilon)
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
    check_cost(rho=rho)
    check_share(delta)
    if gdp_delta(rho, 0.0) <= delta:
        return 0.0
    # the zCDP textbook form bounds it from above
    upper = rho + 2 * math.sqrt(rho * -math.log(delta)) + 1e-9

    def excess(epsilon: float) -> float:
        return gdp_delta(rho, epsilon) - delta

    return root(excess, 0.0, upper, 1e-13)


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
