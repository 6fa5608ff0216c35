"""``register``: a lineage in its ledger, the key of its host, and recipes that were chosen before any answer."""

from __future__ import annotations

from collections.abc import Sequence

from flows.config.home import CardLike, Home, card_at
from pipeline.declaration.card import CardError
from pipeline.facts.promise import Dump
from pipeline.ledger.certificate import draft_of
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.ledger.looks import RECIPE, REGISTERED
from pipeline.ledger.publication import OperatorKey, key_body, operator_key, registered_keys
from pipeline.logs.rules import check_names
from pipeline.transaction.place import refuse_lost_ledger, refuse_old_ledger


def register_job(
    card: CardLike,
    home: Home,
    *,
    amend: bool = False,
    recipes: Sequence[str] = (),
) -> Dump:
    """Create the lineage in its ledger.

    Returns its account, the number of the ``entry`` that was written (None: unchanged), and the public key of this
    host's operator: whoever keeps it elsewhere can check what the ledger vouches for.
    Raises CardError if the card is wrong, or differs from its registration.
    """
    card = card_at(card, home.shelf)
    check_names(card)
    refuse_lost_ledger(card.name, home.ledger_of(card), home.store)
    ledger = open_ledger(home.ledger_of(card), create=True)
    refuse_old_ledger(card.name, ledger, home.store)
    entry = ledger.register(card, amend=amend)
    if (look := draft_of(card, ledger.inspections(card.name))) is not None:
        ledger.note(card.name, "INSPECT", look)
    key = introduced(card.name, ledger, home)
    for recipe in recipes:
        _name_recipe(recipe, card.name, ledger, home)
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


def _name_recipe(recipe: str, lineage: str, ledger: Ledger, home: Home) -> None:
    """Let the ledger know a recipe before its answers."""
    from flows.config.setting import setting
    from pipeline.learners.terms import recipe_identity

    s = setting(recipe, home)
    if s.card.name != lineage:
        raise CardError(f"{s.recipe.path.name}: is a recipe of {s.card.name}, not of {lineage}; name one of its own")
    told = {RECIPE: recipe_identity(s.card, s.terms), "named": s.recipe.recipe.name}
    if not any(e.kind == REGISTERED and e.body[RECIPE] == told[RECIPE] for e in ledger.entries(lineage)):
        ledger.note(lineage, REGISTERED, told)


def introduced(lineage: str, ledger: Ledger, home: Home) -> OperatorKey:
    """The key of this host, which the ledger knows."""
    key = operator_key(home.store)
    if key.public not in registered_keys(ledger.entries()):
        ledger.note(lineage, "KEY", key_body(key))
    return key
