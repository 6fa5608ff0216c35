"""What an LQ run on a log asks: card, agent, plan and constants, and what the one release costs; reads no rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from pipeline.agents.dp_lqr import LqConstants, LqTask
from pipeline.declaration.card import CardError, LqCard
from pipeline.privacy.noise import RealDataError
from pipeline.privacy.release import Mechanism
from pipeline.statistics.ask import Ask
from pipeline.statistics.lq_layout import LqDomain, LqPlan


@dataclass(frozen=True)
class LqCut:
    """Lengths to which rows are shortened before they are summed, as parts of the declared radius; lattice, share.

    Parameters
    ----------
    state, following
        Of observations and of next observations: less than 1 trades a little bias for much less noise.
    steps
        Lattice steps from the middle of a ball to its edge.
    gram_share
        Share of the budget on sums of z z', the rest on z x_next'.
    """

    state: float = 0.5
    following: float = 0.7
    steps: int = 4096
    gram_share: Fraction = Fraction(3, 10)


@dataclass(frozen=True)
class LqRequest:
    """One LQ run: card, agent, plan and constants."""

    card: LqCard
    agent: str
    plan: LqPlan
    constants: LqConstants

    @property
    def task(self) -> LqTask:
        """The declared cost and bounds; ||K_h|| <= gamma, so that |u| stays in its ball wherever |x| is in its own."""
        d = self.card.domain
        gamma = d.action.radius / d.observation.radius
        return LqTask(self.card.quadratic, gamma, d.parameter_norm or math.inf)

    @property
    def rho(self) -> Fraction | None:
        """Exact cost of the release."""
        return self.plan.summed.rho

    @property
    def floor(self) -> float:
        """What a direction's squares must sum to, balls of radius 1, to be told from the noise; 0 without noise."""
        if self.plan.rho is None:
            return 0.0
        deviation = math.sqrt(self.plan.variances[0] / 2) / self.plan.steps**2
        return self.constants.floor * deviation * math.sqrt(self.plan.domain.dimension)

    def mechanisms(self) -> tuple[Mechanism, ...]:
        """Both tables."""
        return self.plan.summed.mechanisms

    def joint(self) -> dict[str, object]:
        """What the joint cost rests on, as the release will say it."""
        return {"rho_exact": None if self.rho is None else str(self.rho), **self.plan.joint()}


def lq_request(card: LqCard, agent: str, rho: Fraction | None, cut: LqCut, constants: LqConstants) -> LqRequest:
    """Check an LQ run against its card; reads no rows.

    Raises
    ------
    CardError
        If the sums would not fit.
    RealDataError
        If the data is real and no budget is given.
    """
    if card.kind == "real" and rho is None:
        raise RealDataError(f"{card.name} is registered as real: {agent} adds no noise; ask for a finite budget")
    d, m = card.domain, card.unit.episodes_per_user
    domain = LqDomain(
        card.name,
        card.kind,
        d.observation.size,
        d.action.size,
        d.horizon,
        card.unit.users_public * m,
        d.observation.radius * cut.state,
        d.action.radius,
        d.observation.radius * cut.following,
        m,
    )
    try:
        return LqRequest(card, agent, LqPlan(domain, Ask(rho, split={"gram": cut.gram_share}), cut.steps), constants)
    except (ValueError, OverflowError) as e:
        raise CardError(f"{card.name}: {agent}: {e}") from None
