"""The nights of a recipe: its counter or its calendar, which date tonight is, what they cost, what the budget pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path

from flows.config.setting import Setting
from pipeline.declaration.card import CardError
from pipeline.declaration.lineage import Schedule
from pipeline.learners.held_out import HeldOutRun
from pipeline.learners.learner import Continual
from pipeline.learners.offline_agents import Guarded
from pipeline.learners.tabular import no_delta_left
from pipeline.ledger import ledger
from pipeline.ledger.account import commit_of
from pipeline.ledger.chain import Entry
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.limits import is_look
from pipeline.ledger.steps import committed_steps, counter_intents
from pipeline.logs.store import find_snapshot
from pipeline.privacy.budget import fraction_of
from pipeline.privacy.release import total_delta_slack
from pipeline.privacy.release_file import describe_mechanism
from pipeline.transaction.continual_release import ContinualRelease
from pipeline.transaction.release_once import key_of
from reports.facts.nights_plan import EpochsPlan, EvaluationsPlan, NightsPlan
from reports.facts.part import present


def standing_run(s: Setting, edition: int | None, entries: Sequence[Entry]) -> Guarded:
    """A recipe's run behind its gate; without the gate where the ledger knows it from a version that had none.

    Parameters
    ----------
    s
        Recipe and card.
    edition
        Number of the snapshot; None where there is none yet.
    entries
        Of the ledger.
    """
    guarded, name = s.guarded, s.card.name
    if s.recipe.nightly is not None:
        old = bool(counter_intents(entries, name, nightly_counter(s).key))
    else:
        old = edition is not None and commit_of(entries, name, key_of(s.card, edition, guarded.whole)) is not None
    _refuse_slack(s, found := guarded.opened() if old else guarded)
    return found


def _refuse_slack(s: Setting, run: Guarded) -> None:
    """Refuse, before anything is charged, what samplers leave nothing of delta for: nobody could state its loss."""
    if (p := s.recipe.terms.privacy) is None or p.sampler != "table":
        return
    told = run.plan.charge()[1].get("mechanisms") or ()
    if s.recipe.nightly is not None:
        nightly = nightly_counter(s, run)
        told = map(describe_mechanism, nightly.listed(nightly.counter.steps, nightly.evaluation))
    gate = () if run.gate is None else run.gate.counts.mechanisms
    slack = sum((Fraction(str(m.get("delta_slack") or 0)) for m in told), total_delta_slack(gate))
    if slack >= fraction_of(s.card.budget.delta):
        raise no_delta_left(s.card)


def standing_counter(s: Setting, entries: Sequence[Entry]) -> ContinualRelease:
    """The counter of :func:`standing_run`."""
    run = standing_run(s, None, entries)
    return replace(nightly_counter(s, run), gate=run.gate)


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
    plan = s.plan if run is None else run.plan
    learner = plan.plan if isinstance(plan, HeldOutRun) else plan
    # an agent without a counter is refused with its recipe
    assert isinstance(learner, Continual)
    counter = ContinualRelease(s.tabular, learner.nightly(), n.first)
    dates = None if s.recipe.evaluate is None else s.recipe.evaluate.dates
    if not isinstance(plan, HeldOutRun) or dates is None:
        return counter
    return replace(counter, evaluation=plan, dates=Schedule(release=dates))


def night_of(day: date | None) -> date:
    """``day``, or today (UTC).

    Raises
    ------
    CardError
        If it is to come: the nights before it could then not be counted any more.
    """
    today = ledger.now().date()
    if day is not None and day > today:
        raise CardError(f"{day} is to come; today is {today} (UTC)")
    return day or today


def calendar_of(s: Setting) -> Schedule | None:
    """On which dates a scheduled recipe releases; None for a counter, which has every date.

    Raises
    ------
    CardError
        If the recipe says neither, or its counter does not fit the card.
    """
    if s.recipe.nightly is not None:
        # what is wrong with it is told before a row is read
        nightly_counter(s)
    elif s.recipe.schedule is None:
        raise CardError(
            f"{s.recipe.path.name}: [schedule] is missing: say on which dates a scheduled night draws and pays for a "
            'fresh release, e.g. release = "weekly" (docs/operating.md). `reticent run` releases by hand'
        )
    return s.recipe.schedule


def due_date(s: Setting, day: date) -> str | None:
    """The date of the recipe's calendar whose release stands on ``day`` (ISO); None for a counter.

    Raises
    ------
    CardError
        If the recipe has no calendar, or it begins later.
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
    """Which edition is released for a date of the calendar: the one that was charged first, else tonight's."""
    # where the gate stopped it, it stays stopped: the next edition is asked at the next date
    ours = [e for e in charged_for(s, entries) if e.body["due"] == due]
    # an attempt died, and its rows were purged since
    lost = [
        e
        for e in ours
        if commit_of(entries, s.card.name, e.body["run_key"]) is None
        and find_snapshot(store, s.card.name, e.body["snapshot"]) is None
    ]
    return next((e.body["snapshot"] for e in ours if e not in lost), tonight)


