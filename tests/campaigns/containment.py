"""Does the interval hold the value? ``python -P -m tests.campaigns.containment [draws]`` rewrites ``containment.csv``.

One row a setting, beside the card it belongs to; a run of exactly that setting may then call its interval a bound
(design §5.3: inside in at least 95 of at least 100 draws of a fresh log and fresh noise).
"""

from __future__ import annotations

import sys

from flows.config.home import find_recipe
from flows.config.recipe import load_recipe
from pipeline.learners.tabular_facts import setting_key
from tests.campaigns.draws import draws, shelf_card, world_of
from tests.campaigns.rows import read, write

# recipe -> table
RECIPES = {"icu_sepsis_uniform": "containment_icu_sepsis", "riverswim": "containment_riverswim"}
SEED = 20261122


def main(count: int) -> None:
    """Measure the shipped recipes and rewrite the tables."""
    for name, table in RECIPES.items():
        recipe = load_recipe(find_recipe(name))
        card = shelf_card(recipe.recipe.card)
        assert recipe.evaluate is not None
        world, behaviour = world_of(card, recipe.evaluate.world), recipe.evaluate.behaviour
        asks = {"asked": recipe.terms.ask()}
        found = [
            d["asked"] for d in draws(card, world, behaviour, card.unit.users_public, asks, recipe.planner, count, SEED)
        ]
        inside = sum(d.inside for d in found)
        row = setting_key(card, recipe.terms) | {"draws": str(count), "inside": str(inside)}
        print(name, row, flush=True)
        write(table, [row], f"{SEED}")


def page(name: str) -> str:
    """Which setting, how many draws, and in how many of them the interval held."""
    told = ("world", "behaviour", "n", "rho", "policy_constants", "bounds", "draws", "inside")
    lines = [told, ["---"] * len(told), *([r[k] for k in told] for r in read(name))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
