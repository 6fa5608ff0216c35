"""Answers of jobs besides a report: a run, a night, the difference of two runs, and a plan.

``--json`` prints ``model_dump()`` of any of them.

A plan holds the release and cost of a run, the remaining budget, and the expected quality.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pipeline.facts.learnt import Truth, ValueFacts
from pipeline.facts.promise import CounterFacts, Guarantee, Joint, MechanismFacts, Number, Part
from pipeline.facts.verdict import Verdict


class Left(Part):
    """Budget of a lineage: ``spent_rho`` so far and ``remaining_rho``."""

    spent_rho: Number
    remaining_rho: Number


class RunAnswer(Part):
    """A finished run.

    Parameters
    ----------
    run, folder, report
        Its name, its folder, its page.
    replayed
        Whether the release was committed before, so that nothing was charged.
    ledger
        The lineage now.
    guarantee, verdict, value, markov, counter, truth
        As its report states them; ``markov``: what the card says of its states.
    """

    run: str
    folder: str
    report: str
    replayed: bool
    ledger: Left
    guarantee: Guarantee
    verdict: Verdict
    value: ValueFacts
    markov: Literal["declared", "aggregated"]
    counter: CounterFacts | None = None
    truth: Truth | None = None


class Charge(Part):
    """An INTENT of the ledger, without its time: the times of two entries of a draw tell how long it took.

    Parameters
    ----------
    entry, release, attempt
        Its number, the beginning of the release's key, and which attempt it was.
    snapshot, night
        Of the release: a snapshot, or a night of a counter.
    rho, total_rho
        Its cost, and the total charged until then.
    committed
        Whether a COMMIT followed.
    """

    entry: int
    release: str
    snapshot: int | None = None
    night: int | None = None
    attempt: int
    rho: Number
    committed: bool
    total_rho: Number


class NightFacts(Part):
    """Outcome of a night.

    Parameters
    ----------
    recipe, dataset
        Names.
    snapshot, due
        The edition that was released, and the date of the calendar it is for; None for a counter.
    unchanged
        Whether the committed release stands.
    charged_rho, charges
        Charge of this night, and all charges of the lineage.
    played
        Absent where the recipe has no ``drift``, or no person met a policy.
    """

    recipe: str
    dataset: str
    snapshot: int | None
    due: str | None
    unchanged: bool
    charged_rho: Number
    charges: list[Charge]
    played: PlayedFacts | None = None


class PlayedFacts(Part):
    """Noisy rewards of tonight's people.

    Parameters
    ----------
    share
        Of the people who met the policy in use.
    policy, practice
        Mean reward of an episode under it and under current practice; None where people are too few beside the noise.
    drift
        Whether the policy did worse, by the rule.
    """

    share: Number
    policy: Number | None
    practice: Number | None
    drift: bool


class IntervalOf(Part):
    """``lower``, ``upper``, ``estimate`` and ``status`` of one run's value."""

    lower: Number
    upper: Number | None
    estimate: Number | None
    status: str


class ValueChange(Part):
    """The values of runs ``a`` and ``b``.

    Parameters
    ----------
    a, b
        The older run and the newer one.
    lower_gain
        By how much the lower end moved; None where one of the two claims none.
    overlap
        Whether the intervals do; None where one has no upper end.
    """

    a: IntervalOf
    b: IntervalOf
    lower_gain: Number | None
    overlap: bool | None


class BudgetAt(Part):
    """Cost of a run and state of its lineage; None where nothing was charged.

    Parameters
    ----------
    rho, epsilon, delta
        Of the release.
    spent_rho, remaining_rho, cap_rho
        Of the lineage when it was committed.
    """

    rho: Number | None
    epsilon: Number | None
    delta: Number | None
    spent_rho: Number | None
    remaining_rho: Number | None
    cap_rho: Number | None


class DecisionAt(Part):
    """The likeliest ``action`` and its ``probability``; None where the policy abstains."""

    action: str | None
    probability: Number | None


class CellChange(Part):
    """A cell in which two policies differ.

    Parameters
    ----------
    step, state
        Which cell.
    a, b
        Action of the older and of the newer policy.
    distance
        Total variation between them; 1 where one abstains.
    tie
        Whether either run had a tie there.
    """

    step: int
    state: str
    a: DecisionAt
    b: DecisionAt
    distance: Number
    tie: bool


class CellChanges(Part):
    """Cells in which two policies differ.

    Parameters
    ----------
    total, differ, share, of_ties
        All cells, those that differ, as a share, and those of them where either run had a tie.
    rows
        Each cell that differs; absent where only the numbers are printed.
    """

    total: int
    differ: int
    share: Number
    of_ties: int
    rows: list[CellChange] | None = None


