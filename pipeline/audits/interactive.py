"""Attack on an online agent's counts: the shipped interactive mechanism itself, which serves many copies at once.

Scales depend on the number of steps alone, and noise is independent from action to action: a mechanism with as many
actions as copies *is* so many of them with one.  The two users are the layout's extremes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pipeline.audits.attack import Array, Attack, Side, Trust
from pipeline.audits.laws import Gaussian
from pipeline.audits.pooled import Pooled, Silence
from pipeline.audits.streams import LEAVES, WORLD, Kind, ends, factors, read_off, time_of, watched
from pipeline.declaration.card import CardError
from pipeline.privacy.noise import NoiseSource
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive_counts import CountMechanism, joint, local
from pipeline.statistics.online_counts import InteractiveCounts, OnlineLayout, Tally
from pipeline.statistics.online_sum import cost_of, tight

Made = Callable[[OnlineLayout, NoiseSource], InteractiveCounts]
_STATES = 2


def interactive_attack(
    layout: OnlineLayout,
    ask: Ask,
    how: CountMechanism | None,
    *,
    leaves: int = LEAVES,
    made: Made | None = None,
) -> Attack:
    """The worst pair of users of the first batch against a release over ``leaves`` batches, or against local messages.

    Parameters
    ----------
    layout
        What is counted; states and actions are the attack's own.
    ask
        The budget.
    how
        Counter of joint privacy; None: local.
    leaves
        Batches that are declared.
    made
        What really adds up, where a test breaks it.

    Raises
    ------
    CardError
        If no noise is asked for.
    """
    layout = replace(layout, states=_STATES, actions=1)
    kind: Kind = "once" if how in (None, "fresh") else how
    leaves = 1 if kind == "once" else leaves
    time = time_of(kind, leaves)
    variances = tight(layout, ask, time.cost)
    rho = cost_of(layout, variances, time.cost)
    if variances is None or rho is None:
        raise CardError("an audit needs noise: epsilon is infinite")

    def shipped(wide: OnlineLayout, noise: NoiseSource) -> InteractiveCounts:
        if how is None:
            return local(wide, leaves, ask, WORLD, noise)
        return joint(wide, leaves, leaves, ask, WORLD, noise, mechanism=how)

    path = _Path(layout, kind, leaves, made or shipped)
    model = _Path(layout, kind, leaves, shipped)
    groups = layout.cells[0]
    seen = [_STATES * groups, *([groups] if layout.rewards else [])]
    entries = np.repeat(np.array(list(variances.values()), dtype=np.float64), seen)
    trust: Trust = "local" if how is None else "joint"
    words = "local messages" if how is None else "one release of a batch" if kind == "once" else f"{how} counter"
    return Attack(
        mechanism=f"online counts, {words}, discrete gaussian" + (", rewards learnt" if layout.rewards else ""),
        trust=trust,
        path=path,
        means=([t[0] for t in model(0, Silence(), 1)], [t[0] for t in model(1, Silence(), 1)]),
        law=Gaussian([entries * factor for factor in factors(kind, leaves)]),
        claimed_rho=rho,
    )


@dataclass(frozen=True)
class _Path:
    layout: OnlineLayout
    kind: Kind
    leaves: int
    made: Made

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        source = noise if isinstance(noise, Silence | Pooled) else Pooled(noise)
        wide = replace(self.layout, actions=copies)
        counts, person = self.made(wide, source), [*wide.extremes()][side]
        nobody = Tally(1, 0 * person.transitions, None if person.rewards is None else 0 * person.rewards)
        sums: list[Array] = []
        for t in range(1, self.leaves + 1):
            counts.add(person if t == 1 else nobody)
            if t in ends(self.kind, self.leaves):
                sums.append(watched(lambda: self._shown(counts)))
        return read_off(self.kind, np.array(sums))

    def _shown(self, counts: InteractiveCounts) -> Array:
        """What of the sums can differ ``(copies, n)``: both users start in the first state."""
        seen = counts.counts()
        parts = [np.moveaxis(seen.n_sas[:, 0], 1, 0).reshape(seen.n_sas.shape[2], -1)]
        if seen.r_sa is not None:
            parts.append(seen.r_sa[:, 0].T)
        return np.concatenate(parts, axis=1)
