"""Two placebos through the product: each sees a trait that the other cannot, and neither speaks where none is."""

import numpy as np
import pytest

from flows.jobs.run import standing
from pipeline.learners.learner import plan_run
from pipeline.learners.terms import Evaluate, Privacy, Terms
from tests.campaigns.hostile_families import Twist, build
from tests.campaigns.hostile_worlds import SHARE, Case, card_of, learnt_of
from tests.conftest import slow

SIZES = {
    "horizon": (6, 6),
    "states": (5, 5),
    "actions": (2, 2),
    "people": (30_000, 30_000),
    "ending": 0.0,
    "alike": 1.0,
}
TRAIT = {**SIZES, "alike": 1.0, "ending": 0.0, "trait": (2, 2), "on_choice": (1.5, 1.5)}
AGENTS = [("dp-one-step", "per_step"), *(slow(agent, "per_step") for agent in ("dp-apvi", "dp-vapvi"))]


def told(twist, agent, dynamics, seed, rho=1.0):
    """What the other people say of a policy that was learnt in a world of these ranges."""
    world = build(np.random.default_rng((seed, 41)), Twist(**{**twist, "rho": (rho, rho)}))
    card = card_of(world, agent, dynamics)
    plan = plan_run(card, Terms("placebos", agent, Privacy(rho=rho), evaluate=Evaluate(people=SHARE)))
    learnt, _ = learnt_of(Case(world, agent, dynamics, card, plan, 0, (41, seed)))
    return standing(learnt.facts(), card, None).evaluation


def signed(found):
    """Both placebos, above 0 where they lean to the side of the gain."""
    side = np.sign(found.improvement.estimate)
    return found.placebo * side, found.past * side


@pytest.mark.parametrize(("agent", "dynamics"), AGENTS)
def test_a_trait_that_moves_rewards_shows_in_the_past_alone(agent, dynamics):
    """No action is better than another, and every run measures a gain: before, no sum looked at a reward."""
    seen = [told({**TRAIT, "on_reward": (0.2, 0.2)}, agent, dynamics, s) for s in range(2)]
    lost, past = np.array([signed(f) for f in seen]).T
    assert np.median([f.improvement.lower for f in seen]) > 0, "the trap is set"
    assert np.median(past) > 4 and np.abs(lost).max() < 4 and np.median(np.abs(lost)) < 2
    assert all(f.hidden > f.improvement.lower for f in seen if f.hidden is not None)


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "dynamics"), AGENTS)
def test_a_trait_that_moves_the_course_shows_in_what_was_lost(agent, dynamics):
    """Of many people: of a one-step policy less is lost on the way into a state."""
    twist = {**TRAIT, "on_next": (2.0, 2.0), "on_choice": (2.0, 2.0), "people": (90_000, 90_000)}
    seen = [signed(told(twist, agent, dynamics, s))[0] for s in range(3 if agent == "dp-one-step" else 1)]
    assert np.median(np.abs(seen)) > 4


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "dynamics"), AGENTS)
@pytest.mark.parametrize(("rho", "people"), [(0.03, 30_000), (1.0, 10_000)])
def test_where_nothing_is_hidden_both_are_centred(agent, dynamics, rho, people):
    """At small rho too: what is uncertain of practice moves neither."""
    open_ = {**SIZES, "people": (people, people), "effect": (0.15, 0.3), "push": (0.5, 1.0)}
    z = np.array([(f.placebo, f.past) for f in (told(open_, agent, dynamics, s, rho) for s in range(6)) if f.changes])
    assert len(z) and (np.abs(z.mean(0)) < 4 / np.sqrt(len(z))).all() and np.abs(z).max() < 4
