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


@pytest.mark.parametrize("trust", ["joint", "local"])
def test_other_trust_models_run_the_same_agent(trust):
    facts = run(with_options(TRIAL, trust=trust)).facts
    assert facts["trust"] == trust and 0.98 < facts["true_epsilon"] <= 1.0


def test_without_privacy_nothing_is_delivered():
    facts = run(with_options(replace(TRIAL, epsilon=None, delta=None, calibration=None), trust="none")).facts
    assert facts["true_epsilon"] is None and facts["trust"] == "none" and "tau_fine" not in facts


def test_the_paper_says_that_nothing_was_eliminated_and_what_its_bits_deliver():
    facts = run(with_options(replace(TRIAL, calibration="paper"), constants="paper")).facts
    assert facts["first_elimination"] is None and facts["says"].startswith("nothing was eliminated in 20000 episodes")
    assert facts["variant"] == "paper, three tables, the paper's bits" and facts["true_epsilon"] < 0.1
    assert facts["policies_left"] == 64 and facts["tau_fine"] > 90_000


def test_a_sample_of_targets_is_certified_by_the_linear_programme():
    facts = run(with_options(TRIAL, certify=3)).facts
    assert facts["certified"] == 3 and facts["largest_difference"] < 1e-9


def test_forgetting_plays_mixtures():
    assert run(with_options(TRIAL, pooled=False)).facts["variant"] == "practical, lean, forget, mixtures, exact bits"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"constants": "fast"}, "constants must be one of"),
        ({"trust": "nobody"}, "trust must be one of"),
        ({"colour": 1}, "no option 'colour'"),
        ({"trust": "none"}, "not both"),
    ],
)
def test_what_cannot_be_asked(change, says):
    with pytest.raises(CardError, match=says):
        run(with_options(TRIAL, **change))


def test_too_few_episodes_and_too_many_policies_are_one_line():
    with pytest.raises(CardError, match="too few"):
        run(replace(TRIAL, episodes=10))
    large = replace(TRIAL, params=(("actions", 3), ("horizon", 5), ("states", 5)))
    with pytest.raises(CardError, match="too many to list"):
        run(with_options(large, constants="paper"))
    with pytest.raises(CardError, match="prints no noise for trust 'joint'"):
        run(with_options(replace(TRIAL, calibration="paper"), trust="joint"))


def test_a_world_without_enumeration():
    large = replace(TRIAL, params=(("actions", 3), ("horizon", 5), ("states", 5), ("successors", 5)), episodes=10**6)
    facts = run(large).facts
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


def test_users_who_return_pay_by_group_privacy_and_only_where_their_bits_are_priced():
    found = run(with_options(TRIAL, episodes_per_user=2))
    assert found.facts["true_epsilon"] <= TRIAL.epsilon and "2 episodes a user" in found.facts["variant"]
    assert found.facts["tau_fine"] > 3 * run(TRIAL).facts["tau_fine"]
    for wrong in (replace(TRIAL, calibration="paper"), with_options(TRIAL, trust="joint")):
        with pytest.raises(CardError, match="tight shuffled bits alone"):
            run(with_options(wrong, episodes_per_user=2))
