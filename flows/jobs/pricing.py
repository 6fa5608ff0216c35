"""``plan``: what a run would spend and what is left, and what a calendar charges; from declarations and the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from flows.config.home import Home
from flows.config.lineage import ledger_for
from flows.config.setting import Setting, setting
from flows.jobs.nights import charged_for, night_of, standing_counter, standing_run
from pipeline.declaration.lineage import Schedule
from pipeline.facts.answers import (
    CalendarPlan,
    DriftPlan,
    NightsPlan,
    PeopleFacts,
    PlanAnswer,
    PriceOfEpsilon,
    VerdictsPlan,
)
from pipeline.facts.promise import Dump, present
from pipeline.learners.learner import RunPlan
from pipeline.ledger.account import commit_of, mixed_with, registration, spent_on
from pipeline.ledger.chain import Entry
from pipeline.ledger.ledger import Ledger
from pipeline.logs.store import latest
from pipeline.privacy.budget import rho_from_epsilon, up
from pipeline.privacy.losses import safe_epsilon
from pipeline.privacy.noise import OsNoise
from pipeline.statistics.played import PlayedLayout
from pipeline.transaction.drawing import total_charge

if TYPE_CHECKING:
    from pipeline.learners.held_out import Evaluation
    from pipeline.statistics.scores import Clips
    from pipeline.transaction.continual_step import ContinualRelease

# a calendar without an end is followed for so long
_CENTURY = timedelta(days=36_525)
_PERIODS = {"month": "%Y-%m", "year": "%Y"}


def plan_recipe(recipe: str, home: Home) -> PlanAnswer:
    """What a run would spend and what is left; reads no rows and writes nothing but a synthetic registration.

    Raises CardError if recipe and card do not fit each other, or the card differs from its registration.
    Raises BudgetError if a real card is not registered.
    """
    s = setting(recipe, home)
    plan = s.plan
    plan.admit(OsNoise())
    ledger = ledger_for(s.card, home)
    account, entries = ledger.account(s.card.name), ledger.entries()
    newest = latest(home.store, s.card.name)
    edition = None if newest is None else newest.number
    guarded = standing_run(s, edition, entries)
    quote, charges = guarded.quote(), guarded.charges(s.card, edition, entries)
    replays = not charges
    cost, joining = total_charge(charges)
    counter: NightsPlan | None = None
    if s.recipe.nightly is not None:
        cost, counter = _nightly_plan(s, ledger)
        replays = counter.replays
    calendar = _calendar_plan(s, ledger, guarded.plan, quote.rho or Fraction(0))
    left = ledger.left(s.card.name, joining)
    fits = cost <= left.rho
    # before the first date of a counter and after its last there is nothing to run
    allowed = fits and (counter is None or replays or counter.night is not None)
    told = {
        "dataset": s.card.name,
        "recipe": s.recipe.recipe.name,
        "agent": s.recipe.recipe.agent,
        "mechanisms": quote.mechanisms,
        **present(joint=quote.joint),
        **{key: quote.spent[key] for key in ("rho", "epsilon", "delta")},
        "spent_before": float(account.lost),
        "remaining_after": float(account.remaining - cost),
        "cap_rho": float(account.cap),
        "delta_of_lineage": account.delta,
        "epsilon_before": safe_epsilon(up(account.lost), account.delta),
        "epsilon_after": safe_epsilon(up(account.lost + cost), account.delta),
        "replays": replays,
        "gate": None if s.card.kind == "synthetic" else guarded.stops,
        "allowed": allowed,
        "limit": left.told(),
        **present(
            people=_people(s),
            together=sorted(mixed_with(ledger.entries(), s.card.name)) or None,
            counter=counter,
            calendar=calendar,
        ),
        "fits": None if fits or left.rho <= 0 else plan.fitting(left.rho),
        **quote.outlook,
        **_both_prices(s),
    }
    return PlanAnswer.model_validate(told)


def _people(s: Setting) -> PeopleFacts | None:
    """How many teach and judge by declaration; None where everybody teaches."""
    terms, n = s.terms, s.card.unit.users_public
    if terms.teaching == 1:
        return None
    return PeopleFacts(teach=round(n * terms.teaching), judge=round(n * terms.judging(s.card)))


def _both_prices(s: Setting) -> Dump:
    """What the recipe's epsilon costs with and without a delta: the one is many times the other."""
    asked = s.recipe.privacy
    if asked is None or asked.epsilon is None:
        return {}
    delta = asked.delta or s.card.budget.delta
    rho = up(Fraction(rho_from_epsilon(asked.epsilon, delta)))
    told = PriceOfEpsilon(epsilon=asked.epsilon, pure_rho=asked.epsilon**2 / 2, delta=delta, rho=rho)
    return {"price_of_epsilon": told}


def _nightly_plan(s: Setting, ledger: Ledger) -> tuple[Fraction, NightsPlan]:
    """What a run would charge today, and the counter's part of a plan; reads no row."""
    from pipeline.ledger.steps import committed_steps, counter_intents

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
    worst = nightly.sums.mechanisms + (() if nightly.played is None else nightly.played.mechanisms)
    known = {"worst": worst, **({"tonight": nightly.mechanisms(tonight)} if inside else {})}
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
            m.table: {k: listed[i].standard_deviation for k, listed in known.items()} for i, m in enumerate(worst)
        },
        times_one_release={k: counter.cost * e for k, e in errors.items()},
        **present(window=counter.window, drift=_drift_plan(s, nightly)),
    )


