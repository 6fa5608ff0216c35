"""Cells and rows: the order of a sweep, what a cell depends on, what a row says; one registration an agent."""

from dataclasses import replace

import pytest

from pipeline.audits.message_paths import targets_of, whole_plan
from pipeline.online.cells import gathered_rows, sweep
from pipeline.online.registry import AGENTS, find, modules_of
from pipeline.online.study import Claim, spent
from pipeline.online.trial import OnlineAgent, Trial
from reticent import CardError

RIVER = ("riverswim_homogeneous", (("states", 3),))


def test_a_sweep_goes_through_worlds_episodes_agents_budgets_and_seeds_the_last_innermost():
    agents = [("ucbvi", ()), ("sdp-pe", (("pooled", True), ("mixed", False)))]
    found = sweep([RIVER], (10, 20), agents, [(1.0, 1e-5, None)], range(2))
    assert [(t.episodes, t.agent, t.seed) for t in found[:4]] == [
        (10, "ucbvi", 0), (10, "ucbvi", 1), (10, "sdp-pe", 0), (10, "sdp-pe", 1)]  # fmt: skip
    assert len(set(found)) == len(found) == 8 and found[2].options == (("mixed", False), ("pooled", True))
    assert found[0].epsilon is None and found[2].epsilon == 1.0


def test_cells_depend_on_agents_and_never_on_a_study_its_claims_or_its_page():
    for name, agent in AGENTS.items():
        options = (("of", "ucrl-vtr"),) if name == "no-data" else ()
        (module,) = modules_of(Trial(name, *RIVER, 10, options=options))
        assert module.startswith("pipeline.online.") and (name == "no-data" or module == agent.play.__module__)


def test_one_run_without_noise_among_many_is_not_hidden():
    trials = [Trial("dp-apvi", *RIVER, 10, 1.0, 1e-6, "tight", seed=s) for s in (0, 1)]
    bare = {"marks": [10], "regret": [1.0], "policy": None}
    outcomes = [
        {**bare, "facts": {"trust": "central", "final_loss": 0.1, "true_epsilon": e, "true_rho": e}, "sent": s}
        for e, s in zip((0.9, None), [{"messages": m, "bits": 192 * m} for m in (6, 7)], strict=True)
    ]
    (row,) = gathered_rows(trials, outcomes, "suboptimality")
    assert row["true_epsilon"] is None and row["runs"] == 2 and spent(row) == float("inf")
    # what a user sends is the most over the runs
    assert (row["messages"], row["bits"]) == (7, 7 * 192)


def test_an_agent_that_claims_privacy_without_targets_has_nothing_to_attack_and_says_so(tmp_path, monkeypatch):
    (tmp_path / "bare.py").write_text(
        "from pipeline.online.trial import OnlineAgent\nagent = OnlineAgent(lambda trial: None, trust='joint')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    trial = Trial("bare:agent", *RIVER, 10, 1.0, 1e-5, "tight")
    assert find("bare:agent").private and whole_plan(trial) is None
    with pytest.raises(CardError, match="registers no targets"):
        targets_of(trial, 100, lambda _: None)


def test_an_agent_of_another_package_is_the_same_type_as_ours(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import replace\nfrom pipeline.online.registry import AGENTS\n"
        "agent = replace(AGENTS['dp-ucbvi-jdp'])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    mine = find("mine:agent")
    assert isinstance(mine, OnlineAgent) and mine == AGENTS["dp-ucbvi-jdp"] and mine.baselines[0] == "ucbvi"
    trial = Trial("dp-ucbvi-jdp", *RIVER, 100, 1.0, 1e-5, "tight")
    assert len(targets_of(trial, 100, lambda _: None)) == 1
    assert modules_of(replace(trial, agent="mine:agent")) == ("pipeline.online.tabular", "mine")


def test_episodes_needed_say_nothing_where_an_agent_without_data_meets_the_bar():
    told = {"words": "it learns", "metric": "needed", "of": {"agent": "dp-ucbvi-jdp"}, "comparison": "at most"}
    claim = Claim.model_validate(told | {"value": 1000})

    def row(agent, mean, episodes=100, of=None):
        known = {"agent": agent, "world": "w", "mean": mean, "std": 0.0, "runs": 1, "episodes": episodes}
        bare = dict.fromkeys(("epsilon", "rho", "calibration"))
        variant = "control" if agent in ("uniform", "no-data") else "per step"
        return known | bare | {"variant": variant, "facts": {"of": of}, "metric": "suboptimality"}

    rows = [row("uniform", 1.0), row("dp-ucbvi-jdp", 0.05)]
    assert claim.verdict(rows, {}) == (True, "100")
    assert claim.verdict([*rows, row("no-data", 0.5, of="dp-ucbvi-jdp")], {}) == (True, "100")
    held, why = claim.verdict([*rows, row("no-data", 0.05, of="dp-ucbvi-jdp")], {})
    assert not held and why == "void: dp-ucbvi-jdp without data meets the bar from 100 episodes on in w"
    # as good as the agent beside it is not dearer than it
    free = Claim.model_validate(told | {"comparison": "above", "than": {"agent": "ucbvi"}})
    assert free.verdict([*rows, row("ucbvi", 0.05)], {}) == (False, "100 against 100")
    assert free.rule.endswith("is above that of ucbvi, in every row of dp-ucbvi-jdp")


@pytest.mark.parametrize(
    ("runs", "gap", "holds"), [(10_000, 0.42, False), (10_000, 0.43, True), (4, 0.69, False), (4, 0.7, True)]
)
def test_two_means_differ_where_their_errors_together_say_so(runs, gap, holds):
    """Standard errors of 0.1 each: the difference has 0.141, and three of these are 0.424.

    Of four runs each the difference has six degrees of freedom, and Student's quantile is 4.9 in place of 3: 0.693.
    """
    claim = Claim.model_validate(
        {"words": "b", "metric": "mean", "of": {"agent": "ucbvi"}, "comparison": "below", "than": {"agent": "uniform"}}
    )
    bare = {"world": "w", "episodes": 100, "metric": "suboptimality", "std": 0.1 * runs**0.5, "runs": runs, "facts": {}}
    bare |= {"variant": "per step"} | dict.fromkeys(("epsilon", "rho", "calibration"))
    rows = [bare | {"agent": "ucbvi", "mean": 1.0}, bare | {"agent": "uniform", "mean": 1.0 + gap}]
    assert claim.verdict(rows, {})[0] == holds
