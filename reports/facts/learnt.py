"""What a run learnt: ``value``, ``constants``, ``model_baselines``, ``practice`` and what else can be checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reports.facts.measurement import EvaluationFacts
from reports.facts.part import Matrix, Number, Part
from reports.facts.policy import Constants, PlantConstants
from reports.facts.promise import Joint

# what an interval certifies; ``estimate`` is what version 0.1 called ``modelled``
Status = Literal["proved", "evaluated", "bound", "modelled", "estimate"]
UNMEASURED = "containment: neither proved nor measured for these constants and this process"
NO_GUARANTEE: tuple[Status, ...] = ("modelled", "estimate")


class ValueFacts(Part):
    """The value of the policy, the expected sum of rewards of one episode, as far as the release tells it.

    Parameters
    ----------
    lower, upper
        The interval; ``upper`` None where there is none but the trivial one.
    estimate
        The value in the released model; None where asking for it would be a release of its own.
    lower_trivial, upper_trivial
        What any policy has at least and at most.
    gap
        Upper less lower end.
    optimal_upper
        Upper end for any policy.
    lower_flag, upper_flag
        ``trivial`` where no other end is claimed.
    status
        ``proved``: the paper's theorem, with all its conditions.  ``evaluated``: measured on people who did not choose
        the policy.  ``bound``: containment was measured for logs made just as this one was made.  ``modelled`` (once
        ``estimate``): of the released model alone, no guarantee.
    assumes
        What that rests on, in sentences.
    start
        Whence the distribution of first states.
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
    start: Literal["released", "declared"]


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


class Practice(Part):
    """The policy beside current practice, over the cells in which it recommends something.

    Parameters
    ----------
    known_share
        Share of these cells in which the release tells what practice does.
    followed_share, apart_share
        Of the known cells: how much of practice agrees, and where the two are told apart; None where none is known.
    cells
        ``[step, state, share of practice that agrees, gain, told apart]`` of each known cell.
    """

    known_share: Number
    followed_share: Number | None
    apart_share: Number | None
    cells: list[tuple[int, int, Number, Number, bool]]


class CaseFacts(Part):
    """``cells`` that fell into one case of the consistency step, and ``certified``: those that were solved again."""

    cells: int
    certified: int


class ConsistencyFacts(Part):
    """How the noisy counts were made consistent, and its certificate.

    Parameters
    ----------
    programme
        ``cells``: paper 003's, one a cell; ``tables``: least squares, one a table.
    steps_shared
        Whether the released counts of all steps were made one table; None where that was no question.
    drift, drift_error
        Estimated mean squared distance of a step's kernel from that of all steps, and its standard error without
        drift; None where the visits drown in the noise.
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
        Of this one in the process that the interval is about.
    suboptimality
        What this one loses against the best.
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
class LearntFacts:
    """What one learner adds to a report; a part that it does not have is None.

    Parameters
    ----------
    constants, value, model_baselines, policy
        As in :class:`~reports.facts.report.Report`, which every learner has.
    practice, consistency
        Of released counts.
    joint, features
        Of released sums that were bounded jointly, and the feature map they were taken of.
    model
        Of a controller.
    evaluation
        What people who did not choose the policy say of it.
    contained
        What makes a bound of the interval, if the log was made as those of the measurement.
    """

    constants: Constants | PlantConstants
    value: ValueFacts
    model_baselines: dict[str, Baseline]
    policy: PolicyFacts
    practice: Practice | None = None
    joint: Joint | None = None
    consistency: ConsistencyFacts | None = None
    features: FeatureFacts | None = None
    model: PlantModel | None = None
    evaluation: EvaluationFacts | None = None
    contained: Contained | None = None
