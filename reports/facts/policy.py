"""A policy as a page draws it: a table of actions (with weights, where it is linear), or the gains of a controller."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.policy import Policy

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Weights:
    """What one unit of each of d named features adds to Q.

    Parameters
    ----------
    names
        Of the features.
    values
        ``(H, d)``, in reward units.
    """

    names: list[str]
    values: Floats

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise ValueError(f"values must be (H, {len(self.names)}); got {self.values.shape}")


@dataclass(frozen=True)
class Decisions:
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


def decisions(
    labels: tuple[list[str], list[str]],
    policy: Policy,
    tied: Bools,
    evidence: Floats,
    practice: Floats | None = None,
    weights: Weights | None = None,
) -> Decisions:
    """A policy as a page draws it.

    Parameters
    ----------
    labels
        Live states and actions.
    policy
        As emitted.
    tied
        ``(H, L)``: several actions were equally good.
    evidence
        ``(H or 1, L, A)``: released counts of each pair, or what Gram matrices hold of it.
    practice
        ``(H or 1, L, A)`` shares of the actions taken; None where no counts were released.
    weights
        Of a linear policy.
    """
    return Decisions(
        *labels,
        action=policy.probabilities.argmax(-1),
        abstains=policy.abstains,
        share=policy.probabilities.max(-1),
        tie=tied,
        evidence=evidence,
        practice=np.full(evidence.shape, np.nan) if practice is None else practice,
        weights=weights,
    )


@dataclass(frozen=True)
class Gains:
    """A linear controller u = K_h x, both scaled.

    Parameters
    ----------
    observation, action
        Names of the n coordinates and the d controls.
    gains
        ``(H, d, n)``.
    """

    observation: list[str]
    action: list[str]
    gains: Floats

    def __post_init__(self) -> None:
        if self.gains.shape[1:] != (len(self.action), len(self.observation)):
            raise ValueError(f"gains must be (H, {len(self.action)}, {len(self.observation)}); got {self.gains.shape}")


PolicyView = Decisions | Gains
