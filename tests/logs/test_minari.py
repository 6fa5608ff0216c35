"""Minari itself writes what is read here, and reads what is written here."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import polars as pl
import pytest

from pipeline.declaration.card import CardError
from pipeline.logs.ingest import ingest
from pipeline.operator.leaving import export_minari

from .conftest import canonical, make_card
from .layouts import LOG, Told, card_of, cards, flags

LAKE = cards()["Minari in HDF5"]
FILES = {"hdf5": "data/main_data.hdf5", "arrow": "data/*/part-*.arrow", "parquet": "data/*/part-*.parquet"}


def written(home: Path, form: str, log: list[Told], monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Path:
    """A dataset by Minari's own writer: Discrete(5, start=1)."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(home))
    from minari.data_collector import EpisodeBuffer

    buffers = []
    for told in log:
        terminated, truncated = flags(told)
        given = {"observations": np.array(told.states), "actions": np.array(told.actions), "rewards": told.rewards}
        given |= {key: change(told) for key, change in changes.get("arrays", {}).items()}
        buffers.append(EpisodeBuffer(**given, terminations=list(terminated), truncations=list(truncated)))
    space = changes.get("space", gym.spaces.Discrete(5, start=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            f"lake-{form}-v0", buffers, observation_space=space, action_space=gym.spaces.Discrete(2), data_format=form
        )
    return home / f"lake-{form}-v0"


def lake(folder: Path, form: str, horizon: int = 4, **source: Any) -> Any:
    values = LAKE | {"domain": LAKE["domain"] | {"horizon": horizon} | source.pop("domain", {})}
    columns = LAKE["source"]["columns"] | source.pop("columns", {})
    values |= {"source": LAKE["source"] | {"files": [FILES[form]], "columns": columns}, "unit": LAKE["unit"] | source}
    return card_of(values, folder)


def by_number(rows: pl.DataFrame) -> list[list[tuple[Any, ...]]]:
    """Transitions by the number of the episode."""
    number = rows["user_id"].str.split("#").list.last().cast(pl.Int64)
    parts = rows.with_columns(n=number).sort("n", "step").partition_by("n", maintain_order=True)
    return [part.select("state", "action", "reward", "next_state", "terminated", "truncated").rows() for part in parts]


def expected(log: list[Told]) -> list[list[tuple[Any, ...]]]:
    return [
        [
            (t.states[h] - 1, t.actions[h], t.rewards[h], t.states[h + 1] - 1,
             t.terminated and h == t.steps - 1, not t.terminated and h == t.steps - 1)
            for h in range(t.steps)
        ]
        for t in log
    ]  # fmt: skip


@pytest.mark.parametrize("form", list(FILES))
def test_a_dataset_that_minari_wrote_is_read_in_order_and_without_padding(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LOG * 3
    folder = written(tmp_path, form, log, monkeypatch)
    snapshot = ingest(lake(folder, form), tmp_path / "store")
    assert by_number(canonical(snapshot)) == expected(log) and snapshot.quarantined == {}


@pytest.mark.parametrize("form", ["hdf5", "arrow"])
def test_a_dict_space_is_read_by_its_parts(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = gym.spaces.Dict({"at": gym.spaces.Discrete(5, start=1), "speed": gym.spaces.Box(-9, 9, (2,))})
    dicts = {"observations": lambda t: {"at": np.array(t.states), "speed": np.ones((t.steps + 1, 2), np.float32)}}
    folder = written(tmp_path, form, LOG, monkeypatch, arrays=dicts, space=space)
    states = {"states": LAKE["domain"]["states"] | {"column": "observations/at"}}
    card = lake(folder, form, domain=states, columns={"next_state": "next_observations/at"})
    assert by_number(canonical(ingest(card, tmp_path / "store"))) == expected(LOG)


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_an_episode_whose_order_the_writer_lost_is_set_aside(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minari writes record batches as they are done, in any order (Minari#351): now and then these are shuffled."""
    steps = 140_000
    log = [Told([1] * (steps + 1), [0] * steps, [0.0] * steps, False), LOG[0]]
    folder = written(tmp_path, form, log, monkeypatch)
    snapshot = ingest(lake(folder, form, horizon=1000), tmp_path / "store")
    assert snapshot.quarantined == {"malformed_line": 1}
    assert by_number(canonical(snapshot)) == [expected(LOG[:1])[0]]


@pytest.mark.parametrize(("form", "steps"), [("arrow", 2**16 - 1), ("hdf5", 140_000)])
def test_a_long_episode_is_whole(form: str, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    states = rng.integers(1, 5, steps + 1).tolist()
    log = [Told(states, rng.integers(0, 2, steps).tolist(), [0.0] * steps, False), LOG[0]]
    folder = written(tmp_path, form, log, monkeypatch)
    rows = canonical(ingest(lake(folder, form, horizon=1000), tmp_path / "store"))
    snapshot = ingest(lake(folder, form, horizon=1000), tmp_path / "store")
    assert snapshot.source_rows == steps + 2 and snapshot.quarantined == {"beyond_horizon": steps - 1000}
    assert by_number(rows)[1] == expected(LOG[:1])[0]
    assert [row[3] for row in by_number(rows)[0]] == [s - 1 for s in states[1:1001]]


def exported(folder: Path, card: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    snapshot = ingest(card, folder / "store")
    out = export_minari(snapshot, card, folder / "out")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / "out"))
    return snapshot, minari.load_dataset(out.name)


def test_minari_reads_an_exported_snapshot_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = written(tmp_path, "hdf5", LOG, monkeypatch)
    snapshot, dataset = exported(tmp_path, lake(folder, "hdf5"), monkeypatch)
    assert (dataset.total_episodes, dataset.total_steps) == (snapshot.episodes, snapshot.rows)
    read = [
        [
            (int(e.observations[t]), int(e.actions[t]), float(e.rewards[t]), int(e.observations[t + 1]),
             bool(e.terminations[t]), bool(e.truncations[t]))
            for t in range(len(e.actions))
        ]
        for e in dataset
    ]  # fmt: skip
    assert read == by_number(canonical(snapshot)) == expected(LOG)
    assert dataset.observation_space == gym.spaces.Discrete(6) and dataset.action_space == gym.spaces.Discrete(2)


def test_where_nobody_knows_the_next_state_the_export_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.csv").write_text("user,episode,t,s,a,r\nu,1,0,x,0,1\nv,1,0,y,1,0\nv,1,1,x,0,0\n", encoding="utf-8")
    card = make_card(tmp_path, ["log.csv"])
    _, dataset = exported(tmp_path, card, monkeypatch)
    assert [e.observations.tolist() for e in dataset] == [[0, 5], [1, 0, 5]]
    assert dataset.observation_space.n == 6


def test_vectors_and_costs_are_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from .layouts import write_minari_arrow

    write_minari_arrow(tmp_path)
    snapshot, dataset = exported(tmp_path, card_of(cards()["Minari in Arrow"], tmp_path), monkeypatch)
    rows = canonical(snapshot).sort("user_id", "step")
    first = dataset[0]
    assert first.observations[:-1].tolist() == rows["observation"].to_list()[: len(first.actions)]
    assert first.rewards.tolist() == [-(1 + 0.25 + 0), -(4 + 1 + 1)]


def test_an_export_is_its_owners_and_never_written_over(tmp_path: Path) -> None:
    from .layouts import write_flat

    write_flat(tmp_path)
    card = card_of(cards()["Flat transitions"], tmp_path)
    snapshot = ingest(card, tmp_path / "store")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    link = tmp_path / "out" / f".{card.name}-v{snapshot.number}.partial"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CardError, match="a link"):
        export_minari(snapshot, card, tmp_path / "out")
    assert not any((tmp_path / "elsewhere").iterdir())
    link.unlink()
    out = export_minari(snapshot, card, tmp_path / "out")
    assert [oct(p.stat().st_mode)[-3:] for p in sorted(out.folder.rglob("*"))] == ["700", "600", "600"]
    assert b"p1" not in (out.folder / "data" / "main_data.hdf5").read_bytes()
    with pytest.raises(CardError, match="exists already"):
        export_minari(snapshot, card, tmp_path / "out")
