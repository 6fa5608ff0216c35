"""Simulated agents: what mechanisms, noise and no data cost, what is sent, and what must not change a run."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import pipeline.agents.linopt as vi
from pipeline.online import tabular
from pipeline.online.registry import run
from pipeline.online.rollouts import world_of
from pipeline.online.trial import Trial
from pipeline.privacy.shuffle import message_bytes
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.online_counts import OnlineLayout
from tests.conftest import slow
from tests.online.simulated import GAME, LARGE, PLANT, RIVER, lost

STATES = (("states", 3),)


def with_options(trial, **more):
    return replace(trial, options=tuple(sorted({**trial.knobs, **more}.items())))


LEARNT = with_options(Trial("dp-apvi", RIVER["name"], STATES, 1000, 1.0, 1e-5, "tight"), rewards="learnt")


def mechanisms(said):
    return json.loads((Path(said["folder"]) / "release.json").read_text(encoding="utf-8"))["mechanisms"]


def half(card, ask):
    shipped = count_sum(card, ask)
    return replace(shipped, mechanisms=tuple(replace(m, variance=-(-m.variance // 2)) for m in shipped.mechanisms))


@pytest.mark.parametrize(("twin", "least"), [(lambda card, ask: count_sum(card, Ask()), None), (half, 1.3)])
def test_a_twin_with_too_little_noise_is_caught_by_its_facts(simulate, monkeypatch, twin, least):
    monkeypatch.setattr(tabular, "count_sum", twin)
    facts = simulate("dp-apvi", epsilon=1, episodes=1000, beside=["uniform"], rewards="learnt")["facts"]
    if least is None:
        assert facts["true_rho"] is None and facts["true_epsilon"] is None
    else:
        assert facts["true_epsilon"] > least


@pytest.mark.parametrize(("pooled", "steps"), [(False, 1), (True, 1), (False, 7)])
def test_tables_have_the_expectation_of_the_world(pooled, steps):
    setting = tabular.logged(with_options(LEARNT, pooled=pooled))
    # rewards on a finer lattice keep their mean
    card = setting.card.model_copy(update={"reward": setting.card.reward.model_copy(update={"steps": steps})})
    setting = replace(setting, card=card, mechanisms=count_sum(card, Ask(rho=1.0)).mechanisms)
    episodes = 4_000_000
    counts = setting.counts(episodes, np.random.default_rng(5))
    mdp = world_of(LEARNT)
    n_sa, n_sas, r_sa = (counts.tables[name] for name in ("n_sa", "n_sas", "r_sa"))
    assert n_sa.shape == ((1 if pooled else 6), 3, 2) and n_sa.sum() == 6 * episodes
    assert (n_sas.sum(-1) == n_sa).all() and counts.tables["n_0"].tolist() == [episodes, 0, 0]
    seen = n_sa > 10_000
    assert np.abs((n_sas / np.maximum(n_sa, 1)[..., None] - mdp.transitions[: len(n_sa)])[seen]).max() < 0.01
    # around the middle of [0, 1/6], in half units: a coin a step is -1 or +1
    mean = (steps + r_sa / np.maximum(n_sa, 1)) / (2 * steps) / 6
    assert np.abs((mean - mdp.rewards[: len(n_sa)])[seen]).max() < 0.002
    assert (np.abs(r_sa) <= steps * n_sa).all()


def test_more_noise_is_not_better_than_none(simulate):
    said = simulate("dp-apvi", epsilon=0.3, episodes=1000, runs=12, beside=["apvi"], rewards="learnt")
    loud, exact = (said["agents"][agent]["suboptimality"] for agent in ("dp-apvi", "apvi"))
    assert loud["mean"] > exact["mean"] + 3 * np.hypot(loud["std"], exact["std"]) / np.sqrt(12)


def test_many_logs_leave_nothing_to_gain_and_none_leave_nearly_all(simulate):
    said = simulate("dp-apvi", epsilon=1, episodes=10**6, beside=["uniform"], rewards="learnt")
    assert said["suboptimality"] < 1e-3
    said = simulate("dp-apvi", epsilon=1, episodes=1000, beside=["no-data", "uniform"], rewards="learnt")
    deaf = said["agents"]["no-data"]
    assert (deaf["trust"], deaf["variant"], deaf["true_epsilon"]) == ("none", "control", None)
    assert deaf["suboptimality"]["mean"] > 0.5 * said["agents"]["uniform"]["suboptimality"]["mean"]


@pytest.mark.parametrize("agent", ["private-ofu-rl", "dp-lqr", "explore-then-commit"])
def test_a_step_that_is_sent_is_all_coordinates_and_controls(simulate, agent):
    quick = {"growth": 2.0, "starts": 2} if agent == "private-ofu-rl" else {}
    (row,) = simulate(agent, {"name": "lq", "instance": 3}, epsilon=1, episodes=20, **quick)["rows"]
    # four states and two controls
    assert row["bits"] == 64 * (4 + 2) * row["messages"]


def test_controls_lose_what_their_gains_cost(simulate):
    said = simulate("fixed-gain", PLANT, episodes=20, runs=3, beside=["zero", "certainty-equivalence"])
    idle = said["agents"]["zero"]
    assert lost(said, "zero") == lost(said, "certainty-equivalence")
    assert lost(said, "zero") == pytest.approx(20 * idle["suboptimality"]["mean"])
    wrong = said["agents"]["fixed-gain"]["regret"]
    assert wrong["std"] > 0 and 0 < wrong["median"] < lost(said, "zero")


@pytest.mark.slow
def test_private_ofu_rl_says_whether_it_left_zero(simulate):
    for calibration in ("paper", "tight"):
        said = simulate("private-ofu-rl", PLANT, epsilon=1, calibration=calibration, episodes=20, beside=["zero"])
        assert said["facts"]["left_zero_at"] is None
        assert lost(said, "private-ofu-rl") == pytest.approx(lost(said, "zero"))
        assert (said["true_epsilon"] < 1) == (calibration == "paper")
        # what was explored of B without ever trying a control
        assert said["facts"]["smallest_eigenvalue"] == pytest.approx(0, abs=1e-9)
    plain = simulate("ofu-rl", PLANT, episodes=100, growth=1.5, starts=2)["facts"]
    assert 1 < plain["left_zero_at"] < 100 and plain["optimistic_share"] == 1.0


@pytest.mark.slow
def test_long_batches_run_and_an_enormous_budget_lets_it_leave(simulate):
    """More than 4 096 episodes of one plan are exact means; just after it leaves zero it may lose more than before."""
    long = {"episodes": 60_000, "growth": 3.0, "starts": 2}
    said = simulate("ofu-rl", PLANT, beside=["zero"], **long)
    idle = lost(said, "zero")
    assert lost(said, "ofu-rl") < 0.2 * idle
    said = simulate("private-ofu-rl", PLANT, epsilon=50, counter="epochs", **long)
    assert said["facts"]["left_zero_at"] is not None
    assert lost(said, "private-ofu-rl") != pytest.approx(idle)


def test_explore_then_commit_pays_for_its_exploration_and_dp_lqr_does_not(simulate):
    """20 √K episodes explore, unless told otherwise."""
    said = simulate("explore-then-commit", PLANT, epsilon=8, episodes=4000, beside=["dp-lqr", "zero"])
    explored = round(20 * 4000**0.5)
    assert said["facts"]["left_zero_at"] == explored + 1
    assert lost(said, "explore-then-commit") > explored / 4000 * lost(said, "zero")
    assert lost(said, "dp-lqr") < 0.2 * lost(said, "zero")
    assert "logged before" in said["agents"]["dp-lqr"]["variant"]
    asked = {"epsilon": 8, "episodes": 20_000, "beside": ["zero"]}
    dear = simulate("explore-then-commit", PLANT, **asked, explore=5000, radius=1.0)
    assert dear["facts"]["left_zero_at"] == 5001
    # all that was explored is in one release, and what is played then is near the best
    released = mechanisms(dear)
    assert len({m["table"] for m in released}) == len(released)
    assert dear["suboptimality"] < 0.05 * dear["agents"]["zero"]["suboptimality"]["mean"]
    # whatever is asked for, somebody is left to play the gains, and somebody explores
    assert simulate("explore-then-commit", PLANT, epsilon=8, episodes=10, explore=10)["facts"]["left_zero_at"] == 10
    with pytest.raises(ValueError, match="must be at least 1"):
        simulate("explore-then-commit", PLANT, epsilon=8, episodes=10, explore=0)


def test_noise_and_world_have_streams_of_their_own(simulate):
    """Another epsilon, same plant: the exploring episodes' share of the regret is the same, the gains are not."""
    agent = "explore-then-commit"
    one, two = (simulate(agent, PLANT, epsilon=e, episodes=200)["agents"][agent]["curve"] for e in (1, 2))
    assert one["mean"] != two["mean"]
    early = np.array(one["episodes"]) <= 100
    assert early.sum() > 10 and (np.array(one["mean"])[early] == np.array(two["mean"])[early]).all()


