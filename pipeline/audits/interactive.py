"""Attack on an online agent's counts: the shipped desk itself, which serves many copies at once.

Scales depend on the number of steps alone, and noise is independent from action to action: a desk with as many actions
as copies *is* so many desks with one.  The two users are in other states at every step; with rewards one is always
rounded up and the other down.
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
from pipeline.statistics.count_scales import tight
from pipeline.statistics.interactive_counts import CountMechanism, joint, local
from pipeline.statistics.mixture_calibration import Ask
from pipeline.statistics.online_counts import CountDesk, OnlineLayout, Tally

Desk = Callable[[OnlineLayout, NoiseSource], CountDesk]
_STATES = 2


def desk_attack(
    layout: OnlineLayout,
    ask: Ask,
    how: CountMechanism | None,
    *,
    leaves: int = LEAVES,
    desk: Desk | None = None,
) -> Attack:
    """The worst pair of users of the first batch against a counter of ``leaves`` batches, or against local messages.

    Parameters
    ----------
    how
        Counter of joint privacy; None: local.
    desk
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
    scales = tight(layout, ask, time.cost)
    rho = scales.rho(layout, time.cost)
    if rho is None:
        raise CardError("an audit needs noise: epsilon is infinite")

    def shipped(wide: OnlineLayout, noise: NoiseSource) -> CountDesk:
        if how is None:
            return local(wide, leaves, ask, WORLD, noise)
        return joint(wide, leaves, leaves, ask, WORLD, noise, mechanism=how)

    path = _DeskPath(layout, kind, leaves, desk or shipped)
    model = _DeskPath(layout, kind, leaves, shipped)
    groups = layout.cells[0]
    entries = np.repeat(
        np.array(scales.variances, dtype=np.float64), [_STATES * groups, *([groups] if layout.rewards else [])]
    )
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
class _DeskPath:
    layout: OnlineLayout
    kind: Kind
    leaves: int
    desk: Desk

    def __call__(self, side: Side, noise: NoiseSource, copies: int) -> list[Array]:
        source = noise if isinstance(noise, Silence | Pooled) else Pooled(noise)
        wide = replace(self.layout, actions=copies)
        desk = self.desk(wide, source)
        sums: list[Array] = []
        for t in range(1, self.leaves + 1):
            desk.add(tally_of(wide, side if t == 1 else None))
            if t in ends(self.kind, self.leaves):
                sums.append(watched(lambda: self._shown(desk)))
        return read_off(self.kind, np.array(sums))

    def _shown(self, desk: CountDesk) -> Array:
        """What of the sums can differ ``(copies, n)``: both users start in the first state."""
        seen = desk.counts()
        parts = [np.moveaxis(seen.n_sas[:, 0], 1, 0).reshape(seen.n_sas.shape[2], -1)]
        if seen.r_sa is not None:
            parts.append(seen.r_sa[:, 0].T)
        return np.concatenate(parts, axis=1)


def tally_of(layout: OnlineLayout, side: Side | None) -> Tally:
    """One user of every copy, from the first state to the first or the second; None: nobody."""
    H, S, A = layout.horizon, layout.states, layout.actions  # noqa: N806
    moved, rewards = np.zeros((H, S, A, S), dtype=np.int64), np.zeros((H, S, A), dtype=np.int64)
    if side is not None:
        moved[:, 0, :, side] = 1
        rewards[:, 0] = 1 - 2 * side
    return Tally(1, moved, rewards if layout.rewards else None)
