"""The campaign of one-step evaluations goes on where it was stopped, and its committed rows bear what is claimed."""

from __future__ import annotations

from tests.campaigns import one_step_evaluation as campaign
from tests.campaigns import rows as committed
from tests.campaigns.one_step_coverage import BOX, least, measured, of_campaigns


def test_a_campaign_that_was_stopped_goes_on_where_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(committed, "place", lambda name: tmp_path / f"{name}.csv")
    short = campaign.cells(("chain1",), rhos=(1.0, 3.0), policies=("learnt", "level"))
    bare = campaign.cells(("chain1",), shares=(0.0,))
    monkeypatch.setattr(campaign, "CAMPAIGNS", {"short": (2, short), "bare": (1, bare)})
    campaign.add(["short", "bare"])
    whole = (tmp_path / f"{campaign.TABLE}.csv").read_text()
    lines = whole.splitlines(keepends=True)
    assert len(lines) == 1 + 8 + 1
    (tmp_path / f"{campaign.TABLE}.csv").write_text("".join(lines[:4]))
    campaign.add(["short", "bare"])
    again = (tmp_path / f"{campaign.TABLE}.csv").read_text()
    assert sorted(again.splitlines()) == sorted(whole.splitlines())
    rows = committed.read(campaign.TABLE)
    assert campaign.again(rows[5]).items() <= rows[5].items()
    assert all(float(r["truth"]) <= float(r["practice"]) for r in rows if r["policy"] == "level")


def test_better_is_seldom_said_of_what_is_not():
    """In each of three worlds, never pooled, at most 4 in 400 runs of fresh seeds; rows of other code claim nothing."""
    found = {(r["world"], r["policy"]): r for r in measured()}
    for of in (("clinicians", "level"), ("ward", "level"), ("inert", "learnt")):
        if found:
            n, said = found[of]["not_better"], found[of]["false"]
            assert least(n - said, n) >= 0.975, of
            assert found[of]["fresh"] == 400 and found[of]["fresh_false"] <= 4, of


def test_intervals_hold_at_each_budget_alone():
    """Runs of a budget share nothing; the lower end of Clopper and Pearson, one-sided 95 %, is what is claimed."""
    for rho in campaign.BUDGETS:
        usual = [r for r in of_campaigns("small", "large", rho=rho) if r["world"] in BOX]
        for found in (usual, of_campaigns("tiny", rho=rho), of_campaigns("few", "few_large", rho=rho)):
            for what in ("value_held", "gain_held"):
                inside = sum(r[what] for r in found)
                assert not found or least(inside, sum(r["runs"] for r in found)) >= 0.95, (rho, what)
