"""DP-APVI on the bench: tables of the right law, true costs, and what noise and no data cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.online import tabular
from pipeline.online.rollouts import world_of
from pipeline.online.trial import Trial
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum

LEARNT = Trial("dp-apvi", "riverswim_homogeneous", (("states", 3),), 1000, 1.0, 1e-5, "tight").with_options(
    rewards="learnt"
)


def half(card, ask):
    shipped = count_sum(card, ask)
    return replace(shipped, mechanisms=tuple(replace(m, variance=-(-m.variance // 2)) for m in shipped.mechanisms))


@pytest.mark.parametrize(("twin", "least"), [(lambda card, ask: count_sum(card, Ask()), None), (half, 1.3)])
def test_a_twin_with_too_little_noise_is_caught_by_its_facts(simulate, monkeypatch, twin, least):
    monkeypatch.setattr(tabular, "count_sum", twin)
    facts = simulate("dp-apvi", epsilon=1, episodes=1000, beside=["uniform"], rewards="learnt")["facts"]
    if least is None:
        assert facts["true_rho"] is None and facts["true_epsilon"] is None
    else:
        assert facts["true_epsilon"] > least


@pytest.mark.parametrize(("pooled", "steps"), [(False, 1), (True, 1), (False, 7)])
def test_tables_have_the_expectation_of_the_world(pooled: bool, steps: int):
    setting = tabular.logged(LEARNT.with_options(pooled=pooled))
    # rewards on a finer lattice keep their mean
    card = setting.card.model_copy(update={"reward": setting.card.reward.model_copy(update={"steps": steps})})
    setting = replace(setting, card=card, mechanisms=count_sum(card, Ask(rho=1.0)).mechanisms)
    episodes = 4_000_000
    counts = setting.counts(episodes, np.random.default_rng(5))
    mdp = world_of(LEARNT)
    n_sa, n_sas, r_sa = (counts.tables[name] for name in ("n_sa", "n_sas", "r_sa"))
    assert n_sa.shape == ((1 if pooled else 6), 3, 2) and n_sa.sum() == 6 * episodes
    assert (n_sas.sum(-1) == n_sa).all() and counts.tables["n_0"].tolist() == [episodes, 0, 0]
    seen = n_sa > 10_000
    assert np.abs((n_sas / np.maximum(n_sa, 1)[..., None] - mdp.transitions[: len(n_sa)])[seen]).max() < 0.01
    # around the middle of [0, 1/6], in half units: a coin a step is -1 or +1
    mean = (steps + r_sa / np.maximum(n_sa, 1)) / (2 * steps) / 6
    assert np.abs((mean - mdp.rewards[: len(n_sa)])[seen]).max() < 0.002
    assert (np.abs(r_sa) <= steps * n_sa).all()


def test_more_noise_is_not_better_than_none(simulate):
    said = simulate("dp-apvi", epsilon=0.3, episodes=1000, runs=12, beside=["apvi"], rewards="learnt")
    loud, exact = (said["agents"][agent]["suboptimality"] for agent in ("dp-apvi", "apvi"))
    assert loud["mean"] > exact["mean"] + 3 * np.hypot(loud["std"], exact["std"]) / np.sqrt(12)


def test_many_logs_leave_nothing_to_gain_and_none_leave_nearly_all(simulate):
    said = simulate("dp-apvi", epsilon=1, episodes=10**6, beside=["uniform"], rewards="learnt")
    assert said["suboptimality"] < 1e-3
    said = simulate("dp-apvi", epsilon=1, episodes=1000, beside=["no-data", "uniform"], rewards="learnt")
    deaf = said["agents"]["no-data"]
    assert (deaf["trust"], deaf["variant"], deaf["true_epsilon"]) == ("none", "control", None)
    assert deaf["suboptimality"]["mean"] > 0.5 * said["agents"]["uniform"]["suboptimality"]["mean"]
