"""Worlds by name: how a card's labels cover their states, and reference values of each."""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import reticent
from pipeline.declaration.card import load_card
from pipeline.mdp.features import dense, dense_one_hot, one_hot
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.online.linear import linear_003
from pipeline.worlds.catalog import (
    from_gymnasium,
    from_table,
    icu_like,
    load_world,
    random_mixture,
    random_tabular,
    riverswim,
    riverswim_homogeneous,
    riverswim_inhomogeneous,
)
from pipeline.worlds.world import declared_actions, declared_states, world_values
from reticent import CardError, LogOptions, Store
from tests.conftest import SHELF
from tests.worlds.mixtures import tabular_mixture


def domain(states: dict[str, object], actions: object = 2) -> dict[str, object]:
    return {"horizon": 3, "states": {"column": "state", **states}, "actions": {"column": "action", "labels": actions}}


@pytest.mark.parametrize(
    ("name", "dataset"),
    [("icu_sepsis", "icu_sepsis"), ("icu_sepsis", "icu_sepsis_uniform"), ("riverswim", "riverswim")],
)
def test_every_world_loads_from_the_shelf_and_its_card_covers_it(name, dataset):
    card = load_card(SHELF / dataset / "card.toml")
    world = load_world(name, card.folder)
    assert sorted(set(declared_actions(card, world))) == list(range(len(card.domain.action_labels)))
    assert declared_states(card, world).max() == len(card.domain.state_labels) - 1
    for behaviour in world.policies:
        assert world.behaviours(behaviour, card.domain.horizon).shape == (card.domain.horizon, *world.shape)


def test_bins_are_closed_on_the_left():
    card = load_card(SHELF / "icu_sepsis_uniform" / "card.toml")
    world = load_world("icu_sepsis", card.folder)
    index, sofa = declared_states(card, world), world.bin_values["sofa"]
    for bin_, (low, high) in enumerate([(-np.inf, 4), (4, 7), (7, 10), (10, np.inf)]):
        np.testing.assert_array_equal(index[:713] == bin_, (sofa[:713] >= low) & (sofa[:713] < high))
    np.testing.assert_array_equal(index[713:], [4, 5, 6])


def test_a_state_without_a_label_is_other_or_an_error(make_card):
    labels = {"low": [0, 1], "high": [2, 3, 4]}
    with pytest.raises(CardError, match=r"no label for the states \['5'\] of world riverswim"):
        declared_states(make_card(domain=domain({"labels": labels})), riverswim())
    other = make_card(domain=domain({"labels": labels, "other": True}))
    np.testing.assert_array_equal(declared_states(other, riverswim()), [0, 0, 1, 1, 1, 2])


def test_a_column_or_an_action_that_no_label_covers_is_an_error(make_card):
    card = make_card(domain=domain({"bins": {"by": "sofa", "edges": [1]}}))
    with pytest.raises(CardError, match="no column 'sofa' to bin by; it has: none"):
        declared_states(card, riverswim())
    card = make_card(domain=domain({"labels": 6}, actions={"left": [0]}))
    with pytest.raises(CardError, match=r"no label for the actions \['1'\]"):
        declared_actions(card, riverswim())


def test_near_optimal_is_optimal_but_for_its_share_of_chance():
    mdp = riverswim().mdp(20)
    best = optimal_values(mdp)[1][0, 0]
    values = [policy_value(mdp, riverswim().behaviours(f"near-optimal-{e}", 20)) for e in ("0", "0.3", "1.0")]
    assert values[0] == pytest.approx(best) and values[0] > values[1] > values[2]
    np.testing.assert_allclose(riverswim().behaviours("near-optimal-1", 20), 0.5)
    np.testing.assert_allclose(riverswim().behaviours("near-optimal-0.3", 20).min(), 0.15)


@pytest.mark.parametrize("name", ["near-optimal-1.5", "near-optimal-", "near-optimal--1", "optimal", "clinician"])
def test_an_unknown_behaviour_is_a_card_error_that_names_the_known_ones(tmp_path, name):
    known = r"no behaviour 'clinician'; there are: uniform, right-0\.8"
    says = known if name == "clinician" else "near-optimal-E with E from 0 to 1"
    with pytest.raises(CardError, match=says):
        reticent.simulate_logs("riverswim", LogOptions(behaviour=name, horizon=3, to=tmp_path))


