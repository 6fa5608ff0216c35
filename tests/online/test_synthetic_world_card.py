"""A simulated log's card declares what is true of its world."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import reticent
from pipeline.worlds.catalog import load_world, random_tabular
from pipeline.worlds.synthetic import COMMENTS, checked, most_paid, toml_text, world_card
from pipeline.worlds.world import World, declared_actions, declared_states
from reticent import Card, LogOptions, Store, load_card
from tests.online.test_simulate import ward

SHELF = Path(__file__).resolve().parents[2] / "datasets"


def card_of(world: World, horizon: int, bins: str | None = None, m: int = 1) -> Card:
    return checked(world_card(world, name="x", horizon=horizon, bins=bins, episodes=90, episodes_per_user=m, rho=2.0))


def written(world: str, to: Path, *params: str, **asked: Any) -> Card:
    """The card of 90 simulated episodes, or as many as are asked for."""
    options = LogOptions(**{"episodes": 90, "params": params, "to": to / "log", **asked})
    return load_card(reticent.simulate_logs(world, options, store=Store(to / "home"))["card"])


def test_a_chain_is_stationary_markov_and_on_its_lattice(tmp_path: Path):
    card = written("riverswim", tmp_path, horizon=20)
    d = card.domain
    assert (d.dynamics, d.markov, d.live_states, d.cell_cap) == ("stationary", "declared", list("012345"), 4)
    assert card.reward.range == (0, 1) and card.reward.steps == 200 and card.unit.users_public == 90
    # what an episode can pay at most saves no noise
    assert card.reward.total is None
    assert written("riverswim", tmp_path, horizon=20, episodes_per_user=4).unit.users_public == 23


def test_a_world_that_differs_by_step_gets_a_table_for_each(tmp_path: Path):
    assert written("riverswim_inhomogeneous", tmp_path, "states=3").domain.dynamics == "per_step"
    last = "states=4", "actions=2", "horizon=5", "reward=last"
    assert written("random", tmp_path, *last, "stationary=true").domain.dynamics == "per_step"
    # it pays once, and a total says so
    assert written("random", tmp_path, *last, "seed=1").reward.total == pytest.approx(
        random_tabular(4, 2, 5, seed=1, reward="last").visit_reward.max(), abs=0.011
    )


def test_rewards_below_zero_keep_their_units(tmp_path: Path):
    """A taxi pays -10, -1 and 20: lattice points in units of 3."""
    card = written("gymnasium:Taxi-v4", tmp_path, horizon=3, episodes=200)
    assert card.reward.range == (-10, 20) and card.reward.steps == 10 and card.reward.total is None
    paid = {row["reward"] for file in card.source_files() for row in pq.read_table(file).to_pylist()}
    assert len(paid) > 1 and all((r + 10) % card.reward.unit == 0 for r in paid)


def test_the_total_is_the_most_any_path_can_pay():
    world = ward()

    def best(s: int, steps: int) -> float:
        if steps == 0 or world.terminal[s]:
            return 0.0
        return max(
            world.visit_reward[s, a] + world.entry_reward[x] + best(x, steps - 1)
            for a in range(3)
            for x in np.flatnonzero(world.transition[s, a])
        )

    assert most_paid(world, 3) == pytest.approx(max(best(s, 3) for s in np.flatnonzero(world.start)))


@cache
def icu() -> World:
    return load_world("icu_sepsis", SHELF / "icu_sepsis")


@cache
def icu_card(bins: str | None = None) -> Card:
    return card_of(icu(), 20, bins)


@pytest.mark.parametrize(
    ("bins", "live"), [*(pytest.param(*m, marks=pytest.mark.slow) for m in ((None, 4), ("32", 32))), ("all", 713)]
)
def test_icu_sepsis_is_one_world_under_cards_of_many_sizes(bins: str | None, live: int):
    card, world = icu_card(bins), icu()
    assert len(card.domain.live_states) == live and list(card.domain.states.ends) == ["died", "survived", "end"]
    assert card.domain.markov == ("declared" if bins == "all" else "aggregated")
    known = card.domain.state_features
    assert (None if known is None else known.shape) == ((713, 47) if bins == "all" else None)
    assert card.reward.on_entering == ({"survived": 1.0} if bins == "all" else None) and card.reward.total == 1
    assert sorted(set(declared_states(card, world))) == list(range(live + 3))
    assert len(declared_actions(card, world)) == 25


@pytest.mark.parametrize("label", ["a", 'quo"te', "tab\t", "back\\slash", "ü ≤ 4", "\x7f", "\x01", "🛶"])
def test_written_toml_reads_back(label: str):
    values: dict[str, Any] = {
        "n": 1e-6,
        "yes": True,
        "domain": {"states": {"labels": [label, "b"]}, "start": {label: 0.5}},
        "none": {"left_out": None},
    }
    text = toml_text(["head"], values, {"n": "small"}, ("domain.states",))
    assert "[domain.states]" in text and "# small" in text
    assert tomllib.loads(text) == {**values, "none": {}}


def test_a_written_card_is_the_card():
    values = world_card(ward(), name="x", horizon=4, bins=None, episodes=9, episodes_per_user=2, rho=2.0)
    text = toml_text(["head"], values, COMMENTS, ("domain.states", "domain.actions"))
    assert Card.model_validate(tomllib.loads(text)) == checked(values)
