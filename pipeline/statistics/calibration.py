"""From a recipe's budget to the exact list of mechanisms: reads the card and the recipe, never a row.

``plan`` prints this list, the ledger charges it and the privatizer draws it; no other module sets a scale.

Signal-to-noise ratio before anything is spent: declared sizes and scales only, never a row (design §5.1, ``plan``).

The measure is crude on purpose: as if all people stayed to the last step and visited all cells alike.  Rarely visited
cells have a lower ratio, and a policy needs only the cells that it uses.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from pipeline.declaration.card import Card
from pipeline.privacy.budget import fraction_of
from pipeline.privacy.continual import Factorisation, each_night
from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.privacy.release import PLAYED, Mechanism, Running
from pipeline.statistics.ask import Ask
from pipeline.statistics.count_layout import CountLayout, reward_lattice
from pipeline.statistics.played import PlayedLayout
from pipeline.statistics.private_sum import PrivateSum

# no table is starved: a smaller share than this makes one table the bottleneck whatever its sensitivity
_LEAST_SHARE = 0.08
# findings/offline.md §5.2: 10-25 % of the budget on n[h,s,a] is the right range when it is released beside n[h,s,a,s']
_VISITS_SHARE = 0.15


def default_split(layout: CountLayout, ask: Ask) -> dict[str, float]:
    """Shares proportional to each table's sensitivity in rewards, which minimises the summed noise variance."""
    card, weights = layout.card, dict[str, float]()
    for t in layout.tables:
        reach = t.replace.l1 if ask.pure else math.sqrt(t.replace.l2_squared)
        width = card.reward.range[1] - card.reward.range[0]
        weights[t.name] = reach * (reward_lattice(card).unit / width if t.name == "r_sa" else 1.0)
    fixed = {"n_sa": _VISITS_SHARE} if "n_sa" in weights else {}
    free = {name: w for name, w in weights.items() if name not in fixed}
    rest = 1 - sum(fixed.values())
    shares = {name: max(_LEAST_SHARE, w / sum(free.values())) for name, w in free.items()}
    return fixed | {name: rest * s / sum(shares.values()) for name, s in shares.items()}


def count_sum(card: Card, ask: Ask) -> PrivateSum:
    """The private sum of a card's count tables: one release, or the rows of a counter.

    ``ask``: budget, tables and calibration; without a budget there is no noise (simulation only).
    Raises ValueError if the split names other tables than are released, the paper's calibration is requested where it
    prints none, or the budget is so small that the noise would leave the safe range of 64-bit integers.
    """
    layout = CountLayout(card, ask.tables, leaf=ask.counter is not None)
    mechanisms = _calibrated(layout, ask)
    if ask.counter is not None:
        if ask.zcdp() is None or ask.calibration == "paper":
            raise ValueError(
                "a nightly counter draws Gaussian noise: give 'rho', or 'epsilon' with 'delta', and 'tight'"
            )
        mechanisms = running(mechanisms, ask.counter)
    widest = max(max(m.standard_deviation, math.sqrt(m.variance or 0)) for m in mechanisms)
    if widest > LARGEST_SCALE:
        raise ValueError(
            f"so small a budget needs noise of scale {widest:.3g}, above {LARGEST_SCALE:.3g}: nothing would be left"
        )
    return PrivateSum(layout, mechanisms, ask.counter)


def played_sum(card: Card, rho: Fraction, nights: int) -> PrivateSum:
    """The private sum of every night's returns, each night alone, at budget ``rho``.

    Raises ValueError if the card declares its rewards, so that no log has any, or the noise would leave the safe range.
    """
    if card.reward.kind != "estimate":
        raise ValueError("'drift' reads rewards in the log, and the card declares them; take 'drift' out")
    layout = PlayedLayout(card)
    (table,) = layout.tables
    variance = integer_variances({PLAYED: table.replace.l2_squared}, {PLAYED: Fraction(1)}, rho)[PLAYED]
    if math.sqrt(variance) > LARGEST_SCALE:
        raise ValueError(f"so small a 'drift' needs noise of scale {math.sqrt(variance):.3g}: nothing would be left")
    time = each_night(nights)
    return PrivateSum(layout, running((table.mechanism(variance),), time), time)


def running(mechanisms: tuple[Mechanism, ...], time: Factorisation) -> tuple[Mechanism, ...]:
    """Mechanisms of a counter's rows, with the noise of its noisiest sum."""
    worst = max(time.error(t) for t in range(1, time.steps + 1))
    note = f"a leaf moves the counter's rows by at most {time.cost} times that in all (L2²)"
    return tuple(
        replace(m, rule=f"{m.rule}; {note}", running=Running(time.cost, time.draws, worst)) for m in mechanisms
    )


