"""Sums and scores that measure a one-step policy: the code that sums against loops over rows, to the last integer."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipeline.logs.one_step_rows import RETURN_STEPS
from pipeline.logs.one_step_scores import RATIO_STEPS, OneStepScores
from pipeline.logs.one_step_sums import FeatureQuestion, FollowQuestion, add_people
from pipeline.statistics.moment_layout import MomentLayout
from pipeline.statistics.one_step_layout import FEATURES, PRACTICE_ROWS, STEPS, WEIGHT, FeatureLayout, FollowLayout
from pipeline.statistics.scores import FADING, PLACEBOS, SCORES, Clips
from tests.statistics.test_sensitivity import tiny

H = 6


def made(dynamics, seed=3, people=60, episodes=2):
    """A card and rows of people: episodes of all lengths, unknown successors, ends."""
    card = tiny(dynamics, m=episodes, horizon=H, labels=("x", "y", "z"), steps=4)
    rng, rows = np.random.default_rng(seed), []
    for user in range(people):
        for episode in range(int(rng.integers(1, episodes + 1))):
            state = int(rng.integers(3))
            for step in range(int(rng.integers(1, H + 1))):
                after = int(rng.choice([0, 1, 2, 3], p=[0.3, 0.3, 0.3, 0.1]))
                told = None if rng.random() < 0.1 else after
                reward, action = float(rng.integers(0, 5)) / 4, int(rng.integers(2))
                rows.append((user, episode, step, state, action, reward, told, after == 3))
                if after == 3:
                    break
                state = after
    names = ("user_id", "episode_id", "step", "state", "action", "reward", "next_state", "terminated")
    return card, pl.DataFrame(rows, schema=names, orient="row")


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
    card, rows = made(dynamics)
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
    card, rows = made(dynamics)
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
    card, rows = made(dynamics)
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
    card, rows = made("stationary")
    asked = scores_of(card, np.random.default_rng(6), nothing=True)
    found = asked.of(card, rows)
    assert not found[:, 2].any() and not found[:, 3].any()
    assert found[:, 1].std() > 0
