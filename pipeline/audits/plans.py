"""What a whole plan costs, without a draw, where a smaller one is attacked: exact fractions, from its variances."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pipeline.statistics.interactive import call_window
from pipeline.statistics.linear_calibration import call_sum, one_shot_sum, true_rho
from pipeline.statistics.linear_layout import CallLayout
from pipeline.statistics.linear_plan import Half, LinearPlan
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.regression import Window


@dataclass(frozen=True)
class WholePlan:
    """Cost in zCDP of all that the recipe releases, beside what it claims.

    Parameters
    ----------
    stands_for
        What was attacked instead, in words.
    """

    stands_for: str
    rho: Fraction
    claimed: Fraction

    @property
    def over(self) -> bool:
        """Whether the plan costs more than it claims."""
        return self.rho > self.claimed

    @property
    def words(self) -> str:
        """One sentence for a page."""
        verdict = "MORE than" if self.over else "within"
        return (
            f"{self.stands_for} was attacked; the whole plan costs rho = {float(self.rho):.9g} by its own variances, "
            f"{verdict} the {float(self.claimed):.9g} that is claimed."
        )


def linear_cost(plan: LinearPlan) -> Fraction:
    """Every call of a linear plan at its widest window, summed as one person meets them.

    Raises
    ------
    ValueError
        If the plan draws no noise.
    """
    printed = true_rho(plan)
    if plan.terms.variant == "one_shot":
        return _rho(one_shot_sum(plan))
    if plan.printed and printed is not None:
        return printed
    last = plan.domain.horizon - 1
    cost = {h: _call(plan, h, "D") for h in range(last + 1)}
    first = sum(cost.values(), Fraction(0))
    second = sum((_call(plan, h, "D'") for h in range(last)), Fraction(0)) if plan.terms.variance else Fraction(0)
    # of disjoint halves a person is in one, and both meet the last step
    return max(first, second + cost[last]) if plan.terms.halves else first + second


def _call(plan: LinearPlan, h: int, half: Half) -> Fraction:
    _, bound = call_window(plan, h, half, Window(*plan.domain.value_range(h + 1)))
    alone = not plan.terms.variance or h == plan.domain.horizon - 1
    return _rho(call_sum(CallLayout(plan, h, half, bound), whole=alone))


def _rho(summed: PrivateSum) -> Fraction:
    if summed.rho is None:
        raise ValueError("this plan draws no noise")
    return summed.rho
