"""Simulated logs: rows follow the world, bytes the seed, tables the rows, and the card says what is true of them."""

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import reticent
from pipeline.logs.aggregate import count_rows
from pipeline.worlds.catalog import load_world, random_tabular, riverswim
from pipeline.worlds.simulated_logs import regenerate, sample_counts, sample_log, stream_log, write_log
from pipeline.worlds.synthetic import checked, most_paid, toml_text, world_card
from pipeline.worlds.world import World, declared_actions, declared_states
from reticent import Card, CardError, LogOptions, Store, load_card
from tests.conftest import SHELF, domain_dict, slow
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


@pytest.mark.parametrize(
    ("states", "more"),
    [
        ({"bins": {"by": "score", "edges": [1, 4]}, "other": True}, {"next_bin": "next_score"}),
        ({"labels": {"ab": ["a", "b"], "c": ["c"]}, "other": True}, {}),
    ],
)
@pytest.mark.parametrize("domain", [{}, {"dynamics": "stationary", "cell_cap": 2}])
def test_tables_are_those_of_the_log_of_the_same_seed_once_it_is_ingested(
    make_card, tmp_path, constants, states, more, domain
):
    """However many episodes are held at once."""
    constants(chunk=70)
    world, states = ward(), {"column": "state", "ends": ["home", "dead"], **states}
    actions = {"column": "action", "labels": {"x": [0], "y": [2]}, "other": True}
    domain = {"horizon": 8, "states": states, "actions": actions, **domain}
    card = make_card(domain=domain, reward={"range": [0, 1], "steps": 4, "total": 1.0})
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
def test_steps_follow_the_worlds_probabilities_and_the_policy_of_their_step(world, H):
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


def test_simulated_counts_are_marked_synthetic_even_for_a_real_card(make_card):
    card = make_card(kind="real", budget={"rho": 1.0, "ledger": "ledger.db"}, domain=domain_dict(2, 6, 2))
    assert sample_counts(card, riverswim(), "uniform", 5, np.random.default_rng(0)).data_kind == "synthetic"


def test_a_written_log_tells_the_next_state_on_an_episodes_last_row_only(tmp_path):
    world = ward()
    rows = sample_log(world, "uniform", 3, 500, np.random.default_rng(4))
    files = write_log(world, rows, tmp_path, users_per_file=200)
    assert [f.name for f in files] == [f"episodes-{i:04d}.parquet" for i in range(3)]
    log = [row for f in files for row in pq.read_table(f).to_pylist()]
    assert len(log) == len(rows.user)
    assert set(log[0]) == {
        "user_id", "episode_id", "step", "state", "score", "action", "reward", "next_state", "next_score"
    }  # fmt: skip
    for i, row in enumerate(log):
        after = int(rows.next_state[i])
        ended, cut = rows.last[i] and after in world.ends, rows.last[i] and after not in world.ends
        assert row["next_state"] == (world.ends[after] if ended else world.raw_labels[after] if cut else None)
        assert row["next_score"] == (world.bin_values["score"][after] if cut else None)
        label = world.raw_labels[rows.state[i]]
        assert (row["user_id"], row["step"], row["state"]) == (rows.user[i], rows.step[i], label)
        assert row["score"] == world.bin_values["score"][rows.state[i]] and row["reward"] == rows.reward[i]


def test_where_episodes_never_end_early_every_row_tells_its_next_state(tmp_path):
    rows = sample_log(riverswim(), "uniform", 4, 50, np.random.default_rng(4))
    log = pq.read_table(write_log(riverswim(), rows, tmp_path)[0])
    assert log["next_state"].to_pylist() == rows.next_state.tolist()


def written(name: str, to: Path) -> list[Path]:
    """What is written where a shipped log alone is asked for."""
    return [Path(file) for file in reticent.simulate_logs(name, LogOptions(to=to))["files"]]


@pytest.mark.parametrize("name", ["riverswim", *(slow(n) for n in ("double_integrator", "icu_sepsis"))])
def test_a_shipped_log_regenerates_byte_for_byte(name, tmp_path):
    card, files = load_card(SHELF / name / "card.toml"), written(name, tmp_path)
    shipped_files = sorted((SHELF / name).glob("*.parquet"))
    assert [f.name for f in files] == [f.name for f in shipped_files]
    for new, shipped in zip(files, shipped_files, strict=True):
        # another pyarrow may write other bytes, never other rows
        assert pq.read_table(new).equals(pq.read_table(shipped))
        if pq.read_metadata(new).created_by == pq.read_metadata(shipped).created_by:
            digest = hashlib.sha256(new.read_bytes()).hexdigest()
            assert digest == hashlib.sha256(shipped.read_bytes()).hexdigest()
            assert digest in (card.folder / "README.md").read_text(encoding="utf-8")
            if (record := card.folder / "generated.json").is_file():
                assert (tmp_path / record.name).read_bytes() == record.read_bytes()


@pytest.mark.parametrize("name", ["riverswim", "icu_sepsis", "double_integrator"])
def test_a_shipped_log_holds_the_declared_users_and_stays_small(name):
    card = load_card(SHELF / name / "card.toml")
    size = sum(f.stat().st_size for f in card.source_files())
    users = pq.read_table(card.source_files()[0], columns=["user_id"])["user_id"]
    assert len(users.unique()) == card.unit.users_public
    assert size < {"riverswim": 1e6, "icu_sepsis": 2e6, "double_integrator": 2e6}[name]


