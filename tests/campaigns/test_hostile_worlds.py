"""Hostile worlds know their own truth, truly mislead, and a false "better" is counted as one."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.campaigns import hostile_worlds as campaign
from tests.campaigns.hostile_families import FAMILIES, TWISTS
from tests.conftest import slow

# practice takes what nobody sees into account, and so does what comes of it
MISLEADING = [f for f in FAMILIES if f.startswith("trait_") and f not in ("trait_start", "trait_habit")]
MISLEADING += ["aliased", "aliased_sparse", "drift", "recorded_falsely"]
# the declared state is all there is, and every action is tried
PLAIN = [f for f, t in TWISTS.items() if f not in MISLEADING and not t.untried[1] and t.practice != "optimal"]


def drawn(family, seed, people=None):
    g = np.random.default_rng((seed, 7))
    world = FAMILIES[family](g)
    return (world if people is None else replace(world, people=people)), g


def anything(world, g):
    """A policy that does one thing a state and step, among what practice may do there, and where it is followed."""
    H, S, A = world.horizon, world.states, world.actions
    tried = np.zeros((H, S, A), bool)
    live = world.seen < S
    np.logical_or.at(tried, (slice(None), world.seen[live]), world.choice.max(1)[:, live] > 0)
    return np.eye(A)[np.where(tried, g.random((H, S, A)), -1).argmax(-1)], g.random((H, S)) < 0.6


def off(world, rows, value):
    """Standard errors by which the mean return of a log lies from a value; people are independent, episodes not."""
    begun = np.bincount(rows.user[rows.step == 0], minlength=world.people)
    told = np.bincount(rows.user, rows.reward, world.people) - value * begun
    return told.sum() / max(np.sqrt((told**2).sum()), 1e-12)


@pytest.mark.slow
def test_logs_of_every_family_have_the_exact_value_of_practice_and_of_a_policy():
    far = []
    for family in FAMILIES:
        world, g = drawn(family, 3, people=4_000)
        policy, follows = anything(world, g)
        other = replace(world, choice=world.acts(policy, follows))
        far += [off(world, world.sample(g), world.value()), off(other, other.sample(g), world.value(policy, follows))]
    assert np.abs(far).max() < 4 and 0.7 < np.std(far) < 1.3


def test_a_value_without_the_trait_is_not_that_of_the_log():
    """The broken twin: traits that are drawn anew with every step lead elsewhere, and the logs say so."""
    world, g = drawn("trait_both", 3, people=100_000)
    policy, follows = anything(world, g)
    log = replace(world, choice=world.acts(policy, follows)).sample(g)
    twin = replace(world, keep=np.broadcast_to(world.law, world.keep.shape))
    assert abs(off(world, log, world.value(policy, follows))) < 4 < abs(off(world, log, twin.value(policy, follows)))


@pytest.mark.slow
def test_hidden_traits_mislead_who_believes_the_declared_state():
    for family in MISLEADING:
        wrong = []
        for seed in range(6):
            world, g = drawn(family, seed)
            policy, _ = anything(world, g)
            constant = [policy, *(np.broadcast_to(one, policy.shape) for one in np.eye(world.actions))]
            span = (world.range[1] - world.range[0]) * (1 if world.final else world.horizon)
            wrong.append(max(abs(world.naive(p) - world.gain(p)) for p in constant) / span)
        assert np.median(wrong) > 0.002, (family, wrong)


def test_where_the_declared_state_is_all_there_is_nobody_is_misled():
    for family in PLAIN:
        for seed in range(3):
            world, g = drawn(family, seed)
            policy, _ = anything(world, g)
            if world.shown:
                assert abs(world.naive(policy) - world.gain(policy)) <= world.tolerance, family


def test_what_a_log_shows_is_what_counting_its_rows_shows():
    world, g = drawn("trait_both", 5, people=100_000)
    world = replace(world, choice=np.broadcast_to(world.choice[:1], world.choice.shape))
    rows, (H, S, A) = world.sample(g), (world.horizon, world.states, world.actions)
    n, r, moves = np.zeros((H, S, A)), np.zeros((H, S, A)), np.zeros((H, S, A, S + world.ends))
    np.add.at(n, (rows.step, rows.state, rows.action), 1)
    np.add.at(r, (rows.step, rows.state, rows.action), rows.reward)
    np.add.at(moves, (rows.step, rows.state, rows.action, rows.next_state), 1)
    policy = np.broadcast_to(np.eye(A)[0], (H, S, A))
    V, W = np.zeros(S + world.ends), np.zeros(S + world.ends)
    for h in reversed(range(H)):
        V[:S], W[:S] = (
            np.where(n[h].sum(-1) > 0, (p * (r[h] + moves[h] @ v) / np.maximum(n[h], 1)).sum(-1), 0)
            for p, v in ((policy[h], V), (n[h] / np.maximum(n[h].sum(-1, keepdims=True), 1), W))
        )
    first = np.bincount(rows.state[rows.step == 0], minlength=S + world.ends) / world.people
    shown, true = world.naive(policy), world.gain(policy)
    assert abs(first @ (V - W) - shown) < abs(shown - true) / 5


def test_where_nothing_is_better_no_policy_is():
    for family in ("practice_optimal", "actions_alike", "greedy_optimal", "open"):
        world, g = drawn(family, 1)
        gains = [world.gain(*anything(world, g)) for _ in range(20)]
        assert max(gains) <= world.best[1] - world.practised + world.tolerance
        assert world.nothing_better == (family in ("practice_optimal", "actions_alike"))
    world, g = drawn("aliased", next(s for s in range(9) if drawn("aliased", s)[0].alike))
    assert world.nothing_better and abs(world.gain(*anything(world, g))) <= world.tolerance


@pytest.mark.parametrize("family", ["open", *(slow(f) for f in ("trait_one_step", "trait_habit", "entering"))])
def test_the_product_runs_on_a_world_and_says_one_of_four_things(family):
    row = campaign.run(family, 0)
    assert tuple(row) == campaign.FIELDS
    assert {row["said"], row["would"]} <= {"better", "better_if", "withheld", "not_better"}
    assert float(row["lower"]) <= float(row["estimate"]) <= float(row["upper"])
    assert campaign.counted([row])["runs"] == 1


@pytest.mark.parametrize(
    ("status", "counted"), [(None, "level_plain"), ("checked", "level_plain"), ("unchecked", "level_if")]
)
def test_a_planted_false_better_is_counted(monkeypatch, status, counted):
    told = None if status is None else SimpleNamespace(status=status)
    planted = SimpleNamespace(answer="better", holds=True, confounding=told)
    monkeypatch.setattr(campaign, "verdict_of", lambda *_, **__: planted)
    found = campaign.counted([campaign.run("actions_alike", 1)])
    assert found["level"] == found[counted] == 1
    assert found["level_plain"] + found["level_if"] == 1 and found["better"] == 0
    assert "| actions_alike |" in campaign.table([{"family": "actions_alike", **found}])


def test_a_true_better_and_one_that_promises_too_much_are_told_apart():
    row = {"truth": "0.2", "lower": "0.1", "upper": "0.3", "would": "better", "said": "withheld", "calibrated": "0"}
    found = campaign.counted([{**row, "refused": "2"}, {**row, "lower": "0.25", "refused": "0"}])
    assert (found["better_plain"], found["held"], found["beyond"], found["refused"]) == (2, 1, 1, 2)
    assert found["level"] == found["level_plain"] == found["level_said"] == 0
