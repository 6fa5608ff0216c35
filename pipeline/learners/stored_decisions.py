"""A run's table of decisions with labels: exported for other programs, shown, and asked one state or many at once.

Reads the run's folder only: released values and declarations.  ``docs/policy.md`` has the columns and the escaping.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from pipeline.declaration.card import CardError
from pipeline.declaration.domain import States
from pipeline.learners.decisions import policy_of, tied_cells
from pipeline.learners.policy_files import (
    Exported,
    PolicyFiles,
    Shown,
    escape,
    refuse_records,
    shown_cells,
    shown_lines,
)
from pipeline.ledger.chain import Body
from pipeline.mdp.policy import Policy

KEEP = "keep current practice: not enough evidence"
OVER = "nothing to decide: the episode has ended"
USE, NEVER = "use", "never: vetoed"
COLUMNS = ("step", "state", "action", "probability", "advice", "abstains", "tie", "vetoed")

Ints = NDArray[np.int64]


class Choice(TypedDict):
    """An action and its probability."""

    action: str
    probability: float


class Decision(TypedDict):
    """What the policy says of one state at one step; no action where it keeps practice, or where one is to be drawn."""

    step: int
    state: str
    advice: str
    action: str | None
    abstains: bool
    tie: bool
    actions: list[Choice]
    vetoed: list[str]


@dataclass(frozen=True)
class StoredDecisions:
    """What a run's folder says of its policy.

    Parameters
    ----------
    of
        The run.
    policy
        State by state.
    labels
        ``policy.json``: states, ends, actions, vetoes, and how raw states are decoded.
    tied
        ``(H, L)`` bool: several actions were equally good, the one shown was drawn among them.
    vetoed
        ``(L, A)`` bool.
    """

    of: Exported
    policy: Policy
    labels: Body
    tied: NDArray[np.bool_]
    vetoed: NDArray[np.bool_]

    def shown(self) -> tuple[list[Shown], list[str]]:
        """See :class:`~pipeline.learners.policy_files.StoredPolicy`."""
        rows = shown_cells(self.policy, self.labels["states"], self.labels["actions"], self.tied)
        return rows, shown_lines(rows, len(self.labels["states"]))

    def as_csv(self) -> str:
        """See :class:`~pipeline.learners.policy_files.StoredPolicy`: numbers in their shortest exact form."""
        rows = policy_rows(self)
        texts: dict[Any, Any] = {x: escape(x) for column in rows.values() for x in set(column) if isinstance(x, str)}
        texts |= {True: "true", False: "false"}
        words = {
            name: [texts.get(x, x) for x in column] if name not in ("step", "probability") else column
            for name, column in rows.items()
        }
        return self.of.csv(COLUMNS, zip(*words.values(), strict=True))

    def as_json(self) -> str:
        """See :class:`~pipeline.learners.policy_files.StoredPolicy`."""
        rows = policy_rows(self)
        whole = {
            "horizon": self.labels["horizon"],
            "states": self.labels["states"],
            "actions": self.labels["actions"],
            "vetoes": [[str(s), str(a)] for s, a in self.labels["vetoes"]],
            "rows": [dict(zip(COLUMNS, row, strict=True)) for row in zip(*rows.values(), strict=True)],
        }
        return self.of.json(whole)


def stored_decisions(files: PolicyFiles, report: Body, of: Exported) -> StoredDecisions:
    """See :class:`~pipeline.learners.policy_files.Codec`."""
    labels, policy = files.labels, policy_of(files)
    pairs = [[str(s), str(a)] for s, a in labels["vetoes"]]
    vetoed = np.array([[[s, a] in pairs for a in labels["actions"]] for s in labels["states"]])
    return StoredDecisions(of, policy, labels, tied_cells(report["policy"]["tied"], policy.abstains.shape), vetoed)


def policy_rows(file: StoredDecisions) -> dict[str, list[Any]]:
    """Columns of :data:`COLUMNS`, sorted by step, state and action as declared.

    An action with positive probability has a row; so has a vetoed one, with probability 0.  A state in which the policy
    abstains has one row without action, beside its vetoes.
    """
    p, abstains = file.policy.probabilities, file.policy.abstains
    shown = (p > 0) & ~abstains[..., None] & ~file.vetoed
    empty = np.zeros((*abstains.shape, 1), dtype=bool)
    # the row of an abstention comes before those of actions
    kind = np.concatenate([abstains[..., None], shown | np.broadcast_to(file.vetoed, p.shape)], axis=-1)
    step, state, action = np.nonzero(kind)
    names = np.array(["", *file.labels["actions"]], dtype=object)
    veto = np.concatenate([empty, np.broadcast_to(file.vetoed, p.shape)], axis=-1)[step, state, action]
    keeps = action == 0
    probability = np.concatenate([empty, np.where(shown, p, 0.0)], axis=-1)[step, state, action].astype(object)
    chosen = names[action]
    chosen[keeps] = probability[keeps] = None
    return {
        "step": step.tolist(),
        "state": np.array(file.labels["states"], dtype=object)[state].tolist(),
        "action": chosen.tolist(),
        "probability": probability.tolist(),
        "advice": np.where(keeps, KEEP, np.where(veto, NEVER, USE)).tolist(),
        "abstains": abstains[step, state].tolist(),
        "tie": file.tied[step, state].tolist(),
        "vetoed": veto.tolist(),
    }


def state_indices(file: StoredDecisions, values: Sequence[str | None], *, raw: bool) -> Ints:
    """Index of each state among live states and ends.

    Parameters
    ----------
    file
        The policy.
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
                f"{file.of.run}: this folder does not say how raw values are read; `reticent run` its recipe again "
                "(a committed release is replayed at no cost)"
            )
        from pipeline.logs.queries import index_states

        index = index_states(values, States.model_validate(file.labels["state_column"]))
    else:
        where = {label: i for i, label in enumerate(labels)}
        index = np.fromiter((where.get(x, -1) for x in values), dtype=np.int64, count=len(values))
    refuse_records(index < 0, "no declared state", f"states of {file.of.run}: {', '.join(map(repr, labels))}")
    return index