def test_a_world_file_beside_a_card_gives_the_parameters_and_arrays_are_found_beside_another(tmp_path):
    (tmp_path / "world.toml").write_text('name = "riverswim"\n[params]\nstates = 4\n')
    assert load_world("icu_sepsis", SHELF / "riverswim").shape == (716, 25)
    assert load_world("riverswim", tmp_path).shape == (4, 2)
    assert load_world("riverswim", tmp_path, states=5).shape == (5, 2)
    assert load_world("riverswim_homogeneous", tmp_path).shape == (3, 2)


def test_values_of_six_states_and_twenty_steps_are_the_reference_values():
    mdp, right = riverswim().mdp(20), np.zeros((20, 6, 2))
    right[..., 1] = 1
    assert mdp.start @ optimal_values(mdp)[1][0] == pytest.approx(3.397264, abs=5e-7)
    # always right is optimal but for the last steps
    assert policy_value(mdp, right) == pytest.approx(3.396637, abs=5e-7)
    scaled = riverswim(left_reward=5 / (1000 * 20), right_reward=1 / 20).mdp(20)
    assert 20 * optimal_values(scaled)[1][0, 0] == pytest.approx(optimal_values(mdp)[1][0, 0], rel=1e-12)


@pytest.mark.parametrize(
    ("world", "states", "best"),
    [
        *(("riverswim_homogeneous", states, best) for states, best in ((3, 0.2281), (5, 0.0907), (10, 0.0195))),
        *(("riverswim_inhomogeneous", states, best) for states, best in ((3, 0.5911), (5, 0.4944), (10, 0.4014))),
    ],
)
def test_the_forms_of_paper_001_have_their_reference_optima(tmp_path, world, states, best):
    asked = LogOptions(episodes=2, params=(f"states={states}",), to=tmp_path / "log")
    said = reticent.simulate_logs(world, asked, store=Store(tmp_path / "home"))
    assert said["values"]["optimal"] == pytest.approx(best, abs=5e-5)


def test_a_seed_is_a_world_of_the_asked_successors_that_differs_by_step_unless_stationary():
    first, again, other = (random_tabular(seed=s).transition for s in (1, 1, 2))
    assert (first == again).all() and not (first == other).all()
    world = random_tabular(12, 3, 6, seed=4, successors=5)
    assert world.transition.shape == (6, 12, 3, 12)
    np.testing.assert_array_equal((world.transition > 0).sum(-1), 5)
    assert not (world.transition[0] == world.transition[1]).all()
    same = random_tabular(12, 3, 6, seed=4, stationary=True)
    assert same.transition.shape == (12, 3, 12) and same.stationary and same.mdp(9).horizon == 9


def test_rewards_lie_on_hundredths_and_may_be_paid_at_the_last_step_only():
    last = random_tabular(5, 2, 4, seed=1, reward="last")
    assert (last.visit_reward[:3] == 0).all() and (last.visit_reward[3] > 0).any()
    kept = random_tabular(5, 2, 4, seed=1, reward="last", stationary=True)
    assert not kept.stationary and kept.horizon == 4 and kept.transition.ndim == 3
    everywhere = random_tabular(5, 2, 4, seed=1).visit_reward
    np.testing.assert_allclose(100 * everywhere, np.round(100 * everywhere), atol=1e-12)
    assert (everywhere[:3] > 0).any()


def test_the_icu_like_instance_has_its_size_and_its_clinician_like_policy():
    world = icu_like()
    assert world.transition.shape == (10, 50, 5, 50) and (world.visit_reward[:9] == 0).all()
    np.testing.assert_array_equal((world.transition > 0).sum(-1), 8)
    np.testing.assert_allclose(np.sort(world.policies["preferred"], axis=1), [[0.1] * 4 + [0.6]] * 50)