class GainChange(Part):
    """One gain of two controllers: ``step``, ``action`` by ``observation``, in ``a`` and in ``b``."""

    step: int
    action: str
    observation: str
    a: Number
    b: Number


class GainChanges(Part):
    """Distance of two controllers; gains of scaled observations.

    Parameters
    ----------
    total, differ
        All gains, and those that differ.
    norms, distance
        Frobenius norms of both over all steps, and of the difference.
    change
        Distance over the first norm; None where that is 0.
    rows
        Each gain that differs, the largest difference first; absent where only the numbers are printed.
    """

    total: int
    differ: int
    norms: list[Number]
    distance: Number
    change: Number | None
    rows: list[GainChange] | None = None


class Comparison(Part):
    """Differences between run ``a`` and run ``b``.

    Parameters
    ----------
    a, b, snapshots
        Their names and snapshots.
    verdict, value, budget
        Their verdicts, their values, and their costs.
    settings
        Settings that differ, by dotted name.
    cells, abstain_share
        Of two tables of decisions; the share of cells in which each abstains.
    gains
        Of two linear controllers.
    """

    a: str
    b: str
    snapshots: list[int | None]
    verdict: list[Verdict]
    value: ValueChange
    budget: list[BudgetAt]
    settings: dict[str, list[object]]
    gains: GainChanges | None = None
    cells: CellChanges | None = None
    abstain_share: list[Number] | None = None

    def in_numbers(self) -> Comparison:
        """The same without the cells or gains themselves."""
        content = self.model_dump()
        for part in ("cells", "gains"):
            content.get(part, {}).pop("rows", None)
        return Comparison.model_validate(content)


class Promotion(Part):
    """Outcome of a promotion of a fresh run.

    Parameters
    ----------
    pointer, before, now
        Which alias, and the runs it named before and names now.
    promoted
        Whether the fresh run was put in use.
    held
        Reasons why it was not.
    changes
        Against the run in use; None where there was nothing to compare with.
    accepted
        Entry of the ledger in which the recipe answers for a gain that no check clears of hidden traits; absent where
        it need not.
    practice_since
        The date on which the policy in use did worse than practice, which serves since; absent where a run is in use.
    """

    pointer: str
    before: str | None
    now: str | None
    promoted: bool
    held: list[str]
    changes: Comparison | None
    accepted: int | None = None
    practice_since: str | None = None


class NightAnswer(RunAnswer):
    """A finished night: its run, its outcome, and the run in use now.

    Parameters
    ----------
    night, promotion
        Released facts, like all of a run's.
    exit
        Of the operator's shell: not 0 where the log breaks its card.
    """

    night: NightFacts
    promotion: Promotion
    exit: int


class CallFacts(Part):
    """A planned query of an adaptive planner; its noise follows earlier answers.

    Parameters
    ----------
    name, tables
        Of the query, and the tables that its answer releases.
    sensitivity
        Why its noise suffices, in words.
    adaptive
        Whether its scale is not known beforehand.
    rho, rho_exact
        Its cost; None where nothing is private.
    """

    name: str
    sensitivity: str
    tables: list[str]
    adaptive: bool
    rho: Number | None
    rho_exact: str | None


class LimitFacts(Part):
    """Limit of one more charge: the limit it is ``of``, its ``cap_rho``, and ``left_rho``.

    ``whose``: the other dataset that registered it, whose people may be the same.
    """

    of: str
    cap_rho: Number
    left_rho: Number
    whose: str | None = None


class Fits(Part):
    """The largest budget still allowed, ``rho`` or ``epsilon``, and its ``ratio`` of visits to noise."""

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
    """The policy without learning: its ``name``, and its ``suboptimality``."""

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
        """Description in words."""
        release = "" if self.release is None else f" ({self.release})"
        return f"{self.agent}{release}{'' if self.dynamics is None else f' with dynamics = {self.dynamics!r}'}"


