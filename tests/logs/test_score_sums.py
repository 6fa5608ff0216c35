"""Scores and targets of people: the vectorised code against loops over their rows, whoever stands beside."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from pipeline.agents.apvi import model
from pipeline.agents.doubly_robust import aim, question
from pipeline.agents.pessimism import constants
from pipeline.declaration.card import task_of
from pipeline.learners.learner import plan_run
from pipeline.learners.terms import Evaluate, Terms
from pipeline.logs.aggregate import count_rows
from pipeline.logs.decode import LEAST_CHANCE
from pipeline.logs.doubly_robust_rows import REACH, TabularScores
from pipeline.logs.one_step_sums import (
    RATIO_STEPS,
    RETURN_STEPS,
    FeatureQuestion,
    FollowQuestion,
    OneStepScores,
    add_people,
)
from pipeline.logs.target_sums import add_targets, first_rows
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import PEOPLE, SQUARES, SUMS, MomentLayout
from pipeline.statistics.one_step_layout import FEATURES, PRACTICE_ROWS, STEPS, WEIGHT, FeatureLayout, FollowLayout
from pipeline.statistics.planning_counts import private_counts
from pipeline.statistics.scores import FADING, PLACEBOS, SCORES, Clips
from pipeline.statistics.target_plan import VALUE_STEPS, TargetPlan, TargetQuestion
from pipeline.worlds.simulated_logs import sample_people
from pipeline.worlds.surrogate import draw_surrogate
from reticent import Card
from tests.campaigns.tabular_evaluation import add_scores, heard, with_chances
from tests.conftest import card_dict, slow
from tests.statistics.test_sensitivity import SCHEMA, tiny


def card_of(dynamics, episodes=1):
    domain = card_dict()["domain"] | {"horizon": 3, "dynamics": dynamics}
    unit = card_dict()["unit"] | {"episodes_per_user": episodes}
    return Card.model_validate(card_dict(domain=domain, unit=unit))


def asked_of(card, people):
    """A question of a policy that does the second action in state y, and recommends nothing in state x; and its aim."""
    counts = count_rows(pl.concat(people), card)
    summed = count_sum(card, Ask())
    release = summed.draw(ExactSums(card.name, "synthetic", card.domain.dynamics, counts), SeededNoise(1))
    task = task_of(card)
    m = model(private_counts(release, card, slack="none", failure=0.1), task, constants("practical", 12, 0.1))
    p = np.zeros((3, 2, 2))
    p[:, 1, 1] = 1
    abstains = np.array([[True, False]] * 3)
    n_sa = release.tables["n_sas"].sum(-1)
    usual, start = n_sa / n_sa.sum(-1, keepdims=True), np.array([0.5, 0.5])
    return question(m, Policy(p, abstains), usual, start), aim(m, Policy(p, abstains), usual, start)


def by_hand(card, rows, q, aimed=None, cut=16.0):
    """Scores of each person, row by row, in reward units; with an aim also what weights exceed their mean by."""
    found = []
    for user in rows["user_id"].unique(maintain_order=True):
        mine = rows.filter(pl.col("user_id") == user)
        each = []
        for episode in mine["episode_id"].unique(maintain_order=True):
            psi = own = lost = past = off = 0.0
            before, went = None, list[float]()
            for r in mine.filter(pl.col("episode_id") == episode).iter_rows(named=True):
                t, s, a, s2 = r["step"], r["state"], r["action"], r["next_state"]
                if before is None:
                    psi += q.V[t, s]
                else:
                    lost += q.surprise[t, s, a] * (q.W[t - 1, before] - q.W[t, s] - q.lost[t, s])
                    fades = [FADING ** (len(went) - 1 - k) for k in range(len(went))]
                    past += q.surprise[t, s, a] * (np.dot(fades, went) / sum(fades) - q.past[t, s])
                went.append(r["reward"] + (0.0 if s2 is None else q.W[t + 1, s2]) - q.W[t, s])
                after = 0.0 if s2 is None else q.V[t + 1, s2]
                w = q.w[t, s, a]
                chance = None if aimed is None else r["behavior_prob"]
                if chance is not None and 0 < chance <= 1 and s == 1:
                    w = min(aimed[t, s, a] / chance, cut)
                    off += (w - aimed[t, s].sum()) / 3
                psi += w * (r["reward"] + after - q.Q[t, s, a])
                own += r["reward"]
                before = s
            each.append((psi, own, psi - own, lost, past, *([off] if aimed is not None else [])))
        found.append(np.mean(each, axis=0))
    return np.array(found)


@pytest.fixture(params=["per_step", "stationary"])
def made(request):
    card = card_of(request.param)
    rng = np.random.default_rng(5)
    mdp = draw_surrogate(card, rng)
    people = sample_people(card, mdp, np.full(mdp.shape, 0.5), 300, rng)
    return card, people, asked_of(card, people)


def told(people):
    """Rows that tell a chance of what was done: of some that of practice, of some another one, none, or one of none."""
    rows = pl.concat(people)
    kinds = np.array([0.5, 0.05, np.nan, 0.0, 1.5, -1.0])
    return rows.with_columns(pl.Series("behavior_prob", kinds[np.random.default_rng(7).integers(6, size=len(rows))]))


@pytest.mark.parametrize("logged", [False, slow(True)])
def test_scores_are_those_of_a_loop(made, logged):
    card, people, (q, aimed) = made
    # some successors are unknown, some people have a second episode
    rows = told(people).with_columns(
        pl.when(pl.int_range(pl.len()) % 17 == 0).then(None).otherwise("next_state").alias("next_state"),
        (pl.col("user_id") // 2).alias("user_id"),
        (pl.col("user_id") % 2).alias("episode_id"),
    )
    aimed, clips = aimed if logged else None, Clips(0.0, 3.0, 8.0)
    found, expected = TabularScores(q, clips, aim=aimed).of(card, rows), by_hand(card, rows, q, aimed)
    np.testing.assert_allclose(found[:, :5] * clips.widths + clips.centres, expected[:, :5], atol=1e-10)
    assert np.isfinite(found).all()
    if logged:
        np.testing.assert_allclose(found[:, 5] * REACH * clips.spread, expected[:, 5], atol=1e-10)
        assert len(set(found[:, 5])) > 3


def test_the_releases_own_chances_weigh_as_the_release_does(made):
    card, people, (q, aimed) = made
    clips, rows = Clips(0.0, 3.0, 8.0), pl.concat(people)
    chances = np.divide(aimed, q.w, out=np.ones_like(q.w), where=q.w > 0)
    where = tuple(rows[c].to_numpy() for c in ("step", "state", "action"))
    rows = rows.with_columns(pl.Series("behavior_prob", np.nan_to_num(chances[where], nan=0.3)))
    logged = TabularScores(q, clips, aim=aimed).of(card, rows)
    np.testing.assert_allclose(logged[:, :5], TabularScores(q, clips).of(card, rows), atol=1e-12)
    # a log that tells nothing is weighed by the release, and nothing is off
    silent = rows.with_columns(behavior_prob=pl.lit(None, dtype=pl.Float64))
    blind = TabularScores(q, clips, aim=aimed).of(card, silent)
    assert (blind[:, :5] == TabularScores(q, clips).of(card, silent)).all() and not blind[:, 5].any()


def test_the_least_chances_are_cut_without_a_word(made):
    """A warning of an overflow would stand in a service's log because of one person's row."""
    card, people, (q, aimed) = made
    clips, rows = Clips(0.0, 3.0, 8.0), people[0]
    least, less = (rows.with_columns(behavior_prob=pl.lit(p)) for p in (LEAST_CHANCE, 1e-9))
    scores = TabularScores(q, clips, aim=np.nan_to_num(aimed, nan=1.0))
    np.testing.assert_array_equal(scores.of(card, least), scores.of(card, less))


def everybody(card):
    """Rows of people of one or two steps: whatever they did and were paid, with chances of all kinds."""
    rng, chances = np.random.default_rng(8), [1e-9, 0.04, 0.5, 1.0, 0.0, 2.0, -1.0, np.nan]
    one = list(itertools.product([0, 1], [0, 1], [0.0, 1.0], [0, 1, 2, None], chances))
    people = [[row] for row in one] + [[one[i] for i in rng.integers(len(one), size=2)] for _ in range(1500)]
    names = ["user_id", "episode_id", "step", "state", "action", "reward", "next_state", "behavior_prob"]
    rows = [(i, 0, t, s, a, r, s2, p) for i, of in enumerate(people) for t, (s, a, r, s2, p) in enumerate(of)]
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(pl.lit(False).alias("terminated"))


def test_nobodys_rows_move_the_sums_further_than_is_charged(made, constants):
    """All pairs of many people through the code that scores and sums: one of them in the place of another."""
    card, _, (q, aimed) = made
    layout = MomentLayout("tiny", "synthetic", card.domain.dynamics, 6, 8, PLACEBOS)
    scores = TabularScores(q, Clips(0.0, 3.0, 1.0), aim=aimed).of(card, everybody(card))
    tables = [layout.add_up(person[None]) for person in scores]
    at = np.array([np.concatenate([t[SUMS], t[SQUARES], 8 * t[PEOPLE]]) for t in tables]).astype(float)
    rates = {SUMS: Fraction(1), SQUARES: Fraction(1), PEOPLE: Fraction(64)}
    square = (at**2).sum(-1)
    apart = square[:, None] + square[None] - 2 * at @ at.T
    assert layout.cost(rates) / 4 < apart.max() <= layout.cost(rates)
    assert square.max() <= layout.cost(rates, "add_remove")
    # a twin without the clips: a chance of 1e-9 would speak for all
    constants(reach=1e12)
    wild = TabularScores(q, Clips(0.0, 3.0, 1.0), aim=aimed).of(card, everybody(card)) * 8
    assert ((wild.max(0) - wild.min(0)) ** 2).max() > 1000 * layout.cost(rates)


def test_without_noise_the_estimate_is_the_mean_of_the_loop():
    domain = card_dict()["domain"] | {"horizon": 3}
    source = {"files": ["a.csv"], "columns": {**card_dict()["source"]["columns"], "behavior_prob": "p"}}
    card = Card.model_validate(card_dict(domain=domain, unit={"user": "user_id", "users_public": 2000}, source=source))
    terms = Terms("loop", "apvi", evaluate=Evaluate(people=0.3, probabilities="logged"))
    run, rng = plan_run(card, terms), np.random.default_rng(9)
    mdp = draw_surrogate(card, rng)
    practice = np.full(mdp.shape, 0.5)
    both = (sample_people(card, mdp, practice, n, rng) for n in (1400, 600))
    learn, judge = ([with_chances(rows, practice) for rows in people] for people in both)
    counted = ExactSums(card.name, "synthetic", card.domain.dynamics, count_rows(pl.concat(learn), card))
    noise = SeededNoise(1)
    learnt = run.plan.learn(run.plan.privatizer.draw(counted, noise))
    found, asked = heard(run.evaluation, learnt, judge, 0.3, noise), run.evaluation.scores(learnt)
    policy, aimed = learnt.learnt.plan.policy, asked.aim
    rows = pl.concat(judge)
    by_row = []
    for r in rows.iter_rows(named=True):
        t, s, a = r["step"], r["state"], r["action"]
        keeps = policy.abstains[t, s]
        w = asked.asked.w[t, s, a] if keeps else min(aimed[t, s, a] / r["behavior_prob"], REACH * asked.clips.spread)
        value = w * (r["reward"] + asked.asked.V[t + 1, r["next_state"]] - asked.asked.Q[t, s, a])
        by_row.append((value + (asked.asked.V[0, s] if t == 0 else 0.0), 0.0 if keeps else w - aimed[t, s].sum()))
    psi, off = np.array(by_row).sum(0) / 600
    assert found.value.estimate == pytest.approx(psi, abs=1e-4)
    each = rows.with_columns(pl.Series("off", [x for _, x in by_row])).group_by("user_id").agg(pl.col("off").sum())
    assert found.ratios == pytest.approx(off / (each["off"].to_numpy().std() / np.sqrt(600)), abs=0.02)


@pytest.mark.parametrize("logged", [False, True])
def test_nobody_beside_changes_a_persons_scores(made, logged):
    card, people, (q, aimed) = made
    scores, rows = TabularScores(q, Clips(0.0, 3.0, 8.0), aim=aimed if logged else None), told(people)
    together = scores.of(card, rows)
    for i, user in enumerate(list(rows["user_id"].unique(maintain_order=True))[:40]):
        assert (scores.of(card, rows.filter(pl.col("user_id") == user))[0] == together[i]).all()


def test_sums_of_the_scores_are_the_tables_and_one_that_is_no_number_moves_none_beyond_its_clip(made):
    """A clip lets NaN through, and as an integer it is -2^63: its sum would tell how many people have one, exactly."""
    card, people, (q, _) = made
    layout, scores = MomentLayout("tiny", "synthetic", card.domain.dynamics, 5), TabularScores(q, Clips(0.0, 3.0, 8.0))
    tables = add_scores(card, layout, scores, people).tables
    each = np.concatenate([scores.of(card, rows) for rows in people])
    assert tables[PEOPLE][0] == len(each) == 300
    assert (tables[SUMS] == np.rint(layout.steps * np.clip(each, -1, 1)).sum(0)).all()
    broken = TabularScores(replace(q, w=np.full_like(q.w, np.nan)), Clips(0.0, 3.0, 8.0))
    assert (np.abs(add_scores(card, layout, broken, people).tables[SUMS]) <= layout.steps * 300).all()


def test_a_policy_that_is_practice_gains_nothing(made):
    card, people, (q, _) = made
    found = TabularScores(q, Clips(0.0, 3.0, 8.0), changes=False).of(card, people[0])
    assert (found[:, 2] == 0).all()


def test_the_mean_is_the_policys_value_in_the_counted_process():
    """With exact counts of the very people who are asked, psi has no error left: a wrong weight or value would."""
    card = card_of("per_step")
    rng = np.random.default_rng(6)
    mdp = draw_surrogate(card, rng)
    people = sample_people(card, mdp, np.full(mdp.shape, 0.5), 20_000, rng)
    q, _ = asked_of(card, people)
    rows = pl.concat(people)
    first = rows.filter(pl.col("step") == 0)["state"].to_numpy()
    scores = TabularScores(q, Clips(0.0, 3.0, 64.0)).of(card, rows) * Clips(0.0, 3.0, 64.0).widths
    assert scores[:, 0].mean() + 1.5 == pytest.approx(q.V[0, first].mean(), abs=1e-6)


H = 6


def walks(card, people, rng):
    """Rows of people in a world of one end: episodes of all lengths, some with an unknown successor."""
    live, steps, rows = len(card.domain.live_states), card.reward.steps, []
    for user in range(people):
        for episode in range(int(rng.integers(1, card.unit.episodes_per_user + 1))):
            state = int(rng.integers(live))
            for step in range(int(rng.integers(1, card.domain.horizon + 1))):
                after = int(rng.choice(live + 1, p=[0.9 / live] * live + [0.1]))
                told = None if rng.random() < 0.1 else after
                reward, action = float(rng.integers(0, steps + 1)) / steps, int(rng.integers(2))
                rows.append((user, episode, step, state, action, reward, told, after == live))
                if after == live:
                    break
                state = after
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def walked(dynamics):
    card = tiny(dynamics, m=2, horizon=H, labels=("x", "y", "z"), steps=4)
    return card, walks(card, 60, np.random.default_rng(3))


def cells(card, r):
    """Cell of a row, and of what follows; None for an end, the unknown, and what lies behind the last step."""
    per_step, onto = card.domain.dynamics == "per_step", r["next_state"]
    onto = 3 if r["terminated"] else onto
    here = r["state"] + (3 * r["step"] if per_step else 0)
    if onto is None or onto >= 3 or (per_step and r["step"] == H - 1):
        return here, None
    return here, onto + (3 * (r["step"] + 1) if per_step else 0)


def policy(K, seed=0):
    return np.random.default_rng(seed).integers(-1, 2, K)


@pytest.mark.parametrize("dynamics", ["stationary", "per_step"])
def test_first_rows_of_a_cell_are_counted(dynamics):
    card, rows = walked(dynamics)
    layout = FollowLayout(card)
    K = int(np.prod(layout.cells))
    action, seen, expected = policy(K), set(), np.zeros((2, K), dtype=np.int64)
    for r in rows.iter_rows(named=True):
        here, _ = cells(card, r)
        if action[here] >= 0 and (r["user_id"], here) not in seen:
            expected[int(r["action"] == action[here]), here] += 1
        seen.add((r["user_id"], here))
    found = add_people(FollowQuestion(layout, action), [rows])
    assert (found.tables["b_follow"].reshape(2, K) == expected).all()


@pytest.mark.parametrize("dynamics", ["stationary", "per_step"])
def test_moments_are_those_of_a_loop_whatever_the_batches(dynamics):
    card, rows = walked(dynamics)
    layout, rng = FeatureLayout(card, 3), np.random.default_rng(4)
    K = int(np.prod(FollowLayout(card).cells))
    phi = rng.normal(size=(K, FEATURES))
    phi = np.trunc(phi / np.sqrt((phi**2).sum(1, keepdims=True)) * STEPS).astype(np.int64)
    values = rng.integers(0, RETURN_STEPS, K)
    asked = FeatureQuestion(layout, policy(K), rng.integers(0, WEIGHT + 1, K), phi, values, 2.0)
    expected = {t.name: np.zeros(t.shape, dtype=np.int64) for t in layout.tables}
    spent, rank = {}, {}
    for r in rows.iter_rows(named=True):
        here, there = cells(card, r)
        user = r["user_id"]
        follows = asked.action[here] < 0 or asked.action[here] == r["action"]
        w = int(asked.weight[here]) if follows else 0
        f, g = phi[here], np.zeros(FEATURES, dtype=np.int64) if there is None else phi[there]
        if spent.get(user, 0) <= 2 * WEIGHT:
            off = (
                round(r["reward"] / 2 * RETURN_STEPS) + (0 if there is None else int(values[there])) - int(values[here])
            )
            z = round(STEPS * min(1.0, max(-1.0, off / RETURN_STEPS)))
            expected["b_gram"] += w * np.outer(f, f)
            expected["b_next"] += w * np.outer(f, g)
            expected["b_error"] += w * f * z
        spent[user] = spent.get(user, 0) + w
        if rank.get(user, 0) < PRACTICE_ROWS:
            expected["b_gram_mu"] += 3 * WEIGHT // PRACTICE_ROWS * np.outer(f, f)
            expected["b_next_mu"] += 3 * WEIGHT // PRACTICE_ROWS * np.outer(f, g)
        if rank.get(user, 0) == 0:
            expected["b_start"] += WEIGHT * STEPS * f
        rank[user] = rank.get(user, 0) + 1
    halves = [rows.filter(pl.col("user_id") < 30), rows.filter(pl.col("user_id") >= 30)]
    for frames in ([rows], halves):
        found = add_people(asked, frames).tables
        assert all((found[name] == table).all() for name, table in expected.items())


def scores_of(card, rng, nothing=False):
    K = int(np.prod(FollowLayout(card).cells))
    action = np.full(K, -1) if nothing else policy(K)
    ratio = np.where(action >= 0, rng.integers(RATIO_STEPS, 12 * RATIO_STEPS, K), RATIO_STEPS)
    values = np.vstack([rng.integers(0, RETURN_STEPS, (H, K)), np.zeros((1, K), dtype=np.int64)])
    weights = ratio * rng.integers(1, 3, (H, K))
    clips = Clips(0.0, 6.0, spread=8.0)
    before = (rng.integers(0, RETURN_STEPS, K), *rng.integers(-RETURN_STEPS // 2, RETURN_STEPS // 2, (2, K)))
    return OneStepScores(action, weights, RATIO_STEPS**2 // ratio, values, *before, clips)


@pytest.mark.parametrize("dynamics", ["stationary", "per_step"])
def test_scores_are_those_of_a_loop_to_the_bit_and_nobody_changes_anothers(dynamics):
    card, rows = walked(dynamics)
    asked = scores_of(card, np.random.default_rng(5))
    a, found = asked.action, asked.of(card, rows)
    scale, expected = 6.0 / RETURN_STEPS / RATIO_STEPS, []
    for user in range(60):
        psi = own = lost = past = episodes = before = 0
        went = list[float]()
        for r in rows.filter(pl.col("user_id") == user).iter_rows(named=True):
            t, (here, there) = r["step"], cells(card, r)
            follows = a[here] < 0 or a[here] == r["action"]
            paid = round(r["reward"] / 6 * RETURN_STEPS)
            if t == 0:
                psi, episodes, went = psi + int(asked.values[0, here]) * RATIO_STEPS, episodes + 1, []
            elif a[here] >= 0:
                surprise = (RATIO_STEPS if follows else 0) - int(asked.chance[here])
                lost += surprise * int(asked.practice[before] - asked.practice[here] - asked.lost[here])
                weights = [FADING ** (len(went) - 1 - k) for k in range(len(went))]
                past += surprise * (round(np.dot(weights, went) / sum(weights)) - int(asked.past[here]))
            after = 0 if there is None else int(asked.values[t + 1, there])
            went.append(paid + (0 if there is None else int(asked.practice[there])) - int(asked.practice[here]))
            psi += follows * int(asked.weights[t, here]) * (paid + after - int(asked.values[t, here]))
            own += paid * RATIO_STEPS
            before = here
        scores = (x * scale / episodes for x in (psi, own, lost, past))
        expected.append(asked.clips.scaled(*(np.array([x]) for x in scores))[0])
    assert (found == np.array(expected)).all()
    alone = np.vstack([asked.of(card, rows.filter(pl.col("user_id") == user)) for user in range(60)])
    assert (found == alone).all()
    layout = MomentLayout(card.name, card.kind, dynamics, len(SCORES), halved=PLACEBOS)
    assert (layout.add_up(found)["b_sum"] == np.rint(layout.lengths * np.clip(found, -1, 1)).sum(0)).all()


def test_where_nothing_changes_nobody_gains():
    card, rows = walked("stationary")
    asked = scores_of(card, np.random.default_rng(6), nothing=True)
    found = asked.of(card, rows)
    assert not found[:, 2].any() and not found[:, 3].any()
    assert found[:, 1].std() > 0


def in_loops(plan, asked, rows):
    """The same sums, a row at a time, as the docstring of the layout says it."""
    card = plan.card
    d, pooled = card.domain, card.domain.dynamics == "stationary"
    stage = "v" if asked is None else "q"
    layout = plan.layout(stage)
    count, total = (np.zeros(layout.shape, dtype=np.int64) for _ in range(2))
    low, high = plan.span
    records = rows.to_dicts()
    for user in {r["user_id"] for r in records}:
        own, seen = [r for r in records if r["user_id"] == user], {}
        for i, r in enumerate(own[: plan.rows]):
            g = 0 if pooled else r["step"]
            key = (g, r["state"]) if asked is None else (g, r["state"], r["action"])
            seen[key] = seen.get(key, 0) + 1
            if seen[key] > plan.cap:
                continue
            onto = r["next_state"]
            if asked is None:
                later = [x["reward"] for x in own[i:] if x["episode_id"] == r["episode_id"]]
                least, most = plan.returns[0 if pooled else r["step"]]
                z = 2 * round(layout.steps * min(1, max(0, (sum(later) - least) / (most - least)))) - layout.steps
            else:
                last = not pooled and r["step"] == d.horizon - 1
                if onto is None and not last:
                    continue
                worth = low + (high - low) / VALUE_STEPS * asked.values
                after = 0.0
                if onto is not None and onto < len(d.live_states) and not last:
                    after = worth[g if pooled else g + 1, onto]
                td = r["reward"] + after - worth[g, r["state"]]
                width = asked.clip * (high - low) / VALUE_STEPS
                z = round(layout.steps * min(1, max(-1, td / width)))
            count[key] += 1
            total[key] += z
    return {f"{stage}_count": count, f"{stage}_sum": total}


@pytest.mark.parametrize("dynamics", ["stationary", "per_step"])
@pytest.mark.parametrize(("rows", "cap", "m", "total"), [(3, 1, 1, None), (4, 2, 2, 2.0), (99, 99, 1, None)])
def test_sums_are_those_of_a_reference_in_loops(dynamics, rows, cap, m, total):
    card = tiny(dynamics, m=m, horizon=4, total=total, steps=2, labels=("x", "y", "z"))
    rng = np.random.default_rng(5)
    people = walks(card, 60, rng)
    plan = TargetPlan(card, Ask(), rows, cap, 4, 1)
    asked = TargetQuestion(rng.integers(0, VALUE_STEPS, plan.layout("v").shape), 700)
    for told_of in (None, asked):
        found, reference = add_targets(plan, told_of, [people]).tables, in_loops(plan, told_of, people)
        for name, table in reference.items():
            np.testing.assert_array_equal(found[name], table, err_msg=name)


def walk(people, seed):
    """A person meets state 0 up to ten times; each time it ends well with chance 1/4, whatever came before."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(people):
        for step in range(10):
            well = rng.random() < 0.25
            rows.append((user, 0, step, 0, int(rng.integers(2)), float(well), 2 if well else 0, well))
            if well:
                break
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def test_a_cap_that_looks_at_the_outcome_or_at_the_action_is_caught_by_its_bias():
    """The shipped cap leaves the mean outcome of a state where it is; each twin moves it by many standard errors."""
    rows = walk(20_000, 3)
    user, state = (rows[c].to_numpy().astype(np.int64) for c in ("user_id", "state"))
    well = rows["reward"].to_numpy()

    def by_state(kept):
        error = 0.5 / np.sqrt(kept.sum())
        return abs(float(well[kept].mean()) - 0.25) / error

    honest = first_rows(user, state, 6, 1)
    assert by_state(honest) < 4
    # the best outcome of each person first: a cap by outcome
    order = np.lexsort((-well, user))
    best = np.zeros(len(user), dtype=bool)
    best[order] = first_rows(user[order], state[order], 6, 1)
    assert by_state(best) > 20
    # the last row instead of the first: a cap that looks at the future
    last = first_rows(user[::-1], state[::-1], 6, 1)[::-1]
    assert by_state(last) > 20

    # a share of actions needs a cap by state: by (state, action) it forgets what was repeated
    eager = np.where(np.random.default_rng(4).random(len(user)) < 0.8, 0, 1)
    share = float((eager[first_rows(user, state, 6, 1)] == 0).mean())
    assert abs(share - 0.8) < 0.02
    twin = float((eager[first_rows(user, state * 2 + eager, 6, 1)] == 0).mean())
    assert twin < 0.75
