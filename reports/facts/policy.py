"""A policy as a page draws it, a table of actions or the gains of a controller, and the constants that chose it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.mdp.policy import Policy
from reports.facts.part import Number, Part

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


class Preset(Part):
    """Named constants and whose each is.

    Parameters
    ----------
    preset
        Name of the set.
    values
        By name.
    source
        ``paper``, or why another value was chosen.
    """

    preset: str
    values: dict[str, Number]
    source: dict[str, str]


class PlannerFacts(Part):
    """All that the questions of an adaptive planner depend on, besides the data; part of the release's key.

    Parameters
    ----------
    agent, version, variant, calibration, split, variance, seed_of_ties
        Which planner, and how it asks.
    constants, beta
        Its constants; ``beta`` of PEVI alone.
    shares, steps, bounds
        Of the budget (exact fractions as text), of the lattices, and of rewards.
    can_end, episodes, vetoes
        Of the card.
    """

    agent: str
    version: int
    constants: dict[str, Number | str]
    beta: Number | None
    seed_of_ties: int
    variant: str
    calibration: str
    split: bool
    variance: bool
    shares: list[str]
    steps: list[int]
    bounds: list[Number]
    can_end: bool
    episodes: int
    vetoes: list[tuple[str, str]]


class Constants(Part):
    """Every constant of a policy over declared states.

    Parameters
    ----------
    policy, bounds
        Constants that chose the policy, and those behind the interval; None where they are the same.
    penalty
        Of the pessimism.
    failure_probability
        Of all bounds together.
    slack
        Of the consistency step.
    threshold
        Evidence above which an action counts as seen.
    seed_of_ties
        Breaks ties; hides nothing.
    part_of_the_release
        Whether another value of any of them would be another release, with its own charge.
    planner
        Of a linear planner.
    """

    policy: Preset
    bounds: Preset | None
    penalty: str | None = None
    failure_probability: Number
    slack: str | None = None
    threshold: Number
    seed_of_ties: int
    part_of_the_release: bool = False
    planner: PlannerFacts | None = None


class PlayedConstants(Part):
    """Every constant of an online agent.

    Parameters
    ----------
    policy
        Its preset and the numbers in it.
    bounds
        None: its value is known, or measured over seeds.
    options
        Every option of ``[agent]`` with its value; null: derived from the rest.
    """

    policy: Preset
    bounds: Preset | None = None
    options: dict[str, Number | str | bool | None]


class PlantConstants(Part):
    """Every constant of a linear controller, and how well the log explored the plant.

    Parameters
    ----------
    policy, bounds
        As in :class:`Constants`; there is no interval, so ``bounds`` is None.
    gamma
        Largest gain at which no control is cut.
    parameter_norm
        Declared largest norm of [A, B].
    directions
        Eigenvalues of the released Gram matrix, largest first.
    floor, raised
        Noise floor in the same units, and how many directions lie below it.
    """

    policy: Preset
    bounds: Preset | None
    gamma: Number
    parameter_norm: Number | None
    directions: list[Number]
    floor: Number
    raised: int
