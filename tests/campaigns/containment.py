"""Does the interval hold the value? ``python -P -m tests.campaigns.containment [draws]`` rewrites ``containment.csv``.

One row a setting, beside the card it belongs to; a run of exactly that setting may then call its interval a bound
(design §5.3: inside in at least 95 of at least 100 draws of a fresh log and fresh noise).
"""

import sys
from collections.abc import Iterator

import numpy as np

from flows.config.home import find_recipe
from flows.config.recipe import Recipe, load_recipe
from pipeline.declaration.card import Card, load_card
from pipeline.learners.tabular_facts import setting_key
from pipeline.learners.tabular_learning import learn
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.calibration import count_sum
from pipeline.worlds.catalog import load_world
from pipeline.worlds.simulated_logs import sample_counts
from pipeline.worlds.world import truth
from tests.campaigns.rows import ROOT, markdown, read, write

# recipe -> table
RECIPES = {"icu_sepsis_uniform": "containment_icu_sepsis", "riverswim": "containment_riverswim"}
SEED = 20261122


def draws(card: Card, recipe: Recipe, count: int) -> Iterator[tuple[float, float, float]]:
    """Ends of the interval, and the policy's value in the binned process: a fresh log and fresh noise each."""
    assert recipe.evaluate is not None
    world, behaviour = load_world(recipe.evaluate.world, card.folder), recipe.evaluate.behaviour
    summed = count_sum(card, recipe.terms.ask())
    for i in range(count):
        of_log, of_noise = np.random.SeedSequence([SEED, i]).spawn(2)
        counts = sample_counts(card, world, behaviour, card.unit.users_public, np.random.default_rng(of_log))
        learnt = learn(card, recipe.planner, summed.draw(counts, SeededNoise(of_noise)))
        value = truth(card, world, behaviour, learnt.plan.policy)["v_policy_model"]
        yield learnt.value["lower"], learnt.value["upper"], value


def main(count: int) -> None:
    """Measure the shipped recipes and rewrite the tables."""
    for name, table in RECIPES.items():
        recipe = load_recipe(find_recipe(name))
        card = load_card(ROOT / "datasets" / recipe.recipe.card / "card.toml")
        inside = sum(low <= value <= high for low, high, value in draws(card, recipe, count))
        row = setting_key(card, recipe.terms) | {"draws": str(count), "inside": str(inside)}
        print(name, row, flush=True)
        write(table, [row], f"{SEED}")


def page(name: str) -> str:
    """Which setting, how many draws, and in how many of them the interval held."""
    told = ("world", "behaviour", "n", "rho", "policy_constants", "bounds", "draws", "inside")
    return markdown(told, ([r[k] for k in told] for r in read(name)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