def nightly_plan(s: Setting, ledger: Ledger) -> tuple[Fraction, NightsPlan]:
    """What a run would charge today, and the counter's part of a plan; reads no row."""
    entries = ledger.entries()
    nightly = standing_counter(s, entries)
    counter, tonight = nightly.counter, nightly.until(night_of(None))
    nights = committed_steps(entries, s.card.name, nightly.key)
    inside = 1 <= tonight <= counter.steps
    replays = bool(nights) and tonight <= nights[-1].t
    charge = Fraction(0)
    if not nights or (inside and not replays):
        since = nights[-1].t + 1 if nights else 1
        charge = nightly.price(entries, max(since, tonight if inside else 1), since)
    if nightly.gate is not None and not counter_intents(entries, s.card.name, nightly.key):
        charge += nightly.gate.charge()[0] or 0
    evaluations = None if nightly.dates is None else nightly_evaluations(nightly, entries, tonight)
    known = {"worst": nightly.worst, **({"tonight": nightly.mechanisms(tonight)} if inside else {})}
    errors = {"worst": max(map(counter.error, range(1, counter.steps + 1)))}
    if inside:
        errors["tonight"] = counter.error(tonight)
    return charge, NightsPlan(
        key=nightly.key,
        kind=counter.kind,
        nights=counter.steps,
        first=nightly.first.isoformat(),
        last=nightly.last.isoformat(),
        cost=counter.cost,
        night=tonight if inside else None,
        drawn=len(nights),
        left=min(counter.steps, max(0, counter.steps - tonight)),
        replays=replays,
        charge_rho=float(charge),
        standard_deviation={
            m.table: {k: listed[i].standard_deviation for k, listed in known.items()}
            for i, m in enumerate(nightly.worst)
        },
        times_one_release={k: counter.cost * e for k, e in errors.items()},
        **present(evaluations=evaluations, epochs=_epochs_plan(nightly, tonight)),
    )


def _epochs_plan(nightly: ContinualRelease, tonight: int) -> EpochsPlan | None:
    if nightly.epochs is None:
        return None
    begin = next((t for t in range(max(1, tonight + 1), nightly.counter.steps + 1) if nightly.opens(t, t)), None)
    day = None if begin is None else (nightly.first + timedelta(days=begin - 1)).isoformat()
    return EpochsPlan(**nightly.epochs, next=day)


def nightly_evaluations(nightly: ContinualRelease, entries: Sequence[Entry], tonight: int) -> EvaluationsPlan:
    """On which dates of a counter people evaluate, and what all of it costs over its whole life.

    Parameters
    ----------
    nightly, entries
        The counter, and the ledger's entries.
    tonight
        Today, counted from 1 on its first date.
    """
    assert nightly.dates is not None and nightly.evaluation is not None
    due = nightly.dates.within(nightly.first, nightly.last)
    done = [s for s in committed_steps(entries, nightly.card.name, nightly.key) if is_look(s.intent.body)]
    joint = nightly.evaluation.joint_body()
    whole, counter = Fraction(joint["rho_exact"]), Fraction(joint["learn"]["rho_exact"])
    inside = 1 <= tonight <= nightly.counter.steps
    return EvaluationsPlan(
        share=float(nightly.evaluation.share),
        dates=len(due),
        drawn=len(done),
        tonight=inside and nightly.evaluated_at(tonight, entries) is not None,
        next=next((d.isoformat() for d in due if d > nightly.first + timedelta(days=tonight - 1)), None),
        each_rho=float(whole - counter),
        life_rho=float(counter + len(due) * (whole - counter)),
    )
