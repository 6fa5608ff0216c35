"""Truth in known worlds: planning is right, the binned process is what the tables estimate."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from pipeline.declaration.card import load_card
from pipeline.mdp.model import TabularMDP
from pipeline.mdp.planning import occupancies, optimal_values
from pipeline.mdp.policy import Policy, uniform
from pipeline.worlds.catalog import load_world, random_tabular, riverswim
from pipeline.worlds.simulated_logs import sample_counts
from pipeline.worlds.world import best_bin_policy, best_bin_policy_value, binned_behaviour, binned_process, lift, truth
from reticent import Card
from tests.conftest import SHELF, domain_dict, slow

HALVES = {"low": [0, 1, 2], "high": [3, 4, 5]}


@pytest.fixture(scope="module")
def icu():
    card = load_card(SHELF / "icu_sepsis_uniform" / "card.toml")
    return card, load_world("icu_sepsis", card.folder)


@pytest.fixture
def river_card(make_card):
    """A card over six-state RiverSwim; keywords change its domain."""

    def make(labels=6, horizon=20, actions=2, **domain):
        return make_card(domain=domain_dict(horizon, labels, actions, **domain), reward={"range": [0, 1], "steps": 200})

    return make


def random_policy(rng: np.random.Generator, shape: tuple[int, int, int]) -> Policy:
    return Policy(rng.dirichlet(np.ones(shape[2]), size=shape[:2]), np.zeros(shape[:2], dtype=bool))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_backward_induction_solves_the_linear_programme_of_the_optimal_values(S, A, H, seed):
    rng = np.random.default_rng(seed)
    P, r = rng.dirichlet(np.full(S, 0.5), size=(H, S, A)), rng.normal(size=(H, S, A))
    rows = []
    for h, s, a in np.ndindex(H, S, A):
        row = np.zeros((H + 1, S))
        row[h, s] -= 1
        row[h + 1] += P[h, s, a]
        rows.append(row[:H].reshape(-1))
    solved = linprog(np.ones(H * S), A_ub=np.array(rows), b_ub=-r.ravel(), bounds=(None, None), method="highs")
    _, V = optimal_values(TabularMDP(P, r, np.full(S, 1 / S)))
    np.testing.assert_allclose(V[:H].reshape(-1), solved.x, atol=1e-7)


@pytest.mark.parametrize("dynamics", ["per_step", "stationary"])
@pytest.mark.parametrize("behaviour", ["uniform", "right-0.8"])
def test_with_markov_labels_the_binned_value_is_the_true_value(river_card, dynamics, behaviour):
    card, world = river_card(dynamics=dynamics), riverswim()
    for seed in range(3):
        t = truth(card, world, behaviour, random_policy(np.random.default_rng(seed), (20, 6, 2)))
        assert t["v_policy_model"] == pytest.approx(t["v_policy"], abs=1e-10)
        assert t["v_star"] == pytest.approx(3.397264, abs=5e-7)
        assert t["suboptimality"] == t["v_star"] - t["v_policy"] > 0


def test_labels_in_another_order_change_nothing(river_card):
    card = river_card(labels=[5, 3, 1, 0, 2, 4], actions={"right": [1], "left": [0]})
    policy = random_policy(np.random.default_rng(0), (20, 6, 2))
    t = truth(card, riverswim(), "uniform", policy)
    assert t["v_policy_model"] == pytest.approx(t["v_policy"], abs=1e-10)
    plain = Policy(policy.probabilities[:, [3, 2, 4, 1, 5, 0]][:, :, [1, 0]], policy.abstains)
    assert truth(river_card(), riverswim(), "uniform", plain)["v_policy"] == pytest.approx(t["v_policy"], abs=1e-12)


def test_where_a_policy_abstains_the_logging_policy_goes_on(river_card):
    """Beside it the fault of version 0.1: uniform choice stood for practice."""
    silent = Policy(np.full((20, 6, 2), 0.5), np.ones((20, 6), dtype=bool))
    t = truth(river_card(), riverswim(), "right-0.8", silent)
    assert t["v_policy"] == pytest.approx(t["v_behavior"], abs=1e-12) != t["v_uniform"]
    assert t["v_policy_model"] == pytest.approx(t["v_behavior"], abs=1e-10)
    half = np.arange(6) % 2 == 0
    some = Policy(np.tile([0.0, 1.0], (20, 6, 1)), np.tile(half, (20, 1)))
    as_done = np.where(half[:, None], [0.2, 0.8], [0.0, 1.0])
    whole = Policy(np.tile(as_done, (20, 1, 1)), np.zeros((20, 6), dtype=bool))
    found, wanted = (truth(river_card(), riverswim(), "right-0.8", policy) for policy in (some, whole))
    assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.slow
def test_practice_goes_on_state_by_state_where_bins_hide_what_it_looks_at(icu):
    """A bin keeps practice as clinicians do it in each of its states, not on average over the bin."""
    t = truth(*icu, "clinician", Policy(np.zeros((20, 4, 25)), np.ones((20, 4), dtype=bool)))
    assert t["v_policy"] == pytest.approx(t["v_behavior"], abs=1e-12)
    assert abs(t["v_policy_model"] - t["v_behavior"]) > 1e-4


def test_rewards_on_entering_are_those_of_the_world(icu):
    card, world = icu
    values = card.model_dump() | {"reward": {"range": [0, 1], "total": 1.0, "on_entering": {"survived": 1.0}}}
    entering = Card.model_validate(values).placed(card.folder)
    found, wanted = binned_process(entering, world, "uniform"), binned_process(card, world, "uniform")
    np.testing.assert_allclose(found.rewards, wanted.rewards, atol=1e-12)
    assert found.rewards.max() > 0.01


def test_the_logging_policy_has_its_true_value_in_its_own_per_step_binned_process(river_card):
    """Occupancies of bins are exact when the logging policy does not look inside them."""
    card = river_card(labels=HALVES)
    t = truth(card, riverswim(), "right-0.8", Policy(np.tile([0.2, 0.8], (20, 2, 1)), np.zeros((20, 2), dtype=bool)))
    assert t["v_policy_model"] == pytest.approx(t["v_behavior"], abs=1e-12)


def _z(card: Card, process: TabularMDP, counts: dict[str, np.ndarray]) -> float:
    """Largest standard score of the empirical transitions of a per-step table."""
    L = len(card.domain.live_states)
    n, p = counts["n_sa"][..., None], process.transitions[:, :L]
    score = np.abs(counts["n_sas"] - n * p) / np.sqrt(np.maximum(n * p * (1 - p), 1))
    return float(score.max())


@pytest.mark.slow
def test_simulated_tables_approach_the_binned_process_and_no_other(river_card):
    card, world = river_card(labels=HALVES), riverswim()
    counts = dict(sample_counts(card, world, "right-0.8", 200_000, np.random.default_rng(1)).tables)
    assert _z(card, binned_process(card, world, "right-0.8"), counts) < 5
    assert _z(card, binned_process(card, world, "uniform"), counts) > 50
    mean = counts["r_sa"].sum() / 2 / 200 / 200_000 + 20 / 2
    assert mean == pytest.approx(truth(card, world, "right-0.8", uniform(20, 2, 2))["v_behavior"], abs=0.02)


@pytest.mark.slow
def test_pooled_tables_approach_the_pooled_process_and_no_other(river_card):
    card, world = river_card(labels=HALVES, dynamics="stationary"), riverswim()
    counts = sample_counts(card, world, "right-0.8", 200_000, np.random.default_rng(2)).tables
    ratio = counts["n_sas"][0] / counts["n_sa"][0][..., None]
    # .0035 at most in 60 other seeds, .0019 in 57 of them
    assert np.abs(ratio - binned_process(card, world, "right-0.8").transitions[0]).max() < 0.006
    assert np.abs(ratio - binned_process(card, world, "uniform").transitions[0]).max() > 0.02


@pytest.mark.slow
def test_icu_tables_approach_the_pooled_process(icu):
    card, world = icu
    uncapped = card.model_copy(update={"domain": card.domain.model_copy(update={"cell_cap": None})})
    counts = sample_counts(uncapped, world, "uniform", 200_000, np.random.default_rng(3)).tables
    process = binned_process(card, world, "uniform")
    n, p = counts["n_sa"][0, :4, :, None], process.transitions[0, :4]
    score = (counts["n_sas"][0, :4] - n * p) / np.sqrt(np.maximum(n * p * (1 - p), 1))
    assert np.abs(score).max() < 5
    assert np.sqrt((score[p > 0] ** 2).mean()) == pytest.approx(1, abs=0.15)


def test_ends_absorb_and_unvisited_cells_stay_and_pay_nothing(icu):
    card, world = icu
    values = card.model_dump(mode="json")
    values["domain"]["states"]["other"] = True
    process = binned_process(Card.model_validate(values), world, "uniform")
    # live bins 0..3, OTHER 4 (never visited), ends 5..7
    np.testing.assert_array_equal(process.transitions[0, 4:], np.broadcast_to(np.eye(8)[4:, None], (4, 25, 8)))
    assert (process.rewards[:, 4:] == 0).all()
    assert process.start[4:].sum() == 0


def test_a_declared_start_and_a_declared_reward_table_are_taken_from_the_card(make_card, river_card):
    card = river_card(labels=HALVES, start={"high": 1.0})
    np.testing.assert_array_equal(binned_process(card, riverswim(), "uniform").start, [0, 1])
    table = [[0.25, 0.5], [0.75, 1.0]]
    told = make_card(domain=card.domain.model_dump(), reward={"kind": "table", "range": [0, 1], "table": table})
    np.testing.assert_array_equal(binned_process(told, riverswim(), "uniform").rewards[3], table)


def test_the_best_bin_policy_of_markov_labels_is_optimal_and_uses_no_vetoed_action(river_card):
    assert best_bin_policy_value(river_card(), riverswim(), "uniform") == pytest.approx(3.397264, abs=5e-7)
    card = river_card(vetoes=[("0", "1")])
    policy = best_bin_policy(card, riverswim(), "uniform")
    assert (policy[:, 0, 1] == 0).all()
    assert best_bin_policy_value(card, riverswim(), "uniform") == pytest.approx(0.005 * 20)


def test_an_action_label_is_spread_over_the_raw_actions_it_stands_for(river_card):
    card = river_card(actions={"swim": [0, 1]}, horizon=2)
    np.testing.assert_array_equal(lift(np.ones((2, 6, 1)), riverswim(), card), np.full((2, 6, 2), 0.5))


def test_lift_refuses_another_shape_and_an_action_the_world_lacks(river_card):
    with pytest.raises(ValueError, match=r"probabilities must be \(H, 6, 2\)"):
        lift(np.ones((2, 5, 2)), riverswim(), river_card())
    card = river_card(actions={"left": [0], "right": [1], "dive": [2]})
    with pytest.raises(ValueError, match="no action for a label"):
        lift(np.full((2, 6, 3), 1 / 3), riverswim(), card)


def test_a_step_dependent_world_has_its_true_value_in_its_per_step_process(make_card):
    world = random_tabular(5, 2, 6, seed=2, successors=2, reward="last")
    card = make_card(domain=domain_dict(6, 5, 2), reward={"range": [0, 1]})
    policy = random_policy(np.random.default_rng(1), (6, 5, 2))
    t = truth(card, world, "uniform", policy)
    assert t["v_policy_model"] == pytest.approx(t["v_policy"], abs=1e-12) and t["v_policy"] > 0
    d, naive = world.start.copy(), 0.0
    for h in range(6):
        joint = d[:, None] * policy.probabilities[h]
        naive += float((joint * world.visit_reward[h]).sum())
        d = np.einsum("sa,sax->x", joint, world.transition[h])
    assert t["v_policy"] == pytest.approx(naive, abs=1e-12)


def test_pooling_a_step_dependent_world_weighs_its_steps_by_their_visits(make_card):
    world = random_tabular(4, 2, 3, seed=5, successors=2)
    card = make_card(domain=domain_dict(3, 4, 2, dynamics="stationary"), reward={"range": [0, 1]})
    process = binned_process(card, world, "uniform")
    d, n_sas, r_sa = world.start.copy(), np.zeros((4, 2, 4)), np.zeros((4, 2))
    for h in range(3):
        joint = d[:, None] * np.full((4, 2), 0.5)
        n_sas += joint[..., None] * world.transition[h]
        r_sa += joint * world.visit_reward[h]
        d = np.einsum("sa,sax->x", joint, world.transition[h])
    n_sa = n_sas.sum(-1)
    seen = n_sa > 0
    np.testing.assert_allclose(process.transitions[0][seen], n_sas[seen] / n_sa[seen][:, None], atol=1e-12)
    np.testing.assert_allclose(process.rewards[0][seen], r_sa[seen] / n_sa[seen], atol=1e-12)


@pytest.mark.parametrize(
    ("bins", "dynamics", "best"),
    [
        ("4", None, 0.7416),
        *(slow(*more) for more in (("4", "per_step", 0.7418), ("8", None, 0.7425), ("32", None, 0.7450))),
    ],
)
def test_the_best_policy_on_the_shipped_bins_is_worth_what_the_readme_says_and_more_bins_leave_a_little_more(
    icu, bins, dynamics, best
):
    card, world = icu
    values = card.model_dump(mode="json")
    values["domain"]["states"]["bins"]["edges"] = world.binnings[bins][1]
    found = best_bin_policy_value(Card.model_validate(values), world, "uniform", dynamics)
    assert found == pytest.approx(best, abs=5e-5)


def test_a_logging_policy_through_the_bins_visits_them_as_often_as_it_does_in_the_world(river_card):
    card, world = river_card(HALVES), riverswim()
    through = binned_behaviour(card, world, "near-optimal-0.3")
    assert through.shape == (20, 2, 2) and np.abs(through.sum(-1) - 1).max() < 1e-12
    seen = occupancies(binned_process(card, world, "near-optimal-0.3", dynamics="per_step"), through)
    raw = occupancies(world.mdp(20), world.behaviours("near-optimal-0.3", 20))
    assert np.abs(seen - np.stack([raw[:, :3].sum(1), raw[:, 3:].sum(1)], axis=1)).max() < 1e-12
    assert (binned_behaviour(card, world, "uniform") == 0.5).all()