@pytest.mark.parametrize("agent", ["private-linopt-vi", "ldp-ucrl-vtr"])
def test_printed_noise_is_worth_what_its_variances_say(simulate, agent):
    facts = simulate(agent, epsilon=10, calibration="paper", episodes=40)["facts"]
    assert 0.0 < facts["true_epsilon"] < 2.0 < 10.0
    assert "as printed" in facts["variant"] and "unit" not in facts["variant"]


def test_blocks_are_the_dense_form_to_every_digit_without_noise(simulate):
    block, dense = (simulate("ucrl-vtr", episodes=80, **form) for form in ({}, {"features": "dense"}))
    curves = [said["agents"]["ucrl-vtr"]["curve"]["mean"] for said in (block, dense)]
    assert curves[0] == pytest.approx(curves[1], abs=1e-9)


@pytest.mark.slow
def test_without_noise_the_rule_for_ties_changes_nothing_once_it_has_learnt(monkeypatch):
    """The first index, the last and chance: the same loss an episode at the end."""
    asked = Trial("ucrl-vtr", RIVER["name"], STATES, 2000)
    ends = [run(asked).facts["last_tenth"]]
    for order in (1, -1):

        def greedy(Q, free, rng, order=order):
            best = vi._largest(Q)
            pick = best & vi._largest(np.where(best, free, -np.inf))
            return np.where(pick, order * np.arange(Q.shape[-1]), -np.inf).argmax(-1), best.sum(-1) > 1

        monkeypatch.setattr(vi, "_greedy", greedy)
        ends.append(run(asked).facts["last_tenth"])
    assert max(ends) - min(ends) < 1e-3 * 0.228


