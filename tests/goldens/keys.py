"""(d): the hex keys under which releases and counters are known to ledgers; a key that changes is paid twice."""

from pathlib import Path
from typing import Any

from tests.goldens import numbers, shelf
from tests.goldens.adapter import key_of_counter, key_of_release
from tests.goldens.places import HOME


def all_keys(home: Path) -> dict[str, Any]:
    """Run keys on snapshot 1 of every recipe, shipped or golden; counter keys and those of four nights."""
    shipped = [recipe for recipes in numbers.SHIPPED.values() for recipe in recipes] + list(numbers.PEOPLE)
    today = {f"{name} of the clinicians' log" if name in numbers.BEFORE else name: name for name in shipped}
    # the shipped recipe holds people out since; who ran it before is replayed by this one
    today["demo of the clinicians' log"] = numbers.recipe_before("demo_of_everybody")
    old = numbers.shelf_before(home)
    golden = {f"{card}/{recipe}": card for card, recipes in shelf.RECIPES.items() for recipe in recipes}
    at = {name: str(HOME / "shelf" / f"{name}.toml") for name in golden}
    runs = {name: card for name, card in golden.items() if card not in shelf.NIGHTS}
    nights = {name: key_of_counter(at[name], home, None) for name in golden if name not in runs}
    return {
        "shipped": {name: key_of_release(numbers.recipe_before(name), home, old, 1) for name in numbers.BEFORE}
        | {name: key_of_release(recipe, home, None, 1) for name, recipe in today.items()},
        "golden": {name: key_of_release(at[name], home, None, 1) for name in runs},
        "counters": {name: {"key": key, "nights": found} for name, (key, found) in nights.items()},
    }
