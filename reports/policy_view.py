"""What a report may see of a policy: labels, actions, and the released evidence behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


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
    """

    state_labels: list[str]
    action_labels: list[str]
    action: NDArray[np.int64]
    abstains: Bools
    share: Floats
    tie: Bools
    evidence: Floats
    practice: Floats

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


def most_evidenced(view: PolicyView, limit: int) -> list[int]:
    """The ``limit`` states with the largest released counts, in their own order."""
    total = view.evidence.sum(axis=(0, 2))
    return sorted(np.argsort(-total, kind="stable")[:limit].tolist())
