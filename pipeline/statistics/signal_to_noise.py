"""Noise against data before anything is spent: declared sizes and scales only, never a row (design §5.1, ``plan``).

The measure is crude on purpose: as if everybody stayed to the last step and visited all cells alike.  Rarely visited
cells fare worse, and a policy needs only the cells that it uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pipeline.declaration.card import Card
from pipeline.privacy.release import Mechanism
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum

# a tenth of the budget or people, up to ten times as much
BUDGETS = (0.1, 0.3, 1.0, 3.0, 10.0)
PEOPLE = (0.1, 1.0, 10.0)
# visits in units of the noise's standard deviation: lost in noise below 1, usable at 3, comfortable at 10
LEVELS = (1.0, 3.0, 10.0)


@dataclass(frozen=True)
class SignalToNoise:
    """What one (step, state, action) holds, beside the noise on it.

    Parameters
    ----------
    people
        How many.
    visits
        Of one (step, state, action) if all are visited alike.
    noise
        One standard deviation of the noise on that count, in visits.
    """

    people: float
    visits: float
    noise: float

    @property
    def ratio(self) -> float:
        """Visits in units of noise; infinite without noise."""
        return self.visits / self.noise if self.noise else math.inf


def even_visits(card: Card, people: float) -> float:
    """Steps that one cell of n[h,s,a] holds if ``people`` people stay to the end and visit all cells alike."""
    d = card.domain
    steps = people * card.unit.episodes_per_user * d.horizon
    return steps / (d.table_steps * len(d.live_states) * len(d.action_labels))


def visit_noise(card: Card, mechanisms: Sequence[Mechanism]) -> float:
    """Standard deviation of the noise on one n[h,s,a]: its own table's, or that of the summed successors."""
    scale = {m.table: m.standard_deviation for m in mechanisms}
    return scale["n_sa"] if "n_sa" in scale else scale["n_sas"] * math.sqrt(len(card.domain.state_labels))


def signal_to_noise(card: Card, ask: Ask, people: float | None = None) -> SignalToNoise:
    """Visits and noise at a budget, for ``people`` (default: as declared).

    Parameters
    ----------
    card
        What is declared.
    ask
        Budget, tables and calibration.
    people
        How many; None: as declared.
    """
    n = float(card.unit.users_public) if people is None else people
    return SignalToNoise(n, even_visits(card, n), visit_noise(card, count_sum(card, ask).mechanisms))


def scale_budget(ask: Ask, factor: float) -> Ask:
    """The same ask with ``factor`` times the budget: of rho, or of epsilon where that was asked."""
    if ask.rho is not None:
        return replace(ask, rho=ask.rho * factor)
    return replace(ask, epsilon=None if ask.epsilon is None else ask.epsilon * factor)


def people_needed(card: Card, ask: Ask, level: float) -> int:
    """People for whom visits reach ``level`` times the noise at this budget: the ratio is linear in people.

    Parameters
    ----------
    card
        What is declared.
    ask
        Budget, tables and calibration.
    level
        Visits in units of the noise.
    """
    return math.ceil(level * card.unit.users_public / signal_to_noise(card, ask).ratio)
