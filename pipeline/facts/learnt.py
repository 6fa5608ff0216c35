"""Learnt facts of a run: ``value``, ``constants``, ``model_baselines``, ``practice`` and their checks.

A policy as a page draws it, a table of actions or the gains of a controller, and the constants that chose it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Self

import numpy as np

from pipeline.arrays import Array, Bools, Integers
from pipeline.facts.evaluation import Evaluated
from pipeline.facts.promise import Joint, Matrix, Number, Part
from pipeline.mdp.policy import Policy


@dataclass(frozen=True)
class Weights:
    """Contribution of one unit of each of d named features to Q.

    Parameters
    ----------
    names
        Of the features.
    values
        ``(H, d)``, in reward units.
    """

    names: list[str]
    values: Array

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise ValueError(f"values must be (H, {len(self.names)}); got {self.values.shape}")


@dataclass(frozen=True)
class Decisions:
    """A tabular policy beside the released counts that support it, as a page draws it.

    Parameters
    ----------
    state_labels
        The L live states.
    action_labels
        The A actions.
    policy
        As emitted.
    tie
        ``(H, L)`` bool: several actions look equally good.
    evidence
        ``(H or 1, L, A)`` released, hence noisy, counts of each pair, or what Gram matrices hold of it.
    shares
        ``(H or 1, L, A)`` share of each action in the released counts; NaN where there are too few; None: not counted.
    weights
        Of a linear policy.
    """

    state_labels: list[str]
    action_labels: list[str]
    policy: Policy
    tie: Bools
    evidence: Array
    shares: Array | None = None
    weights: Weights | None = None

    def __post_init__(self) -> None:
        cells = self.policy.abstains.shape
        if cells[1] != len(self.state_labels):
            raise ValueError(f"policy must be of (H, {len(self.state_labels)}); got {cells}")
        if self.tie.shape != cells:
            raise ValueError(f"tie must be {cells}; got {self.tie.shape}")
        tables = {(steps, cells[1], len(self.action_labels)) for steps in (1, cells[0])}
        for name in ("evidence", "practice"):
            if getattr(self, name).shape not in tables:
                raise ValueError(f"{name} must be one of {sorted(tables)}; got {getattr(self, name).shape}")

    @cached_property
    def action(self) -> Integers:
        """``(H, L)``, the most likely action."""
        return self.policy.probabilities.argmax(-1)

    @cached_property
    def share(self) -> Array:
        """``(H, L)`` probability of ``action``."""
        return self.policy.probabilities.max(-1)

    @property
    def abstains(self) -> Bools:
        """``(H, L)`` bool: "not enough evidence: keep current practice"."""
        return self.policy.abstains

    @cached_property
    def practice(self) -> Array:
        """``shares``; NaN everywhere where they were not counted."""
        return np.full(self.evidence.shape, np.nan) if self.shares is None else self.shares


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
    gains: Array

    def __post_init__(self) -> None:
        if self.gains.shape[1:] != (len(self.action), len(self.observation)):
            raise ValueError(f"gains must be (H, {len(self.action)}, {len(self.observation)}); got {self.gains.shape}")


PolicyView = Decisions | Gains


class Preset(Part):
    """Named constants and their sources.

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

    @classmethod
    def of(cls, preset: str, sourced: Mapping[str, tuple[float, str]]) -> Self:
        """Constants by name, each with its source."""
        values, source = ({name: pair[i] for name, pair in sourced.items()} for i in (0, 1))
        return cls.model_validate({"preset": preset, "values": values, "source": source})


