"""A recipe, its card and its home, resolved for a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from flows.config.home import Home, card_of_recipe, find_recipe
from flows.config.recipe import Recipe, load_recipe
from pipeline.declaration.card import AnyCard, Card, CardError, require_tabular
from pipeline.declaration.lineage import Schedule
from pipeline.declaration.source import only_flags_part
from pipeline.learners.learner import Guarded, RunPlan, guard, plan_run
from pipeline.learners.terms import Terms
from pipeline.ledger import ledger
from pipeline.ledger.account import commit_of, reserve_for
from pipeline.ledger.chain import BudgetError, Entry
from pipeline.ledger.ledger import open_ledger
from pipeline.logs.store import find_snapshot
from pipeline.privacy.budget import fraction_of
from pipeline.privacy.release import total_delta_slack
from pipeline.privacy.release_file import describe_mechanism
from pipeline.statistics.played import Play
from pipeline.transaction.drawing import key_of

if TYPE_CHECKING:
    from pipeline.transaction.continual_step import ContinualRelease


@dataclass(frozen=True)
class Setting:
    """A recipe, its card and its home.

    ``reserve``: share of the people who never teach, as the card's ledger has it.
    """

    recipe: Recipe
    card: AnyCard
    home: Home
    reserve: Fraction = Fraction(0)

    @property
    def tabular(self) -> Card:
        """The card; CardError if it declares vectors, which this agent cannot use."""
        return require_tabular(self.card)

    @property
    def terms(self) -> Terms:
        """The recipe's terms for its agent's learner, with the share of people that the ledger reserves."""
        return replace(self.recipe.terms.settled(self.card), reserve=self.reserve)

    @property
    def plan(self) -> RunPlan:
        """The run that recipe and card make together, priced on declarations.

        Raises CardError if the two do not fit each other.
        """
        return plan_run(self.card, self.terms)

    @property
    def guarded(self) -> Guarded:
        """The same run behind its gate, which takes a share of the budget.

        Raises CardError if the two do not fit each other.
        """
        return guard(self.card, self.terms)


def setting(recipe: str, home: Home, *, declared: bool = False) -> Setting:
    """Resolve a recipe by path or name, its card, and the share of people that its ledger reserves.

    Raises CardError if recipe or card is wrong, or the two do not fit each other.
    """
    path = find_recipe(recipe)
    loaded = load_recipe(path)
    card = card_of_recipe(loaded.recipe.card, path, home.shelf)
    resolved = Setting(loaded, card, home, reserve_for((), card) if declared else _reserve(card, home))
    check_numbered(resolved)
    return resolved


def _reserve(card: AnyCard, home: Home) -> Fraction:
    """Share of people who never teach, by the card's ledger, or as if the card were registered now."""
    if card.kind == "synthetic":
        # its ledger holds no other people
        return reserve_for((), card)
    try:
        return reserve_for(open_ledger(home.ledger_of(card), create=False).entries(), card)
    except BudgetError:
        # a job that needs the ledger reports what is wrong with it
        return reserve_for((), card)


def check_numbered(s: Setting) -> None:
    """Refuse settings that use a record's number where another record can change it."""
    if s.card.kind != "real" or not only_flags_part(s.card.source):
        return
    uses = {
        "[nightly]": s.recipe.nightly is not None,
        "[linear] halves = true": s.recipe.linear is not None and s.recipe.linear.halves,
    }
    if wrong := [name for name, used in uses.items() if used]:
        raise CardError(
            f"{s.recipe.path.name}: {wrong[0]} needs ids that no other record changes; in format = "
            f"{s.card.source.format!r} order numbers the records: name a column of user ids, or take it out"
        )


def standing_run(s: Setting, edition: int | None, entries: Sequence[Entry]) -> Guarded:
    """A recipe's run behind its gate; without the gate where the ledger knows it from a version that had none.

    ``edition``: number of the snapshot; None where there is none yet.
    """
    guarded, name = s.guarded, s.card.name
    if s.recipe.nightly is not None:
        from pipeline.ledger.steps import counter_intents

        old = bool(counter_intents(entries, name, nightly_counter(s).key))
    else:
        old = edition is not None and commit_of(entries, name, key_of(s.card, edition, guarded.full_plan)) is not None
    _refuse_slack(s, run := guarded.opened() if old else guarded)
    if edition is None or commit_of(entries, name, key_of(s.card, edition, run.plan)) is None:
        _refuse_more(s, run)
    return run


def _refuse_slack(s: Setting, run: Guarded) -> None:
    """Refuse, before any charge, a release whose samplers use up all of delta: its loss could not be stated."""
    if (p := s.recipe.terms.privacy) is None or p.sampler != "table":
        return
    mechanisms = run.plan.charge()[1].get("mechanisms") or ()
    if s.recipe.nightly is not None:
        nightly = nightly_counter(s, run)
        mechanisms = map(describe_mechanism, nightly.mechanisms(nightly.counter.steps))
    gate = () if run.gate is None else run.gate.counts.mechanisms
    slack = sum((Fraction(str(m.get("delta_slack") or 0)) for m in mechanisms), total_delta_slack(gate))
    if slack >= fraction_of(s.card.budget.delta):
        from pipeline.learners.tabular import no_delta_left

        raise no_delta_left(s.card)


