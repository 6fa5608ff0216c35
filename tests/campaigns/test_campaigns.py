"""Campaigns go on where they were stopped, list what they measure, and say what the product says of the same."""

import pytest

from flows.jobs.studies import load_study
from pipeline.online.cells import gathered_rows, measure
from pipeline.online.study import bar_of, needed_table
from tests.campaigns import one_step_evaluation as campaign
from tests.campaigns import one_step_figures as figures
from tests.campaigns import studies
from tests.campaigns.strangers import PEOPLE, STRANGERS, hour


@pytest.mark.slow
def test_a_campaign_that_was_stopped_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "raw", lambda: tmp_path / "rows.csv")
    short = campaign.cells(("chain1",), rhos=(1.0, 3.0), policies=("learnt", "level"))
    bare = campaign.cells(("chain1",), shares=(0.0,))
    monkeypatch.setattr(campaign, "CAMPAIGNS", {"short": (2, short), "bare": (1, bare)})
    campaign.add(["short", "bare"])
    whole = (tmp_path / "rows.csv").read_text()
    lines = whole.splitlines(keepends=True)
    assert len(lines) == 1 + 8 + 1
    (tmp_path / "rows.csv").write_text("".join(lines[:4]))
    campaign.add(["short", "bare"])
    assert sorted((tmp_path / "rows.csv").read_text().splitlines()) == sorted(whole.splitlines())
    assert all(float(r["truth"]) <= float(r["practice"]) for r in campaign.made() if r["policy"] == "level")


@pytest.mark.slow
def test_figures_are_of_every_agent_and_budget(monkeypatch):
    monkeypatch.setattr(figures, "CELLS", {"lake": [(500, (1.0,))]})
    agents = ("one-step", "apvi practical", "apvi tail")
    assert list(figures.log("lake", 500, 8000)) == [f"{rho}, {agent}" for rho in ("", "1") for agent in agents]


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


# rules by which rows of these logs may be set aside
SET_ASIDE = {"malformed_line", "null_user", "repeated_row", "unknown_label", "beyond_gap", "superseded"}
SET_ASIDE |= {"closing_row", "after_end", "over_cap"}


@pytest.mark.slow
@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda s: s.name)
def test_a_messy_log_goes_from_file_to_page_without_an_edit(stranger, tmp_path):
    told = hour(stranger, tmp_path)
    draft, run = told["draft"], told["run"]
    assert told["allowed"] and told["right"]
    assert told["people"] < 0.02 * PEOPLE and set(told["set_aside"]) <= SET_ASIDE
    # the id that protects most is taken, and the other one is named
    assert f'user = "{stranger.people[0]}"' in draft.toml
    for other in stranger.people[1:]:
        assert any(repr(other) in note and "protected as several" in note for note in draft.notes)
    assert run.verify().vouched and told["verdict"] != "not_evaluated"
    assert any("reticent draft" in line for line in run.certificate.assumptions)