@pytest.mark.slow
def test_the_uniform_log_of_version_0_1_is_made_on_demand_byte_for_byte(tmp_path):
    card = load_card(SHELF / "icu_sepsis_uniform" / "card.toml")
    [log] = written(card.folder.name, tmp_path)
    assert log == tmp_path / "data" / "episodes-0000.parquet" and pq.read_metadata(log).num_rows == 818_568
    if pq.read_metadata(log).created_by == "parquet-cpp-arrow version 26.0.1":
        digest = hashlib.sha256(log.read_bytes()).hexdigest()
        assert digest in (card.folder / "README.md").read_text(encoding="utf-8")


def test_only_shipped_logs_can_be_regenerated(make_card, tmp_path):
    with pytest.raises(CardError, match="no simulated log 'tiny' is shipped; there are: icu_sepsis_doses, "):
        regenerate(make_card(), tmp_path)


def test_a_streamed_log_has_the_rows_of_the_sampled_one_with_several_episodes_a_user(tmp_path, constants):
    constants(file=250)
    files = stream_log(ward(), "uniform", 8, 100, np.random.default_rng(3), tmp_path, episodes_per_user=3)
    log = [row for f in files for row in pq.read_table(f).to_pylist()]
    assert len(files) == 4 and max(pq.read_metadata(f).num_rows for f in files) <= 250
    episodes = [r["user_id"] * 3 + r["episode_id"] for r in log]
    assert sorted(set(episodes)) == list(range(100)) and max(r["user_id"] for r in log) == 33
    assert episodes == sorted(episodes)
    users = [{r["user_id"] for r in pq.read_table(f).to_pylist()} for f in files]
    assert not set.intersection(*users[:2]) and sum(map(len, users)) == 34


def card_written(world: str, to: Path, *params: str, **asked: Any) -> Card:
    options = LogOptions(**{"episodes": 90, "params": params, "to": to / "log", **asked})
    return load_card(reticent.simulate_logs(world, options, store=Store(to / "home"))["card"])


def test_a_chain_is_stationary_markov_and_on_its_lattice(tmp_path):
    card = card_written("riverswim", tmp_path, horizon=20)
    d = card.domain
    assert (d.dynamics, d.markov, d.live_states, d.cell_cap) == ("stationary", "declared", list("012345"), 4)
    assert card.reward.range == (0, 1) and card.reward.steps == 200 and card.unit.users_public == 90
    # what an episode can pay at most saves no noise
    assert card.reward.total is None
    assert card_written("riverswim", tmp_path, horizon=20, episodes_per_user=4).unit.users_public == 23


def test_a_world_that_differs_by_step_gets_a_table_for_each(tmp_path):
    assert card_written("riverswim_inhomogeneous", tmp_path, "states=3").domain.dynamics == "per_step"
    last = "states=4", "actions=2", "horizon=5", "reward=last"
    assert card_written("random", tmp_path, *last, "stationary=true").domain.dynamics == "per_step"
    # it pays once, and a total says so
    assert card_written("random", tmp_path, *last, "seed=1").reward.total == pytest.approx(
        random_tabular(4, 2, 5, seed=1, reward="last").visit_reward.max(), abs=0.011
    )


def test_rewards_below_zero_keep_their_units(tmp_path):
    """A taxi pays -10, -1 and 20: lattice points in units of 3."""
    card = card_written("gymnasium:Taxi-v4", tmp_path, horizon=3, episodes=200)
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


@pytest.mark.parametrize(("bins", "live"), [*(slow(*m) for m in ((None, 4), ("32", 32))), ("all", 713)])
def test_icu_sepsis_is_one_world_under_cards_of_many_sizes(bins, live):
    world = load_world("icu_sepsis", SHELF / "icu_sepsis")
    card = checked(world_card(world, name="x", horizon=20, bins=bins, episodes=90, episodes_per_user=1, rho=2.0))
    assert len(card.domain.live_states) == live and list(card.domain.states.ends) == ["died", "survived", "end"]
    assert card.domain.markov == ("declared" if bins == "all" else "aggregated")
    known = card.domain.state_features
    assert (None if known is None else known.shape) == ((713, 47) if bins == "all" else None)
    assert card.reward.on_entering == ({"survived": 1.0} if bins == "all" else None) and card.reward.total == 1
    assert sorted(set(declared_states(card, world))) == list(range(live + 3))
    assert len(declared_actions(card, world)) == 25


@pytest.mark.parametrize("label", ["a", 'quo"te', "tab\t", "back\\slash", "ü ≤ 4", "\x7f", "\x01", "🛶"])
def test_written_toml_reads_back(label):
    values = {"n": 1e-6, "yes": True, "none": {"left_out": None}}
    values["domain"] = {"states": {"labels": [label, "b"]}, "start": {label: 0.5}}
    text = toml_text(["head"], values, {"n": "small"}, ("domain.states",))
    assert "[domain.states]" in text and "# small" in text
    assert tomllib.loads(text) == {**values, "none": {}}
