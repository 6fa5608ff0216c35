"""Sums of targets against a reference in loops, and caps that choose among futures, whose bias gives them away."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipeline.logs.target_sums import add_targets, first_rows
from pipeline.statistics.ask import Ask
from pipeline.statistics.target_plan import VALUE_STEPS, TargetPlan, TargetQuestion
from tests.statistics.test_sensitivity import SCHEMA, tiny


def random_rows(card, people, rng):
    """Canonical rows of random walks; some end early, some lack the last successor."""
    d = card.domain
    L, S, A = len(d.live_states), len(d.state_labels), len(d.action_labels)
    rows = []
    for user in range(people):
        for episode in range(int(rng.integers(1, card.unit.episodes_per_user + 1))):
            state = int(rng.integers(L))
            for step in range(d.horizon):
                after = int(rng.integers(S))
                cut = rng.random() < 0.1
                told = None if cut else after
                reward = float(rng.integers(0, 3)) / 2
                rows.append((user, episode, step, state, int(rng.integers(A)), reward, told, after >= L))
                if cut or after >= L:
                    break
                state = after
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


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
    people = random_rows(card, 60, rng)
    plan = TargetPlan(card, Ask(), rows, cap, 4, 1)
    asked = TargetQuestion(rng.integers(0, VALUE_STEPS, plan.layout("v").shape), 700)
    for question in (None, asked):
        found, reference = add_targets(plan, question, [people]).tables, in_loops(plan, question, people)
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
