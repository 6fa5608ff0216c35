"""Worlds of gymnasium agree with value iteration on ``env.P`` itself, written here in loops."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import reticent
from pipeline.worlds.catalog import from_gymnasium, from_table
from pipeline.worlds.world import world_values
from reticent import CardError, LogOptions, Store

CASES = [
    ("FrozenLake-v1", {}, 20),
    ("FrozenLake-v1", {"is_slippery": False}, 12),
    ("FrozenLake8x8-v1", {}, 30),
    ("Taxi-v4", {}, 15),
    ("CliffWalking-v1", {}, 20),
    ("CliffWalking-v1", {"is_slippery": True}, 20),
]


def naive(env_id: str, kwargs: dict[str, Any], horizon: int, *, best: bool) -> float:
    env = gymnasium.make(env_id, **kwargs).unwrapped
    value = dict.fromkeys(env.P, 0.0)
    for _ in range(horizon):
        new = {}
        for s, row in env.P.items():
            q = [
                sum(p * (r + (0.0 if over else value[int(after)])) for p, after, r, over in outcomes)
                for outcomes in row.values()
            ]
            new[s] = max(q) if best else sum(q) / len(q)
        value = new
    return sum(p * value[s] for s, p in enumerate(env.initial_state_distrib))


def written(env_id: str, kwargs: dict[str, Any], to: Path, **asked: Any) -> dict[str, Any]:
    """What ``simulate --logs`` says of an environment."""
    params = tuple(f"{key}={json.dumps(value)}" for key, value in kwargs.items())
    options = LogOptions(episodes=2, params=params, to=to / "log", **asked)
    return reticent.simulate_logs(f"gymnasium:{env_id}", options, store=Store(to / "home"))


@pytest.mark.parametrize(("env_id", "kwargs", "horizon"), CASES)
def test_values_are_those_of_the_environments_own_table(
    env_id: str, kwargs: dict[str, Any], horizon: int, tmp_path: Path
):
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
    mdp = from_table("coin", table, np.array([1.0])).mdp(3)
    assert world_values(from_table("coin", table, np.array([1.0])), 3)["optimal"] == pytest.approx(0.6 * 1.75)
    assert mdp.shape[1] == 3


@pytest.mark.parametrize(
    ("env_id", "kwargs", "says"),
    [
        ("Blackjack-v1", {}, r"Blackjack-v1: publishes no transition table .*FrozenLake-v1"),
        ("Atlantis-v0", {}, "gymnasium cannot make it"),
        ("FrozenLake-v1", {"depth": 3}, "gymnasium cannot make it"),
        (None, {}, r"pip install 'reticent\[worlds\]'"),
    ],
)
def test_what_gymnasium_does_not_have_is_a_card_error(
    env_id: str | None, kwargs: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    if env_id is None:
        monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(CardError, match=says):
        written(env_id or "FrozenLake-v1", kwargs, tmp_path)
