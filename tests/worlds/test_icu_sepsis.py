"""The shelf's ICU-Sepsis file is the package's world, with its reference values."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import reticent
from pipeline.worlds.catalog import load_icu_sepsis
from pipeline.worlds.world import World
from reticent import CardError, LogOptions, Store

FILE = Path(__file__).resolve().parents[2] / "datasets" / "icu_sepsis" / "world.npz"


@pytest.fixture(scope="module")
def icu() -> World:
    return load_icu_sepsis(FILE)


@pytest.mark.parametrize(
    ("horizon", "optimal", "clinician", "uniform"),
    [
        (10, 0.6364, 0.5292, 0.5218),
        *(
            pytest.param(*more, marks=pytest.mark.slow)
            for more in ((20, 0.7922, 0.6920, 0.6854), (30, 0.8420, 0.7499, 0.7455))
        ),
    ],
)
def test_values_are_the_reference_values(
    tmp_path: Path, horizon: int, optimal: float, clinician: float, uniform: float
):
    asked = LogOptions(horizon=horizon, episodes=2, to=tmp_path)
    values = reticent.simulate_logs("icu_sepsis", asked, store=Store(tmp_path / "home"))["values"]
    found = {name: values[name] for name in ("optimal", "clinician", "uniform")}
    assert found == pytest.approx({"optimal": optimal, "clinician": clinician, "uniform": uniform}, abs=5e-5)


@pytest.mark.slow
def test_expected_reward_is_that_of_the_files_own_reward_array(icu: World):
    with np.load(FILE) as z:
        expected = (z["tx_mat"] * z["r_mat"]).sum(-1)
    np.testing.assert_allclose(icu.expected_reward, expected, atol=1e-12)


def test_its_ends_its_policies_and_the_one_copy_of_its_dynamics(icu: World):
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


OTHERS = dict.fromkeys(("expert_policy", "sofa_scores", "state_cluster_centers"), np.zeros(2))


def other_world(path: Path) -> None:
    np.savez(path, tx_mat=np.ones((2, 1, 2)), r_mat=np.ones((2, 1, 2)), d_0=np.ones(2), **OTHERS)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda path: path.write_bytes(b""), "not the ICU-Sepsis world"),
        (lambda path: path.write_bytes(b"not an archive"), "not the ICU-Sepsis world"),
        (lambda path: path.write_bytes(b"PK\x03\x04 broken"), "not the ICU-Sepsis world"),
        (other_world, "716 states"),
    ],
)
def test_a_file_of_another_kind_or_world_is_a_card_error(tmp_path: Path, write, says: str):
    (tmp_path / "icu_sepsis").mkdir()
    write(tmp_path / "icu_sepsis" / "world.npz")
    with pytest.raises(CardError, match=says):
        reticent.simulate_logs("icu_sepsis", LogOptions(episodes=2), store=Store(tmp_path / "home", shelf=tmp_path))


def test_a_missing_file_is_a_card_error(tmp_path: Path):
    with pytest.raises(CardError, match="not the ICU-Sepsis world"):
        load_icu_sepsis(tmp_path / "world.npz")
