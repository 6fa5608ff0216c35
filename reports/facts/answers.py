"""What jobs say besides a report: a run that was made, a night, and what changed between two runs.

``model_dump()`` of any of them is what ``--json`` prints.
"""

from __future__ import annotations

from reports.facts.learnt import Truth, ValueFacts
from reports.facts.part import Number, Part
from reports.facts.promise import CounterFacts, Guarantee
from reports.facts.verdict import Verdict


class Left(Part):
    """Budget of a lineage: ``spent_rho`` so far and ``remaining_rho``."""

    spent_rho: Number
    remaining_rho: Number


class RunAnswer(Part):
    """A run that was made.

    Parameters
    ----------
    run, folder, report
        Its name, its folder, its page.
    replayed
        Whether the release was committed before, so that nothing was charged.
    ledger
        The lineage now.
    guarantee, verdict, value, counter, truth
        As its report states them.
    """

    run: str
    folder: str
    report: str
    replayed: bool
    ledger: Left
    guarantee: Guarantee
    verdict: Verdict
    value: ValueFacts
    counter: CounterFacts | None = None
    truth: Truth | None = None


class Charge(Part):
    """An INTENT of the ledger, without its time: the times of two entries of a draw tell how long it took.

    Parameters
    ----------
    entry, release, attempt
        Its number, the beginning of the release's key, and which attempt it was.
    snapshot, night
        What was released: a snapshot, or a night of a counter.
    rho, total_rho
        What it cost, and all that was charged until then.
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
    """What a night did.

    Parameters
    ----------
    recipe, dataset
        Names.
    snapshot, due
        The edition that was released, and the date of the calendar it is for; None for a counter.
    unchanged
        Whether the committed release stands.
    charged_rho, charges
        What this night was charged, and all charges of the lineage.
    """

    recipe: str
    dataset: str
    snapshot: int | None
    due: str | None
    unchanged: bool
    charged_rho: Number
    charges: list[Charge]


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
    """What a run cost and where its lineage stood; None where nothing was charged.

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
        What the older and the newer policy do.
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
        Each cell that differs; absent where only the numbers are told.
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
    """How far apart two controllers are; gains of scaled observations.

    Parameters
    ----------
    total, differ
        All gains, and those that differ.
    norms, distance
        Frobenius norms of both over all steps, and of the difference.
    change
        Distance over the first norm; None where that is 0.
    rows
        Each gain that differs, the largest difference first; absent where only the numbers are told.
    """

    total: int
    differ: int
    norms: list[Number]
    distance: Number
    change: Number | None
    rows: list[GainChange] | None = None


class Comparison(Part):
    """What changed from run ``a`` to run ``b``.

    Parameters
    ----------
    a, b, snapshots
        Their names and snapshots.
    verdict, value, budget
        Their verdicts, their values, and what each cost.
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
        told = self.model_dump()
        for part in ("cells", "gains"):
            told.get(part, {}).pop("rows", None)
        return Comparison.model_validate(told)


class Promotion(Part):
    """Whether a fresh run is in use now.

    Parameters
    ----------
    pointer, before, now
        Which alias, and the runs it named before and names now.
    promoted
        Whether the fresh run was put in use.
    held
        Why it was not.
    changes
        Against the run in use; None where there was nothing to compare with.
    """

    pointer: str
    before: str | None
    now: str | None
    promoted: bool
    held: list[str]
    changes: Comparison | None


class NightAnswer(RunAnswer):
    """A night that was done: its run, what it did, and what is in use now.

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