def _refuse_more(s: Setting, run: Guarded) -> None:
    """Refuse, before any charge, two parts of real people that together cost more than the recipe asks.

    Who leaves one part and joins the other may pay more than who is replaced: see :mod:`pipeline.statistics.held_out`.
    """
    asked, cost = run.terms.ask().zcdp(), run.plan.charge()[0] if s.terms.held_out else None
    if s.card.kind == "real" and asked is not None and cost is not None and cost > asked:
        raise CardError(
            f"{s.recipe.path.name}: [evaluate] people: to leave those who learn and join those who judge would cost "
            f"ρ = {float(cost):.6g}, more than the {float(asked):.6g} asked; declare [features] balanced = true, "
            "use dp-one-shot, or take 'people' out"
        )


def standing_counter(s: Setting, entries: Sequence[Entry], play: Play | None = None) -> ContinualRelease:
    """The counter of :func:`standing_run`.

    ``play``: share of the people who meet the policy in use.
    """
    run = standing_run(s, None, entries)
    return replace(nightly_counter(s, run), gate=run.gate, play=play)


def nightly_counter(s: Setting, run: Guarded | None = None) -> ContinualRelease:
    """The counter that a recipe with [nightly] declares: with its whole budget, or with what a gate leaves of it."""
    n = s.recipe.nightly
    if n is None:
        raise CardError(f"{s.recipe.path.name}: [nightly] is missing; e.g. nights = 365, first = 2026-01-01")
    unit, columns, form = s.card.unit, s.tabular.source.columns, s.tabular.source.format
    if form != "table":
        raise CardError(
            f"{s.card.name}: [nightly] needs rows that name their person; source.format = '{form}' tells records by "
            "their place in a file. Write the log as a table, or run without [nightly]"
        )
    if unit.recurs == "capped" and columns.episode_id is None:
        raise CardError(
            f"{s.card.name}: [nightly] with recurs = 'capped' needs source.columns.episode_id: without it nobody can "
            "tell an episode that was delivered before from a new one. Map it, or declare recurs = 'never'"
        )
    from pipeline.learners.tabular import TabularRun
    from pipeline.transaction.continual_step import ContinualRelease

    plan = s.plan if run is None else run.plan
    # the recipe's check refused agents without a counter
    assert isinstance(plan, TabularRun)
    closed = n.episodes == "closed"
    return ContinualRelease(s.tabular, plan.privatizer, n.first, played=plan.played, closed=closed)


def night_of(day: date | None) -> date:
    """``day``, or today (UTC).

    Raises CardError if it is in the future: the nights before it could then no longer be counted.
    """
    today = ledger.now().date()
    if day is not None and day > today:
        raise CardError(f"{day} is to come; today is {today} (UTC)")
    return day or today


def calendar_of(s: Setting) -> Schedule | None:
    """Dates on which a scheduled recipe releases; None for a counter, which has every date.

    Raises CardError if the recipe says neither, or its counter does not fit the card.
    """
    if s.recipe.nightly is not None:
        # a wrong counter is refused before a row is read
        nightly_counter(s)
    elif s.recipe.schedule is None:
        raise CardError(
            f"{s.recipe.path.name}: [schedule] is missing: say on which dates a scheduled night draws and pays for a "
            'fresh release, e.g. release = "weekly" (docs/operate.md). `reticent run` releases by hand'
        )
    return s.recipe.schedule


def due_date(s: Setting, day: date) -> str | None:
    """The date of the recipe's calendar whose release stands on ``day`` (ISO); None for a counter.

    Raises CardError if the recipe has no calendar, or it begins later.
    """
    if (calendar := calendar_of(s)) is None:
        return None
    due = calendar.due(day)
    if due is None:
        first = calendar.after(day)
        raise CardError(f"{s.recipe.path.name}: the first release is due on {first}; `reticent run` releases by hand")
    return due.isoformat()


def charged_for(s: Setting, entries: Sequence[Entry]) -> list[Entry]:
    """INTENTs that paid for dates of the recipe's calendar, for a release or for its gate, oldest first."""
    due = [e for e in entries if e.kind == "INTENT" and e.lineage == s.card.name and "due" in e.body]
    guarded = s.guarded
    return [e for e in due if e.body["run_key"] in guarded.keys(s.card, e.body["snapshot"])]


def edition_for(s: Setting, due: str, entries: Sequence[Entry], store: Path, tonight: int) -> int:
    """Edition to release for a date of the calendar: the one that was charged first, else tonight's."""
    # where the gate stopped it, it stays stopped: the next edition is asked at the next date
    ours = [e for e in charged_for(s, entries) if e.body["due"] == due]
    for e in ours:
        # else its attempt died, and its rows were purged since
        committed = commit_of(entries, s.card.name, e.body["run_key"]) is not None
        if committed or find_snapshot(store, s.card.name, e.body["snapshot"]) is not None:
            return e.body["snapshot"]
    return tonight
