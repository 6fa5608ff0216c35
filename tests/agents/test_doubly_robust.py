"""What a released model asks of other people: shares are shares, whatever noise made of the model."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipeline.learners.terms import Evaluate, Planner, Privacy, Terms
from reticent import Card
from tests.campaigns.tabular_evaluation import evaluate_once, in_a_world
from tests.conftest import card_dict


@pytest.mark.parametrize(
    ("rho", "dynamics"),
    [
        (1.0, "stationary"),
        pytest.param(0.001, "stationary", marks=pytest.mark.slow),
        pytest.param(1.0, "per_step", marks=pytest.mark.slow),
    ],
)
def test_an_effective_sample_size_is_a_share_of_rows(rho, dynamics):
    """An episode has H rows of practice: without them in the sum, the share of an untouched log was H."""
    states = {"column": "state", "labels": ["s0", "s1", "s2"], "ends": ["end"]}
    domain = {"horizon": 6, "states": states, "actions": {"column": "action", "labels": 2}, "dynamics": dynamics}
    card = Card.model_validate(card_dict(domain=domain, unit={"user": "user_id", "users_public": 2000}))
    terms = Terms("shares", "dp-apvi", Privacy(rho=rho), Planner(), evaluate=Evaluate(people=0.3))
    for seed in range(3):
        found, *_ = in_a_world(card, terms, seed, at_random=True)
        (share,) = [d.value for d in found.diagnostics if d.name.startswith("effective sample size")]
        # at rho = 0.001 noise may hide every row that the policy could rest on: then the share is that of none
        assert 0 <= share <= 1 and (share > 0 or rho < 1)


def test_logged_chances_are_right_where_practice_sees_more_than_the_card():
    """One step: who does well anyway is given ``b`` more often, and ``b`` does nothing.  The release sees a gain."""
    states = {"column": "state", "labels": ["s0"], "ends": ["end"]}
    domain = {"horizon": 1, "states": states, "actions": {"column": "action", "labels": ["a", "b"]}}
    source = {"files": ["a.csv"], "columns": {**card_dict()["source"]["columns"], "behavior_prob": "p"}}
    unit = {"user": "user_id", "users_public": 20_000}
    card = Card.model_validate(card_dict(domain=domain, unit=unit, source=source))
    n, rng = 20_000, np.random.default_rng(11)
    hidden = rng.random(n) < 0.5
    chance_b = np.where(hidden, 0.9, 0.1)
    done = rng.random(n) < chance_b
    rows = pl.DataFrame(
        {
            "user_id": np.arange(n),
            "episode_id": np.zeros(n, dtype=np.int64),
            "step": np.zeros(n, dtype=np.int32),
            "state": np.zeros(n, dtype=np.int32),
            "action": done.astype(np.int32),
            "reward": (rng.random(n) < np.where(hidden, 0.8, 0.2)).astype(float),
            "next_state": np.ones(n, dtype=np.int32),
            "terminated": np.ones(n, dtype=bool),
            "behavior_prob": np.where(done, chance_b, 1 - chance_b),
        }
    )

    def asked(**how):
        terms = Terms("hidden", "dp-apvi", Privacy(rho=3.0), evaluate=Evaluate(people=0.3, **how))
        found, policy = evaluate_once(card, terms, [rows], 0, at_random=False)
        assert not policy.abstains.any() and policy.probabilities[0, 0, 1] == 1
        return found

    assert asked().improvement.lower > 0.1, "a gain that nobody has, with a narrow interval"
    found = asked(probabilities="logged", least=0.1)
    gain = found.improvement
    assert gain.lower < 0 < gain.upper < 0.15 and abs(found.ratios) < 4
    # the release knows of no chance below 1/2: weights are cut there, and the check says so
    assert asked(probabilities="logged").ratios < -4