class Quality(Part):
    """Expected quality of the policy, or the reason why none is simulated.

    Parameters
    ----------
    world, declared, episodes, draws
        Where it was simulated, whether the recipe declares that world, and how much.
    reason
        Why nothing was simulated; then there is no more.
    optimum, suboptimality, without_noise, reference, share
        The best policy's value, the loss against it, the same without noise, and as a share of the loss without
        learning.
    abstains
        Share of the cells.
    rivals, prefers, why
        Other agents and releases that fit the card, the one that loses least, and the reason in a sentence: a rival
        only where it is clearly better than the recipe's own.
    proposes
        A declaration that would leave less noise, where the declared world allows it.
    is_not
        Limits of this forecast.
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
    """Cost of one ``epsilon``: as pure DP (``pure_rho``), and with a ``delta`` (``rho``)."""

    epsilon: Number
    pure_rho: Number
    delta: Number
    rho: Number


class PeopleFacts(Part):
    """Of the declared people, how many ``teach`` and how many ``judge``; all others do neither, for this recipe.

    ``outside``: why no verdict will stand, as a sentence; None where nothing but the log can stand against one.
    ``rare``: the same if practice takes each of the card's many actions alike; None where these are few enough.
    """

    teach: int
    judge: int
    outside: str | None = None
    rare: str | None = None


class NightsPlan(Part):
    """The counter's part of a plan.

    Parameters
    ----------
    key, kind, cost
        Of the counter, see :class:`~pipeline.facts.promise.CounterFacts`.
    nights, first, last
        How many, and the dates of the first and the last.
    night, drawn, left
        Today's (None outside the dates), nights with a release, nights after today.
    replays, charge_rho
        Whether a run today draws nothing, and what it is charged.
    standard_deviation, times_one_release
        Of each table's sums, and their variance beside one release at the same rho: ``tonight`` and at ``worst``.
    window
        How many nights the sums are of, the last ones; absent: all so far.
    drift
        With ``drift`` in the recipe.
    """

    key: str
    kind: str
    nights: int
    first: str
    last: str
    cost: int
    night: int | None
    drawn: int
    left: int
    replays: bool
    charge_rho: Number
    standard_deviation: dict[str, dict[str, Number]]
    times_one_release: dict[str, Number]
    window: int | None = None
    drift: DriftPlan | None = None


class DriftPlan(Part):
    """Power of the comparison of the policy in use with practice.

    Parameters
    ----------
    rho
        Of the budget.
    people
        Of a night, on average, as declared.
    least_fall
        The least fall below practice, reward units an episode, that is called on every second night; None: none is.
    """

    rho: Number
    people: Number
    least_fall: Number | None


class VerdictsPlan(Part):
    """Least half-width of the interval of the gain, reward units, from the privacy noise alone.

    The k-th evaluation of a ledger has level 1 - 0.05 / (k (k + 1)), so each date's interval is wider than the last's.

    Parameters
    ----------
    look, half_width
        Of the next date that is charged: which evaluation it is.
    last_look, last_half_width
        Of the last date that the budget pays.
    """

    look: int
    half_width: Number
    last_look: int
    last_half_width: Number


class CalendarPlan(Part):
    """The calendar's part of a plan; dates are ISO.

    Parameters
    ----------
    release
        ``nightly``, ``weekly``, ``monthly``, or its dates.
    rho_each, rho_life
        Charge of one date, and of all of them from the first to the last; None where the calendar has no end.
    drawn, due, stands
        Dates with a release so far, today's date of the calendar, and whether its release is among them.
    next, to_come
        The next date that is charged, and how many there are; None where the calendar has no end.
    paid, last, refused, limit
        How many of these the budget pays before it refuses one, the last of them, the one it refuses, and which limit
        (``lifetime``, ``month``, ``year``; ``since``: the next date has to name another edition) says so; None where
        nothing is refused within a century.
    whose
        The other dataset that registered this limit.
    verdicts
        Where people evaluate on each of these dates.
    """

    release: str | list[str]
    rho_each: Number
    rho_life: Number | None
    drawn: int
    due: str | None
    stands: bool
    next: str | None
    to_come: int | None
    paid: int
    last: str | None
    refused: str | None
    limit: str | None
    whose: str | None = None
    verdicts: VerdictsPlan | None = None


class PlanAnswer(Part):
    """Plan of a run: its cost and the remaining budget.

    Parameters
    ----------
    dataset, recipe, agent
        Names.
    mechanisms, joint
        The planned release, table by table or query by query, and the grounds of a joint bound.
    rho, epsilon, delta
        Its cost; None where nothing is private.
    spent_before, remaining_after, cap_rho, delta_of_lineage, epsilon_before, epsilon_after
        The lineage, before and after it.
    replays, allowed, limit, fits
        Whether a run would draw nothing, whether it is allowed, the limit, and the budget that would still fit.
    gate
        Rules of the log that may stop a run of real people before its budget is spent; None of synthetic ones.
    people
        Numbers of people who learn and who are held out, where not all learn.
    together
        Datasets that were declared disjoint from this one and are charged together with it all the same: one of the two
        was charged for people whom the ledger does not know.
    counter, calendar
        With [nightly], and with [schedule].
    visits_per_cell_if_even, noise_per_cell, what_if, people_needed
        Of counts: visits against noise, at this budget and at others.
    most_squares, squares_a_direction_needs
        Of a controller: how far all declared rows reach, and how far a direction must, to exceed the noise.
    steps_that_teach
        Of an episode, where rows of later steps are not read; None where all are.
    quality
        Where it was simulated.
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
    people: PeopleFacts | None = None
    together: list[str] | None = None
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
    steps_that_teach: int | None = None
    quality: Quality | None = None
    price_of_epsilon: PriceOfEpsilon | None = None
