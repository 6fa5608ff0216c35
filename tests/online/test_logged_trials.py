"""DP-APVI on the bench: tables of the right law, true costs, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.online import logged
from pipeline.online.registry import measure, plain_values, run
from pipeline.online.rollouts import world_of
from pipeline.online.trial import Trial
from pipeline.statistics.ask import Ask
from pipeline.statistics.calibration import count_sum
from reticent import CardError

RIVER = Trial("dp-apvi", "riverswim_homogeneous", (("states", 3),), 1000, 1.0, 1e-6, "tight")
LEARNT = RIVER.with_options(rewards="learnt")


def test_the_noise_is_worth_what_was_asked_and_the_run_repeats_itself():
    outcome = run(LEARNT)
    assert outcome.facts["trust"] == "central" and 0.99 < outcome.facts["true_epsilon"] <= 1.0
    assert outcome.facts["true_rho"] > 0 and outcome.facts["noise_sd"] > 1
    assert measure(LEARNT) == plain_values(LEARNT, outcome)
    exact = run(replace(LEARNT, agent="apvi", epsilon=None, delta=None, calibration=None))
    assert exact.facts["trust"] == "none" and exact.facts["true_epsilon"] is None and exact.facts["noise_sd"] == 0


def test_a_twin_without_noise_is_caught_by_its_facts(monkeypatch):
    def silent(card, ask):
        return count_sum(card, Ask())

    monkeypatch.setattr(logged, "count_sum", silent)
    facts = run(LEARNT).facts
    assert facts["true_rho"] is None and facts["true_epsilon"] is None


def test_a_twin_with_half_the_noise_is_caught_by_its_facts(monkeypatch):
    def half(card, ask):
        shipped = count_sum(card, ask)
        return replace(shipped, mechanisms=tuple(replace(m, variance=-(-m.variance // 2)) for m in shipped.mechanisms))

    monkeypatch.setattr(logged, "count_sum", half)
    assert run(LEARNT).facts["true_epsilon"] > 1.3


@pytest.mark.parametrize("pooled", [False, True])
def test_tables_have_the_expectation_of_the_world(pooled: bool):
    setting = logged.logged(LEARNT.with_options(pooled=pooled))
    episodes = 4_000_000
    counts = setting.counts(episodes, np.random.default_rng(5))
    mdp = world_of(RIVER)
    n_sa, n_sas, r_sa = (counts.tables[name] for name in ("n_sa", "n_sas", "r_sa"))
    assert n_sa.shape == ((1 if pooled else 6), 3, 2) and n_sa.sum() == 6 * episodes
    assert (n_sas.sum(-1) == n_sa).all() and counts.tables["n_0"].tolist() == [episodes, 0, 0]
    seen = n_sa > 10_000
    assert np.abs((n_sas / np.maximum(n_sa, 1)[..., None] - mdp.transitions[: len(n_sa)])[seen]).max() < 0.01
    # a coin a step: -1 or +1 around the middle of [0, 1/6]
    mean = (1 + r_sa / np.maximum(n_sa, 1)) / 2 / 6
    assert np.abs((mean - mdp.rewards[: len(n_sa)])[seen]).max() < 0.002
    assert (np.abs(r_sa) <= n_sa).all()


def test_rewards_on_a_finer_lattice_keep_their_mean():
    setting = logged.logged(LEARNT)
    fine = setting.card.model_copy(update={"reward": setting.card.reward.model_copy(update={"steps": 7})})
    finer = replace(setting, card=fine, mechanisms=count_sum(fine, Ask(rho=1.0)).mechanisms)
    tables = finer.counts(1_000_000, np.random.default_rng(2)).tables
    n_sa, r_sa = tables["n_sa"], tables["r_sa"]
    mean = (7 + r_sa / np.maximum(n_sa, 1)) / 14 / 6
    seen = n_sa > 50_000
    assert np.abs((mean - world_of(RIVER).rewards)[seen]).max() < 1e-3


def test_more_noise_is_not_better_than_none():
    def losses(agent: str, epsilon: float | None) -> list[float]:
        asked = replace(LEARNT, agent=agent, epsilon=epsilon, delta=epsilon and 1e-6, calibration=epsilon and "tight")
        return [run(replace(asked, seed=seed)).facts["final_loss"] for seed in range(12)]

    exact, loud = losses("apvi", None), losses("dp-apvi", 0.3)
    spread = np.hypot(np.std(exact), np.std(loud)) / np.sqrt(12)
    assert np.mean(loud) > np.mean(exact) + 3 * spread


def test_policies_have_the_value_of_the_world_itself():
    setting = logged.logged(LEARNT)
    plan = setting.plan(setting.counts(10**6, np.random.default_rng(0)), noise_of(0), np.random.default_rng(1))
    assert logged.optimum(setting.mdp) - setting.value(plan.policy) < 1e-3


def noise_of(seed: int):
    return logged.SeededNoise(seed)


def test_no_data_is_an_empty_log():
    deaf = replace(RIVER, agent="no-data").with_options(of="dp-apvi", rewards="learnt")
    facts = run(deaf).facts
    assert (facts["trust"], facts["variant"], facts["true_epsilon"]) == ("none", "control", None)
    uniform = run(replace(RIVER, agent="uniform", epsilon=None, delta=None, calibration=None)).facts["final_loss"]
    assert facts["final_loss"] > 0.5 * uniform


def test_what_does_not_fit_is_said():
    for asked, words in (
        (LEARNT.with_options(growth=2.0), "no option 'growth'"),
        (LEARNT.with_options(behaviour="clinician"), "no behaviour 'clinician'"),
        (LEARNT.with_options(rewards="half"), "rewards must be one of known, learnt"),
        (replace(LEARNT, epsilon=None), "needs epsilon and delta"),
        (replace(LEARNT, calibration="paper"), "use calibration = 'tight'"),
        (replace(LEARNT, world="riverswim_inhomogeneous").with_options(pooled=True), "leave out pooled"),
    ):
        with pytest.raises(CardError, match=words):
            run(asked)
