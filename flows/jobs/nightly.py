"""The nightly job: ingest new files, release, policy, report; then compare, promote and keep watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flows.config.exit_codes import exit_code
from flows.config.home import Home
from flows.config.setting import Setting, Step, ledger_for, plain_step, setting
from flows.jobs.ledger_checks import known_to_runs
from flows.jobs.monitor import alert, watch_of
from flows.jobs.nights import nightly_counter
from flows.jobs.promotion import consider
from flows.jobs.run import ingest_card, run_recipe
from pipeline.declaration.card import CardError
from pipeline.declaration.toml import LogError
from pipeline.ledger.chain import Entry
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.steps import committed_steps
from pipeline.logs.rules import check_tolerance
from pipeline.logs.store import latest
from pipeline.privacy.noise import NoiseSource
from pipeline.transaction.continual_step import ContinualRelease
from reports.facts.answers import Charge, NightAnswer, NightFacts, Promotion, RunAnswer
from reports.facts.part import Dump


def nightly_job(
    recipe: str,
    home: Home,
    step: Step = plain_step,
    noise: NoiseSource | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Dump:
    """What ``nightly --json`` prints; parameters and result of :func:`run_night`."""
    return run_night(recipe, home, step, noise, say).model_dump()


def run_night(
    recipe: str,
    home: Home,
    step: Step = plain_step,
    noise: NoiseSource | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> NightAnswer:
    """One night of a recipe.  An unchanged night costs nothing.

    Without a counter it replays the committed release and says so.  With one ([nightly]) that has begun, tonight's leaf
    is appended whatever arrived: what came in, and whether it breaks the card, is told to the operator alone.

    Parameters
    ----------
    recipe, home, step, noise, say
        As for :func:`~flows.jobs.run.run_recipe`.

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
        night = _night(recipe, home, step, noise, say)
    except Exception as e:
        alert(watch.failed(e, exit_code(e)), say)
        raise
    text, code = watch.done(night.ran.run, night.delivered.snapshot, night.stale_days), 0
    if night.delivered.broken is not None:
        code = exit_code(night.delivered.broken)
        text = watch.broken(night.delivered.broken, code)
    if text is not None:
        alert(text, say)
    stale = text is not None and night.ran.counter is None
    did = NightFacts.model_validate({**night.did, "stale": stale})
    return NightAnswer.model_validate({**night.ran.parts(), "night": did, "promotion": night.promotion, "exit": code})


@dataclass(frozen=True)
class _Delivery:
    """The newest snapshot now, and how tonight's log breaks its card: the operator's to know."""

    snapshot: int
    broken: Exception | None


@dataclass(frozen=True)
class _Night:
    ran: RunAnswer
    did: dict[str, object]
    promotion: Promotion
    delivered: _Delivery
    stale_days: float | None


def _night(recipe: str, home: Home, step: Step, noise: NoiseSource | None, say: Callable[[str], None]) -> _Night:
    s = setting(recipe, home)
    counter = None if s.recipe.nightly is None else nightly_counter(s)
    ledger = ledger_for(s.card, home)
    # before a row is read
    ledger.require(s.card)
    known_to_runs(s.card.name, ledger, home.runs)
    before, spent = latest(home.store, s.card.name), ledger.account(s.card.name).spent
    # inside the step, so that a server sees the same of a log that breaks its card
    delivered = step("ingest", lambda: _deliver(s, home, counter, ledger, say))
    ran = run_recipe(recipe, home, step, noise, say)
    charged = ledger.account(s.card.name).spent - spent
    same = before is not None and before.number == delivered.snapshot
    unchanged = ran.replayed and (counter is not None or same)
    if unchanged and counter is None:
        say(f"unchanged: no new log since snapshot {delivered.snapshot}; its release stands and nothing was charged")
    did: dict[str, object] = {
        "recipe": s.recipe.recipe.name,
        "dataset": s.card.name,
        "snapshot": None if counter is not None else delivered.snapshot,
        "unchanged": unchanged,
        "charged_rho": float(charged),
        "charges": charges(ledger.entries(s.card.name)),
    }
    promotion = consider(s.recipe.promote, home.runs, ran.run, ran.value.status)
    return _Night(ran, did, promotion, delivered, s.recipe.watch.stale_days if s.recipe.watch is not None else None)


def _deliver(
    s: Setting, home: Home, counter: ContinualRelease | None, ledger: Ledger, say: Callable[[str], None]
) -> _Delivery:
    """Ingest tonight's log.  A counter that has begun takes what can be read of it, be it nothing."""
    begun = counter is not None and bool(committed_steps(ledger.entries(), s.card.name, counter.key))
    broken: Exception | None = None
    try:
        ingest_card(s.card, home, say=say, lenient=begun)
    except (LogError, CardError) as e:
        if not begun:
            raise
        broken = e
    newest = latest(home.store, s.card.name)
    if begun and broken is None and newest is not None:
        try:
            check_tolerance(s.card, newest.folder, newest.quarantined, newest.source_rows)
        except LogError as e:
            broken = e
    if broken is not None:
        say(f"warning: the log breaks its card, and tonight's leaf has what can be read of it: {broken}")
    return _Delivery(0 if newest is None else newest.number, broken)


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