def test_what_does_not_fit_is_refused():
    for wrong in ({"successors": 11}, {"states": 0}, {"reward": "first"}):
        with pytest.raises(ValueError, match="must be"):
            random_tabular(**wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="states must be at least 2; got 1"):
        riverswim(1)
    with pytest.raises(CardError, match="defined for a horizon of 10 steps, not 20"):
        icu_like().mdp(20)


WORLDS = [
    random_mixture(),
    random_mixture(5, 2, 4, 3, seed=7, stationary=True),
    tabular_mixture(riverswim_homogeneous(3)),
    tabular_mixture(riverswim_inhomogeneous(3)),
    tabular_mixture(riverswim(4), horizon=5),
]


@pytest.mark.parametrize("world", WORLDS, ids=lambda w: w.name)
def test_phi_times_theta_is_the_expected_next_value(world):
    f, mdp = world.features, world.mdp
    V = np.random.default_rng(0).random(f.states)
    theta = world.theta.reshape(mdp.horizon, f.blocks, f.dimension)
    for h in range(mdp.horizon):
        seen = np.einsum("bnd,bd->bn", f.phi(V), theta[h]).reshape(f.states, f.actions)
        np.testing.assert_allclose(seen, mdp.transitions[h] @ V, atol=1e-12)
    assert world.theta.shape == (mdp.horizon, f.unknowns)


@pytest.mark.parametrize(
    "features", [one_hot(3, 2), dense_one_hot(3, 2), WORLDS[0].features], ids=["blocks", "dense", "d"]
)
def test_the_stretch_bounds_every_phi_and_is_attained(features):
    rng = np.random.default_rng(1)
    values = [np.ones(features.states), *rng.random((200, features.states)), *np.eye(features.states)]
    ratio = [np.linalg.norm(features.phi(V), axis=-1).max() / V.max() for V in values]
    assert max(ratio) == pytest.approx(features.stretch)
    assert max(ratio) > 1


def test_wrong_sizes_and_negative_features_are_refused():
    with pytest.raises(ValueError, match="successors"):
        random_mixture(3, 2, 2, 4, successors=4)
    with pytest.raises(ValueError, match=r"\(S, A, S, d\)"):
        dense(np.ones((2, 2, 3, 1)))
    with pytest.raises(ValueError, match="negative"):
        dense(-np.ones((2, 2, 2, 1)))


def test_a_mixture_by_name_is_the_world_of_that_name():
    params = {"states": 5, "actions": 2, "dimension": 4, "horizon": 3, "seed": 7}
    world, mixture = load_world("random_mixture", Path("none"), **params), random_mixture(**params)
    for table in ("transitions", "rewards"):
        np.testing.assert_array_equal(getattr(mixture.mdp, table), getattr(world.mdp(3), table))
    assert mixture.features.unknowns == 4


@pytest.mark.parametrize(("seed", "value"), [(0, 14.150866), (1, 13.457)])
def test_optimal_values_of_the_reference_seeds(seed, value):
    mdp = linear_003(seed).mdp
    assert mdp.start @ optimal_values(mdp)[1][0] == pytest.approx(value, abs=1e-3 if seed else 5e-7)


def test_printed_features_reach_seven_and_the_normalised_map_one():
    literal, normalised = linear_003(0, "literal").features, linear_003(0).features
    squares = (literal.integers**2).sum(-1)
    assert squares.max() == 7 and literal.unit == 1
    assert (squares * normalised.unit**2).max() == pytest.approx(1)
    assert np.linalg.matrix_rank(literal.integers.reshape(-1, 10)) == 9


def test_q_values_are_linear_in_every_map():
    for scale, worst in (("literal", 1e-12), ("balanced", 0.02)):
        w = linear_003(2, scale)
        f = w.features.integers.reshape(-1, w.features.dimension).astype(float)
        Q = optimal_values(w.mdp)[0][0].reshape(-1)
        assert np.abs(f @ np.linalg.lstsq(f, Q, rcond=None)[0] - Q).max() < worst


def test_counts_follow_the_logging_policy():
    w = linear_003(0)
    n = w.counts(200_000, np.random.default_rng(0))
    assert n.sum(axis=(1, 2, 3)).tolist() == [200_000] * 20
    np.testing.assert_allclose(n[3].sum(-1)[:, 0] / n[3].sum((1, 2)), 0.6, atol=0.01)
    np.testing.assert_allclose(n[3, 0, 0] / n[3, 0, 0].sum(), w.mdp.transitions[3, 0, 0], atol=0.01)


