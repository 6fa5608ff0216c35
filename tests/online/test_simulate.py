"""Simulated logs: rows follow the world, bytes follow the seed, tables follow the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipeline.logs.aggregate import count_rows
from pipeline.worlds.catalog import random_tabular, riverswim
from pipeline.worlds.simulated_logs import sample_counts, sample_log, write_log
from pipeline.worlds.world import World
from reticent import Card
from tests.logs.conftest import canonical, ingest


def ward() -> World:
    """Five live states that nobody hurries to leave, two ends; rewards on visits and on entering the first end."""
    rng = np.random.default_rng(7)
    P = rng.dirichlet(np.full(7, 0.3), size=(7, 3))
    P[:5, :, 5:] *= 0.3
    P[5:] = np.eye(7)[5:, None]
    visit = np.where(np.arange(7)[:, None] < 5, rng.choice([0.0, 0.25, 0.5], size=(7, 3)), 0.0)
    return World(
        name="ward",
        transition=P / P.sum(-1, keepdims=True),
        visit_reward=visit,
        entry_reward=np.eye(7)[5] * 0.5,
        start=np.array([0.5, 0.2, 0.1, 0.1, 0.1, 0, 0]),
        raw_labels=["a", "b", "c", "d", "e", "home", "dead"],
        bin_values={"score": np.array([0.0, 1.0, 2.5, 4.0, 4.0, 0, 0])},
        ends={5: "home", 6: "dead"},
        policies={"uniform": np.full((7, 3), 1 / 3)},
    )


def ward_card(make_card: Callable[..., Card], states: dict[str, object], total: float | None, **domain: object) -> Card:
    ends = {"column": "state", "ends": ["home", "dead"], **states}
    actions = {"column": "action", "labels": {"x": [0], "y": [2]}, "other": True}
    return make_card(
        domain={"horizon": 8, "states": ends, "actions": actions, **domain},
        reward={"range": [0, 1], "steps": 4, **({"total": total} if total else {})},
    )


@pytest.mark.parametrize(
    ("states", "more"),
    [
        ({"bins": {"by": "score", "edges": [1, 4]}, "other": True}, {"next_bin": "next_score"}),
        ({"labels": {"ab": ["a", "b"], "c": ["c"]}, "other": True}, {}),
    ],
)
@pytest.mark.parametrize("domain", [{}, {"dynamics": "stationary", "cell_cap": 2}])
def test_tables_are_those_of_the_log_of_the_same_seed_once_it_is_ingested(
    make_card: Callable[..., Card],
    tmp_path: Path,
    constants: Callable[..., None],
    states: dict[str, object],
    more: dict[str, str],
    domain: dict[str, object],
):
    """However many episodes are held at once."""
    constants(chunk=70)
    card, world = ward_card(make_card, states, 1.0, **domain), ward()
    write_log(world, sample_log(world, "uniform", 8, 300, np.random.default_rng(5)), tmp_path)
    columns = card.source.columns.model_dump(exclude_none=True) | {"next_state": "next_state"} | more
    log = make_card(**card.model_dump() | {"source": {"files": ["*.parquet"], "columns": columns}}).placed(tmp_path)
    made = canonical(ingest(log, tmp_path / "home"))
    assert made["user_id"].unique().sort().to_list() == list(range(300))
    expected = count_rows(made, card)
    tables = sample_counts(card, world, "uniform", 300, np.random.default_rng(5)).tables
    for name, table in expected.items():
        np.testing.assert_array_equal(tables[name], table, err_msg=name)


def test_episodes_are_chained_and_stop_on_entering_an_end_or_at_the_horizon():
    world = ward()
    rows = sample_log(world, "uniform", 8, 2000, np.random.default_rng(1))
    same = rows.user[1:] == rows.user[:-1]
    np.testing.assert_array_equal(same, ~rows.last[:-1])
    np.testing.assert_array_equal(rows.state[1:][same], rows.next_state[:-1][same])
    np.testing.assert_array_equal(rows.step[1:][same], rows.step[:-1][same] + 1)
    assert (rows.step[1:][~same] == 0).all() and rows.step[0] == 0
    assert not world.terminal[rows.state].any()
    np.testing.assert_array_equal(rows.last, world.terminal[rows.next_state] | (rows.step == 7))


BY_STEP = random_tabular(4, 2, 5, seed=3, successors=2, reward="last")


@pytest.mark.parametrize(("world", "H"), [(ward(), 8), (BY_STEP, 5)], ids=["pooled", "by step"])
def test_steps_follow_the_worlds_probabilities_and_the_policy_of_their_step(world: World, H: int):
    S, A = world.visit_reward.shape[-2:]
    policy = np.random.default_rng(3).dirichlet(np.ones(A), size=(H, S))
    rows = sample_log(world, policy, H, 100_000, np.random.default_rng(2))
    kernel = np.broadcast_to(world.transition, (H, S, A, S))
    for table, index in (
        (policy, (rows.step, rows.state, rows.action)),
        (kernel, (rows.step, rows.state, rows.action, rows.next_state)),
        (world.start[None], (np.zeros(100_000, int), rows.state[rows.step == 0])),
    ):
        n = np.zeros(table.shape)
        np.add.at(n, index, 1)
        expected = n.sum(-1, keepdims=True) * table
        assert (n[expected == 0] == 0).all()
        assert (np.abs(n - expected) / np.sqrt(np.maximum(expected * (1 - table), 1))).max() < 5
        # the test can fail: what is shifted by one action, or by one step, does not pass
        for axis in (-1, *([0] if len(table) > 1 and world is BY_STEP else [])):
            wrong = n.sum(-1, keepdims=True) * np.roll(table, 1, axis)
            assert (np.abs(n - wrong) / np.sqrt(np.maximum(wrong, 1))).max() > 20
    paid = np.broadcast_to(world.visit_reward, (H, S, A))[rows.step, rows.state, rows.action]
    np.testing.assert_array_equal(rows.reward, paid + world.entry_reward[rows.next_state])


def test_a_world_that_leaves_nothing_to_chance_is_followed_to_the_letter():
    always_left = np.broadcast_to(np.array([1.0, 0.0]), (5, 6, 2))
    rows = sample_log(riverswim(), always_left, 5, 3, np.random.default_rng(0))
    assert (rows.action == 0).all() and (rows.state == 0).all() and (rows.reward == 0.005).all()


def test_a_behaviour_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"behaviour must be \(4, 6, 2\)"):
        sample_log(riverswim(), np.full((3, 6, 2), 0.5), 4, 1, np.random.default_rng(0))


def test_simulated_counts_are_marked_synthetic_even_for_a_real_card(make_card: Callable[..., Card]):
    card = make_card(
        kind="real",
        budget={"rho": 1.0, "ledger": "ledger.db"},
        domain={"horizon": 2, "states": {"column": "state", "labels": 6}, "actions": {"column": "action", "labels": 2}},
    )
    assert sample_counts(card, riverswim(), "uniform", 5, np.random.default_rng(0)).data_kind == "synthetic"