@pytest.mark.slow
def test_no_data_is_the_agent_without_its_statistics(simulate):
    """The known rewards alone do not teach it: it stays far from what is learnt with data."""
    found = simulate("private-linopt-vi", epsilon=10, beside=["no-data", "ucrl-vtr"])["agents"]
    assert found["no-data"]["variant"] == "control" and found["no-data"]["true_epsilon"] is None
    assert found["no-data"]["regret"]["mean"] > 10 * found["ucrl-vtr"]["regret"]["mean"]


@pytest.mark.parametrize("knob", [{"constants": "paper"}, slow({"shift": "paper"}), slow({"eta": 3.0})])
@pytest.mark.parametrize(("agent", "epsilon"), [("private-linopt-vi", 10), ("ldp-ucrl-vtr", 10), ("ucrl-vtr", None)])
def test_presets_play(simulate, agent, epsilon, knob):
    told = simulate(agent, epsilon=epsilon, episodes=30, **knob)["agents"][agent]
    assert len(told["curve"]["episodes"]) > 10
    assert ("as printed, c 1" in told["constants"]) == ("constants" in knob)


def test_learnt_rewards_share_the_budget(simulate):
    facts = simulate("private-linopt-vi", epsilon=10, episodes=50, rewards="learnt")["facts"]
    assert facts["true_epsilon"] == pytest.approx(10.0, rel=1e-9)
    assert facts["variant"].endswith("rewards learnt")


ASKED = {"epsilon": 1, "episodes": 20_000, "certify": 0}


def test_it_says_what_elimination_did_and_what_was_delivered(simulate):
    said = simulate("sdp-pe", GAME, **ASKED)
    facts = said["facts"]
    assert facts["trust"] == "shuffle" and facts["variant"] == "practical, lean, pooled, exact bits"
    assert facts["fewest_fine"] == 669 and 669 < facts["tau_fine"] < 680
    assert facts["first_elimination"] < 20_000 and facts["policies_left"] < 64 and facts["slack"] < 0
    assert facts["optimum_kept"] == facts["stages"] == len(facts["by_stage"])
    assert facts["suboptimality"] == pytest.approx(said["suboptimality"])
    # users who return pay by group privacy
    twice = simulate("sdp-pe", GAME, **ASKED, episodes_per_user=2)["facts"]
    assert twice["true_epsilon"] <= 1 and "2 episodes a user" in twice["variant"]
    assert twice["tau_fine"] > 3 * facts["tau_fine"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trust": "joint"}, {"trust": "joint"}),
        ({"trust": "local"}, {"trust": "local"}),
        pytest.param(
            {"pooled": False}, {"variant": "practical, lean, forget, mixtures, exact bits"}, marks=pytest.mark.slow
        ),
        # a sample of targets is certified by the linear programme
        slow({"certify": 3}, {"certified": 3}),
    ],
)
def test_a_variant_says_what_it_is(simulate, options, says):
    facts = simulate("sdp-pe", GAME, **(ASKED | options))["facts"]
    assert {name: facts.get(name) for name in says} == says
    assert 0.98 < facts["true_epsilon"] <= 1.0
    assert facts.get("largest_difference", 0.0) < 1e-9


