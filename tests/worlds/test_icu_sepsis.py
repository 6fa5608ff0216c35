"""The shelf's ICU-Sepsis file is the package's world, with its reference values; and its bins are a world."""

import hashlib

import numpy as np
import pytest

import reticent
from pipeline.declaration.card import load_card
from pipeline.mdp.planning import optimal_values, policy_value
from pipeline.worlds.catalog import SOFA_EDGES, icu_sepsis_bins, load_icu_sepsis, load_world
from pipeline.worlds.world import World, binned_process
from reticent import CardError, LogOptions, Store
from tests.conftest import SHELF, slow

FILE = SHELF / "icu_sepsis" / "world.npz"


@pytest.fixture(scope="module")
def icu() -> World:
    return load_icu_sepsis(FILE)


@pytest.mark.parametrize(
    ("horizon", "optimal", "clinician", "uniform"),
    [
        (10, 0.6364, 0.5292, 0.5218),
        *(slow(*more) for more in ((20, 0.7922, 0.6920, 0.6854), (30, 0.8420, 0.7499, 0.7455))),
    ],
)
def test_values_are_the_reference_values(tmp_path, horizon, optimal, clinician, uniform):
    asked = LogOptions(horizon=horizon, episodes=2, to=tmp_path)
    values = reticent.simulate_logs("icu_sepsis", asked, store=Store(tmp_path / "home"))["values"]
    found = {name: values[name] for name in ("optimal", "clinician", "uniform")}
    assert found == pytest.approx({"optimal": optimal, "clinician": clinician, "uniform": uniform}, abs=5e-5)


@pytest.mark.slow
def test_expected_reward_is_that_of_the_files_own_reward_array(icu):
    with np.load(FILE) as z:
        expected = (z["tx_mat"] * z["r_mat"]).sum(-1)
    np.testing.assert_allclose(icu.expected_reward, expected, atol=1e-12)


def test_its_ends_its_policies_and_the_one_copy_of_its_dynamics(icu):
    assert dict(icu.ends) == {713: "died", 714: "survived", 715: "end"}
    assert (icu.transition[713:, :, 715] == 1).all()
    assert icu.start[icu.terminal].sum() == 0
    for name in icu.policies:
        np.testing.assert_allclose(icu.behaviours(name, 2).sum(-1), 1, atol=1e-12)
    mdp = icu.mdp(20)
    assert mdp.transitions.strides[0] == 0 and np.shares_memory(mdp.transitions, icu.transition)


def test_the_file_is_a_byte_copy_of_the_packages():
    digest = hashlib.sha256(FILE.read_bytes()).hexdigest()
    assert digest == "36498f924c693c6be7ae18f3ce9e1a8e48d41f80f2cc553b3993b1373c8a9109"
    assert digest in (FILE.parent / "README.md").read_text(encoding="utf-8")


def other_world(path):
    others = dict.fromkeys(("expert_policy", "sofa_scores", "state_cluster_centers"), np.zeros(2))
    np.savez(path, tx_mat=np.ones((2, 1, 2)), r_mat=np.ones((2, 1, 2)), d_0=np.ones(2), **others)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda path: path.write_bytes(b""), "not the ICU-Sepsis world"),
        (lambda path: path.write_bytes(b"not an archive"), "not the ICU-Sepsis world"),
        (lambda path: path.write_bytes(b"PK\x03\x04 broken"), "not the ICU-Sepsis world"),
        (other_world, "716 states"),
    ],
)
def test_a_file_of_another_kind_or_world_is_a_card_error(tmp_path, write, says):
    (tmp_path / "icu_sepsis").mkdir()
    write(tmp_path / "icu_sepsis" / "world.npz")
    with pytest.raises(CardError, match=says):
        reticent.simulate_logs("icu_sepsis", LogOptions(episodes=2), store=Store(tmp_path / "home", shelf=tmp_path))


@pytest.mark.slow
def test_it_is_the_process_that_the_shelf_cards_tables_estimate():
    card = load_card(SHELF / "icu_sepsis_uniform" / "card.toml")
    other = binned_process(card, load_icu_sepsis(FILE), "uniform")
    mdp = icu_sepsis_bins(FILE).mdp(20)
    assert mdp.shape == (20, 7, 25)
    assert np.abs(mdp.transitions[:, :4] - other.transitions[:, :4]).max() < 1e-12
    assert np.abs(mdp.rewards[:, :4] - other.rewards[:, :4]).max() < 1e-12
    assert mdp.start == pytest.approx(other.start)
    best = [float(m.start @ optimal_values(m)[1][0]) for m in (mdp, other)]
    assert best[0] == pytest.approx(best[1], abs=1e-12) == pytest.approx(0.735788, abs=5e-7)


def test_nobody_survives_twice():
    world = icu_sepsis_bins(FILE)
    mdp = world.mdp(20)
    survived = next(s for s, label in world.ends.items() if label == "survived")
    assert world.entry_reward[survived] == 1 and mdp.rewards[:, survived].max() == 0
    assert 0 < policy_value(mdp, world.behaviours("uniform", 20)) < 1


def test_bins_and_horizon_can_be_chosen():
    world = load_world("icu_sepsis_bins", SHELF / "icu_sepsis", bins="8", horizon=10)
    assert world.shape == (len(SOFA_EDGES["8"]) + 1 + 3, 25) and world.horizon == 10
    assert len(set(world.raw_labels)) == len(world.raw_labels)


def test_what_does_not_fit_is_said():
    with pytest.raises(CardError, match="bins must be one of 4, 8, 32"):
        load_world("icu_sepsis_bins", SHELF / "icu_sepsis", bins=5)
    with pytest.raises(CardError, match="not the ICU-Sepsis world"):
        load_world("icu_sepsis_bins", SHELF / "nowhere" / "else")
