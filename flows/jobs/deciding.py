"""What a run's policy says in a state at a step, one or many at once; reads the run's folder only."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.jobs.policy_file import KEEP, PolicyFile
from pipeline.declaration.card import CardError
from pipeline.declaration.domain import States

OVER = "nothing to decide: the episode has ended"

Ints = NDArray[np.int64]


def state_indices(file: PolicyFile, values: Sequence[str | None], *, raw: bool) -> Ints:
    """Index of each state among live states and ends.

    Parameters
    ----------
    values
        Declared labels, or with ``raw`` cells as the log's column holds them.

    Raises
    ------
    CardError
        Which records name no declared state, by number; and the labels that are known.
    """
    labels = [*file.labels["states"], *file.labels["ends"]]
    if raw:
        if "state_column" not in file.labels:
            raise CardError(
                f"{file.run}: this folder does not say how raw values are read; `reticent run` its recipe again "
                "(a committed release is replayed at no cost)"
            )
        from pipeline.logs.queries import index_states

        index = index_states(values, States.model_validate(file.labels["state_column"]))
    else:
        where = {label: i for i, label in enumerate(labels)}
        index = np.fromiter((where.get(x, -1) for x in values), dtype=np.int64, count=len(values))
    _refuse(index < 0, "no declared state", f"states of {file.run}: {', '.join(map(repr, labels))}")
    return index


def check_steps(file: PolicyFile, steps: Ints) -> None:
    """Refuse steps outside 0 … H - 1."""
    last = file.labels["horizon"] - 1
    _refuse((steps < 0) | (steps > last), "no step of the policy", f"steps count from 0 to {last}")


def _refuse(wrong: NDArray[np.bool_], what: str, known: str) -> None:
    if wrong.any():
        at = (np.flatnonzero(wrong)[:5] + 1).tolist()
        more = f" and {int(wrong.sum()) - 5} more" if wrong.sum() > 5 else ""
        where = "" if len(wrong) == 1 else f"record {', '.join(map(str, at))}{more}: "
        raise CardError(f"{where}{what}; {known}")


def decide(file: PolicyFile, states: Ints, steps: Ints, *, sample: bool) -> tuple[list[dict[str, Any]], Ints]:
    """The distinct decisions, and for each record which of them it gets.

    With ``sample`` an action is drawn where several have positive probability, from the operating system's randomness.
    """
    L = len(file.labels["states"])  # noqa: N806
    drawn = np.full(len(states), -1)
    live = states < L
    if sample:
        drawn[live] = _draw(file.policy.probabilities[steps[live], states[live]])
    keys, which = np.unique(np.stack([steps, states, drawn], axis=1), axis=0, return_inverse=True)
    return [_decision(file, *map(int, key)) for key in keys], which.reshape(-1)


def _draw(p: NDArray[np.float64]) -> Ints:
    """One column a row of ``p (N, A)``."""
    uniform = (np.frombuffer(os.urandom(8 * len(p)), dtype="<u8") >> 11) * 2.0**-53
    running = p.cumsum(axis=1)
    # the last running sum, not 1: rounding must not lead past the end
    return (running <= uniform[:, None] * running[:, -1:]).sum(axis=1)


def _decision(file: PolicyFile, step: int, state: int, drawn: int) -> dict[str, Any]:
    states, actions = file.labels["states"], file.labels["actions"]
    if state >= len(states):
        return _answer(step, file.labels["ends"][state - len(states)], OVER)
    vetoed = [a for a, banned in zip(actions, file.vetoed[state], strict=True) if banned]
    if file.policy.abstains[step, state]:
        return _answer(step, states[state], KEEP, abstains=True, vetoed=vetoed)
    p = file.policy.probabilities[step, state]
    positive = np.flatnonzero((p > 0) & ~file.vetoed[state]).tolist()
    chosen = drawn if drawn >= 0 else positive[0] if len(positive) == 1 else None
    choices = [{"action": actions[a], "probability": float(p[a])} for a in positive]
    advice = "one of several: draw with --sample" if chosen is None else f"use {actions[chosen]}"
    return _answer(
        step,
        states[state],
        advice,
        action=None if chosen is None else actions[chosen],
        tie=bool(file.tied[step, state]),
        actions=choices,
        vetoed=vetoed,
    )


def _answer(step: int, state: str, advice: str, **more: Any) -> dict[str, Any]:
    empty: dict[str, Any] = {"action": None, "abstains": False, "tie": False, "actions": [], "vetoed": []}
    return {"step": step, "state": state, "advice": advice} | empty | more
