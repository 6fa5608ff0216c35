"""Each job once.  ``job(..., work)``: in the shell ``work.step`` calls the function, in a flow it is a Prefect task.

No job knows Prefect or the screen: what it says goes through ``work.say``, what it yields dumps to JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TypedDict

from flows.config.home import CardLike, Home, card_at
from flows.config.setting import ALONE, Work, known_to_runs, ledger_for, newest_snapshot, setting
from flows.jobs.intake import ingest_job
from flows.jobs.nights import night_of, standing_counter, standing_run
from flows.jobs.publish import publish_run
from flows.jobs.read_back import read_back
from pipeline.declaration.card import CardError
from pipeline.learners.learner import Learnt
from pipeline.ledger.assumptions import draft_of
from pipeline.ledger.keys import OperatorKey, operator_key, registered_keys
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.publication import key_body
from pipeline.logs.rules import check_names
from pipeline.logs.store import latest
from pipeline.privacy.noise import NoiseSource
from pipeline.transaction.continual_step import append_step
from pipeline.transaction.place import refuse_lost_ledger, refuse_old_ledger
from pipeline.transaction.release_once import release_once
from pipeline.transaction.transaction import Curated
from reports.facts.answers import Left, RunAnswer
from reports.facts.part import present
from reports.run.answer import verdict_of


class Registered(TypedDict):
    """What ``register --json`` prints: the lineage's account, and the entry that was written (None: unchanged).

    ``public_key`` is that of this host's operator: whoever keeps it elsewhere can check what the ledger vouches for.
    """

    dataset: str
    ledger: str
    kind: str
    entry: int | None
    action: str
    cap_rho: float
    spent_rho: float
    delta: float
    domain_hash: str
    public_key: str


def register_job(card: CardLike, home: Home, *, amend: bool = False, disjoint_from: Sequence[str] = ()) -> Registered:
    """Create the lineage in its ledger.

    Parameters
    ----------
    card
        Loaded, or its path or name.
    home
        Where the ledger of a synthetic card is.
    amend
        Change what a registration allows to change, as an entry of its own.
    disjoint_from
        Names of real datasets of the same ledger that share nobody with this one.

    Raises
    ------
    CardError
        If the card is wrong, or differs from its registration.
    """
    card = card_at(card, home.shelf)
    check_names(card)
    refuse_lost_ledger(card.name, home.ledger_of(card), home.store)
    ledger = open_ledger(home.ledger_of(card), create=True)
    refuse_old_ledger(card.name, ledger, home.store)
    entry = ledger.register(card, amend=amend, disjoint_from=disjoint_from)
    if (look := draft_of(card, ledger.inspections(card.name))) is not None:
        ledger.note(card.name, "INSPECT", look)
    key = _introduced(card.name, ledger, home)
    account = ledger.account(card.name)
    return {
        "dataset": card.name,
        "ledger": ledger.where,
        "kind": card.kind,
        "entry": None if entry is None else entry.seq,
        "action": "unchanged" if entry is None else entry.kind.lower(),
        "cap_rho": float(account.cap),
        "spent_rho": float(account.spent),
        "delta": account.delta,
        "domain_hash": card.domain_hash(),
        "public_key": key.public,
    }


def _introduced(lineage: str, ledger: Ledger, home: Home) -> OperatorKey:
    """The key of this host, which the ledger knows."""
    key = operator_key(home.store)
    if key.public not in registered_keys(ledger.entries()):
        ledger.note(lineage, "KEY", key_body(key))
    return key


@dataclass(frozen=True)
class Asked:
    """Which release is asked for.

    Parameters
    ----------
    edition
        Number of the snapshot.
    due
        The date of the recipe's calendar that it is released for (ISO); empty where somebody asked by hand.
    """

    edition: int
    due: str = ""


def run_recipe(
    recipe: str,
    home: Home,
    work: Work = ALONE,
    noise: NoiseSource | None = None,
    day: date | None = None,
    asked: Asked | None = None,
    *,
    scheduled: bool = False,
) -> RunAnswer:
    """The offline job on an edition of the log: release -> policy -> certificate -> report.

    A recipe with [nightly] appends a leaf to its counter instead of making a release of its own.

    Parameters
    ----------
    recipe
        Path or name.
    home
        Where store, ledger and runs are.
    work
        What runs its parts, and who is told.
    noise
        None: what the recipe asks for.
    day
        Date of the counter's leaf, default today (UTC).  What was ingested since the last one is then the operator's to
        know.
    asked
        Which edition is released; None: the newest.
    scheduled
        Whether nobody asked for this run: see :func:`~pipeline.transaction.continual_step.append_step`.

    Raises
    ------
    CardError
        If recipe, card and log do not fit each other.
    BudgetError
        If the ledger refuses the charge, or a store does not fit its ledger.
    """
    s = setting(recipe, home)
    source = noise or s.recipe.terms.noise()
    plan = s.plan
    plan.admit(source)
    ledger = ledger_for(s.card, home)
    known_to_runs(s.card.name, ledger, home.runs)
    if s.recipe.evaluate is not None and (against := s.recipe.evaluate.against) is not None:
        from flows.jobs.proof import refuse_changed

        # what people are asked about must be public: no policy but one that was published
        refuse_changed(home.runs / against, ledger.entries, s.card)
    # before the COMMIT: what was committed after the first key and has no PUBLISH entry was not published so
    _introduced(s.card.name, ledger, home)
    number: int | None = None
    if s.recipe.nightly is None:
        asked = asked or Asked(newest_snapshot(s.card, home).number)
        number, due = asked.edition, asked.due
        guarded = standing_run(s, number, ledger.entries())
        plan = guarded.plan
        work.say(f"releasing {plan.what} of snapshot {number} of {s.card.name}")
        curated: Curated = work.step(
            "release",
            lambda: release_once(s.card, number, plan, ledger, home.store, source, home.resources, due, guarded.gate),
        )
    else:
        if asked is not None:
            raise CardError(f"{s.recipe.path.name}: [nightly] counts all editions so far; take --edition out")
        work.say(f"releasing {plan.what} of all nights so far of {s.card.name}")
        counter, plan = standing_counter(s, ledger.entries()), standing_run(s, None, ledger.entries()).plan
        night = work.step(
            "release",
            lambda: append_step(counter, ledger, home.store, source, night_of(day), scheduled=scheduled),
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
        work.say("planning on the release")
        learnt: Learnt = work.step("plan", lambda: plan.learn(curated.release))
        published = work.step("report", lambda: publish_run(s.card, s.recipe, home, number, curated, learnt, ledger))
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


def demo_job(home: Home, work: Work = ALONE) -> RunAnswer:
    """The main job on the shipped log: register, ingest, release, plan, report.

    Parameters
    ----------
    home, work
        As for :func:`run_recipe`.
    """
    s = setting("demo", home)
    work.say(f"registering {s.card.name}")
    register_job(str(s.card.folder), home)
    last = latest(home.store, s.card.name)
    # a second demo replays the first
    if last is None or last.domain_hash != s.card.domain_hash():
        work.say("ingesting the shipped log")
        ingest_job(s.card, home, work)
    return run_recipe("demo", home, work)
