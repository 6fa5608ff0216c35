"""Every row of the README's paper map has a recipe, and what was measured of each is what the page shows."""

from __future__ import annotations

import pytest

from flows.config.study_recipes import is_world_recipe
from pipeline.declaration.toml import read_toml
from tests.campaigns.paper_map import MAP, RECIPES, lines, rows_of_the_map
from tests.campaigns.rows import read

# learns nothing by 10^4 episodes, as its page says
STANDS_STILL = ("lq_optimism",)


def test_every_row_of_the_map_has_a_shipped_recipe_and_every_simulated_recipe_a_row():
    assert rows_of_the_map() == list(MAP)
    named = {recipe for recipes in MAP.values() for recipe in recipes}
    assert all((RECIPES / f"{recipe}.toml").is_file() for recipe in named)
    assert {p.stem for p in RECIPES.glob("*.toml") if is_world_recipe(read_toml(p))} <= named


def test_what_was_measured_opened_verified_and_cost_no_more_than_asked():
    rows = read("paper_map")
    assert [(r["row of the map"], r["recipe"]) for r in rows] == [(n, x) for n, own in MAP.items() for x in own]
    assert all(holds(r) for r in rows)


def holds(row: dict[str, str]) -> bool:
    told = [row[f"{who} loses"] for who in ("uniform", "practice", "zero controller")]
    least = min(float(x) for x in told if x != "–")
    better = float(row["loses"]) < least or row["recipe"] in STANDS_STILL
    asked, true = row["asked"].partition("ε = ")[2], row["true ε"].partition(" ")[0]
    kept = not asked or float(true) <= float(asked)
    return better and kept and row["page opens"] == row["verifies"] == "yes"


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["riverswim_joint", "lq_explore", "double_integrator"])
def test_a_sample_runs_again(recipe, tmp_path):
    (row,) = lines([recipe], tmp_path / "home", tmp_path)
    assert holds(row | {"page opens": row["page opens"].replace("no browser here", "yes")})
