"""How far one person can move a count table: replace-one sensitivities of what the code sums, in integer units.

Each number is proved by enumeration in ``tests/statistics/test_sensitivity.py``.  Derivations: privacy.md §2,
§0.1-6, -10 and -20.  ``m`` episodes a person, ``H`` steps, ``N = m H`` steps a person at most.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.declaration.card import Card


@dataclass(frozen=True)
class Sensitivity:
    """Replace-one sensitivity of one table: squared L2 and L1 norm of the largest change, and the rule in words."""

    l2_squared: int
    l1: int
    rule: str


def _largest_square(steps: int, cap: int | None, cells: int) -> int:
    """Largest sum of squares of ``steps`` steps over ``cells`` cells of at most ``cap`` each."""
    cap = steps if cap is None else min(cap, steps)
    full, rest = divmod(steps, cap)
    return cap * cap * cells if full >= cells else cap * cap * full + rest * rest


def count_sensitivity(card: Card) -> Sensitivity:
    """Of n[h,s,a] or n[h,s,a,s'], each alone.

    Per step: at each of H steps a replaced person takes m from one cell and adds m to another: L2^2 = 2 H m^2,
    L1 = 2 H m.  Stationary: all N steps may meet in few cells: L2^2 = 2 sum n_c^2 with n_c at most the cell cap.
    """
    d, m = card.domain, card.unit.episodes_per_user
    steps = m * d.horizon
    if d.dynamics == "per_step":
        return Sensitivity(2 * d.horizon * m * m, 2 * steps, "2 H m² (L2²), 2 H m (L1): m moves at each step")
    square = _largest_square(steps, d.cell_cap, len(d.live_states) * len(d.action_labels))
    cap = "no cell cap" if d.cell_cap is None else f"cell cap κ = {d.cell_cap}"
    return Sensitivity(2 * square, 2 * steps, f"2 max Σ n_c² (L2²), 2 m H (L1): all steps in one table, {cap}")


def start_sensitivity(card: Card) -> Sensitivity:
    """Of the first-state table n_0[s]: m first states a person."""
    m = card.unit.episodes_per_user
    return Sensitivity(2 * m * m, 2 * m, "2 m² (L2²), 2 m (L1): m first states a person")


def reward_sensitivity(card: Card) -> Sensitivity:
    """Of the summed reward on its lattice, in the integers of :class:`~pipeline.privacy.lattice.RewardLattice`.

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
        square = _largest_square(steps, d.cell_cap, len(d.live_states) * len(d.action_labels))
        rule = "R² max Σ n_c² (L2²), m H R (L1) in lattice steps: centred, all steps in one table"
    return Sensitivity(4 * r.steps**2 * square, 2 * steps * r.steps, rule)


def leaf_sensitivity(of: Callable[[Card], Sensitivity], card: Card) -> Sensitivity:
    """Of a table that is a leaf of a nightly counter, whichever leaves one person is in.

    ``never``: everything of a person lies in one leaf.  Replaced, it may lie in another: that moves no more than
    swapping it in place, since ``|x|^2 + |x'|^2`` is at most the replace sensitivity.  ``capped``: m episodes may lie
    in m leaves, each within the caps of one night; their moves add in length, so m episodes cost m^2 of one.
    """
    m = card.unit.episodes_per_user
    if card.unit.recurs == "never":
        return of(card)
    one = of(card.model_copy(update={"unit": card.unit.model_copy(update={"episodes_per_user": 1})}))
    return Sensitivity(m * m * one.l2_squared, m * one.l1, f"m² = {m * m} times one episode's {one.rule}")
