"""The campaign of one-step evaluations goes on where it was stopped."""

from __future__ import annotations

from tests.campaigns import one_step_evaluation as campaign


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
