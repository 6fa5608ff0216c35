"""UCBVI and its kin, simulated: mechanisms, constants, what a message is, and users who return."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.online import tabular
from pipeline.online.registry import run
from pipeline.online.trial import Trial
from pipeline.privacy.shuffle import message_bytes
from pipeline.statistics.online_counts import OnlineLayout
from tests.online.simulated import RIVER

ASKED = {"epsilon": 10, "episodes": 60}


@pytest.mark.slow
def test_mechanisms_can_be_chosen_and_are_named_and_the_square_root_is_the_usual_one(simulate):
    spread = {}
    for mechanism in ("plain", "square-root", "fresh", "bottom-up"):
        facts = simulate("dp-ucbvi-jdp", **ASKED, mechanism=mechanism)["facts"]
        assert mechanism in facts["variant"]
        spread[mechanism] = facts["noise_sd"]
    assert simulate("dp-ucbvi-jdp", **ASKED)["facts"]["noise_sd"] == spread["square-root"] < spread["bottom-up"]


def test_where_its_noise_rows_do_not_fit_into_memory_the_counter_is_a_tree():
    asked = Trial("dp-ucbvi-jdp", RIVER["name"], (("states", 3),), 2000, 10.0, 1e-5, "tight")
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


@pytest.mark.parametrize("agent", ["dp-ucbvi-ldp", pytest.param("counts-shuffle", marks=pytest.mark.slow)])
def test_a_reader_who_forgets_which_policy_was_played_pays_for_it(agent, monkeypatch):
    """The broken twin reads the noise of cells that nobody can have visited."""
    asked = [Trial(agent, RIVER["name"], (("states", 3),), 10**4, 10.0, 1e-5, "tight", seed=seed) for seed in range(2)]
    known = sum(run(one).regret[-1] for one in asked)
    monkeypatch.setattr(OnlineLayout, "entries", lambda self, _: np.ones(sum(t.shape[0] for t in self.tables), bool))
    assert sum(run(one).regret[-1] for one in asked) > 1.5 * known


SENT = Trial("counts-shuffle", RIVER["name"], (("states", 3),), 200, 3.0, 1e-5, "tight", seed=4)


@pytest.mark.parametrize("rewards", ["known", pytest.param("learnt", marks=pytest.mark.slow)])
def test_messages_that_are_sent_are_what_the_law_is_drawn_of(rewards):
    """Everybody's own bits, as bytes, shuffled and analyzed: the counters agree in law with one draw a counter."""
    trial = SENT.with_options(rewards=rewards, first=200, visits=math.inf)
    found = {}
    for protocol in (True, False):
        ones = []
        for seed in range(30):
            outcome = run(replace(trial.with_options(protocol=protocol), seed=seed))
            ones.append(outcome.release.tables["batch_0"])
        found[protocol] = np.array(ones, dtype=float), outcome.release.mechanisms[0].shuffled
    (sent, bits), (drawn, same) = found[True], found[False]
    assert bits == same and (sent >= 0).all()
    # nobody sees the truth twice alike: both are sums of 200 people and the same noise
    spread = np.hypot(sent.std(0, ddof=1), drawn.std(0, ddof=1)) / math.sqrt(30)
    apart = (sent.mean(0) - drawn.mean(0)) / np.maximum(spread, 1e-9)
    assert np.abs(apart).max() < 4.5 and 0.5 < apart.std() < 1.5
    ratio = sent.var(0, ddof=1).mean() / drawn.var(0, ddof=1).mean()
    assert 0.85 < ratio < 1.18
    assert bits.users == 200 and bits.each >= 1
    counters = sent.shape[1]
    assert run(trial.with_options(protocol=True)).facts["bytes_a_user_sent"] == counters * (
        1 + bits.each
    ) * message_bytes(counters)


def mechanisms(said):
    return json.loads((Path(said["folder"]) / "release.json").read_text(encoding="utf-8"))["mechanisms"]


@pytest.mark.parametrize(
    ("agent", "times"),
    [("dp-ucbvi-jdp", 9), pytest.param("dp-ucbvi-ldp", 3, marks=pytest.mark.slow), ("counts-shuffle", None)],
)
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