def test_the_paper_says_that_nothing_was_eliminated_and_what_its_bits_deliver(simulate):
    facts = simulate("sdp-pe", GAME, **ASKED, calibration="paper", constants="paper")["facts"]
    assert facts["first_elimination"] is None and facts["says"].startswith("nothing was eliminated in 20000 episodes")
    assert facts["variant"] == "paper, three tables, the paper's bits" and facts["true_epsilon"] < 0.1
    assert facts["policies_left"] == 64 and facts["tau_fine"] > 90_000


def test_a_world_without_enumeration(simulate):
    facts = simulate("sdp-pe", LARGE, **(ASKED | {"episodes": 10**6}))["facts"]
    assert facts["policies_left"] is None and facts["optimum_kept"] == facts["stages"]
    assert facts["fewest_fine"] == 1114


def first_batch(said):
    rows = pl.read_parquet(Path(said["folder"]) / "release.parquet").filter(pl.col("table") == "batch_0")
    return mechanisms(said)[0]["shuffled"], rows["value"].to_numpy()


def test_messages_that_are_sent_are_counted_as_the_law_says(simulate):
    """Every user walks alone and sends bytes; sums, noise bits and promise are those of the fast path."""
    sent, drawn = (simulate("sdp-pe", GAME, **(ASKED | {"episodes": 600}), protocol=p) for p in (True, False))
    (bits, one), (same, two) = first_batch(sent), first_batch(drawn)
    assert bits == same and sent["true_epsilon"] == drawn["true_epsilon"]
    q = bits["chance"] / 2**64
    sd = math.sqrt(bits["users"] * bits["each"] * q * (1 - q))
    # one draw each of every counter: the difference has twice the noise, and what two walks of the same users differ by
    away = (one - two) / math.sqrt(2 * sd**2 + bits["users"])
    assert np.abs(away).max() < 5 and abs(one.sum() - two.sum()) < 6 * sd * math.sqrt(2 * len(one))


@pytest.mark.slow
def test_mechanisms_can_be_chosen_and_are_named_and_the_square_root_is_the_usual_one(simulate):
    spread = {}
    for mechanism in ("plain", "square-root", "fresh", "bottom-up"):
        facts = simulate("dp-ucbvi-jdp", epsilon=10, episodes=60, mechanism=mechanism)["facts"]
        assert mechanism in facts["variant"]
        spread[mechanism] = facts["noise_sd"]
    assert (
        simulate("dp-ucbvi-jdp", epsilon=10, episodes=60)["facts"]["noise_sd"]
        == spread["square-root"]
        < spread["bottom-up"]
    )


def test_where_its_noise_rows_do_not_fit_into_memory_the_counter_is_a_tree():
    asked = Trial("dp-ucbvi-jdp", RIVER["name"], STATES, 2000, 10.0, 1e-5, "tight")
    layout = tabular.layout_of(asked, tabular.world_of(asked))
    assert tabular.mechanism_of(asked, layout, 10**7) == "bottom-up"


def test_a_billion_episodes_are_played_in_batches(simulate):
    said = simulate("dp-ucbvi-jdp", epsilon=1, episodes=10**9)
    assert said["regret"]["mean"] < 10**4 and said["facts"]["batches"] < 200


def test_local_users_have_a_bonus_of_their_own(simulate):
    def constants(agent, epsilon, **more):
        told = simulate(agent, epsilon=epsilon, episodes=2000, **more)["facts"]["constants"]
        return [float(x.split(" = ")[1]) for x in told.split(";")[0].split(", ")[:3]]

    (_, usual, _), (c, noise, z) = constants("ucbvi", None), constants("dp-ucbvi-ldp", 10)
    assert (c, z) == (0.2, 0.5) and noise == pytest.approx(0.8 * usual, rel=5e-3)
    assert constants("dp-ucbvi-ldp", 10, noise=1.0)[1] == 1.0


