"""What a job works in: a recipe, its card, the home, the ledger, and the step that runs a unit of work."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from flows.config.home import Home, card_of_recipe, find_recipe
from flows.config.recipe import Recipe, load_recipe
from pipeline.declaration.card import AnyCard, Card, CardError, require_tabular
from pipeline.declaration.source import only_flags_part
from pipeline.learners.evaluation_terms import Earlier
from pipeline.learners.learner import RunPlan
from pipeline.learners.offline_agents import Guarded, guard, plan_run, read_stored
from pipeline.learners.stored_decisions import StoredDecisions
from pipeline.learners.terms import Terms
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import Ledger, open_ledger
from pipeline.logs.store import Snapshot, latest
from pipeline.transaction.gate import check_source
from pipeline.transaction.place import refuse_lost_ledger

T = TypeVar("T")


class Step(Protocol):
    """Runs one coarse unit of work under a name."""

    def __call__(self, name: str, work: Callable[[], T], /) -> T:
        """Run ``work`` once; a step that draws noise is never retried."""
        ...


def plain_step(name: str, work: Callable[[], T], /) -> T:
    """In the shell: just call it.

    Parameters
    ----------
    name
        Of the unit of work; a server would show it.
    work
        Called once.
    """
    return work()


Say = Callable[[str], None]
Progress = Callable[[int, int | None], None]
"""Told what is done so far, and of how many where that is known."""


@dataclass(frozen=True)
class Work:
    """How a job is carried out.

    Parameters
    ----------
    step
        Runs a unit of work: calls it, or has it run as a task of a server.
    say
        Is told what happens, a line each.
    progress
        Is told how far a pass is.
    """

    step: Step = plain_step
    say: Say = lambda _: None
    progress: Progress | None = None


ALONE = Work()


@dataclass(frozen=True)
class Setting:
    """A recipe, its card and where they live.

    Parameters
    ----------
    recipe, card
        Both checked, and known to fit each other.
    home
        Where the job keeps its files.
    """

    recipe: Recipe
    card: AnyCard
    home: Home

    @property
    def tabular(self) -> Card:
        """The card; CardError if it declares vectors, of which this agent knows nothing."""
        return require_tabular(self.card)

    @property
    def terms(self) -> Terms:
        """What the recipe asks of its agent's learner, with the policy of the run that [evaluate] against names.

        Raises
        ------
        CardError
            If there is no such run in the home, it is a pointer, or it has no policy by the card's states and actions.
        """
        asked = None if self.recipe.evaluate is None else self.recipe.evaluate.against
        if asked is None:
            return self.recipe.terms
        folder, where = self.home.runs / asked, f"{self.recipe.path.name}: [evaluate] against = '{asked}'"
        if folder.is_symlink():
            # it moves, and with it the question and its price; a rule of promotion knows runs by their own names
            raise CardError(f"{where}: that is a pointer; name the run itself, now '{folder.readlink().name}'")
        if not (folder / "report.json").is_file():
            found = (p.parent for p in sorted(self.home.runs.glob("[!.]*/report.json")))
            known = ", ".join(p.name for p in found if not p.is_symlink()) or "none"
            raise CardError(f"{where}: no run of this name in {self.home.runs}; there are: {known}")
        stored = read_stored(folder)
        if not isinstance(stored, StoredDecisions):
            raise CardError(f"{where}: that run has no policy by state")
        d = self.tabular.domain
        if (stored.labels["states"], stored.labels["actions"]) != (list(d.live_states), list(d.action_labels)):
            raise CardError(f"{where}: its states or actions are not those of {self.card.name}, in this order")
        return replace(self.recipe.terms, earlier=Earlier(asked, stored.policy))

    @property
    def plan(self) -> RunPlan:
        """The run that recipe and card make together, priced on declarations.

        Raises
        ------
        CardError
            If the two do not fit each other.
        """
        return plan_run(self.card, self.terms)

    @property
    def guarded(self) -> Guarded:
        """The same run behind its gate, which takes a share of the budget.

        Raises
        ------
        CardError
            If the two do not fit each other.
        """
        return guard(self.card, self.terms)


def setting(recipe: str, home: Home) -> Setting:
    """Resolve a recipe by path or name, and its card.

    Parameters
    ----------
    recipe
        Path or name.
    home
        Where the job keeps its files; its shelf is looked in for cards.

    Raises
    ------
    CardError
        If recipe or card is wrong, or the two do not fit each other.
    """
    path = find_recipe(recipe)
    loaded = load_recipe(path)
    found = Setting(loaded, card_of_recipe(loaded.recipe.card, path, home.shelf), home)
    check_numbered(found)
    return found


def check_numbered(s: Setting) -> None:
    """Refuse what looks at a record's number where another record may change it."""
    if s.card.kind != "real" or not only_flags_part(s.card.source):
        return
    asked = {
        "[nightly]": s.recipe.nightly is not None,
        "[linear] halves = true": s.recipe.linear is not None and s.recipe.linear.halves,
    }
    if wrong := [name for name, there in asked.items() if there]:
        raise CardError(
            f"{s.recipe.path.name}: {wrong[0]} needs ids that no other record changes; in format = "
            f"{s.card.source.format!r} order numbers the records: name a column of user ids, or take it out"
        )


def ledger_for(card: AnyCard, home: Home) -> Ledger:
    """Open the ledger that charges this card; a synthetic card creates and registers itself, a real one never.

    Parameters
    ----------
    card
        Whose ledger: a real card names its own.
    home
        Holds the ledger of synthetic cards.

    Raises
    ------
    BudgetError
        If a real card is not registered.
    CardError
        If the card differs from its registration.
    """
    refuse_lost_ledger(card.name, home.ledger_of(card), home.store)
    if card.kind == "synthetic":
        ledger = open_ledger(home.ledger_of(card), create=True)
        ledger.register(card)
    else:
        ledger = open_ledger(home.ledger_of(card), create=False)
    ledger.require(card)
    return ledger


def known_to_runs(lineage: str, ledger: Ledger, runs: Path) -> None:
    """Refuse a ledger that lacks an entry which a run's certificate names: store and ledger are both an old copy.

    Raises
    ------
    BudgetError
        If so: what was released since would be drawn again for nothing.
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
    found = latest(home.store, card.name)
    if found is None:
        raise CardError(f"{card.name}: no snapshot in {home.root}; run `reticent ingest` on its card first")
    if found.kind != card.kind:
        raise CardError(
            f"{card.name}: snapshot {found.number} was ingested as {found.kind}, the card now says {card.kind}; "
            "the kind of a dataset never changes"
        )
    if found.domain_hash != card.domain_hash():
        raise CardError(f"{card.name}: snapshot {found.number} was ingested under another domain; ingest again")
    check_source(found, card)
    return found
