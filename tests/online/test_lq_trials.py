"""Agents of plants, simulated: what controls lose, when they leave zero, and what is sent."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

PLANT = {"name": "lq", "instance": 1}
PRIVATE = ("private-ofu-rl", "dp-lqr", "explore-then-commit")


def lost(said, agent):
    return said["agents"][agent]["regret"]["mean"]


@pytest.mark.parametrize("agent", PRIVATE)
def test_a_step_that_is_sent_is_all_coordinates_and_controls(simulate, agent):
    quick = {"growth": 2.0, "starts": 2} if agent == "private-ofu-rl" else {}
    (row,) = simulate(agent, {"name": "lq", "instance": 3}, epsilon=1, episodes=20, **quick)["rows"]
    # four states and two controls
    assert row["bits"] == 64 * (4 + 2) * row["messages"]


def test_controls_lose_what_their_gains_cost(simulate):
    said = simulate("fixed-gain", PLANT, episodes=20, runs=3, beside=["zero", "certainty-equivalence"])
    idle = said["agents"]["zero"]
    assert lost(said, "zero") == lost(said, "certainty-equivalence")
    assert lost(said, "zero") == pytest.approx(20 * idle["suboptimality"]["mean"])
    wrong = said["agents"]["fixed-gain"]["regret"]
    assert wrong["std"] > 0 and 0 < wrong["median"] < lost(said, "zero")


@pytest.mark.slow
def test_private_ofu_rl_says_whether_it_left_zero(simulate):
    for calibration in ("paper", "tight"):
        said = simulate("private-ofu-rl", PLANT, epsilon=1, calibration=calibration, episodes=20, beside=["zero"])
        assert said["facts"]["left_zero_at"] is None
        assert lost(said, "private-ofu-rl") == pytest.approx(lost(said, "zero"))
        assert (said["true_epsilon"] < 1) == (calibration == "paper")
        # what was explored of B without ever trying a control
        assert said["facts"]["smallest_eigenvalue"] == pytest.approx(0, abs=1e-9)
    plain = simulate("ofu-rl", PLANT, episodes=100, growth=1.5, starts=2)["facts"]
    assert 1 < plain["left_zero_at"] < 100
    assert plain["optimistic_share"] == 1.0


@pytest.mark.slow
def test_long_batches_run_and_an_enormous_budget_lets_it_leave(simulate):
    """More than 4 096 episodes of one plan are exact means; just after it leaves zero it may lose more than before."""
    long = {"episodes": 60_000, "growth": 3.0, "starts": 2}
    said = simulate("ofu-rl", PLANT, beside=["zero"], **long)
    idle = lost(said, "zero")
    assert lost(said, "ofu-rl") < 0.2 * idle
    said = simulate("private-ofu-rl", PLANT, epsilon=50, counter="epochs", **long)
    assert said["facts"]["left_zero_at"] is not None
    assert lost(said, "private-ofu-rl") != pytest.approx(idle)


def test_explore_then_commit_pays_for_its_exploration_and_dp_lqr_does_not(simulate):
    """20 √K episodes explore, unless told otherwise."""
    said = simulate("explore-then-commit", PLANT, epsilon=8, episodes=4000, beside=["dp-lqr", "zero"])
    explored = round(20 * 4000**0.5)
    assert said["facts"]["left_zero_at"] == explored + 1
    assert lost(said, "explore-then-commit") > explored / 4000 * lost(said, "zero")
    assert lost(said, "dp-lqr") < 0.2 * lost(said, "zero")
    assert "logged before" in said["agents"]["dp-lqr"]["variant"]
    asked = {"epsilon": 8, "episodes": 20_000, "beside": ["zero"]}
    dear = simulate("explore-then-commit", PLANT, **asked, explore=5000, radius=1.0)
    assert dear["facts"]["left_zero_at"] == 5001
    # all that was explored is in one release, and what is played then is near the best
    released = json.loads((Path(dear["folder"]) / "release.json").read_text(encoding="utf-8"))["mechanisms"]
    assert len({m["table"] for m in released}) == len(released)
    assert dear["suboptimality"] < 0.05 * dear["agents"]["zero"]["suboptimality"]["mean"]
    # whatever is asked for, somebody is left to play the gains, and somebody explores
    assert simulate("explore-then-commit", PLANT, epsilon=8, episodes=10, explore=10)["facts"]["left_zero_at"] == 10
    with pytest.raises(ValueError, match="must be at least 1"):
        simulate("explore-then-commit", PLANT, epsilon=8, episodes=10, explore=0)


def test_noise_and_world_have_streams_of_their_own(simulate):
    """Another epsilon, same plant: the exploring episodes' share of the regret is the same, the gains are not."""
    one, two = (
        simulate("explore-then-commit", PLANT, epsilon=e, episodes=200)["agents"]["explore-then-commit"]["curve"]
        for e in (1, 2)
    )
    assert one["mean"] != two["mean"]
    early = np.array(one["episodes"]) <= 100
    assert early.sum() > 10 and (np.array(one["mean"])[early] == np.array(two["mean"])[early]).all()
