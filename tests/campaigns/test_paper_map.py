"""Every row of the paper map in docs/research.md has a shipped recipe, and every simulated recipe a row."""

import re

from flows.jobs.studies import is_world_recipe
from pipeline.declaration.toml import read_toml
from tests.campaigns.rows import ROOT

RECIPES = ROOT / "flows" / "recipes"
# first words of a row of the map -> its recipes
MAP = {
    "DP-APVI": ("riverswim",),
    "APVI": ("riverswim_baseline",),
    "count consistency": ("riverswim",),
    "dp-one-step": ("demo",),
    "DP-VAPVI, VAPVI": ("riverswim_linear",),
    "PEVI": ("riverswim_pevi",),
    "one-shot linear planning": ("riverswim_one_shot",),
    "LDP-UCRL-VTR, UCRL-VTR": ("riverswim_ldp",),
    "Private-LinOpt-VI, LinOpt-VI": ("riverswim_linopt_vi",),
    "Private-LinOpt-PO, LinOpt-PO": ("riverswim_linopt_po",),
    "DP-UCBVI, UCBVI": ("riverswim_joint", "riverswim_local_counts", "riverswim_shuffle"),
    "DP-UCBVI on nights": ("riverswim_nights",),
    "SDP-PE": ("riverswim_elimination",),
    "dp-lqr, the offline use of paper 004": ("double_integrator",),
    "explore, then commit": ("lq_explore",),
    "Private-OFU-RL, OFU-RL": ("lq_optimism",),
    "private adaptive LQR": ("adaptive_lqr",),
}
_ROW = re.compile(r"(?m)^\| (?!algorithm)([^|(:]+?)(?: \(|:| \|)")


def test_every_row_of_the_map_has_a_shipped_recipe_and_every_simulated_recipe_a_row():
    page = (ROOT / "docs" / "research.md").read_text(encoding="utf-8")
    assert _ROW.findall(page.partition("## Paper map")[2].partition("\n## ")[0]) == list(MAP)
    named = {recipe for recipes in MAP.values() for recipe in recipes}
    assert all((RECIPES / f"{recipe}.toml").is_file() for recipe in named)
    assert {p.stem for p in RECIPES.glob("*.toml") if is_world_recipe(read_toml(p))} <= named
