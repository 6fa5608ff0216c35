"""The small shop with a feature map, and recipes of every linear agent."""

from pathlib import Path

from tests.flows.shop import lay_out
from tests.learners.lq_shop import RECIPE

FEATURES = """
[features]
kind = "product"
states = [[1, 0], [1, 1]]
actions = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
"""
RECIPES = {
    "linear": ("dp-vapvi", "[privacy]\nrho = 1.0"),
    "halves": ("dp-vapvi", "[privacy]\nrho = 1.0\n[linear]\nhalves = true"),
    "other": ("dp-vapvi", "[privacy]\nrho = 1.0\n[linear]\nC = 0.2"),
    "printed": ("dp-vapvi", '[privacy]\nrho = 1.0\ncalibration = "paper"\n[linear]\ntargets = "paper"'),
    "once": ("dp-one-shot", "[privacy]\nepsilon = 4.0\ndelta = 1e-6"),
    "once_more": ("dp-one-shot", "[privacy]\nepsilon = 4.0\ndelta = 1e-6\n[linear]\nC = 0.5"),
    "exact_linear": ("vapvi", ""),
    "exact_pevi": ("pevi", "[linear]\nbeta = 0.1"),
    "exact_once": ("one-shot", ""),
}


def lay_out_linear(folder: Path, *, cap: float = 9.0, **how) -> Path:
    shop = lay_out(folder, cap=cap, **how)
    card = shop / "card.toml"
    card.write_text(card.read_text() + FEATURES)
    for name, (agent, rest) in RECIPES.items():
        (shop / f"{name}.toml").write_text(RECIPE.format(name=name, agent=agent, rest=rest))
    return shop
