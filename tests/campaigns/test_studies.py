"""The table of trust stops where a study's answer is known, and says what the study says."""

from __future__ import annotations

import pytest

from flows.jobs.studies import load_study
from pipeline.online.cells import gathered_rows, measure
from pipeline.online.study import bar_of, needed_table
from tests.campaigns import studies

RECIPE = """
[study]
name = "small_trust"
title = "How many people each needs"
metric = "suboptimality"

[[cells]]
worlds = [{ name = "riverswim_homogeneous", states = 3 }]
episodes = [100]
agents = ["uniform"]

[[cells]]
worlds = [{ name = "riverswim_homogeneous", states = 3 }]
episodes = { first = 100, last = 10_000, per_decade = 2 }
agents = [{ name = "ucbvi", rewards = "learnt" }, { name = "dp-ucbvi-jdp", rewards = "learnt" }]
epsilon = [0.1, 10.0]
delta = 1e-9
runs = 2
"""


@pytest.mark.slow
def test_who_needs_how_many_is_what_the_whole_study_says(tmp_path, monkeypatch):
    monkeypatch.setattr(studies, "resumed", lambda _, keys, do: [*map(do, keys)])
    path = tmp_path / "small_trust.toml"
    path.write_text(RECIPE)
    cells = load_study(path).listed(full=True)
    rows = gathered_rows(cells, [measure(cell) for cell in cells], "suboptimality")
    whole = needed_table(rows, bar_of(rows))
    asked = ["" if r["epsilon"] is None else f"{r['epsilon']:g}" for r in whole]
    found = ["> 10,000" if r["episodes"] is None else f"{r['episodes']:,}" for r in whole]
    told = [(r["trust"], r["agent"], epsilon, n) for r, epsilon, n in zip(whole, asked, found, strict=True)]
    assert told == [tuple(row.values()) for row in studies.needed(path)]
    # an answer within the grid, and one beyond it
    assert "> 10,000" in found and len({*found}) > 2
