"""From what a recipe asks to the exact list of mechanisms: reads the card and the recipe, never a row.

The list is what ``plan`` prints, what the ledger charges and what the privatizer draws; nobody else sets a scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from pipeline.declaration.card import Card
from pipeline.privacy.budget import fraction_of, rho_from_epsilon
from pipeline.privacy.factorisation import Factorisation
from pipeline.privacy.lattice import RewardLattice
from pipeline.privacy.noise import LARGEST_SCALE
from pipeline.privacy.release import Mechanism, Running
from pipeline.statistics.sensitivity import (
    Sensitivity,
    count_sensitivity,
    leaf_sensitivity,
    reward_sensitivity,
    start_sensitivity,
)

# no table is starved: a smaller share than this makes one table the bottleneck whatever its sensitivity
_LEAST_SHARE = 0.08
# findings/offline.md §5.2: 10-25 % of the budget on n[h,s,a] is the right range when it is released beside n[h,s,a,s']
_VISITS_SHARE = 0.15


@dataclass(frozen=True)
class Ask:
    """What a recipe asks of the counts.

    Attributes
    ----------
    rho, epsilon, delta
        ``rho`` alone, ``epsilon`` with ``delta`` (both Gaussian), or ``epsilon`` alone: pure, Laplace.  None of them:
        no noise (a baseline, simulation only).
    tables
        ``one_table``: n[h,s,a,s'] alone, n[h,s,a] by summation; ``two_tables``: both, as the paper has it.
    calibration
        ``tight``: scales from :mod:`~pipeline.statistics.sensitivity`; ``paper``: the scales paper 003 prints.
    split
        Share of the budget per table; the default depends on declared constants only.
    counter
        Where every night is a leaf of a continual counter: the budget is then that of all its nights together.
    """

    rho: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    tables: Literal["one_table", "two_tables"] = "one_table"
    calibration: Literal["tight", "paper"] = "tight"
    split: Mapping[str, float] | None = None
    counter: Factorisation | None = None

    @property
    def pure(self) -> bool:
        """Whether delta = 0 is demanded."""
        return self.epsilon is not None and not self.delta

    def zcdp(self) -> float | None:
        """Asked budget as rho; None for pure and for no privacy."""
        if self.rho is not None:
            return self.rho
        return rho_from_epsilon(self.epsilon, self.delta) if self.epsilon is not None and self.delta else None


def reward_lattice(card: Card) -> RewardLattice:
    """Lattice on which rewards are summed: centred unless a ``total`` is declared (privacy.md §0.1-20)."""
    r = card.reward
    return RewardLattice(r.range[0], r.range[1], r.steps, centred=r.total is None)


def released_tables(
    card: Card, tables: str, *, leaf: bool = False
) -> dict[str, tuple[tuple[int, ...], str, Sensitivity]]:
    """Table -> (shape, unit of one integer, sensitivity), in the order of release; ``leaf``: of a nightly counter."""
    d = card.domain

    def moved(of: Callable[[Card], Sensitivity]) -> Sensitivity:
        return leaf_sensitivity(of, card) if leaf else of(card)

    cell = (d.table_steps, len(d.live_states), len(d.action_labels))
    out: dict[str, tuple[tuple[int, ...], str, Sensitivity]] = {}
    if d.start == "released" and d.dynamics == "stationary":
        out["n_0"] = (cell[1],), "first states", moved(start_sensitivity)
    if tables == "two_tables":
        out["n_sa"] = cell, "visits", moved(count_sensitivity)
    out["n_sas"] = (*cell, len(d.state_labels)), "transitions", moved(count_sensitivity)
    if card.reward.kind == "estimate":
        out["r_sa"] = cell, f"{reward_lattice(card).unit:g} reward", moved(reward_sensitivity)
    return out


def default_split(card: Card, ask: Ask) -> dict[str, float]:
    """Shares proportional to each table's sensitivity in rewards, which minimises the summed noise variance."""
    parts = released_tables(card, ask.tables, leaf=ask.counter is not None)
    weights: dict[str, float] = {}
    for name, (_, _, s) in parts.items():
        reach = s.l1 if ask.pure else math.sqrt(s.l2_squared)
        width = card.reward.range[1] - card.reward.range[0]
        weights[name] = reach * (reward_lattice(card).unit / width if name == "r_sa" else 1.0)
    fixed = {"n_sa": _VISITS_SHARE} if "n_sa" in parts else {}
    free = {name: w for name, w in weights.items() if name not in fixed}
    rest = 1 - sum(fixed.values())
    shares = {name: max(_LEAST_SHARE, w / sum(free.values())) for name, w in free.items()}
    return fixed | {name: rest * s / sum(shares.values()) for name, s in shares.items()}


def count_mechanisms(card: Card, ask: Ask) -> tuple[Mechanism, ...]:
    """The mechanisms of one release of counts, in order.

    Raises
    ------
    ValueError
        If the split names other tables than are released, the paper's calibration is asked where it prints none, or
        the budget is so small that the noise would leave the safe range of 64-bit integers.
    """
    mechanisms = _calibrated(card, ask) if ask.counter is None else _counted(card, ask, ask.counter)
    widest = max(max(m.standard_deviation, math.sqrt(m.variance or 0)) for m in mechanisms)
    if widest > LARGEST_SCALE:
        raise ValueError(
            f"so small a budget needs noise of scale {widest:.3g}, above {LARGEST_SCALE:.3g}: nothing would be left"
        )
    return mechanisms


def at_leaf(mechanisms: tuple[Mechanism, ...], counter: Factorisation, t: int) -> tuple[Mechanism, ...]:
    """The mechanisms of a counter as they stand on night ``t``: the noise of that running sum."""
    return tuple(
        m if m.running is None else replace(m, running=replace(m.running, error=counter.error(t))) for m in mechanisms
    )


def _counted(card: Card, ask: Ask, counter: Factorisation) -> tuple[Mechanism, ...]:
    """Scales of a counter's rows, with the noise of its noisiest sum."""
    if ask.zcdp() is None or ask.calibration == "paper":
        raise ValueError("a nightly counter draws Gaussian noise: give 'rho', or 'epsilon' with 'delta', and 'tight'")
    worst = max(counter.error(t) for t in range(1, counter.steps + 1))
    in_all = f"a leaf moves the counter's rows by at most {counter.cost} times that in all (L2²)"
    return tuple(
        replace(m, rule=f"{m.rule}; {in_all}", running=Running(counter.cost, counter.draws, worst))
        for m in _calibrated(card, ask)
    )


def _calibrated(card: Card, ask: Ask) -> tuple[Mechanism, ...]:
    parts = released_tables(card, ask.tables, leaf=ask.counter is not None)
    if ask.rho is None and ask.epsilon is None:
        return tuple(
            Mechanism(name, shape, unit, s.l2_squared, s.l1, s.rule) for name, (shape, unit, s) in parts.items()
        )
    if ask.calibration == "paper":
        return _paper(card, ask, parts)
    split = dict(ask.split) if ask.split else default_split(card, ask)
    if (
        set(split) != set(parts)
        or min(split.values()) <= 0
        or sum(fraction_of(round(s, 12)) for s in split.values()) > 1 + Fraction(1, 10**9)
    ):
        raise ValueError(f"split must give {sorted(parts)} positive shares that sum to at most 1; got {split}")
    shares = {name: fraction_of(round(split[name], 12)) for name in parts}
    # twelve digits may sum to a hair above one; the budget is never stretched
    shares = {name: share / max(1, sum(shares.values())) for name, share in shares.items()}
    if ask.pure:
        scales = {name: parts[name][2].l1 / (shares[name] * fraction_of(ask.epsilon or 0.0)) for name in parts}
        return tuple(
            Mechanism(name, shape, unit, s.l2_squared, s.l1, s.rule, scale=scales[name])
            for name, (shape, unit, s) in parts.items()
        )
    cost = 1 if ask.counter is None else ask.counter.cost
    squares = {name: cost * s.l2_squared for name, (_, _, s) in parts.items()}
    variances = integer_variances(squares, shares, fraction_of(ask.zcdp() or 0.0))
    return tuple(
        Mechanism(name, shape, unit, s.l2_squared, s.l1, s.rule, variance=variances[name])
        for name, (shape, unit, s) in parts.items()
    )


def integer_variances(squares: Mapping[str, int], shares: Mapping[str, Fraction], rho: Fraction) -> dict[str, int]:
    """Smallest integer variances whose cost ``sum square / (2 variance)`` stays within ``rho * sum shares``.

    Each is first rounded up; what the rounding saved then buys single steps down, neediest table first.
    """
    variances = {name: math.ceil(squares[name] / (2 * shares[name] * rho)) for name in squares}
    left = rho * sum(shares.values()) - sum(Fraction(squares[n], 2 * v) for n, v in variances.items())
    while True:
        # price of one step down, where it can be paid
        price = {n: Fraction(squares[n], 2 * v * (v - 1)) for n, v in variances.items() if v > 1}
        payable = [n for n, p in price.items() if p <= left]
        if not payable:
            return variances
        short = {n: shares[n] * rho - Fraction(squares[n], 2 * variances[n]) for n in payable}
        neediest = max(payable, key=short.__getitem__)
        # as many steps as it stays the neediest, at once: a fine reward lattice has millions of them
        spend = min([left, *(short[neediest] - short[n] for n in payable if n != neediest)])
        old, square = variances[neediest], squares[neediest]
        variances[neediest] = min(old - 1, math.ceil(square / (Fraction(square, old) + 2 * spend)))
        left -= Fraction(square, 2 * variances[neediest]) - Fraction(square, 2 * old)


def _paper(
    card: Card, ask: Ask, parts: Mapping[str, tuple[tuple[int, ...], str, Sensitivity]]
) -> tuple[Mechanism, ...]:
    """Scales as printed: variance 2H/rho (003 eq. 2) or Laplace 4H/epsilon (003 end of §3) on every table.

    The paper takes rewards as known, one trajectory a person and one table a step; where the card differs the *same*
    printed scale is drawn (rewards: in units of the range) and the true cost follows from the true sensitivity.
    """
    if ask.tables != "two_tables":
        raise ValueError("calibration = 'paper' needs release = 'two_tables'; the paper prints no other")
    horizon, out = card.domain.horizon, []
    for name, (shape, unit, s) in parts.items():
        lattice = reward_lattice(card)
        per_range = round((lattice.high - lattice.low) / lattice.unit) if name == "r_sa" else 1
        if ask.pure:
            scale = per_range * 4 * horizon / fraction_of(ask.epsilon or 0.0)
            out.append(Mechanism(name, shape, unit, s.l2_squared, s.l1, s.rule, scale=scale))
        else:
            variance = math.ceil(per_range**2 * 2 * horizon / fraction_of(ask.zcdp() or 0.0))
            out.append(Mechanism(name, shape, unit, s.l2_squared, s.l1, s.rule, variance=variance))
    return tuple(out)


def noise_bound(sigma: float, cells: int, failure: float) -> float:
    """Half of E: a bound on ``cells`` Gaussian draws, ``sigma sqrt(2 log(2 cells / failure))`` (003 Lemma C.2).

    With ``cells = 2 H S^2 A`` and ``sigma^2 = 2H/rho``, twice this is E_rho = 4 sqrt(H log(4HS^2A/delta)/rho).
    """
    return sigma * math.sqrt(2 * math.log(2 * cells / failure))


def laplace_bound(scale: Fraction, cells: int, failure: float) -> float:
    """Half of E for ``cells`` Laplace draws together: ``scale log(cells / failure)``."""
    return float(scale) * math.log(cells / failure)
