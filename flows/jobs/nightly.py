"""The nightly job: a new edition, release, policy, report; then compare, promote and keep watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from flows.config.home import Home
from flows.config.setting import Step, ledger_for, plain_step, setting
from flows.jobs.intake import ingest_edition
from flows.jobs.ledger_checks import known_to_runs
from flows.jobs.monitor import alert, watch_of
from flows.jobs.nights import due_date, edition_for, night_of
from flows.jobs.promotion import consider
from flows.jobs.proof import refuse_changed
from flows.jobs.run import Asked, run_recipe
from pipeline.declaration.card import AnyCard
from pipeline.declaration.toml import LogError, exit_code
from pipeline.ledger.chain import Entry
from pipeline.logs.editions import check_delivery
from pipeline.logs.store import Snapshot
from pipeline.privacy.noise import NoiseSource
from reports.facts.answers import Charge, NightAnswer, NightFacts, Promotion, RunAnswer


def run_night(
    recipe: str,
    home: Home,
    step: Step = plain_step,
    noise: NoiseSource | None = None,
    say: Callable[[str], None] = lambda _: None,
    day: date | None = None,
) -> NightAnswer:
    """One night of a recipe: the next edition of the log, then what the recipe declares for this date.

    With a calendar ([schedule]) a fresh release is drawn on its dates, and on all others the last one is replayed; with
    a counter ([nightly]) tonight's leaf is appended.  What came in, and whether it breaks the card, decides neither: it
    is told to the operator alone.

    Parameters
    ----------
    recipe, home, step, noise, say
        As for :func:`~flows.jobs.run.run_recipe`.
    day
        The night's date, default today (UTC); one that was missed may be made up for.

    Returns
    -------
    All but ``exit`` are released facts.

    Raises
    ------
    Exception
        Whatever stopped the night, after it was noted and somebody was alerted.
    """
    watch = watch_of(recipe, home)
    try:
        night = _night(recipe, home, step, noise, say, day)
    except Exception as e:
        alert(watch.failed(e, exit_code(e)), say)
        raise
    text, code = watch.done(night.ran.run, night.delivered, night.stale_days), 0
    try:
        check_delivery(night.card, night.delivered, may_be_empty=night.ran.counter is not None)
    except LogError as e:
        code = exit_code(e)
        say(f"warning: the log breaks its card, and tonight has what can be read of it: {e}")
        text = watch.broken(e, code)
    if text is not None:
        alert(text, say)
    return NightAnswer.model_validate(
        {**night.ran.parts(), "night": night.did, "promotion": night.promotion, "exit": code}
    )


@dataclass(frozen=True)
class _Night:
    ran: RunAnswer
    did: NightFacts
    promotion: Promotion
    card: AnyCard
    delivered: Snapshot
    stale_days: float | None


def _night(
    recipe: str, home: Home, step: Step, noise: NoiseSource | None, say: Callable[[str], None], day: date | None
) -> _Night:
    s, tonight = setting(recipe, home), night_of(day)
    due = due_date(s, tonight)
    ledger = ledger_for(s.card, home)
    # before a row is read
    ledger.require(s.card)
    known_to_runs(s.card.name, ledger, home.runs)
    spent = ledger.account(s.card.name).spent
    delivered = step("ingest", lambda: ingest_edition(s.card, home, say=say, night=tonight))
    asked: Asked | None = None
    if due is not None:
        asked = Asked(edition_for(s, due, ledger.entries(s.card.name), home.store, delivered.number), due)
    ran = run_recipe(recipe, home, step, noise, say, tonight, asked, scheduled=True)
    if due is not None and ran.replayed:
        say(f"the release of {due} stands, and nothing was charged")
    did = NightFacts(
        recipe=s.recipe.recipe.name,
        dataset=s.card.name,
        snapshot=None if asked is None else asked.edition,
        due=due,
        unchanged=ran.replayed,
        charged_rho=float(ledger.account(s.card.name).spent - spent),
        charges=charges(ledger.entries(s.card.name)),
    )
    # no rule puts to use what is not what was published
    refuse_changed(home.runs / ran.run, ledger.entries)
    dated = s.recipe.nightly is not None and bool(s.recipe.terms.held_out)
    promotion = consider(s.recipe.promote, home.runs, ran.run, ran.value.status, ran.verdict, dated=dated)
    stale_days = s.recipe.watch.stale_days if s.recipe.watch is not None else None
    return _Night(ran, did, promotion, s.card, delivered, stale_days)


def charges(entries: Sequence[Entry]) -> list[Charge]:
    """Every charge of a lineage."""
    done = {e.body["intent"] for e in entries if e.kind == "COMMIT"}
    total, rows = Fraction(0), list[Charge]()
    for e in entries:
        if e.kind == "INTENT":
            total += Fraction(e.body["rho"])
            counter = e.body.get("counter")
            of = {"snapshot": e.body.get("snapshot")} if counter is None else {"night": counter["night"]}
            rows.append(
                Charge(
                    entry=e.seq,
                    release=e.body["run_key"][:24],
                    **of,
                    attempt=e.body["attempt"],
                    rho=float(Fraction(e.body["rho"])),
                    committed=e.seq in done,
                    total_rho=float(total),
                )
            )
    return rows