@pytest.mark.parametrize("agent", ["dp-ucbvi-ldp", slow("counts-shuffle")])
def test_a_reader_who_forgets_which_policy_was_played_pays_for_it(agent, monkeypatch):
    """The broken twin reads the noise of cells that nobody can have visited."""
    asked = [Trial(agent, RIVER["name"], STATES, 10**4, 10.0, 1e-5, "tight", seed=seed) for seed in range(2)]
    known = sum(run(one).regret[-1] for one in asked)
    monkeypatch.setattr(OnlineLayout, "entries", lambda self, _: np.ones(sum(t.shape[0] for t in self.tables), bool))
    assert sum(run(one).regret[-1] for one in asked) > 1.5 * known


SENT = Trial("counts-shuffle", RIVER["name"], STATES, 200, 3.0, 1e-5, "tight", seed=4)


@pytest.mark.parametrize("rewards", ["known", slow("learnt")])
def test_messages_that_are_sent_are_what_the_law_is_drawn_of(rewards):
    """Everybody's own bits, as bytes, shuffled and analyzed: the counters agree in law with one draw a counter."""
    trial = with_options(SENT, rewards=rewards, first=200, visits=math.inf)
    found = []
    for protocol in (True, False):
        each = [run(replace(with_options(trial, protocol=protocol), seed=seed)).release for seed in range(30)]
        found.append((np.array([r.tables["batch_0"] for r in each], dtype=float), each[-1].mechanisms[0].shuffled))
    (sent, bits), (drawn, same) = found
    assert bits == same and (sent >= 0).all()
    # nobody sees the truth twice alike: both are sums of 200 people and the same noise
    spread = np.hypot(sent.std(0, ddof=1), drawn.std(0, ddof=1)) / math.sqrt(30)
    apart = (sent.mean(0) - drawn.mean(0)) / np.maximum(spread, 1e-9)
    assert np.abs(apart).max() < 4.5 and 0.5 < apart.std() < 1.5
    assert 0.85 < sent.var(0, ddof=1).mean() / drawn.var(0, ddof=1).mean() < 1.18
    assert bits.users == 200 and bits.each >= 1
    counters, facts = sent.shape[1], run(with_options(trial, protocol=True)).facts
    assert facts["bytes_a_user_sent"] == counters * (1 + bits.each) * message_bytes(counters)


@pytest.mark.parametrize(("agent", "times"), [("dp-ucbvi-jdp", 9), slow("dp-ucbvi-ldp", 3), ("counts-shuffle", None)])
def test_users_who_return_pay_for_all_their_episodes_and_send_them(simulate, agent, times):
    """``times``: the squared sensitivity; in the shuffle model they pay by group privacy."""
    asked = {"epsilon": 3, "episodes": 200, "seed": 4}
    one, three = (simulate(agent, **asked, episodes_per_user=m) for m in (1, 3))
    assert three["true_epsilon"] <= 3.0 + 1e-9 and "3 episodes a user" in three["facts"]["variant"]
    assert three["run"].verify().ok and three["run"].guarantee.epsilon == pytest.approx(three["true_epsilon"], rel=1e-6)
    (row,), (whole,) = one["rows"], three["rows"]
    told = mechanisms(one), mechanisms(three)
    if times is not None:
        assert three["facts"]["noise_sd"] > 1.3 * one["facts"]["noise_sd"]
        assert [m["l2_squared"] for m in told[1]] == [times * m["l2_squared"] for m in told[0]]
        assert (whole["messages"], whole["bits"]) == (3 * row["messages"], 3 * row["bits"])
    else:
        assert three["true_epsilon"] > 2.0 and three["facts"]["noise_sd"] > 2 * one["facts"]["noise_sd"]
        assert {m["shuffled"]["episodes"] for m in told[1]} == {3} and told[1][0]["l1"] == 3 * told[0][0]["l1"]
        # of each episode a truth and its coins in every counter, in three batches that ask for most
        assert whole["messages"] == 3 * max(m["cells"] * (1 + m["shuffled"]["each"]) for m in told[1])


def test_nobody_has_no_episode(simulate):
    with pytest.raises(ValueError, match="at least one episode"):
        simulate("counts-shuffle", epsilon=3, episodes=200, episodes_per_user=0)
