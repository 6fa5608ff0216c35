"""UCBVI and its kin in known worlds: facts that are asked for, the same luck, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline.agents.ucbvi import practical
from pipeline.online import tabular
from pipeline.online.cells import gathered_rows
from pipeline.online.registry import measure, plain_values, run
from pipeline.online.rollouts import world_of
from pipeline.online.tabular import layout_of
from pipeline.online.trial import Trial
from pipeline.privacy.losses import spent_budget
from pipeline.privacy.shuffle import message_bytes
from pipeline.statistics.online_counts import OnlineLayout
from reticent import CardError

PLAIN = Trial("ucbvi", "riverswim_homogeneous", (("states", 3),), 2000)
AGENTS = {"ucbvi": "none", "dp-ucbvi-jdp": "joint", "dp-ucbvi-ldp": "local", "counts-shuffle": "shuffle"}


def trial(agent, epsilon=10.0, **options):
    knobs = tuple(sorted(options.items()))
    if agent == "ucbvi":
        return replace(PLAIN, options=knobs)
    return replace(PLAIN, agent=agent, epsilon=epsilon, delta=1e-5, calibration="tight", options=knobs)


@pytest.mark.parametrize("rewards", ["known", "learnt"])
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_says_what_it_did_and_does_it_again(agent, rewards):
    asked = trial(agent, rewards=rewards)
    outcome = run(asked)
    facts = outcome.facts
    assert facts["trust"] == AGENTS[agent]
    assert outcome.marks[-1] == 2000
    assert outcome.regret == sorted(outcome.regret)
    assert len(outcome.policy) == 6
    if agent == "ucbvi":
        assert (facts["true_epsilon"], facts["true_rho"], facts["noise_sd"]) == (None, None, 0.0)
    else:
        # at so large an epsilon one noise bit more or less is a step of two
        assert (7.5 if agent == "counts-shuffle" else 9.0) < facts["true_epsilon"] <= 10.0
        assert facts["noise_sd"] > 0
    assert 0 <= facts["tie_share"] < 1
    assert measure(asked) == plain_values(asked, outcome)
    assert run(replace(asked, seed=1)).regret != outcome.regret


def test_rows_of_several_runs_have_the_keys_that_a_study_reads():
    trials = [replace(trial("dp-ucbvi-jdp"), seed=seed) for seed in range(3)]
    (row,) = gathered_rows(trials, [measure(t) for t in trials])
    assert (row["agent"], row["trust"], row["runs"], row["epsilon"]) == ("dp-ucbvi-jdp", "joint", 3, 10.0)
    assert row["mean"] == pytest.approx(sum(row["totals"]) / 3)
    assert row["facts"]["shape"] == [3, 2, 6]


@pytest.mark.parametrize("mechanism", ["plain", "square-root", "fresh"])
def test_mechanisms_can_be_chosen_and_are_named(mechanism):
    assert mechanism in run(trial("dp-ucbvi-jdp", mechanism=mechanism)).facts["variant"]


def test_a_billion_episodes_are_played_in_batches():
    outcome = run(replace(trial("dp-ucbvi-jdp", epsilon=1.0), episodes=10**9))
    assert outcome.marks[-1] == 10**9
    assert outcome.regret[-1] < 10**4
    assert outcome.facts["batches"] < 200


def test_what_does_not_fit_is_said():
    inhom = replace(trial("dp-ucbvi-jdp", pooled=True), world="riverswim_inhomogeneous")
    for asked, words in (
        (trial("ucbvi", growht=2.0), "no option 'growht'"),
        (replace(trial("dp-ucbvi-jdp"), epsilon=None), "needs epsilon and delta"),
        (replace(trial("dp-ucbvi-ldp"), calibration="paper"), "no paper prints scales"),
        (inhom, "differs from step to step"),
        (trial("counts-shuffle", pooled=True), "leave out pooled"),
    ):
        with pytest.raises(CardError, match=words):
            run(asked)


def test_the_counter_of_joint_privacy_is_the_square_root_where_its_noise_rows_fit_into_memory():
    asked = trial("dp-ucbvi-jdp")
    layout = tabular.layout_of(asked, tabular.world_of(asked))
    assert tabular.mechanism_of(asked, layout, 255) == "square-root"
    assert tabular.mechanism_of(asked, layout, 10**7) == "bottom-up"
    assert tabular.mechanism_of(trial("dp-ucbvi-jdp", mechanism="plain"), layout, 255) == "plain"
    # the variance drawn is that of the square root: less than a third of the tree's at as much privacy
    spread = [run(trial("dp-ucbvi-jdp", **told)).facts["noise_sd"] for told in ({}, {"mechanism": "bottom-up"})]
    assert spread[0] < spread[1]


def test_local_users_have_a_bonus_of_their_own():
    chosen = tabular.constants_of(trial("dp-ucbvi-ldp"), tabular.world_of(trial("dp-ucbvi-ldp")))
    assert (chosen.c, chosen.z) == (0.2, 0.5) and chosen.noise == pytest.approx(0.8 * practical(2000).noise)
    told = trial("dp-ucbvi-ldp", noise=1.0)
    assert tabular.constants_of(told, tabular.world_of(told)).noise == 1.0


@pytest.mark.parametrize("agent", ["dp-ucbvi-ldp", "counts-shuffle"])
def test_a_reader_who_forgets_which_policy_was_played_pays_for_it(agent, monkeypatch):
    """The broken twin reads the noise of cells that nobody can have visited."""
    asked = [replace(trial(agent), episodes=10**4, seed=seed) for seed in range(2)]
    known = sum(run(one).regret[-1] for one in asked)
    monkeypatch.setattr(OnlineLayout, "entries", lambda self, _: np.ones(sum(t.shape[0] for t in self.tables), bool))
    assert sum(run(one).regret[-1] for one in asked) > 1.5 * known


SENT = Trial("counts-shuffle", "riverswim_homogeneous", (("states", 3),), 200, 3.0, 1e-5, "tight", seed=4)


@pytest.mark.parametrize("rewards", ["known", "learnt"])
def test_messages_that_are_sent_are_what_the_law_is_drawn_of(rewards):
    """Everybody's own bits, as bytes, shuffled and analyzed: the counters agree in law with one draw a counter."""
    trial = SENT.with_options(rewards=rewards, first=200, visits=math.inf)
    found = {}
    for protocol in (True, False):
        ones = []
        for seed in range(30):
            outcome = run(replace(trial.with_options(protocol=protocol), seed=seed))
            mechanism = outcome.release.mechanisms[0]
            ones.append(outcome.release.tables["batch_0"])
        bits = mechanism.shuffled
        found[protocol] = np.array(ones, dtype=float), bits
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


