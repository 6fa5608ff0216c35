"""A table of decisions as it is shown: a plain object a cell for programs, runs of equal steps for people."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.policy import Policy

# states without any recommendation that a line names
_NAMED = 8


class Shown(TypedDict):
    """The likeliest action of a cell; no action where the policy abstains."""

    step: int
    state: str
    abstains: bool
    action: str | None
    probability: float | None
    tie: bool


def shown_cells(policy: Policy, states: Sequence[str], actions: Sequence[str], tied: NDArray[np.bool_]) -> list[Shown]:
    """Every cell, step by step.

    Parameters
    ----------
    policy, states, actions
        As emitted, and its labels.
    tied
        ``(H, L)``: several actions were equally good.
    """
    return [
        {
            "step": h,
            "state": state,
            "abstains": bool(policy.abstains[h, s]),
            "action": None if policy.abstains[h, s] else actions[int(policy.probabilities[h, s].argmax())],
            "probability": None if policy.abstains[h, s] else float(policy.probabilities[h, s].max()),
            "tie": bool(tied[h, s]),
        }
        for h in range(len(policy.abstains))
        for s, state in enumerate(states)
    ]


def shown_lines(cells: Sequence[Shown], states: int) -> list[str]:
    """State by state, equal neighbouring steps on one line; states without any recommendation together on the last."""
    lines, silent = ["steps    state                    action"], list[str]()
    for s in range(states):
        of_state = cells[s::states]
        if all(cell["abstains"] for cell in of_state):
            silent.append(of_state[0]["state"])
            continue
        for (action, tie), run in groupby(of_state, key=lambda cell: (cell["action"], cell["tie"])):
            steps = [cell["step"] for cell in run]
            when = f"{steps[0]}" if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"
            done = action or "– keep current practice (not enough evidence)"
            lines.append(f"{when:8} {of_state[0]['state']:24} {done}" + ("   (tie: others are as good)" if tie else ""))
    if silent:
        named = ", ".join(silent[:_NAMED]) + (f" and {len(silent) - _NAMED} more" if len(silent) > _NAMED else "")
        lines.append(f"elsewhere, in {len(silent)} of {states} states, keep current practice: {named}")
    return lines
