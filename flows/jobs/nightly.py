"""The nightly job: a new edition, release, policy, report; then compare, promote and alert.

A note a recipe in the operator's part of the home says whether last night's run was done; alerts hold no data.
"""

import hashlib
import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path

from flows.config.home import ALONE, Home, Say, Work, find_recipe
from flows.config.recipe import Setting, due_date, edition_for, load_recipe, night_of, setting
from flows.jobs import book, proof, registration
from flows.jobs.intake import ingest_edition
from flows.jobs.promotion import Drift, consider
from flows.jobs.run import run_recipe
from pipeline.declaration.toml import CardError, DamagedError, LogError, exit_code
from pipeline.facts.answers import Charge, NightAnswer, NightFacts, PlayedFacts
from pipeline.facts.promise import Dump, present
from pipeline.files import make_folder, whole_file, write_file
from pipeline.ledger.chain import Entry
from pipeline.logs.store import Snapshot, check_delivery
from pipeline.privacy.noise import NoiseSource
from pipeline.privacy.release import PLAYED
from pipeline.privacy.release_file import read_release
from pipeline.statistics.played import PlayedLayout

ALERT = "RETICENT_ALERT"
_PATIENCE = 60


@dataclass(frozen=True)
class NightNote:
    """The note of one recipe's nights; the operator's, since it may hold the text of an error.

    It holds the result of the last night (``outcome``, ``exit``; ``kind`` and ``text`` of an error) and of the last
    good one; ``rows`` is a digest of what came in, ``news_at`` when it was new, ``stale_days`` after how many days that
    is too long ago.
    """

    recipe: str
    file: Path

    @property
    def note(self) -> Dump:
        """The note of the last night and of the last good one; empty before the first, or where it is damaged."""
        try:
            return json.loads(self.file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}

    def failed(self, error: Exception, code: int) -> str:
        """Note a night that failed; returns the alert's text: the recipe, the kind of error, its exit code."""
        kind = type(error).__name__
        self._write({**self.note, "outcome": "failed", "exit": code, "kind": kind, "text": str(error)})
        return f"the night of {self.recipe} failed ({kind}, exit {code}); the policy in use stays"

    def broken(self, error: Exception, code: int) -> str:
        """Note that the night went on with a log that breaks its card or cannot be checked; the alert's text."""
        self.failed(error, code)
        what = "cannot be judged" if isinstance(error, DamagedError) else "breaks its card"
        kind = type(error).__name__
        return f"the log of {self.recipe} {what} ({kind}, exit {code}); tonight has what can be read of it"

    def done(self, run: str, delivered: Snapshot, stale_days: float | None) -> str | None:
        """Note a good night; returns the alert's text where its rows are the same as those of too long ago."""
        last, now = self.note, _now()
        news_at = last["news_at"] if "news_at" in last and last.get("rows") == delivered.data_digest else now
        note: Dump = {"outcome": "done", "exit": 0, "run": run, "snapshot": delivered.number}
        note |= {"rows": delivered.data_digest, "done_at": now, "news_at": news_at, "stale_days": stale_days}
        self._write(note)
        return self._stale(note)

    def problem(self, hours: float) -> str | None:
        """Reason to alert: no good night within ``hours``, the last one failed, no new rows for too long; or None."""
        note = self.note
        if note.get("outcome") == "failed":
            return f"the last night of {self.recipe} failed ({note.get('kind')}, exit {note.get('exit')})"
        done_at = note.get("done_at")
        if done_at is None or _age(done_at) > timedelta(hours=hours):
            return f"no night of {self.recipe} was done within {hours:g} hours"
        return self._stale(note)

    def _stale(self, note: Dump) -> str | None:
        days, news_at = note.get("stale_days"), note.get("news_at")
        if days is None or news_at is None or _age(news_at) <= timedelta(days=days):
            return None
        return f"no new log of {self.recipe} for {days:g} days; the policy in use stays"

    def _write(self, note: Dump) -> None:
        make_folder(self.file.parent, 0o700)
        with whole_file(self.file, private=True, alone=False) as fresh:
            content = {**note, "schema_version": 1, "recipe": self.recipe, "at": _now()}
            write_file(fresh, json.dumps(content, indent=1))


def watch_of(recipe: str, home: Home) -> NightNote:
    """The note on a recipe, named by its file: there is one even where the recipe cannot be read."""
    try:
        path = find_recipe(recipe).resolve()
    except CardError:
        path = Path(recipe).resolve()
    name = path.stem
    # a recipe that cannot be read is watched too, under its file's name
    with suppress(CardError):
        name = load_recipe(path).recipe.name
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    # the store is the operator's: 0700
    return NightNote(name, home.store / ".nights" / f"{path.stem}-{digest}.json")


def alert(text: str, say: Say) -> None:
    """Log an alert, and run the operator's command ``RETICENT_ALERT`` with the text as its last word."""
    say(f"alert: {text}")
    command = shlex.split(os.environ.get(ALERT, ""))
    if not command:
        return
    quiet = subprocess.DEVNULL
    try:
        subprocess.run(
            [*command, f"reticent: {text}"], stdin=quiet, stdout=quiet, stderr=quiet, timeout=_PATIENCE, check=True
        )
    except (OSError, subprocess.SubprocessError) as e:
        say(f"warning: the command in {ALERT} failed ({type(e).__name__}); the alert above reached nobody")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _age(at: str) -> timedelta:
    return datetime.now(UTC) - datetime.fromisoformat(at)


