"""A recipe, its card and its home: what a job carries out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from flows.config.home import Home, card_of_recipe, find_recipe
from flows.config.recipe import Recipe, load_recipe
from pipeline.declaration.card import AnyCard, Card, CardError, require_tabular
from pipeline.declaration.source import only_flags_part
from pipeline.learners.learner import RunPlan
from pipeline.learners.offline_agents import Guarded, guard, plan_run
from pipeline.learners.terms import Terms
from pipeline.ledger.account import reserve_for
from pipeline.ledger.chain import BudgetError
from pipeline.ledger.ledger import open_ledger


@dataclass(frozen=True)
class Setting:
    """A recipe, its card and where they live.

    ``reserve``: share of the people who never teach, as the card's ledger has it.
    """

    recipe: Recipe
    card: AnyCard
    home: Home
    reserve: Fraction = Fraction(0)

    @property
    def tabular(self) -> Card:
        """The card; CardError if it declares vectors, of which this agent knows nothing."""
        return require_tabular(self.card)

    @property
    def terms(self) -> Terms:
        """What the recipe asks of its agent's learner, beside whom the ledger reserves."""
        return replace(self.recipe.terms.settled(self.card), reserve=self.reserve)

    @property
    def plan(self) -> RunPlan:
        """The run that recipe and card make together, priced on declarations.

        Raises CardError if the two do not fit each other.
        """
        return plan_run(self.card, self.terms)

    @property
    def guarded(self) -> Guarded:
        """The same run behind its gate, which takes a share of the budget.

        Raises CardError if the two do not fit each other.
        """
        return guard(self.card, self.terms)


def setting(recipe: str, home: Home, *, declared: bool = False) -> Setting:
    """Resolve a recipe by path or name, and its card, and whom its ledger reserves.

    Raises CardError if recipe or card is wrong, or the two do not fit each other.
    """
    path = find_recipe(recipe)
    loaded = load_recipe(path)
    card = card_of_recipe(loaded.recipe.card, path, home.shelf)
    found = Setting(loaded, card, home, reserve_for((), card) if declared else _reserve(card, home))
    check_numbered(found)
    return found


def _reserve(card: AnyCard, home: Home) -> Fraction:
    """Who never teaches: as the card's ledger has it, or would have it if the card were registered now."""
    if card.kind == "synthetic":
        # nobody else's people are in it
        return reserve_for((), card)
    try:
        return reserve_for(open_ledger(home.ledger_of(card), create=False).entries(), card)
    except BudgetError:
        # whoever needs the ledger says what is wrong with it
        return reserve_for((), card)


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
