"""The nightly job: ingest new files, release, policy, report; then compare, promote and keep watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from flows.config.exit_codes import exit_code
from flows.config.setting import Setting, Step, ledger_for, plain_step, setting
from flows.config.shelf import Home
from flows.jobs.ledger_checks import known_to_runs
from flows.jobs.monitor import alert, watch_of
from flows.jobs.nights import nightly_counter
from flows.jobs.promotion import consider
from flows.jobs.run import ingest_card, run_job
from pipeline.declaration.card import CardError
from pipeline.declaration.toml import LogError
from pipeline.ledger.chain import Entry
from pipeline.ledger.ledger import Ledger
from pipeline.ledger.steps import committed_steps
from pipeline.logs.rules import check_tolerance
from pipeline.logs.store import latest
from pipeline.privacy.noise import NoiseSource
from pipeline.transaction.continual_step import ContinualRelease


def nightly_job(
    recipe: str,
    home: Home,
    step: Step = plain_step,
    noise: NoiseSource | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """One night of a recipe.  An unchanged night costs nothing.

    Without a counter it replays the committed release and says so.  With one ([nightly]) that has begun, tonight's leaf
    is appended whatever arrived: what came in, and whether it breaks the card, is told to the operator alone.

    Returns
    -------
    What :func:`~flows.jobs.run.run_job` returns, with ``night`` (``snapshot``, ``unchanged``, ``charged_rho``,
    ``stale``, ``charges``: the lineage's entries), ``promotion`` (see :func:`~flows.jobs.promotion.consider`) and
    ``exit``, for the operator's shell: that of a log that breaks its card, else 0.  All but ``exit`` are released
    facts; with a counter ``snapshot`` is None and ``stale`` False.

    Raises
    ------
    Exception
        Whatever stopped the night, after it was noted and somebody was alerted.
    """
    watch = watch_of(recipe, home)
    try:
        found, delivered, stale_days = _night(recipe, home, step, noise, say)
    except Exception as e:
        alert(watch.failed(e, exit_code(e)), say)
        raise
    text = watch.done(found["run"], delivered.snapshot, stale_days)
    found["exit"] = 0
    if delivered.broken is not None:
        found["exit"] = exit_code(delivered.broken)
        text = watch.broken(delivered.broken, found["exit"])
    if text is not None:
        alert(text, say)
    found["night"]["stale"] = text is not None and "counter" not in found
    return found


@dataclass(frozen=True)
class _Delivery:
    """The newest snapshot now, and how tonight's log breaks its card: the operator's to know."""

    snapshot: int
    broken: Exception | None


def _night(
    recipe: str, home: Home, step: Step, noise: NoiseSource | None, say: Callable[[str], None]
) -> tuple[dict[str, Any], _Delivery, float | None]:
    s = setting(recipe, home)
    counter = None if s.recipe.nightly is None else nightly_counter(s)
    ledger = ledger_for(s.card, home)
    # before a row is read
    ledger.require(s.card)
    known_to_runs(s.card.name, ledger, home.runs)
    before, spent = latest(home.store, s.card.name), ledger.account(s.card.name).spent
    # inside the step, so that a server sees the same of a log that breaks its card
    delivered = step("ingest", lambda: _deliver(s, home, counter, ledger, say))
    found = run_job(recipe, home, step, noise, say)
    charged = ledger.account(s.card.name).spent - spent
    same = before is not None and before.number == delivered.snapshot
    unchanged = found["replayed"] and (counter is not None or same)
    if unchanged and counter is None:
        say(f"unchanged: no new log since snapshot {delivered.snapshot}; its release stands and nothing was charged")
    found["night"] = {
        "recipe": s.recipe.recipe.name,
        "dataset": s.card.name,
        "snapshot": None if counter is not None else delivered.snapshot,
        "unchanged": unchanged,
        "charged_rho": float(charged),
        "charges": charges(ledger.entries(s.card.name)),
    }
    found["promotion"] = consider(s.recipe.promote, home.runs, found["run"])
    return found, delivered, s.recipe.watch.stale_days if s.recipe.watch is not None else None


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


def charges(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Every charge of a lineage, without the times: those of two entries of a draw tell how long it took."""
    done = {e.body["intent"] for e in entries if e.kind == "COMMIT"}
    total, rows = Fraction(0), []
    for e in entries:
        if e.kind == "INTENT":
            total += Fraction(e.body["rho"])
            rows.append(
                {
                    "entry": e.seq,
                    "release": e.body["run_key"][:24],
                    **_of(e),
                    "attempt": e.body["attempt"],
                    "rho": float(Fraction(e.body["rho"])),
                    "committed": e.seq in done,
                    "total_rho": float(total),
                }
            )
    return rows


def _of(intent: Entry) -> dict[str, Any]:
    counter = intent.body.get("counter")
    return {"snapshot": intent.body.get("snapshot")} if counter is None else {"night": counter["night"]}