class PlannerFacts(Part):
    """Everything besides the data that the queries of an adaptive planner depend on; part of the release's key.

    Parameters
    ----------
    agent, version, variant, calibration, split, variance, seed_of_ties
        Which planner, and how it queries.
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


class TabularConstants(Part):
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
        Breaks ties; protects nobody.
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
        As in :class:`TabularConstants`; there is no interval, so ``bounds`` is None.
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


# what an interval certifies; ``estimate`` is what version 0.1 called ``modelled``
Status = Literal["proved", "evaluated", "bound", "modelled", "estimate"]
UNMEASURED = "containment: neither proved nor measured for these constants and this process"
NO_GUARANTEE: tuple[Status, ...] = ("modelled", "estimate")


class ValueFacts(Part):
    """The value of the policy, the expected sum of rewards of one episode, from the release.

    Parameters
    ----------
    lower, upper
        The interval; ``upper`` None where there is none but the trivial one.
    estimate
        The value in the released model; None where it would need another release.
    lower_trivial, upper_trivial
        Least and greatest value of any policy.
    gap
        Upper less lower end.
    optimal_upper
        Upper end for any policy.
    lower_flag, upper_flag
        ``trivial`` where no other end is claimed.
    status
        ``proved``: the paper's theorem, with all its conditions.  ``evaluated``: measured on held-out
        people.  ``bound``: containment was measured for logs made just as this one was made.  ``modelled`` (once
        ``estimate``): of the released model alone, no guarantee.
    assumes
        Its assumptions, in sentences.
    start
        Source of the distribution of first states; ``people``: those of the people who judged it.
    """

    lower: Number
    upper: Number | None
    estimate: Number | None
    lower_trivial: Number
    upper_trivial: Number
    gap: Number | None
    optimal_upper: Number | None
    lower_flag: Literal["trivial"] | None = None
    upper_flag: Literal["trivial"] | None = None
    status: Status
    assumes: list[str]
    start: Literal["released", "declared", "people"]

    @classmethod
    def unclaimed(
        cls,
        least: float,
        most: float,
        assumes: list[str],
        start: Literal["released", "declared"],
        estimate: float | None = None,
    ) -> Self:
        """The facts of a value of which only the possible range is claimed."""
        ends = {"lower": least, "upper": None, "lower_trivial": least, "upper_trivial": most, "gap": None}
        flags = {"optimal_upper": None, "lower_flag": "trivial", "upper_flag": "trivial", "status": "modelled"}
        return cls.model_validate({**ends, **flags, "estimate": estimate, "assumes": assumes, "start": start})


class Baseline(Part):
    """A simple policy in the same released model; ends as in :class:`ValueFacts`.

    Parameters
    ----------
    action
        Of the best constant policy.
    lower, upper, estimate, lower_trivial, upper_trivial
        In reward units; a plant's baselines have an estimate alone.
    """

    action: str | None = None
    lower: Number | None = None
    upper: Number | None = None
    estimate: Number | None
    lower_trivial: Number | None = None
    upper_trivial: Number | None = None

    @property
    def trivial(self) -> bool:
        """True where the interval is nearly the whole declared range: then the estimate is void as well."""
        if self.lower is None or self.lower_trivial is None or self.upper_trivial is None:
            return False
        upper = self.upper_trivial if self.upper is None else self.upper
        return upper - self.lower >= 0.95 * (self.upper_trivial - self.lower_trivial)


class Practice(Part):
    """The policy beside current practice, over the cells in which it recommends something.

    Parameters
    ----------
    known_share
        Share of these cells in which the release shows the actions of practice.
    followed_share, apart_share
        Of the known cells: how much of practice agrees, and where the two are told apart; None where none is known.
    cells
        ``[step, state, share of practice that agrees, gain, told apart]`` of each known cell.
    """

    known_share: Number
    followed_share: Number | None
    apart_share: Number | None
    cells: list[tuple[int, int, Number, Number, bool]]

    @property
    def is_followed(self) -> bool:
        """Whether the policy does what practice does, as far as the release shows.

        In 95 of 100 decisions of each cell at least, and in 99 of 100 of a cell on average.
        """
        followed = [float(c[2]) for c in self.cells]
        # noise in a thin cell looks like another action
        return (
            self.known_share == 1 and bool(followed) and min(followed) > 0.95 and sum(followed) >= 0.99 * len(followed)
        )


class CaseFacts(Part):
    """``cells`` that fell into one case of the consistency step, and ``certified``: those that were solved again."""

    cells: int
    certified: int


class ConsistencyFacts(Part):
    """The consistency step of the noisy counts, and its certificate.

    Parameters
    ----------
    programme
        ``cells``: paper 003's, one a cell; ``tables``: least squares, one a table.
    steps_shared
        Whether the released counts of all steps were made one table; None where that was not decided.
    drift, drift_error
        Estimated mean squared distance of a step's kernel from that of all steps, and its standard error without
        drift; None where visits are too few beside the noise.
    solver
        That solved cells again.
    cells, certified
        All of them, and those that were solved again.
    cases
        The same by case.
    largest_relative_difference, tolerance
        Between closed form and solver, as a power of ten above it, and the largest that is allowed.
    """

    programme: Literal["cells", "tables"] = "cells"
    steps_shared: bool | None = None
    drift: Number | None = None
    drift_error: Number | None = None
    solver: str
    cells: int
    certified: int
    cases: dict[str, CaseFacts]
    largest_relative_difference: Number
    tolerance: Number


class FeatureFacts(Part):
    """The declared feature map: ``kind``, ``dimension``, and ``balanced``: whether it is in John's position."""

    kind: str
    dimension: int
    balanced: bool


