"""What a released model asks of other people: shares are shares, whatever noise made of the model."""

from __future__ import annotations

import pytest

from pipeline.declaration.card import Card
from pipeline.learners.terms import Evaluate, Planner, Privacy, Terms
from tests.campaigns.tabular_evaluation import in_a_world
from tests.conftest import card_dict


@pytest.mark.parametrize(("rho", "dynamics"), [(1.0, "stationary"), (0.001, "stationary"), (1.0, "per_step")])
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
