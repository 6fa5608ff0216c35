"""UCBVI: the naive page agrees, no noise is the baseline, ties are even, batches end in time, and it learns."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pipeline.agents.apvi import apvi, model, optimal_upper, policy_bounds
from pipeline.agents.pessimism import constants
from pipeline.agents.ucbvi import (
    CountTask,
    UcbviConstants,
    UcbviResult,
    estimate,
    noisy_value,
    optimistic,
    planned,
    supported,
    theory,
    ucbvi,
    worth_playing,
)
from pipeline.declaration.card import task_of as declared_task
from pipeline.mdp.planning import occupancies, optimal_values, policy_value
from pipeline.mdp.rollout import Batch, Pace, Rollout, batch_ends
from pipeline.online.rollouts import CountWorld, EpisodeWorld, play
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.interactive_counts import exact, joint, local
from pipeline.statistics.online_counts import OnlineCounts, OnlineLayout, nothing_seen
from pipeline.worlds.catalog import random_tabular, riverswim_homogeneous
from tests.agents.test_apvi import private_release, sample, world
from tests.conftest import slow
from tests.privacy.handles import WORLD
from tests.statistics.test_consistency import by_bisection

RIVER = riverswim_homogeneous(3).mdp(6)
RANDOM = random_tabular(3, 2, 4, seed=3, successors=2).mdp(4)


def task_of(mdp, pooled=False, rewards=False):
    H, S, A = mdp.shape
    lowest, highest = mdp.rewards.min((1, 2)), mdp.rewards.max((1, 2))
    known, lowest = (None, 0 * lowest) if rewards else (mdp.rewards, lowest)
    return CountTask(known, lowest, highest, mdp.start, OnlineLayout(H, S, A, pooled, rewards))


def run(mdp, desk, episodes, constants=None):
    agent = ucbvi(task_of(mdp), Pace(episodes, 2.0), constants or UcbviConstants())
    return play(agent, CountWorld(mdp, desk, np.random.default_rng(0)))


def counts_of(task, rng, sd):
    n = rng.integers(0, 60, (*task.layout.cells, task.layout.states)) * rng.integers(0, 2, (*task.layout.cells, 1))
    r = rng.integers(-30, 30, task.layout.cells) if task.layout.rewards else None
    return OnlineCounts(50, n + rng.normal(0, sd, n.shape) * (sd > 0), r, sd, 2 * sd if r is not None else 0.0)


def naive_counts(counts, z):
    """The consistency programme by bisection, cell by cell, then the shift; and the same without it."""
    G, S, A, _ = counts.n_sas.shape
    n_sas, bare = np.zeros((G, S, A, S)), np.zeros((G, S, A, S))
    for g, s, a in np.ndindex(G, S, A):
        x = counts.n_sas[g, s, a]
        bare[g, s, a] = by_bisection(max(0.0, x.sum()), np.maximum(x, 0.0))
        n_sas[g, s, a] = bare[g, s, a] + z * counts.sd_sas * math.sqrt(S) / S
    return n_sas, bare


def naive_width(task, counts, k, cell, P, N, V, h):
    if h >= task.layout.steps:
        return 0.0
    if N == 0:
        return math.inf
    mean = sum(p * v for p, v in zip(P, V, strict=True))
    variance = sum(p * (v - mean) ** 2 for p, v in zip(P, V, strict=True))
    away = math.sqrt(sum((v - mean) ** 2 for v in V))
    width = k.c * (math.sqrt(2 * variance * k.iota / N) + 7 / 3 * (max(V) - min(V)) * k.iota / N)
    return width + k.noise * counts.sd_sas * away / N


def naive_values(task, counts, k, sign):
    """The recursion as the page has it, one number after the other."""
    n_sas, bare = naive_counts(counts, k.z)
    H, S, A = task.layout.horizon, task.layout.states, task.layout.actions
    better = max if sign > 0 else min
    V, edge = [[0.0] * S for _ in range(H + 1)], [0.0] * (H + 1)
    for h in reversed(range(H)):
        edge[h] = edge[h + 1] + float((task.highest if sign > 0 else task.lowest)[h])
        for s in range(S):
            Q = []
            for a in range(A):
                cell = min(h, len(n_sas) - 1), s, a
                N, M = sum(n_sas[cell]), sum(bare[cell])
                P = [x / N if N > 0 else 1 / S for x in n_sas[cell]]
                P_bare = [x / M for x in bare[cell]] if M > 0 else P
                means = [sum(p * v for p, v in zip(q, V[h + 1], strict=True)) for q in (P, P_bare)]
                free = better(means) + sign * naive_width(task, counts, k, cell, P, N, V[h + 1], h)
                if task.rewards is None:
                    r = better(min(1.0, max(0.0, (1 + counts.r_sa[cell] / (n or 1.0)) / 2)) for n in (N, M))
                    more = math.inf
                    if N > 0:
                        more = k.c * (math.sqrt(2 * r * (1 - r) * k.iota / N) + 7 / 3 * k.iota / N)
                        more += k.noise * counts.sd_r / (2 * N)
                    free, end = free + task.highest[h] * (r + sign * more), edge[h]
                else:
                    free, end = free + task.rewards[h, s, a], task.rewards[h, s, a] + edge[h + 1]
                Q.append(min(free, end) if sign > 0 else max(free, end))
            V[h][s] = max(Q)
    return np.array(V)


@pytest.mark.parametrize("sd", [0.0, 15.0])
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("rewards", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_values_agree_with_the_page_in_loops(sd, pooled, rewards, sign):
    task, rng = task_of(RANDOM, pooled, rewards), np.random.default_rng(5)
    for k in (UcbviConstants(), theory(24, 100), UcbviConstants(c=1.0, noise=2.0, z=0.0)):
        counts = counts_of(task, rng, sd)
        np.testing.assert_allclose(planned(task, counts, k, sign).V, naive_values(task, counts, k, sign), atol=1e-10)


def test_a_private_agent_without_noise_is_its_baseline_to_the_last_bit():
    task, quiet = task_of(RIVER), Ask(epsilon=math.inf, delta=1e-5)
    plain = run(RIVER, exact(task.layout, 10**4, WORLD, SeededNoise(0)), 3000)
    for desk in (
        joint(task.layout, 10**4, 3000, quiet, WORLD, SeededNoise(0)),
        local(task.layout, 3000, quiet, WORLD, SeededNoise(0)),
    ):
        played = run(RIVER, desk, 3000)
        assert (played.losses, played.ends) == (plain.losses, plain.ends)
        assert np.array_equal(played.result.policy, plain.result.policy)
    noisy = joint(task.layout, 10**4, 3000, Ask(epsilon=10.0, delta=1e-5), WORLD, SeededNoise(0))
    assert run(RIVER, noisy, 3000).losses != plain.losses


def test_values_are_optimistic_with_the_theory_and_pessimistic_with_the_bonus_subtracted():
    task, best = task_of(RIVER), optimal_values(RIVER)[1]
    desk = joint(task.layout, 10**4, 4000, Ask(epsilon=1.0, delta=1e-5), WORLD, SeededNoise(0))
    k = theory(36, 4000)
    run(RIVER, desk, 4000, k)
    assert (best - 1e-12 <= planned(task, desk.counts(), k).V).all()
    lower = planned(task, desk.counts(), k, -1)
    assert (best + 1e-12 >= lower.V).all()
    assert (lower.V[0] @ RIVER.start) <= policy_value(RIVER, lower.policy) + 1e-12


def test_ties_go_to_the_unclipped_value_and_what_is_left_is_played_evenly():
    task = task_of(RIVER)
    plan = planned(task, nothing_seen(task.layout), UcbviConstants())
    # before anything is seen every cell is at its clip; rewards alone tell actions apart
    assert np.array_equal(plan.policy[0, 1], [0.5, 0.5])
    assert plan.tied[:-1, 1].all()
    n = np.full((5, 3, 2, 3), 4.0)
    n[0, 1, 0] = 40.0
    plan = planned(task, OnlineCounts(9, n, None, 1e3, 0.0), UcbviConstants(z=0.0))
    # both are clipped, and the bonus of the rarer one is larger
    assert plan.tied[0, 1] and np.array_equal(plan.policy[0, 1], [0.0, 1.0])


def test_a_policy_is_worth_playing_until_it_doubles_the_visits_of_a_cell():
    task, rng = task_of(RANDOM), np.random.default_rng(0)
    n = np.zeros((3, 3, 2, 3))
    # an estimate that is the truth, and visits that are known
    n[:] = RANDOM.transitions[:3] * rng.integers(50, 200, (3, 3, 2, 1))
    policy = np.eye(2)[rng.integers(0, 2, (4, 3))]
    d = occupancies(RANDOM, policy)[:3]
    expected = (n.sum(-1)[d > 0] / d[d > 0]).min()
    got = worth_playing(task, estimate(OnlineCounts(9, n, None, 0.0, 0.0), UcbviConstants(z=0.0)), policy, 0.0)
    assert got == pytest.approx(expected, rel=1e-12)


def test_batches_end_as_declared_or_sooner_and_never_outnumber_the_leaves():
    assert batch_ends(20, 1.0) == list(range(1, 21))
    with pytest.raises(ValueError, match="at least 1"):
        batch_ends(20, 0.9)
    for room, most in ((math.inf, 40), (1.0, 40), (3.0, 12), (1.0, 14)):
        pace, played, batches = Pace(1000, 2.0, most=most), 0, 0
        while played < 1000:
            played, batches = played + pace.length(played, batches, room), batches + 1
        assert played == 1000 and batches == (len(pace.ends) if room == math.inf else most) <= most


@pytest.mark.slow
def test_counts_drawn_at_once_have_the_law_of_episodes_played_one_by_one():
    rng, runs, size = np.random.default_rng(0), 300, 60
    policy = rng.integers(0, 2, (4, 3))
    task = task_of(RANDOM)

    class Keep:
        layout, protocol = task.layout, False

        def __init__(self):
            self.n = 0

        def add(self, tally):
            self.n = self.n + tally.transitions

        def counts(self):
            return nothing_seen(task.layout)

    def once():
        yield Batch(np.eye(2)[policy], size)
        return UcbviResult(np.eye(2)[policy], 0.0)

    def one_by_one(n):
        for _ in range(size):
            t = yield Rollout(policy)
            np.add.at(n, (np.arange(4), t.states[:-1], t.actions, t.states[1:]), 1)
        return policy

    fast, single = [], []
    for _ in range(runs):
        keep = Keep()
        play(once(), CountWorld(RANDOM, keep, rng))
        fast.append(keep.n)
        single.append(n := np.zeros((4, 3, 2, 3)))
        play(one_by_one(n), EpisodeWorld(RANDOM, rng))
    fast, single = np.array(fast), np.array(single)
    for i in np.argwhere(fast.std(0) + single.std(0) > 0):
        at = (slice(None), *i)
        assert stats.ks_2samp(fast[at], single[at], method="asymp").pvalue > 1e-5
    # joint law: covariances of all cells agree to sampling error
    a, b = (np.cov(x.reshape(runs, -1), rowvar=False) for x in (fast, single))
    assert np.abs(a - b).max() < 6 * a.max() / math.sqrt(runs / 2)
    assert (fast.sum((2, 3, 4)) == size).all()


@pytest.mark.slow
def test_it_learns_with_and_without_privacy_and_learnt_rewards_cost_more_than_known_ones(simulate):
    known, learnt = (simulate("ucbvi", episodes=10**4, rewards=rewards) for rewards in ("known", "learnt"))
    assert known["regret"]["mean"] < 30 and known["regret"]["mean"] < learnt["regret"]["mean"] < 150
    private = simulate("dp-ucbvi-jdp", epsilon=10, episodes=10**6)
    assert private["regret"]["mean"] < 300 and private["suboptimality"] < 0.05 * private["facts"]["optimum"]


def test_a_whole_batch_is_not_staked_on_a_cell_that_only_noise_recommends():
    # the lock of doubling batches: the same agent, whose batches end where growth alone says
    task, K = task_of(RIVER), 10**6
    totals = {}
    for visits in (1.0, math.inf):
        each = []
        for seed in range(4):
            desk = joint(task.layout, 255, K, Ask(epsilon=1.0, delta=1e-5), WORLD, SeededNoise(seed))
            agent = ucbvi(task, Pace(K, 2.0, most=255, visits=visits), UcbviConstants())
            played = play(agent, CountWorld(RIVER, desk, np.random.default_rng(seed)))
            each.append(np.dot(np.diff([0, *played.ends]), played.losses))
        totals[visits] = max(each)
    assert totals[1.0] < 800 < totals[math.inf]


@pytest.mark.parametrize(("pooled", "rewards"), [*(slow(pooled, False) for pooled in (False, True)), (False, True)])
def test_what_noise_does_to_a_value_is_its_deviation_when_noise_is_drawn_again(pooled, rewards):
    rng, task = np.random.default_rng(6), task_of(RANDOM, pooled, rewards)
    n = rng.integers(2000, 4000, (*task.layout.cells, task.layout.states)).astype(float)
    r = rng.integers(-900, 900, task.layout.cells).astype(float) if rewards else None
    policy = rng.dirichlet(np.ones(2), RANDOM.shape[:2])

    def of(noise):
        extra = None if r is None else r + noise * rng.normal(0, 20, r.shape)
        seen = OnlineCounts(50, n + noise * rng.normal(0, 10, n.shape), extra, 10.0, 20.0)
        return noisy_value(task, seen, estimate(seen, UcbviConstants()), policy)

    said, drawn = of(0)[1], np.std([of(1)[0] for _ in range(1000)])
    assert said == pytest.approx(drawn, rel=0.08)
    assert 0.7 * said != pytest.approx(drawn, rel=0.08)


def test_a_policy_that_only_noise_recommends_is_not_emitted():
    rng, task = np.random.default_rng(7), task_of(RIVER)
    greedy, even = np.eye(2)[rng.integers(0, 2, RIVER.shape[:2])], np.full(RIVER.shape, 0.5)
    for sd, kept in ((0.0, greedy), (1e4, even)):
        seen = OnlineCounts(100, rng.normal(0, sd, (*task.layout.cells, 3)), None, sd, 0.0)
        known = estimate(seen, UcbviConstants())
        assert np.array_equal(supported(task, seen, known, [greedy, even]), kept)


@pytest.mark.slow
def test_a_local_agent_emits_what_its_release_supports_and_not_worse_than_uniform(simulate):
    # before, it emitted what lost .15 on average, and even choice loses .203
    asked = {"epsilon": 1, "episodes": 10**4, "seed": 8100, "runs": 16, "pooled": True}
    found = simulate("dp-ucbvi-ldp", **asked, beside=["uniform"])["agents"]
    lost, uniform = (found[agent]["suboptimality"] for agent in ("dp-ucbvi-ldp", "uniform"))
    assert lost["mean"] < uniform["mean"] / 2 and lost["median"] < uniform["mean"] / 10


def test_the_policy_to_play_next_tries_what_was_never_seen_and_reaches_the_upper_value_of_the_best():
    rng = np.random.default_rng(5)
    mdp, card = world(2)
    sums = sample(mdp, card, 60, rng)
    # in one state nobody has ever tried the last action
    sums.tables["n_sas"][0, 0, 2] = 0
    sums.tables["r_sa"][0, 0, 2] = 0
    for ask in (Ask(), Ask(1.0)):
        counts = private_release(card, ask)(sums, SeededNoise(3))
        task = replace(declared_task(card), allowed=np.arange(9).reshape(3, 3) != 4)
        for preset in ("paper", "tail", "practical"):
            k = constants(preset, 36)
            plan = optimistic(counts, task, k, rng)
            upper = optimal_upper(model(counts, task, k))
            assert np.array_equal(plan.V, upper) and not plan.policy.abstains.any()
            assert plan.policy.probabilities.sum(-1) == pytest.approx(np.ones((4, 3)))
            assert not plan.policy.probabilities[:, 1, 1].any()
            # noise may look like visits, and wider widths tie with what was never seen
            assert ask.rho or preset != "practical" or plan.policy.probabilities[0, 0, 2] > 0
            # what is played has that value
            played = policy_bounds(model(counts, task, k), plan.policy)[1]
            assert played == pytest.approx(upper)
    assert apvi(counts, task, k, rng).policy.probabilities[0, 0, 2] == 0
