"""A card's lineage: its ledger, its registration, the key of its host, recipes that were chosen before any result."""

import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flows.config.home import CardLike, Home, card_at
from pipeline.declaration.card import AnyCard, Card, CardError
from pipeline.facts.promise import Dump
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.publication import OperatorKey, key_body, operator_key, registered_keys
from pipeline.logs.rules import check_names
from pipeline.logs.store import Snapshot, check_source, latest
from pipeline.transaction.transaction import refuse_lost_ledger, refuse_old_ledger


def ledger_for(card: AnyCard, home: Home) -> Ledger:
    """Open the ledger that charges this card; a synthetic card creates and registers itself, a real one never.

    Raises BudgetError if a real card is not registered.
    Raises CardError if the card differs from its registration.
    """
    refuse_lost_ledger(card.name, home.ledger_of(card), home.store)
    if card.kind == "synthetic":
        ledger = open_ledger(home.ledger_of(card), create=True)
        ledger.register(card)
    else:
        ledger = open_ledger(home.ledger_of(card), create=False)
    ledger.require(card)
    return ledger


def refuse_forgotten_runs(lineage: str, ledger: Ledger, runs: Path) -> None:
    """Refuse a ledger that lacks an entry which a run's certificate names: store and ledger are both an old copy.

    Raises BudgetError if so: what was released since would be drawn again for nothing.
    """
    entries = {e.seq: e.hash for e in ledger.entries()}
    for file in sorted(runs.glob("*/certificate.json")):
        try:
            proof: Any = json.loads(file.read_text(encoding="utf-8"))
            of_this = proof["dataset"] == lineage and proof["ledger"] is not None
            lost = of_this and entries.get(proof["ledger"]["entry"]) != proof["ledger"]["hash"]
        except (OSError, ValueError, KeyError, TypeError):
            # no certificate, so no witness; `ledger verify RUN` says what is wrong with it
            continue
        if lost:
            raise BudgetError(
                f"{lineage}: ledger {ledger.where} lacks entry {proof['ledger']['entry']}, of which run "
                f"{file.parent.name} was made: ledger and store are old copies, or the run is another ledger's. "
                "Restore the newest, or move that run away if it is none of theirs. Nothing was read"
            )


def newest_snapshot(card: AnyCard, home: Home) -> Snapshot:
    """The latest snapshot, ingested under this very card."""
    snapshot = latest(home.store, card.name)
    if snapshot is None:
        raise CardError(f"{card.name}: no snapshot in {home.root}; run `reticent ingest` on its card first")
    if snapshot.kind != card.kind:
        raise CardError(
            f"{card.name}: snapshot {snapshot.number} was ingested as {snapshot.kind}, the card now says {card.kind}; "
            "the kind of a dataset never changes"
        )
    if snapshot.domain_hash != card.domain_hash():
        raise CardError(f"{card.name}: snapshot {snapshot.number} was ingested under another domain; ingest again")
    check_source(snapshot, card)
    return snapshot


def register_job(card: CardLike, home: Home, *, amend: bool = False, recipes: Sequence[str] = ()) -> Dump:
    """Create the lineage in its ledger.

    Returns its account, the number of the ``entry`` that was written (None: unchanged), and the public key of this
    host's operator: kept elsewhere, it checks later what the ledger vouches for.
    Raises CardError if the card is wrong, or differs from its registration.
    """
    # loaded here: a plan needs no certificate
    from pipeline.ledger.certificate import draft_of

    card = card_at(card, home.shelf)
    check_names(card)
    refuse_lost_ledger(card.name, home.ledger_of(card), home.store)
    ledger = open_ledger(home.ledger_of(card), create=True)
    refuse_old_ledger(card.name, ledger, home.store)
    if not ledger.entries(card.name):
        _refuse_unnamed_steps(card)
    entry = ledger.register(card, amend=amend, look=partial(draft_of, card))
    key = introduce_key(card.name, ledger, home)
    for recipe in recipes:
        _register_recipe(recipe, card.name, ledger, home)
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


def _refuse_unnamed_steps(card: AnyCard) -> None:
    """Refuse a wide range of rewards whose lattice nobody declared: all between its two ends would count as the lower.

    Raises CardError if so.
    """
    if not isinstance(card, Card):
        return
    reward, (low, high) = card.reward, card.reward.range
    if reward.kind == "estimate" and high - low > 1 and "steps" not in reward.model_fields_set:
        raise CardError(
            f"{card.name}: reward.steps is not declared, so that every reward between {low:g} and {high:g} would count "
            f"as {low:g}: rewards are rounded down to a lattice. Write how many steps the range has, such as "
            f"steps = {math.ceil(high - low)}; steps = 1 if no reward lies between its ends"
        )


def _register_recipe(recipe: str, lineage: str, ledger: Ledger, home: Home) -> None:
    """Record a recipe in the ledger before its results are known."""
    from flows.config.recipe import setting
    from pipeline.learners.terms import recipe_identity
    from pipeline.ledger.looks import RECIPE, REGISTERED

    s = setting(recipe, home)
    if s.card.name != lineage:
        raise CardError(f"{s.recipe.path.name}: is a recipe of {s.card.name}, not of {lineage}; name one of its own")
    body = {RECIPE: recipe_identity(s.card, s.terms), "named": s.recipe.recipe.name}
    if not any(e.kind == REGISTERED and e.body[RECIPE] == body[RECIPE] for e in ledger.entries(lineage)):
        ledger.note(lineage, REGISTERED, body)


def introduce_key(lineage: str, ledger: Ledger, home: Home) -> OperatorKey:
    """The key of this host, recorded in the ledger if it is new."""
    key = operator_key(home.store)
    if key.public not in registered_keys(ledger.entries()):
        ledger.note(lineage, "KEY", key_body(key))
    return key
