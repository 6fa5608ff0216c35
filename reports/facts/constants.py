"""Which constants a planner used, and who chose each of them."""

from __future__ import annotations

from reports.facts.part import Number, Part


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
