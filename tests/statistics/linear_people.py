"""Every person of a tiny linear domain, sent one at a time through the shipped desk with its noise silenced.

What the desk would publish of each person, divided by the noise it would have drawn, is a point; half the largest
squared distance between two points is the zCDP loss that is really there, whatever the code claims.
"""

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np

from pipeline.mdp.features import FeatureMap
from pipeline.statistics.linear_plan import LinearDomain, LinearPlan, LinearTerms
from pipeline.statistics.linear_sums import InteractiveRegression, Side, StepRows, StreamRows
from pipeline.statistics.regression import Window
from tests.privacy.handles import Silent

H = 2
Row = tuple[int, int, float, int]  # state, action, reward, next state; END is the state after the last
Person = tuple[Row, ...]  # one row a step, as long as the episode lasted


def people(states: int, actions: int, can_end: bool) -> list[Person]:
    """All episodes of at most two steps, none at all included; states hold OTHER last, END follows them."""
    nexts = states + can_end
    first = list(itertools.product(range(states), range(actions), (0.0, 1.0), range(nexts)))
    found: list[Person] = [(), *((row,) for row in first)]
    for row in first:
        if row[3] < states:
            found += [(row, (row[3], a, r, s)) for a in range(actions) for r in (0.0, 1.0) for s in range(nexts)]
    return found


def rows_of(person: Person, features: FeatureMap, side_of: Callable[[Side], bool]) -> StreamRows:
    f = features.integers.astype(np.float64)
    padded = np.concatenate([f, np.zeros((1, *f.shape[1:]))])

    def batches(h: int, side: Side) -> Iterator[StepRows]:
        if h < len(person) and side_of(side):
            s, a, r, s2 = person[h]
            yield StepRows(f[s, a][None], np.array([r]), padded[s2][None], np.array([s2 == len(f)]))

    return StreamRows(batches, features.dimension, "synthetic")


def overdrawn(low: float, high: float) -> Callable[[np.ndarray], np.ndarray]:
    """Values beyond a window: ``high`` where a weighted sum of the features is positive, ``low`` elsewhere."""

    def value(features: np.ndarray) -> np.ndarray:
        flat = features.reshape(*features.shape[:-2], -1)
        return np.where(flat @ np.arange(1, flat.shape[-1] + 1) > 0, high, low)

    return value


def script(desk: InteractiveRegression, low: float, high: float, weigh: bool, reach: float = 3.0) -> None:
    """A planner that asks without looking: V is ``low`` at state 0 and ``high`` elsewhere, spanning its window.

    ``reach`` overdraws V at state 0's rival, so that clipping inside the desk matters.
    """
    value = overdrawn(low - reach, high + reach)
    window = Window(low, high)
    last = desk.plan.domain.horizon - 1
    for h in reversed(range(last + 1)):
        if weigh and h < last:
            desk.variance(h, value, window)
        desk.regression(h, value, window, (lambda f: np.where(f.sum(-1) > 0, 1.0, 0.3)) if weigh and h < last else None)


def plan_of(features: FeatureMap, ask: LinearTerms, can_end: bool = True, horizon: int = H) -> LinearPlan:
    return LinearPlan(LinearDomain("tiny", "synthetic", horizon, 100, can_end=can_end), ask, features)


def points(plan: LinearPlan, everyone: list[Person], play: Callable[[InteractiveRegression], None]) -> np.ndarray:
    """One whitened row a person: what the desk publishes over what it would have added."""
    out = []
    for person in everyone:
        desk = InteractiveRegression(
            plan, rows_of(person, plan.features, lambda side: side in ("D", "both")), Silent(0)
        )
        if not plan.terms.halves:
            desk.rows = rows_of(person, plan.features, lambda side: True)
        play(desk)
        pieces = []
        for m in desk._mechanisms:
            table, d = desk._tables[m.table].astype(np.float64), plan.features.dimension
            if m.table.startswith("gram"):
                scale = np.where(np.eye(d, dtype=bool), m.variance, m.variance // 2) ** 0.5
                pieces.append((table / scale)[np.triu_indices(d)])
            else:
                pieces.append(table / m.variance**0.5)
        out.append(np.concatenate(pieces))
    return np.array(out)


def loss(at: np.ndarray) -> float:
    at = np.unique(at.round(12), axis=0)
    squares = (at * at).sum(1)
    return float((squares[:, None] + squares - 2 * at @ at.T).max() / 2)


def random_map(seed: int, states: int = 3, actions: int = 2, d: int = 3, low: int = -4) -> FeatureMap:
    """Integer features of all directions, among them a longest pair that is orthogonal and one that is opposite."""
    # which features is an example, no chance
    f = np.random.Generator(np.random.PCG64(seed)).integers(low, 5, size=(states, actions, d))
    f[0, 0], f[0, 1], f[1, 0] = (4, 0, 0), (0, 4, 0), (4, 0, 0) if low == 0 else (-4, 0, 0)
    square = int((f * f).sum(-1).max())
    return FeatureMap(f.astype(np.int64), square, Fraction(1, square))