def _calibrated(layout: CountLayout, ask: Ask) -> tuple[Mechanism, ...]:
    if ask.rho is None and ask.epsilon is None:
        return tuple(t.mechanism() for t in layout.tables)
    if ask.calibration == "paper":
        return _paper(layout, ask)
    sensitivities = {t.name: t.replace for t in layout.tables}
    split = dict(ask.split) if ask.split else default_split(layout, ask)
    if (
        set(split) != set(sensitivities)
        or min(split.values()) <= 0
        or sum(fraction_of(round(s, 12)) for s in split.values()) > 1 + Fraction(1, 10**9)
    ):
        raise ValueError(f"split must give {sorted(sensitivities)} positive shares that sum to at most 1; got {split}")
    shares = {name: fraction_of(round(split[name], 12)) for name in sensitivities}
    # twelve digits may sum to a hair above one; the budget is never stretched
    shares = {name: share / max(1, sum(shares.values())) for name, share in shares.items()}
    if ask.pure:
        epsilon = fraction_of(ask.epsilon or 0.0)
        return tuple(t.mechanism(scale=t.replace.l1 / (shares[t.name] * epsilon)) for t in layout.tables)
    cost = 1 if ask.counter is None else ask.counter.cost
    squares = {name: cost * s.l2_squared for name, s in sensitivities.items()}
    variances = integer_variances(squares, shares, (ask.zcdp() or Fraction(0)))
    return tuple(t.mechanism(variance=variances[t.name]) for t in layout.tables)


def integer_variances(squares: Mapping[str, int], shares: Mapping[str, Fraction], rho: Fraction) -> dict[str, int]:
    """Smallest integer variances whose cost ``sum square / (2 variance)`` stays within ``rho * sum shares``.

    Each is first rounded up; the unspent budget then pays for single steps down, neediest table first.
    """
    variances = {name: math.ceil(squares[name] / (2 * shares[name] * rho)) for name in squares}
    unspent = rho * sum(shares.values()) - sum(Fraction(squares[n], 2 * v) for n, v in variances.items())
    while True:
        # price of one step down, where it can be paid
        price = {n: Fraction(squares[n], 2 * v * (v - 1)) for n, v in variances.items() if v > 1}
        payable = [n for n, p in price.items() if p <= unspent]
        if not payable:
            return variances
        shortfall = {n: shares[n] * rho - Fraction(squares[n], 2 * variances[n]) for n in payable}
        neediest = max(payable, key=shortfall.__getitem__)
        # as many steps as it stays the neediest, at once: a fine reward lattice has millions of them
        spend = min([unspent, *(shortfall[neediest] - shortfall[n] for n in payable if n != neediest)])
        before, square = variances[neediest], squares[neediest]
        variances[neediest] = min(before - 1, math.ceil(square / (Fraction(square, before) + 2 * spend)))
        unspent -= Fraction(square, 2 * variances[neediest]) - Fraction(square, 2 * before)


def _paper(layout: CountLayout, ask: Ask) -> tuple[Mechanism, ...]:
    """Scales as printed: variance 2H/rho (003 eq. 2) or Laplace 4H/epsilon (003 end of §3) on every table.

    The paper takes rewards as known, one trajectory a person and one table a step; where the card differs the *same*
    printed scale is drawn (rewards: in units of the range) and the true cost follows from the true sensitivity.
    """
    if ask.tables != "two_tables":
        raise ValueError("calibration = 'paper' needs release = 'two_tables'; the paper prints no other")
    horizon, lattice = layout.card.domain.horizon, reward_lattice(layout.card)
    mechanisms: list[Mechanism] = []
    for t in layout.tables:
        per_range = round((lattice.high - lattice.low) / lattice.unit) if t.name == "r_sa" else 1
        if ask.pure:
            mechanisms.append(t.mechanism(scale=per_range * 4 * horizon / fraction_of(ask.epsilon or 0.0)))
        else:
            variance = math.ceil(per_range**2 * 2 * horizon / (ask.zcdp() or Fraction(0)))
            mechanisms.append(t.mechanism(variance=variance))
    return tuple(mechanisms)


# a tenth of the budget or people, up to ten times as much
BUDGETS = (0.1, 0.3, 1.0, 3.0, 10.0)
PEOPLE = (0.1, 1.0, 10.0)
# visits in units of the noise's standard deviation: lost in noise below 1, usable at 3, comfortable at 10
LEVELS = (1.0, 3.0, 10.0)


@dataclass(frozen=True)
class SignalToNoise:
    """Visits of one (step, state, action) and the noise on them."""

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
    """Visits and noise at a budget, for ``people``; None: as declared."""
    n = float(card.unit.users_public) if people is None else people
    return SignalToNoise(even_visits(card, n), visit_noise(card, count_sum(card, ask).mechanisms))


def scale_budget(ask: Ask, factor: float) -> Ask:
    """The same ask with ``factor`` times the budget: of rho, or of epsilon where that is given."""
    if ask.rho is not None:
        return replace(ask, rho=ask.rho * factor)
    return replace(ask, epsilon=None if ask.epsilon is None else ask.epsilon * factor)


def people_needed(card: Card, ask: Ask, level: float, teaching: float = 1.0) -> int:
    """People for whom visits reach ``level`` times the noise at this budget: the ratio is linear in people."""
    n = card.unit.users_public
    return math.ceil(level * n / signal_to_noise(card, ask, n * teaching).ratio)
