"""Logs on disk: bytes follow the seed, shipped ones come out again, large ones are streamed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import reticent
from pipeline.worlds.catalog import riverswim
from pipeline.worlds.simulated_logs import regenerate, sample_log, stream_log, write_log
from reticent import Card, CardError, LogOptions, load_card
from tests.online.test_simulate import ward

SHELF = Path(__file__).resolve().parents[2] / "datasets"


def test_a_written_log_tells_the_next_state_on_an_episodes_last_row_only(tmp_path: Path):
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


def test_where_episodes_never_end_early_every_row_tells_its_next_state(tmp_path: Path):
    rows = sample_log(riverswim(), "uniform", 4, 50, np.random.default_rng(4))
    log = pq.read_table(write_log(riverswim(), rows, tmp_path)[0])
    assert log["next_state"].to_pylist() == rows.next_state.tolist()


def written(name: str, to: Path) -> list[Path]:
    """What is written where a shipped log alone is asked for."""
    return [Path(file) for file in reticent.simulate_logs(name, LogOptions(to=to))["files"]]


@pytest.mark.parametrize(
    "name", ["riverswim", *(pytest.param(n, marks=pytest.mark.slow) for n in ("double_integrator", "icu_sepsis"))]
)
def test_a_shipped_log_regenerates_byte_for_byte(name: str, tmp_path: Path):
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
def test_a_shipped_log_holds_the_declared_users_and_stays_small(name: str):
    card = load_card(SHELF / name / "card.toml")
    size = sum(f.stat().st_size for f in card.source_files())
    users = pq.read_table(card.source_files()[0], columns=["user_id"])["user_id"]
    assert len(users.unique()) == card.unit.users_public
    assert size < {"riverswim": 1e6, "icu_sepsis": 2e6, "double_integrator": 2e6}[name]


@pytest.mark.slow
def test_the_uniform_log_of_version_0_1_is_made_on_demand_byte_for_byte(tmp_path: Path):
    card = load_card(SHELF / "icu_sepsis_uniform" / "card.toml")
    [log] = written(card.folder.name, tmp_path)
    assert log == tmp_path / "data" / "episodes-0000.parquet" and pq.read_metadata(log).num_rows == 818_568
    if pq.read_metadata(log).created_by == "parquet-cpp-arrow version 26.0.1":
        digest = hashlib.sha256(log.read_bytes()).hexdigest()
        assert digest in (card.folder / "README.md").read_text(encoding="utf-8")


def test_only_shipped_logs_can_be_regenerated(make_card: Callable[..., Card], tmp_path: Path):
    with pytest.raises(CardError, match="no simulated log 'tiny' is shipped; there are: icu_sepsis_doses, "):
        regenerate(make_card(), tmp_path)


def test_a_streamed_log_has_the_rows_of_the_sampled_one_with_several_episodes_a_user(
    tmp_path: Path, constants: Callable[..., None]
):
    constants(file=250)
    files = stream_log(ward(), "uniform", 8, 100, np.random.default_rng(3), tmp_path, episodes_per_user=3)
    log = [row for f in files for row in pq.read_table(f).to_pylist()]
    assert len(files) == 4 and max(pq.read_metadata(f).num_rows for f in files) <= 250
    episodes = [r["user_id"] * 3 + r["episode_id"] for r in log]
    assert sorted(set(episodes)) == list(range(100)) and max(r["user_id"] for r in log) == 33
    assert episodes == sorted(episodes)
    users = [{r["user_id"] for r in pq.read_table(f).to_pylist()} for f in files]
    assert not set.intersection(*users[:2]) and sum(map(len, users)) == 34
