"""The nightly job: ingest new files, release, policy, report; then compare, promote and keep watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from flows.jobs import ingest_card, run_job
from flows.promotion import consider
from flows.screen import exit_code
from flows.setting import Step, ledger_for, plain_step, setting
from flows.shelf import Home
from flows.watch import alert, watch_of
from pipeline.ledger.chain import Entry
from pipeline.logs.store import latest
from pipeline.privacy.noise import NoiseSource


def nightly_job(
    recipe: str,
    home: Home,
    step: Step = plain_step,
    noise: NoiseSource | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """One night of a recipe.  An unchanged night replays the committed release: it costs nothing and says so.

    Returns
    -------
    What :func:`~flows.jobs.run_job` returns, with ``night`` (``snapshot``, ``unchanged``, ``charged_rho``, ``stale``,
    ``charges``: the lineage's entries) and ``promotion`` (see :func:`~flows.promotion.consider`); released facts only.

    Raises
    ------
    Exception
        Whatever stopped the night, after it was noted and somebody was alerted.
    """
    watch = watch_of(recipe, home)
    try:
        found, stale_days = _night(recipe, home, step, noise, say)
    except Exception as e:
        alert(watch.failed(e, exit_code(e)), say)
        raise
    text = watch.done(found["run"], found["night"]["snapshot"], stale_days)
    if text is not None:
        alert(text, say)
    found["night"]["stale"] = text is not None
    return found


def _night(
    recipe: str, home: Home, step: Step, noise: NoiseSource | None, say: Callable[[str], None]
) -> tuple[dict[str, Any], float | None]:
    s = setting(recipe, home)
    ledger = ledger_for(s.card, home)
    # before a row is read
    ledger.require(s.card)
    before, spent = latest(home.store, s.card.name), ledger.account(s.card.name).spent
    snapshot = ingest_card(s.card, home, step, home.means.progress, say)["snapshot"]
    found = run_job(recipe, home, step, noise, say)
    charged = ledger.account(s.card.name).spent - spent
    unchanged = before is not None and before.number == snapshot and found["replayed"]
    if unchanged:
        say(f"unchanged: no new log since snapshot {snapshot}; its release stands and nothing was charged")
    found["night"] = {
        "recipe": s.recipe.recipe.name,
        "dataset": s.card.name,
        "snapshot": snapshot,
        "unchanged": unchanged,
        "charged_rho": float(charged),
        "charges": charges(ledger.entries(s.card.name)),
    }
    found["promotion"] = consider(s.recipe.promote, home.runs, found["run"])
    return found, s.recipe.night.stale_days if s.recipe.night is not None else None


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
                    "snapshot": e.body.get("snapshot"),
                    "attempt": e.body["attempt"],
                    "rho": float(Fraction(e.body["rho"])),
                    "committed": e.seq in done,
                    "total_rho": float(total),
                }
            )
    return rows
