"""Each job once.  ``job(..., work)``: in the shell ``work.step`` calls the function, in a flow it is a Prefect task.

No job knows Prefect or the screen: what it says goes through ``work.say``, what it yields dumps to JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from flows.config.home import ALONE, Home, Work
from flows.config.setting import setting
from flows.jobs.nights import night_of, standing_counter, standing_run
from flows.jobs.publish import read_back
from flows.jobs.registration import introduced, known_to_runs, ledger_for, newest_snapshot, register_job
from flows.jobs.sharing import play_in_use
from pipeline.declaration.card import CardError
from pipeline.facts.answers import Left, RunAnswer
from pipeline.facts.promise import present
from pipeline.learners.terms import recipe_identity
from pipeline.privacy.noise import NoiseSource
from pipeline.transaction.release_once import release_once
from reports.run.answer import verdict_of


@dataclass(frozen=True)
class ReleaseRequest:
    """Which release is asked for.

    ``due``: the date of the recipe's calendar that it is released for (ISO); empty where somebody asked by hand.
    """

    edition: int
    due: str = ""


def run_recipe(
    recipe: str,
    home: Home,
    work: Work = ALONE,
    noise: NoiseSource | None = None,
    day: date | None = None,
    asked: ReleaseRequest | None = None,
    *,
    scheduled: bool = False,
) -> RunAnswer:
    """The offline job on an edition of the log: release -> policy -> certificate -> report.

    A recipe with [nightly] appends a leaf to its counter instead of making a release of its own.

    ``noise``: none: what the recipe asks for.
    ``day``: date of the counter's leaf, default today (UTC).  What was ingested since the last one is then the
    operator's to know.
    ``asked``: which edition is released; None: the newest.
    Raises CardError if recipe, card and log do not fit each other.
    Raises BudgetError if the ledger refuses the charge, or a store does not fit its ledger.
    """
    s = setting(recipe, home)
    source = noise or s.recipe.terms.noise()
    plan = s.plan
    plan.admit(source)
    ledger, asks = ledger_for(s.card, home), recipe_identity(s.card, s.terms)
    known_to_runs(s.card.name, ledger, home.runs)
    # before the COMMIT: what was committed after the first key and has no PUBLISH entry was not published so
    introduced(s.card.name, ledger, home)
    number: int | None = None
    if s.recipe.nightly is None:
        asked = asked or ReleaseRequest(newest_snapshot(s.card, home).number)
        number, due = asked.edition, asked.due
        guarded = standing_run(s, number, ledger.entries())
        plan = guarded.plan
        work.say(f"releasing {plan.what} of snapshot {number} of {s.card.name}")
        curated = work.step("release")(
            release_once, s.card, number, plan, ledger, home.store, source, home.resources, due, guarded.gate, asks
        )
    else:
        if asked is not None:
            raise CardError(f"{s.recipe.path.name}: [nightly] counts all editions so far; take --edition out")
        work.say(f"releasing {plan.what} of all nights so far of {s.card.name}")
        from pipeline.transaction.continual_step import append_step

        counter = standing_counter(s, ledger.entries(), play_in_use(s, home))
        plan = standing_run(s, None, ledger.entries()).plan
        night = work.step("release")(
            append_step, counter, ledger, home.store, source, night_of(day), scheduled=scheduled, recipe=asks
        )
        curated = night.curated
        work.say(night.said)
    if found := str(curated.recovered):
        work.say(found)
    if curated.replayed:
        work.say("this release is committed: replayed at no cost")
    if curated.stale:
        work.say("warning: the snapshot's bytes have changed since this release was drawn; the committed one stands")
    published = read_back(s.card, s.recipe, home, number, curated, ledger)
    if published is None:
        from flows.jobs.publish import publish_run

        work.say("planning on the release")
        learnt = work.step("plan")(plan.learn, curated.release)
        published = work.step("report")(publish_run, s.card, s.recipe, home, number, curated, learnt, ledger)
    account, told = ledger.account(s.card.name), published.report
    return RunAnswer(
        run=published.name,
        folder=str(published.folder),
        report=str(published.folder / "report.html"),
        replayed=curated.replayed,
        ledger=Left(spent_rho=float(account.spent), remaining_rho=float(account.remaining)),
        guarantee=told.guarantee,
        verdict=verdict_of(told),
        value=told.value,
        **present(counter=told.counter, truth=told.truth),
    )


def demo_job(recipe: str, home: Home, work: Work = ALONE) -> RunAnswer:
    """The main job on a shipped log: register, ingest, release, plan, report."""
    from flows.jobs.intake import ingest_job
    from pipeline.logs.store import latest

    s = setting(recipe, home)
    work.say(f"registering {s.card.name}")
    register_job(str(s.card.folder), home)
    last = latest(home.store, s.card.name)
    # a second demo replays the first
    if last is None or last.domain_hash != s.card.domain_hash():
        work.say("ingesting the shipped log")
        ingest_job(s.card, home, work)
    return run_recipe(recipe, home, work)
