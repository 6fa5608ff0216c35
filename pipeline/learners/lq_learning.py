"""From a committed LQ release to gains, and what the release says of their value: post-processing, reads no rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.agents.dp_lqr import LqResult, certainty_equivalence
from pipeline.declaration.card import LqCard
from pipeline.learners.lq_request import LqRequest
from pipeline.mdp.riccati import expected_cost
from pipeline.privacy.release import Release
from pipeline.statistics.lq_moments import released_moments
from pipeline.statistics.regression import LqMoments

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LqLearnt:
    """Gains, the model they are optimal for, and values in that model: rewards, that is minus costs.

    Parameters
    ----------
    value
        ``estimate`` of the policy, and the least and greatest values that declared balls allow.
    baselines
        Name -> ``estimate`` of simple controllers in the same released model.
    directions
        Eigenvalues of the released Gram matrix, largest first: sums of squares along a direction of (x, u), balls of
        radius 1, to which a row adds at most 2.  Those below ``floor`` are too noisy and were raised to it.
    """

    result: LqResult
    moments: LqMoments
    value: Mapping[str, float | None]
    baselines: Mapping[str, Mapping[str, float]]
    directions: tuple[float, ...]
    floor: float

    @property
    def left_zero(self) -> bool:
        """Whether any gain differs from doing nothing."""
        return bool(np.any(self.result.gains))


def learn_lq(request: LqRequest, release: Release) -> LqLearnt:
    """Estimate the plant on the released sums, and take its optimal gains.

    Raises
    ------
    ValueError
        If the release was drawn on other terms.
    """
    moments = released_moments(request.plan, release)
    result = certainty_equivalence(moments, request.task, request.constants)
    card = request.card

    def estimate(gains: Array) -> float:
        # 0.0 + turns a minus zero of a free controller into a zero
        return 0.0 - expected_cost(
            result.A, result.B, card.quadratic, gains, card.domain.first_moment(), card.domain.noise()
        )

    least = least_value(card)
    value = {"lower": least, "upper": None, "estimate": estimate(result.gains)}
    value |= {"optimal_upper": None, "lower_trivial": least, "upper_trivial": 0.0}
    directions = np.linalg.eigvalsh(moments.gram)[::-1]
    baselines = {"zero": {"estimate": estimate(np.zeros_like(result.gains))}}
    return LqLearnt(result, moments, value, baselines, tuple(map(float, directions)), request.floor)


def least_value(card: LqCard) -> float:
    """Minus the largest cost of one episode whose observations and controls stay in their declared balls."""
    cost, d = card.quadratic, card.domain
    worst = [np.linalg.eigvalsh(M)[-1] * v.radius**2 for M, v in ((cost.Q, d.observation), (cost.R, d.action))]
    return -float(d.horizon * sum(worst))
