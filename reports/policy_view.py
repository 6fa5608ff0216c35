"""What a report may see of a policy: labels, actions, and the released evidence behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Against:
    """The policy beside one step of practice: ``(H, L)`` each, see :mod:`pipeline.agents.against_behaviour`."""

    followed: Floats
    gain: Floats
    apart: Bools


@dataclass(frozen=True)
class Weights:
    """``values (H, d)``: what one unit of each of the d named features adds to Q, in reward units."""

    names: list[str]
    values: Floats

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise ValueError(f"values must be (H, {len(self.names)}); got {self.values.shape}")


@dataclass(frozen=True)
class PolicyView:
    """A tabular policy beside the released counts that support it.

    Parameters
    ----------
    state_labels
        The L live states.
    action_labels
        The A actions.
    action
        ``(H, L)`` int, the most likely action.
    abstains
        ``(H, L)`` bool: "not enough evidence: keep current practice".
    share
        ``(H, L)`` probability of ``action``.
    tie
        ``(H, L)`` bool: another action looks equally good.
    evidence
        ``(H or 1, L, A)`` released, hence noisy, counts.
    practice
        ``(H or 1, L, A)`` share of each action in the released counts; NaN where there are too few.
    against
        The comparison with practice, where counts were released.
    weights
        Of a linear policy.
    """

    state_labels: list[str]
    action_labels: list[str]
    action: NDArray[np.int64]
    abstains: Bools
    share: Floats
    tie: Bools
    evidence: Floats
    practice: Floats
    against: Against | None = None
    weights: Weights | None = None

    def __post_init__(self) -> None:
        cells = self.action.shape
        if len(cells) != 2 or cells[1] != len(self.state_labels):
            raise ValueError(f"action must be (H, {len(self.state_labels)}); got {cells}")
        for name in ("abstains", "share", "tie"):
            if getattr(self, name).shape != cells:
                raise ValueError(f"{name} must be {cells}; got {getattr(self, name).shape}")
        tables = {(steps, cells[1], len(self.action_labels)) for steps in (1, cells[0])}
        for name in ("evidence", "practice"):
            if getattr(self, name).shape not in tables:
                raise ValueError(f"{name} must be one of {sorted(tables)}; got {getattr(self, name).shape}")


@dataclass(frozen=True)
class Run:
    """Consecutive steps ``first`` to ``last`` (0-based, inclusive) at which one state gets one recommendation."""

    state: int
    first: int
    last: int
    action: int
    abstains: bool
    tie: bool


def runs(view: PolicyView) -> Iterator[Run]:
    """The policy state by state, equal neighbouring steps joined."""
    for state in range(len(view.state_labels)):
        # An abstaining cell has no recommendation, so its stand-in action must not split a run.
        keys = [
            (-1, True, False) if absent else (int(action), False, bool(tie))
            for action, absent, tie in zip(
                view.action[:, state], view.abstains[:, state], view.tie[:, state], strict=True
            )
        ]
        first = 0
        for step in range(1, len(keys) + 1):
            if step == len(keys) or keys[step] != keys[first]:
                yield Run(state, first, step - 1, *keys[first])
                first = step


@dataclass(frozen=True)
class Shares:
    """How often each of A actions is recommended, and taken in practice.

    Parameters
    ----------
    cells
        ``(A,)`` cells in which it is recommended.
    policy
        ``(A,)`` share: of the released visits to the cells in which practice is known; of all cells where none is.
    practice
        ``(A,)`` share of the same visits in which practice took it; None where it is nowhere known.
    silent
        Share of the same in which the policy abstains.
    known
        Share of all cells in which practice is known.
    """

    cells: NDArray[np.int64]
    policy: Floats
    practice: Floats | None
    silent: float
    known: float


def action_shares(view: PolicyView) -> Shares:
    """Actions over the whole policy."""
    of_all, actions = view.action.shape, len(view.action_labels)
    known = np.broadcast_to(~np.isnan(view.practice).any(-1), of_all)
    visits = np.where(known, view.evidence.sum(-1), 0.0)
    told = bool(visits.sum() > 0)
    weight = visits / visits.sum() if told else np.full(of_all, 1 / view.action.size)
    spoken = (np.eye(actions)[view.action] * ~view.abstains[..., None]).astype(np.float64)
    usual = (np.nan_to_num(view.practice) * weight[..., None]).sum((0, 1)) if told else None
    cells = spoken.sum((0, 1)).astype(np.int64)
    policy = (spoken * weight[..., None]).sum((0, 1))
    return Shares(cells, policy, usual, float(weight[view.abstains].sum()), float(known.mean()) if told else 0.0)


def most_evidenced(view: PolicyView, limit: int) -> list[int]:
    """The ``limit`` states with the largest released counts, in their own order."""
    total = view.evidence.sum(axis=(0, 2))
    return sorted(np.argsort(-total, kind="stable")[:limit].tolist())