def naive(env_id: str, kwargs: dict[str, Any], horizon: int, *, best: bool) -> float:
    env = gymnasium.make(env_id, **kwargs).unwrapped
    value = dict.fromkeys(env.P, 0.0)
    for _ in range(horizon):
        new = {}
        for s, row in env.P.items():
            each = row.values()
            q = [sum(p * (r + (0.0 if over else value[int(x)])) for p, x, r, over in outcomes) for outcomes in each]
            new[s] = max(q) if best else sum(q) / len(q)
        value = new
    return sum(p * value[s] for s, p in enumerate(env.initial_state_distrib))


def written(env_id: str, kwargs: dict[str, Any], to: Path, **asked: Any) -> dict[str, Any]:
    """What ``simulate --logs`` says of an environment."""
    params = tuple(f"{key}={json.dumps(value)}" for key, value in kwargs.items())
    options = LogOptions(episodes=2, params=params, to=to / "log", **asked)
    return reticent.simulate_logs(f"gymnasium:{env_id}", options, store=Store(to / "home"))


@pytest.mark.parametrize(
    ("env_id", "kwargs", "horizon"),
    [
        ("FrozenLake-v1", {}, 20),
        ("FrozenLake-v1", {"is_slippery": False}, 12),
        ("FrozenLake8x8-v1", {}, 30),
        ("Taxi-v4", {}, 15),
        ("CliffWalking-v1", {}, 20),
        ("CliffWalking-v1", {"is_slippery": True}, 20),
    ],
)
def test_values_are_those_of_the_environments_own_table(env_id, kwargs, horizon, tmp_path):
    values = written(env_id, kwargs, tmp_path, horizon=horizon)["values"]
    assert values["optimal"] == pytest.approx(naive(env_id, kwargs, horizon, best=True), abs=1e-9)
    assert values["uniform"] == pytest.approx(naive(env_id, kwargs, horizon, best=False), abs=1e-9)


def test_only_states_an_episode_can_be_in_are_live():
    world = from_gymnasium("FrozenLake-v1")
    live = [label for s, label in enumerate(world.raw_labels) if s not in world.ends]
    assert live == ["0", "1", "2", "3", "4", "6", "8", "9", "10", "13", "14"]
    assert set(world.ends.values()) == {"end"} and world.start[0] == 1


def test_a_price_that_depends_on_the_outcome_is_kept_by_a_twin_of_the_state():
    """From a slippery cliff's first cell both a step back and a fall lead to the start, at -1 and at -100."""
    world = from_gymnasium("CliffWalking-v1", is_slippery=True)
    twins = [s for s, label in enumerate(world.raw_labels) if label == "36"]
    assert len(twins) == 2 and sorted(world.entry_reward[twins]) == [-99, 0]
    np.testing.assert_array_equal(world.transition[twins[0]], world.transition[twins[1]])


def test_an_end_pays_on_entering_and_never_again():
    table = {0: {0: [(0.5, 0, 0.0, False), (0.2, 1, 3.0, True), (0.3, 1, 0.0, True)]}}
    world = from_table("coin", table, np.array([1.0]))
    assert world_values(world, 3)["optimal"] == pytest.approx(0.6 * 1.75) and world.mdp(3).shape[1] == 3


@pytest.mark.parametrize(
    ("env_id", "kwargs", "says"),
    [
        ("Blackjack-v1", {}, r"Blackjack-v1: publishes no transition table .*FrozenLake-v1"),
        ("Atlantis-v0", {}, "gymnasium cannot make it"),
        ("FrozenLake-v1", {"depth": 3}, "gymnasium cannot make it"),
        (None, {}, r"pip install 'reticent\[worlds\]'"),
    ],
)
def test_what_gymnasium_does_not_have_is_a_card_error(env_id, kwargs, says, monkeypatch, tmp_path):
    if env_id is None:
        monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(CardError, match=says):
        written(env_id or "FrozenLake-v1", kwargs, tmp_path)