def test_users_who_return_pay_for_all_their_episodes():
    mdp = world_of(SENT)
    for agent, times in (("dp-ucbvi-jdp", 9), ("dp-ucbvi-ldp", 3)):
        one, three = (layout_of(replace(SENT, agent=agent).with_options(episodes_per_user=m), mdp) for m in (1, 3))
        assert [t.replace.l2_squared for t in three.tables] == [times * t.replace.l2_squared for t in one.tables]
        outcome = run(replace(SENT, agent=agent).with_options(episodes_per_user=3))
        assert outcome.facts["true_epsilon"] <= 3.0 + 1e-9 and "3 episodes a user" in outcome.facts["variant"]
        assert outcome.facts["noise_sd"] > 1.3 * run(replace(SENT, agent=agent)).facts["noise_sd"]
    with pytest.raises(ValueError, match="at least one episode"):
        run(SENT.with_options(episodes_per_user=0))


def test_users_who_return_send_all_their_episodes():
    for agent in ("dp-ucbvi-jdp", "dp-ucbvi-ldp"):
        one, three = (measure(replace(SENT, agent=agent).with_options(episodes_per_user=m))["sent"] for m in (1, 3))
        assert (three["messages"], three["bits"]) == (3 * one["messages"], 3 * one["bits"])
    asked = SENT.with_options(episodes_per_user=3)
    bits, sent = run(asked).release.mechanisms, measure(asked)["sent"]
    # of each episode a truth and its coins in every counter, in three batches that ask for most
    assert sent["messages"] == 3 * max(m.cells * (1 + m.shuffled.each) for m in bits)


def test_users_who_return_in_the_shuffle_model_pay_by_group_privacy():
    one, three = (run(replace(SENT, agent="counts-shuffle").with_options(episodes_per_user=m)) for m in (1, 3))
    assert 2.0 < three.facts["true_epsilon"] <= SENT.epsilon
    assert three.facts["noise_sd"] > 2 * one.facts["noise_sd"] and "3 episodes a user" in three.facts["variant"]
    # what a certificate recomputes from the release alone
    told = three.release.mechanisms
    assert {m.shuffled.episodes for m in told} == {3} and told[0].l1 == 3 * one.release.mechanisms[0].l1
    assert spent_budget(told, SENT.delta)["epsilon"] == pytest.approx(three.facts["true_epsilon"], rel=1e-6)
