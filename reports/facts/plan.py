"""What ``plan`` says: what a run would release and cost, what is left, and what quality to expect."""

from __future__ import annotations

from pydantic import Field

from reports.facts.nights_plan import CalendarPlan, NightsPlan
from reports.facts.part import Number, Part
from reports.facts.promise import Joint, MechanismFacts


class CallFacts(Part):
    """A planned question of an adaptive planner; its noise follows earlier answers.

    Parameters
    ----------
    name, tables
        Of the question, and what its answer releases.
    sensitivity
        Why its noise suffices, in words.
    adaptive
        Whether its scale is not known beforehand.
    rho, rho_exact
        What it costs; None where nothing is private.
    """

    name: str
    sensitivity: str
    tables: list[str]
    adaptive: bool
    rho: Number | None
    rho_exact: str | None


class LimitFacts(Part):
    """What one more charge may cost at most: the limit it is ``of``, its ``cap_rho``, and ``left_rho``."""

    of: str
    cap_rho: Number
    left_rho: Number


class Fits(Part):
    """The largest budget still allowed, ``rho`` or ``epsilon``, and the ``ratio`` of visits to noise that it buys."""

    epsilon: Number | None = None
    rho: Number | None = None
    ratio: Number | None = None


class WhatIf(Part):
    """Visits of one cell against their noise, if all cells were visited alike.

    Parameters
    ----------
    rho, epsilon, people
        Another budget, and other people.
    visits, noise, ratio
        Of one (step, state, action).
    """

    rho: Number | None
    epsilon: Number | None
    people: Number
    visits: Number
    noise: Number
    ratio: Number


class Band(Part):
    """``mean`` over simulated runs, and the ``low`` and ``high`` ends that hold eight of ten."""

    mean: Number
    low: Number
    high: Number


class Reference(Part):
    """The policy that learns nothing: its ``name``, and its ``suboptimality``."""

    name: str
    suboptimality: Number


class Rival(Part):
    """Another way to spend the same budget on the same card, as simulated on the recipe's own worlds.

    Parameters
    ----------
    agent, release
        Its name, and which tables of counts it releases; None where it releases no counts.
    dynamics
        ``stationary`` where the card would have to declare it; None: as the card is.
    suboptimality, reason
        Mean over a few runs, or why there is none.
    """

    agent: str
    release: str | None = None
    dynamics: str | None = None
    suboptimality: Number | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """In words."""
        of = "" if self.release is None else f" ({self.release})"
        return f"{self.agent}{of}{'' if self.dynamics is None else f' with dynamics = {self.dynamics!r}'}"


class Quality(Part):
    """What policy to expect, or why none is simulated.

    Parameters
    ----------
    world, declared, episodes, draws
        Where it was simulated, whether the recipe declares that world, and how much.
    reason
        Why nothing was simulated; then there is no more.
    optimum, suboptimality, without_noise, reference, share
        The best policy's value, what is lost against it, the same without noise, and as a share of what is lost by
        learning nothing.
    abstains
        Share of the cells.
    rivals, prefers, why
        Other agents and releases that fit the card, the one that loses least, and the reason in a sentence: a rival
        only where it is clearly better than the recipe's own.
    proposes
        A declaration that would leave less noise, where the declared world allows it.
    is_not
        What this does not say.
    cached
        Whether it was simulated before.
    """

    world: str | None
    declared: bool = False
    episodes: int
    reason: str | None = None
    draws: int = 0
    optimum: Number | None = None
    suboptimality: Band | None = None
    without_noise: Band | None = None
    reference: Reference | None = None
    share: Number | None = None
    abstains: Number | None = None
    rivals: list[Rival] = Field(default_factory=list[Rival])
    prefers: Rival | None = None
    why: str | None = None
    proposes: str | None = None
    is_not: str
    cached: bool = False


class PriceOfEpsilon(Part):
    """What one ``epsilon`` costs: as pure DP (``pure_rho``), and with a ``delta`` (``rho``)."""

    epsilon: Number
    pure_rho: Number
    delta: Number
    rho: Number


class PlanAnswer(Part):
    """What a run would spend and what is left.

    Parameters
    ----------
    dataset, recipe, agent
        Names.
    mechanisms, joint
        What would be released, table by table or question by question, and what a joint bound rests on.
    rho, epsilon, delta
        What it costs; None where nothing is private.
    spent_before, remaining_after, cap_rho, delta_of_lineage, epsilon_before, epsilon_after
        The lineage, before and after it.
    replays, allowed, limit, fits
        Whether a run would draw nothing, whether it would be refused, by which limit, and what would still fit.
    gate
        Rules of the log that may stop a run of real people before its budget is spent; None of synthetic ones.
    counter, calendar
        With [nightly], and with [schedule].
    visits_per_cell_if_even, noise_per_cell, what_if, people_needed
        Of counts: visits against noise, at this budget and at others.
    most_squares, squares_a_direction_needs
        Of a controller: how far all declared rows reach, and how far a direction must to be told from the noise.
    quality
        Where it was asked for.
    """

    dataset: str
    recipe: str
    agent: str
    mechanisms: list[MechanismFacts | CallFacts]
    joint: Joint | None = None
    rho: Number | None
    epsilon: Number | None
    delta: Number | None
    spent_before: Number
    remaining_after: Number
    cap_rho: Number
    delta_of_lineage: Number
    epsilon_before: Number
    epsilon_after: Number
    replays: bool
    allowed: bool
    limit: LimitFacts
    counter: NightsPlan | None = None
    calendar: CalendarPlan | None = None
    fits: Fits | None
    gate: list[str] | None = None
    visits_per_cell_if_even: Number | None = None
    noise_per_cell: dict[str, Number] | None = None
    what_if: list[WhatIf]
    people_needed: dict[str, int]
    most_squares: Number | None = None
    squares_a_direction_needs: Number | None = None
    quality: Quality | None = None
    price_of_epsilon: PriceOfEpsilon | None = None
