"""A study as data: the order of a sweep, what a claim says where, what a cell depends on, one registration an agent."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.audits.message_paths import targets_of, whole_plan
from pipeline.declaration.toml import CardError
from pipeline.simulation.registry import AGENTS, find, modules_of
from pipeline.simulation.trial import OnlineAgent, Trial
from pipeline.studies import paper_003
from pipeline.studies.study import Budget, Claim, sweep

RIVER = ("riverswim_homogeneous", (("states", 3),))
LARGER: Claim[dict[str, int]] = Claim("it is large", "above 1", lambda e, where: (e[where] > 1, f"{e[where]}"))


def test_a_sweep_goes_through_worlds_episodes_agents_budgets_and_seeds_the_last_innermost():
    found = sweep(
        [RIVER], (10, 20), ["ucbvi", ("sdp-pe", (("pooled", True), ("mixed", False)))], [Budget(1.0, 1e-5)], 2
    )
    assert [(t.episodes, t.agent, t.seed) for t in found[:4]] == [
        (10, "ucbvi", 0), (10, "ucbvi", 1), (10, "sdp-pe", 0), (10, "sdp-pe", 1)]  # fmt: skip
    assert len(set(found)) == len(found) == 8 and found[2].options == (("mixed", False), ("pooled", True))
    assert {t.seed for t in sweep([RIVER], [10], ["uniform"], seeds=range(5, 7))} == {5, 6}


def test_a_claim_is_judged_on_one_regime_or_must_hold_in_all_or_knows_none():
    e = {"a": 2, "b": 1, "": 3}
    one = LARGER.verdict(e, ["a", "b"], "a")
    assert (one["holds"], one["regime"]) == (True, "2") and [v["holds"] for v in one["variants"]] == [True, False]
    every = LARGER.verdict(e, ["a", "b"], None)
    assert (every["holds"], every["regime"]) == (False, "a: 2; b: 1")
    alone = LARGER.verdict(e, (), None)
    assert (alone["holds"], alone["regime"], alone["variants"]) == (True, "3", [])


def test_cells_depend_on_agents_and_never_on_a_study_its_claims_or_its_page():
    for name, agent in AGENTS.items():
        options = (("of", "ucrl-vtr"),) if name == "no-data" else ()
        (module,) = modules_of(Trial(name, *RIVER, 10, options=options))
        assert module.startswith("pipeline.simulation.") and (name == "no-data" or module == agent.play.__module__)
    assert paper_003.STUDY.depends(None) == ("pipeline.simulation.linear_trials",)


def test_an_agent_that_claims_privacy_without_targets_has_nothing_to_attack_and_says_so(tmp_path, monkeypatch):
    (tmp_path / "bare.py").write_text(
        "from pipeline.simulation.trial import OnlineAgent\nagent = OnlineAgent(lambda trial: None, trust='joint')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    trial = Trial("bare:agent", *RIVER, 10, 1.0, 1e-5, "tight")
    assert find("bare:agent").private and whole_plan(trial) is None
    with pytest.raises(CardError, match="registers no targets"):
        targets_of(trial, 100, lambda _: None)


def test_an_agent_of_another_package_is_the_same_type_as_ours(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\nfrom pipeline.simulation.registry import AGENTS\n"
        "agent = replace(AGENTS['dp-ucbvi-jdp'])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = find("mine:agent")
    assert isinstance(mine, OnlineAgent) and mine == AGENTS["dp-ucbvi-jdp"] and mine.baselines[0] == "ucbvi"
    trial = Trial("dp-ucbvi-jdp", *RIVER, 100, 1.0, 1e-5, "tight")
    assert len(targets_of(trial, 100, lambda _: None)) == 1
    assert modules_of(replace(trial, agent="mine:agent")) == ("pipeline.simulation.tabular_trials", "mine")