class PlantModel(Part):
    """The estimated plant, next x = A x + B u: ``A (n, n)`` and ``B (n, d)`` of scaled vectors."""

    A: Matrix
    B: Matrix


class PolicyFacts(Part):
    """The policy in three numbers.

    Parameters
    ----------
    tie_share, abstain_share
        Shares of the cells in which actions tie, and in which it recommends nothing.
    tied
        ``[step, state]`` of each tie; absent of a controller.
    left_zero
        Of a controller: whether any gain differs from doing nothing.
    """

    tie_share: Number
    abstain_share: Number
    tied: list[tuple[int, int]] | None = None
    left_zero: bool | None = None


class Truth(Part):
    """True values in a synthetic world.

    Parameters
    ----------
    v_star, v_policy, v_behavior, v_uniform
        Of the best policy, of this one, of the one that made the log, of uniform choice.
    v_policy_model
        Of this one in the process of the released counts.
    suboptimality
        Loss of this one against the best.
    v_zero, v_fixed_gain, v_certainty
        Of a plant: doing nothing, a fixed gain of a wrong model, the same method without privacy.
    """

    v_star: Number
    v_policy: Number
    v_policy_model: Number
    suboptimality: Number
    v_behavior: Number
    v_uniform: Number
    v_zero: Number | None = None
    v_fixed_gain: Number | None = None
    v_certainty: Number | None = None


class Contained(Part):
    """A measurement: ``inside`` of ``draws`` intervals held the value, on fresh logs of this very setting.

    Parameters
    ----------
    world, behaviour, episodes
        How those logs were made.
    draws, inside
        How many, and how many intervals held the value.
    """

    world: str
    behaviour: str
    episodes: int
    draws: int
    inside: int


@dataclass(frozen=True)
class Best:
    """Upper end of the value of the best policy over supported actions, reward units.

    Parameters
    ----------
    upper
        The end; infinite where no released number bounds it, and what an episode can pay does.
    measured
        Whether the coverage of that end was measured for a run like this.
    """

    upper: float
    measured: bool


@dataclass(frozen=True)
class LearntFacts:
    """A learner's part of a report; a part that it does not have is None.

    Parameters
    ----------
    constants, value, model_baselines, policy
        As in :class:`~pipeline.facts.report.Report`, which every learner has.
    practice, consistency
        Of released counts.
    joint, features
        Of released sums that were bounded jointly, and the feature map they were taken of.
    model
        Of a controller.
    evaluation
        Evaluation on held-out people.
    contained
        The measurement that makes the interval a bound, if the log was made like those of the measurement.
    best
        Upper end of the value of the best policy that the release supports.
    """

    constants: TabularConstants | PlantConstants
    value: ValueFacts
    model_baselines: dict[str, Baseline]
    policy: PolicyFacts
    practice: Practice | None = None
    joint: Joint | None = None
    consistency: ConsistencyFacts | None = None
    features: FeatureFacts | None = None
    model: PlantModel | None = None
    evaluation: Evaluated | None = None
    contained: Contained | None = None
    best: Best | None = None
