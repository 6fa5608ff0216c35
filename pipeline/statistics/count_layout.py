"""Count tables of a card: visits, transitions, first states and summed rewards, and how far one person moves each.

Each number is proved by enumeration in ``tests/statistics/test_sensitivity.py``.  Derivations: privacy.md §2,
§0.1-6, -10 and -20.  ``m`` episodes a person, ``H`` steps, ``N = m H`` steps a person at most.  A person who joins or
leaves moves half of the squared length that a replaced one does, and half of the L1 length.

Integers instead of reals: the declared lattice on which rewards are summed (privacy.md §8, §0.1-10 and -11).

Noise is added to integers only, so every real input is put on a declared lattice *before* it is summed.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.arrays import Array, Integers
from pipeline.declaration.card import Card
from pipeline.statistics.ask import ReleasedTables
from pipeline.statistics.layout import CardLayout, Sensitivity, Table, as_integers

# a reward this close below a lattice point (in steps) is that point: binary floats cannot hold most decimals
_ROUNDING = 1e-9


@dataclass(frozen=True)
class RewardLattice:
    """``low + k * (high - low) / steps`` for ``k = 0..steps``.

    ``centred`` sums ``2k - steps`` (half steps around mid-range), which halves the squared sensitivity of a replaced
    person; otherwise ``k`` is summed, as a declared ``total`` needs (privacy.md §0.1-20).

    Parameters
    ----------
    low, high
        Declared range of one reward, reward units.
    steps
        Lattice steps from ``low`` to ``high``.

    Examples
    --------
    >>> RewardLattice(0.0, 1.0, 4, centred=True).index(np.array([-3.0, 0.49, 0.5, 9.0]))
    array([0, 1, 2, 4])
    """

    low: float
    high: float
    steps: int
    centred: bool

    @property
    def unit(self) -> float:
        """Reward units of one summed integer."""
        return (self.high - self.low) / (2 * self.steps if self.centred else self.steps)

    @property
    def offset(self) -> float:
        """Reward at which the summed integer is 0."""
        return (self.low + self.high) / 2 if self.centred else self.low

    def index(self, reward: Array) -> Integers:
        """``k`` of each reward: clipped to the range, then floored (a lower value stays a lower value); 0 of NaN."""
        # one temporary, and no step without effect: this loop dominates the cost of counting rewards
        k = np.clip(reward, self.low, self.high)
        if np.isnan(k.min(initial=self.low)):
            np.fmax(k, self.low, out=k)
        if self.low != 0:
            k -= self.low
        if (width := self.high - self.low) != 1:
            k /= width
        k *= self.steps
        k += _ROUNDING
        # clipped at both ends already, so truncation is flooring
        return as_integers(k, 0, self.steps)

    def integer(self, k: Integers) -> Integers:
        """The integer that is summed for lattice index ``k``."""
        return 2 * k - self.steps if self.centred else k


# rows (state, action, reward, next state) of every step of every episode of one person
Person = Sequence[Sequence[tuple[int, int, float, int]]]


@dataclass(frozen=True)
class CountLayout(CardLayout):
    """Each table is priced alone, because one row enters all of them.

    ``released``: ``one_table``: n[h,s,a,s'] alone, n[h,s,a] by summation; ``two_tables``: both, as paper 003 has it.
    ``prefix``: of the tables' names, where they count the held-out people.
    """

    released: ReleasedTables = "one_table"
    leaf: bool = False
    prefix: str = ""

    @property
    def tables(self) -> tuple[Table, ...]:
        """n_0, n_sa, n_sas and r_sa, each where it is released."""
        d = self.card.domain
        cell = (d.table_steps, len(d.live_states), len(d.action_labels))
        tables: list[Table] = []

        def add_table(name: str, shape: tuple[int, ...], unit: str, sensitivity: Callable[[Card], Sensitivity]) -> None:
            replaced = leaf_sensitivity(sensitivity, self.card) if self.leaf else sensitivity(self.card)
            added = Sensitivity(replaced.l2_squared // 2, replaced.l1 // 2, f"half of {replaced.rule}")
            if name == "r_sa" and self.card.reward.total is None:
                # centred: replaced from end to end of the range, a person moves by twice what they add
                rule = f"a quarter (L2²), half (L1) of {replaced.rule}"
                added = Sensitivity(replaced.l2_squared // 4, replaced.l1 // 2, rule)
            tables.append(Table(self.prefix + name, shape, unit, replaced, added))

        if d.start == "released" and d.dynamics == "stationary":
            add_table("n_0", (cell[1],), "first states", start_sensitivity)
        if self.released == "two_tables":
            add_table("n_sa", cell, "visits", count_sensitivity)
        add_table("n_sas", (*cell, len(d.state_labels)), "transitions", count_sensitivity)
        if self.card.reward.kind == "estimate":
            add_table("r_sa", cell, f"{reward_lattice(self.card).unit:g} reward", reward_sensitivity)
        return tuple(tables)

    def extremes(self) -> Iterator[Person]:
        """People of extreme rows: for each of a few cells, reward end and successor, every step of every episode there.

        Where a cell has a cap, or the episode would leave it, the person walks on through disjoint cells.
        """
        d = self.card.domain
        live, actions, ends = len(d.live_states), len(d.action_labels), len(d.state_labels)
        m, H = self.card.unit.episodes_per_user, d.horizon  # noqa: N806
        cells = list(itertools.product(range(live), range(actions)))
        stay = H * m if d.cell_cap is None else d.cell_cap
        walk = d.dynamics == "stationary" and d.cell_cap is not None
        for start, reward, successor in itertools.product(
            {0, len(cells) // 2}, self.card.reward.range, {0, min(1, ends - 1), ends - 1}
        ):
            place = [cells[(start + (i // stay if walk else 0)) % len(cells)] for i in range(H * m)]
            rows = [(s, a, reward, successor) for s, a in place]
            yield [rows[e * H : (e + 1) * H] for e in range(m)]


@dataclass(frozen=True)
class StartLayout(CountLayout):
    """First states alone, beside the sums of a linear regression."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """n_0 alone."""
        replaced, live = start_sensitivity(self.card), len(self.card.domain.live_states)
        added = Sensitivity(replaced.l2_squared // 2, replaced.l1 // 2, f"half of {replaced.rule}")
        return (Table("n_0", (live,), "first states", replaced, added),)


def reward_lattice(card: Card) -> RewardLattice:
    """Lattice on which rewards are summed: centred unless a ``total`` is declared (privacy.md §0.1-20)."""
    r = card.reward
    return RewardLattice(r.range[0], r.range[1], r.steps, centred=r.total is None)


def largest_square(steps: int, cap: int | None, cells: int) -> int:
    """Largest sum of squares of one person's steps over cells.

    ``cap``: most steps in one cell; None: all.
    """
    cap = steps if cap is None else min(cap, steps)
    full, rest = divmod(steps, cap)
    return cap * cap * cells if full >= cells else cap * cap * full + rest * rest


def count_sensitivity(card: Card) -> Sensitivity:
    """Sensitivity of n[h,s,a] or n[h,s,a,s'], each alone.

    Per step: at each of H steps a replaced person takes m from one cell and adds m to another: L2^2 = 2 H m^2,
    L1 = 2 H m.  Stationary: all N steps may meet in few cells: L2^2 = 2 sum n_c^2 with n_c at most the cell cap.
    """
    d, m = card.domain, card.unit.episodes_per_user
    steps = m * d.horizon
    if d.dynamics == "per_step":
        return Sensitivity(2 * d.horizon * m * m, 2 * steps, "2 H m² (L2²), 2 H m (L1): m moves at each step")
    square = largest_square(steps, d.cell_cap, len(d.live_states) * len(d.action_labels))
    cap = "no cell cap" if d.cell_cap is None else f"cell cap κ = {d.cell_cap}"
    return Sensitivity(2 * square, 2 * steps, f"2 max Σ n_c² (L2²), 2 m H (L1): all steps in one table, {cap}")


def start_sensitivity(card: Card) -> Sensitivity:
    """Sensitivity of the first-state table n_0[s]: m first states a person."""
    m = card.unit.episodes_per_user
    return Sensitivity(2 * m * m, 2 * m, "2 m² (L2²), 2 m (L1): m first states a person")


def reward_sensitivity(card: Card) -> Sensitivity:
    """Sensitivity of the summed reward, in the integers of :class:`~pipeline.statistics.count_layout.RewardLattice`.

    With a declared ``total`` (T steps of the lattice a person, not centred): L2^2 = 2 T^2, L1 = 2 T.  Otherwise
    centred in half steps, the worst pair sits in the same cells at opposite ends of the range.
    """
    d, m, r = card.domain, card.unit.episodes_per_user, card.reward
    steps = m * d.horizon
    if r.total_steps is not None:
        total = min(r.total_steps, steps * r.steps)
        return Sensitivity(2 * total * total, 2 * total, "2 T² (L2²), 2 T (L1): declared total T a person")
    if d.dynamics == "per_step":
        square = d.horizon * m * m
        rule = "H m² R² (L2²), H m R (L1) in lattice steps: centred, opposite ends of the range"
    else:
        square = largest_square(steps, d.cell_cap, len(d.live_states) * len(d.action_labels))
        rule = "R² max Σ n_c² (L2²), m H R (L1) in lattice steps: centred, all steps in one table"
    return Sensitivity(4 * r.steps**2 * square, 2 * steps * r.steps, rule)


def leaf_sensitivity(sensitivity_of: Callable[[Card], Sensitivity], card: Card) -> Sensitivity:
    """Sensitivity of a table that is one step (leaf) of a nightly counter, whichever steps one person is in.

    ``never``: all records of a person lie in one leaf.  Replaced, it may lie in another: that moves no more than
    swapping it in place, since ``|x|^2 + |x'|^2`` is at most the replace sensitivity.  ``capped``: m episodes may lie
    in m leaves, each within the caps of one night; their moves add in length, so m episodes cost m^2 of one.
    """
    m = card.unit.episodes_per_user
    if card.unit.recurs == "never":
        return sensitivity_of(card)
    one = sensitivity_of(card.model_copy(update={"unit": card.unit.model_copy(update={"episodes_per_user": 1})}))
    return Sensitivity(m * m * one.l2_squared, m * one.l1, f"m² = {m * m} times one episode's {one.rule}")