def decide(file: StoredDecisions, states: Ints, steps: Ints, *, sample: bool) -> tuple[list[Decision], Ints]:
    """The distinct decisions, and for each record which of them it gets.

    Parameters
    ----------
    file
        The policy.
    states, steps
        ``(N,)``: indices of :func:`state_indices`, and steps from 0.
    sample
        Draw an action where several have positive probability, from the operating system's randomness.

    Returns
    -------
    The decisions, and ``(N,)`` indices among them.
    """
    L, drawn = len(file.labels["states"]), np.full(len(states), -1)
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


def _decision(file: StoredDecisions, step: int, state: int, drawn: int) -> Decision:
    states, actions = file.labels["states"], file.labels["actions"]
    if state >= len(states):
        return _answer(step, file.labels["ends"][state - len(states)], OVER)
    vetoed = [a for a, banned in zip(actions, file.vetoed[state], strict=True) if banned]
    if file.policy.abstains[step, state]:
        return _answer(step, states[state], KEEP, abstains=True, vetoed=vetoed)
    p = file.policy.probabilities[step, state]
    positive = np.flatnonzero((p > 0) & ~file.vetoed[state]).tolist()
    chosen = drawn if drawn >= 0 else positive[0] if len(positive) == 1 else None
    choices: list[Choice] = [{"action": actions[a], "probability": float(p[a])} for a in positive]
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


def _answer(
    step: int,
    state: str,
    advice: str,
    *,
    action: str | None = None,
    abstains: bool = False,
    tie: bool = False,
    actions: Sequence[Choice] = (),
    vetoed: Sequence[str] = (),
) -> Decision:
    kept, banned = list(actions), list(vetoed)
    return Decision(
        step=step, state=state, advice=advice, action=action, abstains=abstains, tie=tie, actions=kept, vetoed=banned
    )
