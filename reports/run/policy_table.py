"""A policy as tables of a page: runs of equal steps, shares of actions, the states with most evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.facts.policy import Decisions, Floats


@dataclass(frozen=True)
class Run:
    """Consecutive steps ``first`` to ``last`` (0-based, inclusive) at which one state gets one recommendation."""

    state: int
    first: int
    last: int
    action: int
    abstains: bool
    tie: bool


def runs(view: Decisions) -> Iterator[Run]:
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


def action_shares(view: Decisions) -> Shares:
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


def reach(view: Decisions) -> tuple[int, float]:
    """States with a recommendation at some step, and the share of the evidence that lies where there is one."""
    spoken = ~view.abstains
    evidence = np.broadcast_to(view.evidence.sum(-1), view.abstains.shape)
    total = float(evidence.sum())
    return int(spoken.any(0).sum()), float(evidence[spoken].sum()) / total if total > 0 else 0.0


def most_evidenced(view: Decisions, limit: int) -> list[int]:
    """The ``limit`` states with the largest released counts, in their own order."""
    total = view.evidence.sum(axis=(0, 2))
    return sorted(np.argsort(-total, kind="stable")[:limit].tolist())
