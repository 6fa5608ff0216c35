"""Campaigns of one-step policies: one goes on where it was stopped, and the other measures what it lists."""

from __future__ import annotations

import pytest

from tests.campaigns import one_step_evaluation as campaign
from tests.campaigns import one_step_figures as figures


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