def _drift_plan(s: Setting, nightly: ContinualRelease) -> DriftPlan | None:
    """What a comparison of the policy in use with practice can show, for as many people a night as are declared."""
    if nightly.played is None or s.recipe.play is None:
        return None
    nights, people = nightly.counter.steps, s.terms.teachers(s.card) / nightly.counter.steps
    (m,) = nightly.played.mechanisms
    assert m.variance is not None and m.rho is not None
    fall = PlayedLayout(nightly.card).least_fall(m.variance, s.recipe.play.share, nights, people)
    return DriftPlan(rho=float(m.rho), people=people, least_fall=fall)


def _calendar_plan(s: Setting, ledger: Ledger, plan: RunPlan, price: Fraction) -> CalendarPlan | None:
    """What the calendar of a recipe has charged and will charge, date by date; None without one.  Reads no row."""
    calendar, name, today = s.recipe.schedule, s.card.name, night_of(None)
    if calendar is None:
        return None
    entries, due = ledger.entries(), calendar.due(today)
    charged = charged_for(s, entries)
    released = [e for e in charged if not s.guarded.is_gate(s.card, e)]
    drawn = {e.body["due"] for e in released if commit_of(entries, name, e.body["run_key"]) is not None}
    stands = due is not None and due.isoformat() in drawn
    coming = list(_coming(calendar, today, stands))
    stop = _first_refused(coming, price, ledger.account(name).remaining, entries, name, today)
    paid = len(coming) if stop is None else stop[0]
    ends = isinstance(calendar.release, list)
    spent = sum((Fraction(e.body["rho"]) for e in charged), Fraction(0))
    return CalendarPlan(
        release=[str(day) for day in calendar.release] if isinstance(calendar.release, list) else calendar.release,
        rho_each=float(price),
        drawn=len(drawn),
        due=None if due is None else str(due),
        stands=stands,
        next=str(coming[0]) if coming else None,
        to_come=len(coming) if ends else None,
        rho_life=float(spent + price * len(coming)) if ends else None,
        paid=paid,
        last=str(coming[paid - 1]) if paid else None,
        refused=None if stop is None else str(coming[stop[0]]),
        limit=None if stop is None else stop[1],
        **present(verdicts=_verdicts(s, plan, entries, paid)),
    )


def _verdicts(s: Setting, plan: RunPlan, entries: Sequence[Entry], dates: int) -> VerdictsPlan | None:
    """How wide the intervals of so many dates to come are at least; None where nobody evaluates, or none is paid."""
    if not dates or not s.terms.held_out:
        return None
    from pipeline.evaluation.intervals import deviations, level_of
    from pipeline.learners.held_out import HeldOutRun
    from pipeline.ledger.looks import look_told
    from pipeline.statistics.moment_layout import STEPS, SUMS
    from pipeline.statistics.scores import SCORES

    look = look_told(entries, s.card.name, "", plan.charge()[1]).get("look")
    if look is None:
        return None
    assert isinstance(plan, HeldOutRun)
    e, people = plan.evaluation, float(s.terms.judging(s.card)) * s.card.unit.users_public
    noise = next(m for sums in e.sums.values() for m in sums.mechanisms if m.table == SUMS).standard_deviation
    deviation = noise / STEPS / people * float(_least_clips(e).widths[SCORES.index("gain")])
    first, last = (deviations(level_of(k)) * deviation for k in (look, look + dates - 1))
    return VerdictsPlan(look=look, half_width=first, last_look=look + dates - 1, last_half_width=last)


def _least_clips(e: Evaluation) -> Clips:
    """Where scores are cut if no action of the policy is rare in practice; wider clips add noise."""
    from pipeline.agents.one_step_value import Confirmed, Proposal
    from pipeline.learners.linear_evaluation import LinearEvaluation
    from pipeline.learners.one_step_evaluation import OneStepEvaluation
    from pipeline.learners.tabular_evaluation import TabularEvaluation

    if isinstance(e, OneStepEvaluation):
        none = np.zeros(0)
        return e.clips(Confirmed(Proposal(none.astype(np.int64), none, none, none, *e.plan.span), none, none, 0.0))
    judge = e.judge if isinstance(e, LinearEvaluation) else e
    assert isinstance(judge, TabularEvaluation)
    return judge.clips(judge.terms.spread)


def _coming(calendar: Schedule, today: date, stands: bool) -> Iterator[date]:
    """Dates whose release is still to be drawn, today's first, for a century."""
    day = calendar.due(today)
    if day is not None and not stands:
        yield day
    after = calendar.after(today)
    while after is not None and after <= today + _CENTURY:
        yield after
        after = calendar.after(after)


def _first_refused(
    coming: Sequence[date], price: Fraction, lifetime: Fraction, entries: Sequence[Entry], name: str, today: date
) -> tuple[int, str] | None:
    """The first date that the lineage's cap, or its schedule's, does not allow, and which limit says so."""
    caps: Mapping[str, str] = (registration(entries, name) or {}).get("schedule") or {}
    spent = dict[str, Fraction]()
    for i, day in enumerate(coming):
        if price * (i + 1) > lifetime:
            return i, "lifetime"
        for limit, cap in caps.items():
            # one that is made up for is charged today
            period = f"{max(day, today):{_PERIODS[limit]}}"
            if period not in spent:
                spent[period] = spent_on([e for e in entries if e.at.startswith(period)], name)
            spent[period] += price
            if spent[period] > Fraction(cap):
                return i, limit
    return None
