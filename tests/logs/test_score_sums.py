"""Scores of people: the vectorised code against loops over their rows, and a person's scores whoever stands beside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipeline.agents.apvi import model
from pipeline.agents.doubly_robust import question
from pipeline.agents.pessimism import constants
from pipeline.declaration.card import Card, task_of
from pipeline.logs.aggregate import count_rows
from pipeline.logs.doubly_robust_rows import TabularScores
from pipeline.mdp.policy import Policy
from pipeline.privacy.noise import SeededNoise
from pipeline.simulation.simulate import sample_people
from pipeline.simulation.surrogate import draw_surrogate
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from pipeline.statistics.counts import private_counts
from pipeline.statistics.layout import ExactSums
from pipeline.statistics.moment_layout import PEOPLE, SUMS, MomentLayout
from pipeline.statistics.scores import Clips
from tests.conftest import card_dict
from tests.made_up import add_scores


def card_of(dynamics, episodes=1):
    values = card_dict()
    domain = values["domain"] | {"horizon": 3, "dynamics": dynamics}
    return Card.model_validate(
        card_dict(domain=domain, unit={"user": "user_id", "episodes_per_user": episodes, "users_public": 100})
    )


def asked_of(card, people):
    """A question of a policy that does the second action in state y, and recommends nothing in state x."""
    counts = count_rows(pl.concat(people), card)
    summed = count_sum(card, Ask())
    release = summed.draw(ExactSums(card.name, "synthetic", card.domain.dynamics, counts), SeededNoise(1))
    task = task_of(card)
    m = model(private_counts(release, card, slack="none", failure=0.1), task, constants("practical", 12, 0.1))
    p = np.zeros((3, 2, 2))
    p[:, 1, 1] = 1
    abstains = np.array([[True, False]] * 3)
    n_sa = release.tables["n_sas"].sum(-1)
    usual = n_sa / n_sa.sum(-1, keepdims=True)
    return question(m, Policy(p, abstains), usual, np.array([0.5, 0.5])), usual


def by_hand(card, rows, q):
    """Scores of each person, row by row, in reward units."""
    found = []
    for user in rows["user_id"].unique(maintain_order=True):
        mine = rows.filter(pl.col("user_id") == user)
        each = []
        for episode in mine["episode_id"].unique(maintain_order=True):
            psi = own = placebo = 0.0
            before = None
            for r in mine.filter(pl.col("episode_id") == episode).iter_rows(named=True):
                t, s, a, s2 = r["step"], r["state"], r["action"], r["next_state"]
                if before is None:
                    psi += q.V[t, s]
                else:
                    placebo += q.placebo[t, s, a] * (q.W[t - 1, before] - q.W[t, s])
                after = 0.0 if s2 is None else q.V[t + 1, s2]
                psi += q.w[t, s, a] * (r["reward"] + after - q.Q[t, s, a])
                own += r["reward"]
                before = s
            each.append((psi, own, psi - own, placebo))
        found.append(np.mean(each, axis=0))
    return np.array(found)


@pytest.fixture(params=["per_step", "stationary"])
def made(request):
    card = card_of(request.param)
    rng = np.random.default_rng(5)
    mdp = draw_surrogate(card, rng)
    people = sample_people(card, mdp, np.full(mdp.shape, 0.5), 300, rng)
    return card, people, asked_of(card, people)


def test_scores_are_those_of_a_loop(made):
    card, people, (q, _) = made
    rows = pl.concat(people)
    # some successors are unknown, some people have a second episode
    rows = rows.with_columns(
        pl.when(pl.int_range(pl.len()) % 17 == 0).then(None).otherwise("next_state").alias("next_state"),
        (pl.col("user_id") // 2).alias("user_id"),
        (pl.col("user_id") % 2).alias("episode_id"),
    )
    clips = Clips(0.0, 3.0, 8.0)
    found = TabularScores(q, clips).of(card, rows) * clips.widths + clips.centres
    np.testing.assert_allclose(found, by_hand(card, rows, q), atol=1e-10)


def test_nobody_beside_changes_a_persons_scores(made):
    card, people, (q, _) = made
    scores, rows = TabularScores(q, Clips(0.0, 3.0, 8.0)), pl.concat(people)
    together = scores.of(card, rows)
    for i, user in enumerate(list(rows["user_id"].unique(maintain_order=True))[:40]):
        assert (scores.of(card, rows.filter(pl.col("user_id") == user))[0] == together[i]).all()


def test_sums_of_the_scores_are_the_tables(made):
    card, people, (q, _) = made
    layout, scores = MomentLayout("tiny", "synthetic", card.domain.dynamics, 4), TabularScores(q, Clips(0.0, 3.0, 8.0))
    tables = add_scores(card, layout, scores, people).tables
    each = np.concatenate([scores.of(card, rows) for rows in people])
    assert tables[PEOPLE][0] == len(each) == 300
    assert (tables[SUMS] == np.rint(layout.steps * np.clip(each, -1, 1)).sum(0)).all()


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


def test_a_score_that_is_no_number_moves_no_sum_beyond_its_clip(made):
    """A clip lets NaN through, and as an integer it is -2^63: its sum would tell how many people have one, exactly."""
    card, people, (q, _) = made
    layout, broken = MomentLayout("tiny", "synthetic", card.domain.dynamics, 4), replace(q, w=np.full_like(q.w, np.nan))
    tables = add_scores(card, layout, TabularScores(broken, Clips(0.0, 3.0, 8.0)), people).tables
    assert (np.abs(tables[SUMS]) <= layout.steps * 300).all()