def run_night(
    recipe: str, home: Home, work: Work = ALONE, noise: NoiseSource | None = None, day: date | str | None = None
) -> NightAnswer:
    """One night of a recipe: the next edition of the log, then what the recipe declares for this date.

    With a calendar ([schedule]) a fresh release is drawn on its dates, and on all others the last one is replayed; with
    a counter ([nightly]) tonight's leaf is appended.  The log, and whether it breaks the card, changes neither: only
    the operator learns of it.

    ``day``: the night's date, default today (UTC); one that was missed may be made up for.
    Returns released facts, and ``exit``, which is the operator's.
    Raises the error that stopped the night, after it was noted and an alert was sent.
    """
    # a mistyped date is no night that failed
    tonight, watch = night_of(day), watch_of(recipe, home)
    try:
        s, delivered, answer = _night(recipe, home, work, noise, tonight)
    except Exception as e:
        alert(watch.failed(e, exit_code(e)), work.say)
        raise
    if answer.night.played is not None and answer.night.played.drift:
        alert(f"{answer.night.recipe}: {'; '.join(answer.promotion.held)}", work.say)
    stale_days = s.recipe.watch.stale_days if s.recipe.watch is not None else None
    text = watch.done(answer.run, delivered, stale_days)
    try:
        check_delivery(s.card, delivered, may_be_empty=answer.counter is not None)
    except (DamagedError, LogError) as e:
        # the night is published: a broken log is the operator's to know, and fails nothing
        answer = answer.model_copy(update={"exit": exit_code(e)})
        work.say(f"warning: tonight has what can be read of the log: {e}")
        text = watch.broken(e, answer.exit)
    if text is not None:
        alert(text, work.say)
    return answer


def _night(
    recipe: str, home: Home, work: Work, noise: NoiseSource | None, tonight: date
) -> tuple[Setting, Snapshot, NightAnswer]:
    s = setting(recipe, home)
    due = due_date(s, tonight)
    ledger = registration.ledger_for(s.card, home)
    # before a row is read
    registration.refuse_forgotten_runs(s.card.name, ledger, home.runs)
    spent = ledger.account(s.card.name).spent
    delivered = work.step("ingest")(ingest_edition, s.card, home, work, tonight)
    edition: int | None = None
    if due is not None:
        edition = edition_for(s, due, ledger.entries(s.card.name), home.store, delivered.number)
    ran = run_recipe(recipe, home, work, noise, tonight, edition, due=due or "", scheduled=True)
    if due is not None and ran.replayed:
        work.say(f"the release of {due} stands, and nothing was charged")
    drift, played = _drift_of(s, home.runs / ran.run)
    facts = NightFacts(
        recipe=s.recipe.recipe.name,
        dataset=s.card.name,
        snapshot=edition,
        due=due,
        unchanged=ran.replayed,
        charged_rho=float(ledger.account(s.card.name).spent - spent),
        charges=charges(ledger.entries(s.card.name)),
        **present(played=played),
    )
    # no rule promotes a run whose files were changed
    proof.refuse_changed(home.runs / ran.run, ledger.entries)

    def sign(by: str, note: str) -> int:
        return book.sign_job(ledger, home.runs / ran.run, f"{by} in {s.recipe.recipe.name}", note, s.card)["entry"]

    promotion = consider(s.recipe.promote, home.runs, ran, sign, ledger.entries(), drift)
    fields = {**ran.parts(), "night": facts, "promotion": promotion, "exit": 0}
    return s, delivered, NightAnswer.model_validate(fields)


def _drift_of(s: Setting, folder: Path) -> tuple[Drift | None, PlayedFacts | None]:
    """A night's outcomes under the policy in use and under practice; post-processing of its release."""
    nightly = s.recipe.nightly
    if nightly is None or nightly.drift is None:
        return None, None
    release = read_release(folder)
    assert release.counter is not None
    day, play = date.fromisoformat(release.counter["date"]), release.counter.get("play")
    if play is None or play["share"] == 1:
        return Drift(day, None, False, nightly.window), None
    mechanism = next(m for m in release.mechanisms if m.table == PLAYED)
    assert mechanism.variance is not None
    night = PlayedLayout(s.tabular).judge(release.tables[PLAYED], mechanism.variance, play["share"], nightly.nights)
    facts = PlayedFacts(share=play["share"], policy=night.policy, practice=night.practice, drift=night.called)
    return Drift(day, play["id"], night.called, nightly.window), facts


def charges(entries: Sequence[Entry]) -> list[Charge]:
    """Every charge of a lineage."""
    committed = {e.body["intent"] for e in entries if e.kind == "COMMIT"}
    total, rows = Fraction(0), list[Charge]()
    for e in entries:
        if e.kind == "INTENT":
            total += Fraction(e.body["rho"])
            counter = e.body.get("counter")
            source = {"snapshot": e.body.get("snapshot")} if counter is None else {"night": counter["night"]}
            rows.append(
                Charge(
                    entry=e.seq,
                    release=e.body["run_key"][:24],
                    **source,
                    attempt=e.body["attempt"],
                    rho=float(Fraction(e.body["rho"])),
                    committed=e.seq in committed,
                    total_rho=float(total),
                )
            )
    return rows
