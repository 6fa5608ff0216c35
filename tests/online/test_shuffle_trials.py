"""SDP-PE on the bench: what a trial reports, what it refuses, and that the same trial gives the same outcome."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.online.registry import measure, plain_values, run
from pipeline.online.rollouts import world_of
from pipeline.online.trial import Trial
from reticent import CardError

WORLD = (("actions", 2), ("horizon", 3), ("seed", 5), ("states", 2), ("successors", 2))
TRIAL = Trial("sdp-pe", "random", WORLD, 20_000, 1.0, 1e-5, "tight", (("certify", 0),), 0)


def with_options(trial, **options):
    return replace(trial, options=tuple(sorted({**dict(trial.options), **options}.items())))


def test_a_trial_says_what_elimination_did_and_what_was_delivered():
    out = run(TRIAL)
    facts = out.facts
    assert facts["trust"] == "shuffle" and facts["variant"] == "practical, lean, pooled, exact bits"
    assert 0.99 < facts["true_epsilon"] <= 1.0
    assert facts["fewest_fine"] == 669 and 669 < facts["tau_fine"] < 680
    assert facts["first_elimination"] < 20_000 and facts["policies_left"] < 64 and facts["slack"] < 0
    assert facts["optimum_kept"] == facts["stages"] == len(facts["by_stage"])
    assert out.marks[-1] == 20_000 and np.all(np.diff(out.regret) >= -1e-9)
    mdp = world_of(TRIAL)
    gap = mdp.start @ optimal_values(mdp)[1][0] - policy_value(mdp, np.eye(2)[np.array(out.policy)])
    assert facts["suboptimality"] == pytest.approx(gap)
    json.dumps(plain_values(TRIAL, out))


def test_the_same_trial_gives_the_same_outcome_and_another_seed_another():
    assert measure(TRIAL) == measure(TRIAL)
    assert run(TRIAL).regret != run(replace(TRIAL, seed=1)).regret


PLAIN = replace(TRIAL, epsilon=None, delta=None, calibration=None)


@pytest.mark.parametrize(
    ("trial", "options", "says"),
    [
        (TRIAL, {"trust": "joint"}, {"trust": "joint"}),
        (TRIAL, {"trust": "local"}, {"trust": "local"}),
        (PLAIN, {"trust": "none"}, {"trust": "none", "true_epsilon": None, "tau_fine": None}),
        (TRIAL, {"pooled": False}, {"variant": "practical, lean, forget, mixtures, exact bits"}),
        # a sample of targets is certified by the linear programme
        (TRIAL, {"certify": 3}, {"certified": 3}),
    ],
)
def test_a_variant_says_what_it_is(trial, options, says):
    facts = run(with_options(trial, **options)).facts
    assert {name: facts.get(name) for name in says} == says
    assert trial is PLAIN or 0.98 < facts["true_epsilon"] <= 1.0
    assert facts.get("largest_difference", 0.0) < 1e-9


def test_the_paper_says_that_nothing_was_eliminated_and_what_its_bits_deliver():
    facts = run(with_options(replace(TRIAL, calibration="paper"), constants="paper")).facts
    assert facts["first_elimination"] is None and facts["says"].startswith("nothing was eliminated in 20000 episodes")
    assert facts["variant"] == "paper, three tables, the paper's bits" and facts["true_epsilon"] < 0.1
    assert facts["policies_left"] == 64 and facts["tau_fine"] > 90_000


LARGE = replace(TRIAL, params=(("actions", 3), ("horizon", 5), ("states", 5), ("successors", 5)), episodes=10**6)


@pytest.mark.parametrize(
    ("trial", "options", "says"),
    [
        (TRIAL, {"constants": "fast"}, "constants must be one of"),
        (TRIAL, {"trust": "nobody"}, "trust must be one of"),
        (TRIAL, {"colour": 1}, "no option 'colour'"),
        (TRIAL, {"trust": "none"}, "not both"),
        (replace(TRIAL, episodes=10), {}, "too few"),
        (LARGE, {"constants": "paper"}, "too many to list"),
        (replace(TRIAL, calibration="paper"), {"trust": "joint"}, "prints no noise for trust 'joint'"),
        (replace(TRIAL, calibration="paper"), {"episodes_per_user": 2}, "tight shuffled bits alone"),
        (TRIAL, {"trust": "joint", "episodes_per_user": 2}, "tight shuffled bits alone"),
    ],
)
def test_what_cannot_be_asked(trial, options, says):
    with pytest.raises(CardError, match=says):
        run(with_options(trial, **options))


def test_a_world_without_enumeration():
    facts = run(LARGE).facts
    assert facts["policies_left"] is None and facts["optimum_kept"] == facts["stages"]
    assert facts["fewest_fine"] == 1114


def test_messages_that_are_sent_are_counted_as_the_law_says():
    """Every user walks alone and sends bytes; sums, noise bits and promise are those of the fast path."""
    trial = with_options(replace(TRIAL, episodes=600), protocol=True)
    sent, drawn = run(trial), run(with_options(trial, protocol=False))
    assert sent.release.mechanisms[0].shuffled == drawn.release.mechanisms[0].shuffled
    assert sent.facts["true_epsilon"] == drawn.facts["true_epsilon"]
    first = [o.release.tables["batch_0"] - 0.0 for o in (sent, drawn)]
    m = sent.release.mechanisms[0].shuffled
    sd = math.sqrt(m.users * m.each * m.chance / 2**64 * (1 - m.chance / 2**64))
    # one draw each of every counter: the difference has twice the noise, and what two walks of the same users differ by
    away = (first[0] - first[1]) / math.sqrt(2 * sd**2 + m.users)
    assert np.abs(away).max() < 5 and abs(first[0].sum() - first[1].sum()) < 6 * sd * math.sqrt(2 * len(first[0]))


def test_users_who_return_pay_by_group_privacy():
    found = run(with_options(TRIAL, episodes_per_user=2))
    assert found.facts["true_epsilon"] <= TRIAL.epsilon and "2 episodes a user" in found.facts["variant"]
    assert found.facts["tau_fine"] > 3 * run(TRIAL).facts["tau_fine"]
