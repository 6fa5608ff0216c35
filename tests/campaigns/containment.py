"""Does the interval hold the value? ``python -P -m tests.campaigns.containment [draws]`` rewrites ``containment.csv``.

One row a setting, beside the card it belongs to; a run of exactly that setting may then call its interval a bound
(design §5.3: inside in at least 95 of at least 100 draws of a fresh log and fresh noise).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from flows.config.home import find_recipe
from flows.config.recipe import load_recipe
from pipeline.learners.tabular_facts import setting_key
from tests.campaigns.draws import SHELF, draws, shelf_card, world_of

RECIPES = ("icu_sepsis_uniform", "riverswim")
SEED = 20261122


def main(count: int) -> None:
    """Measure the shipped recipes and rewrite the tables."""
    tables: dict[Path, list[dict[str, str]]] = {}
    for name in RECIPES:
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
        tables.setdefault(SHELF / recipe.recipe.card / "containment.csv", []).append(row)
    for path, rows in tables.items():
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
