"""A one-step policy, confirmed and measured on people who did not make it: three stages, each asked what the last told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pipeline.agents import one_step, one_step_value
from pipeline.agents.one_step_value import Confirmed, Model, Moments, Proposal
from pipeline.logs.one_step_rows import RATIO_STEPS, RETURN_STEPS, MomentQuestion, ValueQuestion
from pipeline.mdp.policy import Policy
from pipeline.privacy.release import Release
from pipeline.statistics.one_step_layout import STEPS, WEIGHT, FollowLayout, MomentLayout
from pipeline.statistics.private_sum import PrivateSum
from pipeline.statistics.target_plan import TargetPlan

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# of the evaluation's budget: rows that follow, moments, and values of people
SHARES = Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)
# declared people of the part times the root of rho: below, nothing is measured; below the second, steps weigh alike
LEAST, WEIGHTED = 1500.0, 5000.0


@dataclass(frozen=True)
class OneStepEvaluation:
    """What is asked of the evaluation part, and its noise.

    Parameters
    ----------
    plan
        Of the run that learns.
    share
        Of the people, the evaluation part's.
    rho
        zCDP of the evaluation; None: no noise (simulation only).
    """

    plan: TargetPlan
    share: float
    rho: Fraction | None

    @property
    def signal(self) -> float:
        """Declared people of the part times the root of rho; infinite without noise."""
        people = self.plan.card.unit.users_public * self.share
        return math.inf if self.rho is None else people * math.sqrt(self.rho)

    @property
    def enough(self) -> bool:
        """Whether an evaluation is drawn at all."""
        return self.signal >= LEAST

    def _part(self, stage: int) -> Fraction | None:
        return None if self.rho is None else self.rho * SHARES[stage]

    @cached_property
    def follow(self) -> PrivateSum:
        """Rows that follow the proposal, and rows that do not."""
        return FollowLayout(self.plan.card).summed(self._part(0))

    @cached_property
    def moments(self) -> PrivateSum:
        """Moments of features; with those of practice where there are people enough to weigh steps."""
        weighted = self.signal >= WEIGHTED
        return MomentLayout(self.plan.card, 5 if weighted else 3, weighted).summed(self._part(1))

    @property
    def values(self) -> Fraction | None:
        """Budget of the sums over people."""
        return self._part(2)

    @property
    def range(self) -> float:
        """Width of the declared range of returns, reward units."""
        low, high = self.plan.span
        return high - low

    def propose(self, found: one_step.Plan, practice: Integers, rows: Integers) -> Proposal:
        """What the learning part proposes, in parts of the range of returns.

        Parameters
        ----------
        found
            Policy and posterior advantages.
        practice
            ``(G, L)``: released values of practice.
        rows
            ``(G, L)``: released rows by state.
        """
        G, policy = practice.shape[0], found.policy
        kept, best = policy.abstains[:G], policy.probabilities[:G].argmax(-1)
        gain = np.take_along_axis(found.advantage, best[..., None], -1)[..., 0]
        low, high = self.plan.span
        return Proposal(
            np.where(kept, -1, best).ravel(),
            self.plan.rewards(practice).ravel() / self.range,
            np.where(kept, 0.0, gain).ravel() / self.range,
            rows.ravel().astype(np.float64),
            low / self.range,
            high / self.range,
        )

    def confirm(self, proposal: Proposal, answer: Release) -> Confirmed:
        """What is kept of a proposal: the policy that is published.

        Parameters
        ----------
        proposal
            Of the learning part.
        answer
            Of the first stage.
        """
        rows = answer.tables["b_follow"].astype(np.float64)
        return one_step_value.confirm(proposal, rows.reshape(2, -1), _sd(answer))

    def policy(self, confirmed: Confirmed) -> Policy:
        """The confirmed policy as it is published.

        Parameters
        ----------
        confirmed
            Of :meth:`confirm`.
        """
        d = self.plan.card.domain
        L, A = len(d.live_states), len(d.action_labels)
        action = confirmed.proposal.action.reshape(-1, L)
        chosen = np.where((action >= 0)[..., None], np.eye(A)[np.maximum(action, 0)], 0.0)
        shape = d.horizon, L
        return Policy(np.broadcast_to(chosen, (*shape, A)).copy(), np.broadcast_to(action < 0, shape).copy())

    def ask_moments(self, confirmed: Confirmed) -> MomentQuestion:
        """The second stage's question.

        Parameters
        ----------
        confirmed
            Of :meth:`confirm`.
        """
        follows = np.floor(np.minimum(confirmed.ratio, one_step_value.LARGEST_RATIO) * (WEIGHT // 3)).astype(np.int64)
        # towards 0, so that no feature gets longer
        phi = np.trunc(one_step_value.features(confirmed) * STEPS).astype(np.int64)
        return MomentQuestion(confirmed.proposal.action, follows, phi, _lattice(_first(confirmed)))

    def fit(self, confirmed: Confirmed, asked: MomentQuestion, answer: Release) -> Model:
        """V and weights.

        Parameters
        ----------
        confirmed, asked
            Policy and question.
        answer
            Of the second stage.
        """
        unit = WEIGHT * STEPS**2
        tables = {name: table / unit for name, table in answer.tables.items()}
        moments = Moments(
            tables["b_gram"],
            tables["b_next"],
            tables["b_error"],
            tables.get("b_gram_mu"),
            tables.get("b_next_mu"),
            tables.get("b_start"),
            _sd(answer) / unit,
        )
        return one_step_value.fit(confirmed, asked.features / STEPS, moments, self.plan.card.domain.horizon)

    def ask_values(self, confirmed: Confirmed, model: Model) -> ValueQuestion:
        """The third stage's question.

        Parameters
        ----------
        confirmed, model
            Policy, V and weights.
        """
        return ValueQuestion(
            confirmed.proposal.action,
            np.rint(model.weights * confirmed.ratio * RATIO_STEPS).astype(np.int64),
            np.rint(confirmed.ratio * RATIO_STEPS).astype(np.int64),
            _lattice(model.values),
            _lattice(confirmed.proposal.value),
        )


def _first(confirmed: Confirmed) -> Array:
    return one_step_value.first_values(confirmed.proposal)


def _lattice(values: Array) -> Integers:
    return np.rint(values * RETURN_STEPS).astype(np.int64)


def _sd(answer: Release) -> float:
    return float(answer.mechanisms[0].variance or 0) ** 0.5
